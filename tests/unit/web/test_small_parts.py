"""The small parts of the server: its token, its own files, counts, guesses, and Label Studio's configuration."""

from __future__ import annotations

import gzip
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tailwise.campaign.answers import Answer, record
from tailwise.campaign.classes import add_classes
from tailwise.campaign.ledger import Ledger
from tailwise.campaign.rounds import Pick, open_round
from tailwise.errors import BadFile, BadInput, LedgerBusy, NewerLedger, PoolExhausted, UnknownName
from tailwise.formats.label_studio_api import Control, read_control
from tailwise.web import label_studio, service, views
from tailwise.web.app import error_response
from tailwise.web.label_studio import Controls
from tailwise.web.predictions import ModelPredictions, PredictionCache
from tailwise.web.security import ErrorResponse
from tailwise.web.settings import campaign_token
from tailwise.web.views import CountCache, Preview, Read, key_of

# The token.


def test_the_token_is_made_once_and_is_its_owners(tmp_path: Path) -> None:
    token = campaign_token(tmp_path)
    assert len(token) >= 32
    assert campaign_token(tmp_path) == token
    assert stat.S_IMODE((tmp_path / "token").stat().st_mode) == 0o600


def test_a_token_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    campaign_token(tmp_path)
    (tmp_path / "token").chmod(0o644)
    campaign_token(tmp_path)
    assert stat.S_IMODE((tmp_path / "token").stat().st_mode) == 0o600


def test_a_new_token_replaces_the_old_one(tmp_path: Path) -> None:
    first = campaign_token(tmp_path)
    second = campaign_token(tmp_path, renew=True)
    assert first != second
    assert campaign_token(tmp_path) == second


def test_a_token_that_cannot_be_read_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(b"\xff\xfe")
    with pytest.raises(BadFile, match="delete it to get a new one"):
        campaign_token(tmp_path)


# The page's own files.


def test_every_file_of_a_known_kind_is_loaded_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "js").mkdir()
    (tmp_path / "js" / "main.js").write_text("1")
    (tmp_path / "index.html").write_text("<p>")
    (tmp_path / "notes.py").write_text("secret")
    (tmp_path / ".hidden").write_text("secret")
    static = service.load_static(tmp_path)
    found = static.files
    assert set(found) == {"js/main.js", "index.html"}
    assert found["js/main.js"].content_type == "text/javascript; charset=utf-8"
    assert found["js/main.js"].etag != found["index.html"].etag


def test_the_page_is_there_and_without_it_nothing_breaks(tmp_path: Path) -> None:
    assert service.INDEX in service.load_static().files
    assert service.load_static(tmp_path / "none").files == {}


def test_the_page_names_its_files_by_a_version_that_changes_with_them(tmp_path: Path) -> None:
    (tmp_path / "js").mkdir()
    (tmp_path / "js" / "main.js").write_text("import { a } from './a.js';\nconst later = () => import('./b.js');\n")
    (tmp_path / "js" / "a.js").write_text("export { c } from './c.js';\nimport { c } from './c.js';\n")
    for name in "bc":
        (tmp_path / "js" / f"{name}.js").write_text(f"export const {name} = 1;\n")
    (tmp_path / "index.html").write_text('<head><script src="/static/js/main.js"></script></head>')
    first = service.load_static(tmp_path)
    html = first.files["index.html"].content.decode()
    assert f'"/static/{first.version}/js/main.js"' in html
    ahead = [part.split('"')[0] for part in html.split('modulepreload" href="')[1:]]
    assert ahead == [f"/static/{first.version}/js/{name}.js" for name in "ac"]  # b loads later
    assert first.find(f"{first.version}/js/b.js") == (first.files["js/b.js"], True)
    assert first.find("js/b.js") == (first.files["js/b.js"], False)
    assert first.find("v-0000/js/b.js") == (None, False)
    packed = first.files["js/a.js"].gzipped
    assert packed is not None
    assert gzip.decompress(packed) == first.files["js/a.js"].content
    (tmp_path / "js" / "c.js").write_text("export const c = 2;\n")
    assert service.load_static(tmp_path).version != first.version


# Errors on the wire.


@pytest.mark.parametrize(
    ("error", "status"),
    [(BadInput("x"), 400), (BadFile("x"), 400), (UnknownName("x"), 404), (LedgerBusy("x"), 409),
     (NewerLedger("x"), 409), (PoolExhausted("x"), 409)],
)  # fmt: skip
def test_every_error_of_the_library_has_a_status(error: Exception, status: int) -> None:
    assert error_response(error).status == status  # type: ignore[arg-type]


def test_a_message_is_cut_and_always_text() -> None:
    body = ErrorResponse(400, "x", "\ud800" * 5000).body()
    assert len(body) < 8000
    body.decode("utf-8")


# Counts.


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    made = Ledger.create(tmp_path / "campaign")
    add_classes(made, ["cat", "dog"])
    with made.writing() as connection:
        connection.execute("INSERT INTO folder (id, path) VALUES (1, '/photos')")
        connection.executemany(
            "INSERT INTO image (id, key, folder_id, path, added_at) VALUES (?, ?, 1, ?, 0)",
            [(number, f"{number:016x}", f"{number}.png") for number in range(1, 5)],
        )
    return made


def say(ledger: Ledger, image: int, annotator: str = "ada", cls: int = 1) -> None:
    record(ledger, [Answer(f"{annotator}-key-{image}-{cls}", image, annotator, "label", cls)])


def asking(ledger: Ledger) -> Read:
    return lambda question: question(ledger)


def test_quick_counts_are_always_exact(ledger: Ledger) -> None:
    with ledger:
        counted = CountCache()
        for number in range(1, 4):
            say(ledger, number)
            assert counted.campaign.get(asking(ledger)).labelled == {1: number, 2: 0}
        say(ledger, 1, "bob", 2)
        assert counted.campaign.get(asking(ledger)) == views.CampaignCounts(4, {1: 2, 2: 0}, ("ada", "bob"), 1)


def test_a_round_is_counted_by_person_and_class(ledger: Ledger) -> None:
    with ledger:
        open_round(ledger, [Pick(1), Pick(2), Pick(3)], budget=3, strategy="random")
        for number, annotator, cls in ((1, "ada", 1), (2, "ada", 2), (2, "bob", 2), (4, "bob", 1)):
            say(ledger, number, annotator, cls)
        counted = CountCache()
        found = counted.of_round(asking(ledger), 1)
        assert (found.mine, found.realised) == ({"ada": 2, "bob": 1}, {1: 1, 2: 1})
        assert (found.progress.done, found.progress.remaining) == (2, 1)
        assert found.skipped == 0
        open_round(ledger, [Pick(4)], budget=1, strategy="random")
        assert counted.of_round(asking(ledger), 2).mine == {"bob": 1}


def test_slow_counts_are_used_for_a_while_and_then_made_again() -> None:
    made = 0

    def count(_: Read) -> int:
        nonlocal made
        end = time.thread_time() + 0.02
        while time.thread_time() < end:
            pass
        made += 1
        return made

    counted = views.Cached(count)
    never: Any = None
    assert [counted.get(never) for _ in range(3)] == [1, 1, 1]
    until(lambda: counted.get(never) == 2)
    assert made == 2


def until(question: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not question():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_while_one_counts_slowly_the_others_get_what_was_counted_before() -> None:
    entered, go = threading.Event(), threading.Event()
    results = iter([1, 2])

    def count(_: Read) -> int:
        result = next(results)
        if result == 2:
            entered.set()
            go.wait(30)
        end = time.thread_time() + 0.02
        while time.thread_time() < end:
            pass
        return result

    counted = views.Cached(count)
    never: Any = None
    assert counted.get(never) == 1
    counted._until = 0.0  # it has been long enough
    found: list[int] = []
    counting = threading.Thread(target=lambda: found.append(counted.get(never)))
    counting.start()
    entered.wait(30)
    assert counted.get(never) == 1
    go.set()
    counting.join()
    assert found == [2]


# Guesses.

PREDICTED = ModelPredictions("v1", np.array([3, 7]), np.array([[1, 2], [2, 1]]), np.array([[0.8, 0.2], [0.6, 0.4]]))


def test_guesses_are_found_by_image() -> None:
    assert PREDICTED.top(7) == [(2, 0.6), (1, 0.4)]
    for unknown in (0, 5, 8, 10**12):
        assert PREDICTED.top(unknown) == []


def test_guesses_are_read_from_a_file_in_any_order_and_never_unpickled(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", ids=[7, 3], classes=[[2, 1], [1, 2]], confidence=[[0.6, 0.4], [0.8, 0.2]])
    assert ModelPredictions.read(tmp_path / "a.npz", "v1").top(3) == [(1, 0.8), (2, 0.2)]
    np.savez(tmp_path / "b.npz", ids=np.array([{}], dtype=object), classes=[[1]], confidence=[[1.0]])
    with pytest.raises(ValueError, match="pickle"):
        ModelPredictions.read(tmp_path / "b.npz", "v1")


def test_the_guesses_of_a_model_are_asked_for_once() -> None:
    asked: list[str] = []
    guesses = PredictionCache(asked.append)
    assert guesses.of(None) is None
    assert [guesses.of("v1") for _ in range(3)] == [None] * 3
    assert asked == ["v1"]
    guesses.kept = PREDICTED
    assert guesses.of("v1") is PREDICTED
    assert guesses.of("v2") is None
    guesses.failed = "v2"
    assert guesses.of("v2") is None
    assert asked == ["v1", "v2"]  # it is not asked for again


def test_a_pre_label_is_shown_with_the_likeliest_classes_or_alone_or_not_at_all() -> None:
    whole = Preview(blind=False, predictions=PREDICTED).prelabel(7, 2, 0.6)
    assert whole is not None
    assert [(one.class_id, one.confidence) for one in whole.top] == [(2, 0.6), (1, 0.4)]
    alone = Preview(blind=False, predictions=None).prelabel(7, 2, 1.0000001)
    assert alone is not None
    assert [(one.class_id, one.confidence) for one in alone.top] == [(2, 1.0)]
    assert Preview(blind=True, predictions=PREDICTED).prelabel(7, 2, 0.6) is None
    assert Preview(blind=False, predictions=PREDICTED).prelabel(7, None, None) is None


def test_twenty_classes_have_keys() -> None:
    keys = [key_of(place) for place in range(25)]
    assert keys[:10] == list("1234567890")
    assert keys[10:20] == [f"⇧{digit}" for digit in "1234567890"]
    assert keys[20:] == [""] * 5


# Label Studio's configuration.


def test_the_control_and_its_aliases_are_read() -> None:
    config = (
        '<View><Header value="x"/><Choices name="kind" toName="img"><Choice value="owl" alias="o"/>'
        '<View><Choice value="kite"/></View><Choice/></Choices><Choices name="second" toName="img"/></View>'
    )
    control = read_control(config)
    assert (control.from_name, control.to_name) == ("kind", "img")
    assert [control.choices.get(name, name) for name in ("owl", "kite", "heron")] == ["o", "kite", "heron"]


@pytest.mark.parametrize("config", [None, "", "<View/>", "<View><Labels name='x'/></View>"])
def test_without_choices_our_own_names_are_used(config: str | None) -> None:
    assert read_control(config) == Control("label", "image")


@pytest.mark.parametrize("config", ["x", "<a>", "<!DOCTYPE a><a/>", "<a>" * 100 + "</a>" * 100])
def test_a_configuration_that_is_none_is_refused(config: str) -> None:
    with pytest.raises(BadInput):
        read_control(config)


# Labelling configurations by project.


def with_alias(alias: str) -> str:
    return f'<View><Choices name="kind" toName="img"><Choice value="owl" alias="{alias}"/></Choices></View>'


def test_a_message_without_a_configuration_is_read_by_the_last_one_of_its_project() -> None:
    known = Controls()
    assert known.learn(1, None).shown("o") == "o"
    known.learn("1.1762905600", with_alias("o"))
    known.learn({"id": 2}, with_alias("x"))
    assert known.learn({"id": 1}, None).shown("o") == "owl"
    assert known.learn("2", None).shown("o") == "o"
    known.learn(1, with_alias("u"))
    assert known.learn(1, None).shown("u") == "owl"


def test_configurations_of_very_many_projects_are_read_but_not_all_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(label_studio, "MOST_PROJECTS", 2)
    known = Controls()
    for number in range(3):
        assert known.learn(number, with_alias("o")).shown("o") == "owl"
    assert [known.learn(number, None).shown("o") for number in range(3)] == ["owl", "owl", "o"]
    assert known.learn(1, with_alias("u")).shown("u") == known.learn(1, None).shown("u") == "owl"
