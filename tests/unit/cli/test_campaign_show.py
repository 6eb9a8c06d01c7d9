from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from tailwise.campaign.advice import Advice, Evidence
from tailwise.campaign.choosing import Proposal
from tailwise.campaign.classes import ClassRow
from tailwise.campaign.doctor import Finding
from tailwise.campaign.exporting import Exported
from tailwise.campaign.importing import Change, Disagreement, Imported, UnknownClass, Unmatched
from tailwise.campaign.indexing import Indexed
from tailwise.campaign.learning_curve import Agreement
from tailwise.campaign.rounds import Pick, Round, RoundProgress
from tailwise.campaign.state import Status
from tailwise.cli import campaign_output, data_commands
from tailwise.cli.campaign_commands import Begun, Init
from tailwise.web.serve import Serving

BARE = Status(10, 10, 0, 0, 0, {}, 0, 0, 0, 0, None, None, {})
ROUND = Round(2, 0, None, 4, "entropy", "auto", 0, "m2", {"lam": 0.25})
HALF = RoundProgress(2, 4, 1, 3, 1, 0, complete=False)
DONE = RoundProgress(2, 4, 4, 0, 4, 0, complete=True)
CHOSEN = Proposal(
    ROUND, (Pick(1), Pick(2), Pick(3), Pick(4)), 4, "entropy", "auto", 0, cold_start=False, class_ids=(7, 9),
    expected_counts=(1.5, 2.5), target=(1.0, 3.0), lam=0.25, gap=7e-5, status="within gap",
    unreachable=((9, 3.0, 2.5),), candidates=8, labels=2, model_version="m2", backbone="simple",
    seconds={"fit": 0.4, "write": 0.01}, notes=("a [red] note",), why={"counts": [2, 0]},
)  # fmt: skip
NAMES = {7: "[bold]owl", 9: "Зебра"}


@pytest.fixture
def words(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[[], str]:
    """What was shown on a terminal of 80 columns, with single spaces."""
    monkeypatch.setenv("COLUMNS", "80")

    def read() -> str:
        lines = capsys.readouterr().out.splitlines()
        assert max(map(len, lines), default=0) <= 80
        return " ".join(" ".join(lines).split())

    return read


def drawn(thing: RenderableType) -> str:
    console = Console(width=80)
    with console.capture() as captured:
        console.print(thing)
    return captured.get()


# What comes next


@pytest.mark.parametrize(
    ("status", "verbs"),
    [
        (BARE, ["next"]),
        (replace(BARE, round=ROUND, progress=HALF, labelled=1), ["label"]),
        (replace(BARE, round=ROUND, progress=HALF, labelled=1, conflicts=2), ["label"]),
        (replace(BARE, round=ROUND, progress=DONE, labelled=4), ["advise", "next"]),
        (replace(BARE, round=ROUND, progress=DONE, labelled=3, conflicts=1), ["label", "advise", "next"]),
    ],
)
def test_the_commands_that_make_sense_now_are_named(status: Status, verbs: list[str]) -> None:
    steps = campaign_output.next_steps(status, Path("my zoo"))
    assert [line for line, _ in steps] == [f"tailwise {verb} 'my zoo'" for verb in verbs]


def test_how_to_ask_again_about_what_was_skipped_is_named_once_the_round_is_complete() -> None:
    status = replace(BARE, round=ROUND, progress=DONE, labelled=3, skipped=2)
    assert campaign_output.next_steps(status, Path("zoo"))[-1] == (
        "tailwise next zoo --skipped", "the same, also from the 2 images that were skipped"
    )  # fmt: skip
    assert len(campaign_output.next_steps(replace(status, progress=HALF), Path("zoo"))) == 1


def test_what_waits_on_the_page_is_told_in_one_step() -> None:
    status = replace(BARE, round=ROUND, progress=HALF, conflicts=1)
    assert campaign_output.next_steps(status, Path("zoo")) == [
        ("tailwise label zoo", "label the 3 images left in round 2 and settle 1 conflict")
    ]


def test_a_status_fits_in_a_line() -> None:
    assert campaign_output.status_line(BARE) == "0 of 10 images labelled; no round is open yet"
    half = replace(BARE, labelled=1, round=ROUND, progress=HALF)
    assert campaign_output.status_line(half) == "1 of 10 images labelled; round 2: 1 of 4 answered"


@pytest.mark.parametrize(("done", "total", "filled"), [(0, 4, 0), (1, 4, 6), (4, 4, 24), (0, 0, 0), (999, 1000, 23)])
def test_a_gauge_is_full_only_when_all_is_done(done: int, total: int, filled: int) -> None:
    assert campaign_output.gauge(done, total).plain == "━" * filled + "─" * (24 - filled)


def test_a_path_is_shown_as_seen_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert campaign_output.nearer(tmp_path / "photos") == "photos"
    assert campaign_output.nearer(tmp_path.parent) == str(tmp_path.parent)
    assert campaign_output.nearer(Path("photos")) == "photos"


# init


def test_every_fate_of_an_image_has_a_line_with_its_number(words: Callable[[], str]) -> None:
    found = Indexed(
        added=5, known=1000, moved=2, changed=("a.png",), missing=("b.png", "c.png"), duplicates=3,
        quarantined=tuple((f"{n}.png", "it is empty") for n in range(12)), passed_over=((".txt", 4), ("", 1)),
    )  # fmt: skip
    begun = Begun(False, ((Path("photos"), found),), ("owl", "kite"), ("kite",), None, BARE)
    campaign_output.show_begun(begun, Init(Path("zoo")))
    text = words()
    for line in (
        "Campaign zoo: 10 images, 2 classes", "photos 5 new 3 copies of other images 1,000 known",
        "2 moved", "1 changed on the disk", "2 gone", "12 in quarantine", "5 other files: .txt, no ending",
        "b.png c.png", "0.png it is empty", "… and 2 more; --json lists all", "1 new class: kite", "tailwise next zoo",
    ):  # fmt: skip
        assert line in text
    assert "11.png" not in text


def test_a_dry_run_of_init_says_so_and_proposes_nothing(words: Callable[[], str]) -> None:
    begun = Begun(True, ((Path("photos"), Indexed()),), ("owl",), ("owl",), Imported(added=2, dry_run=True), BARE)
    campaign_output.show_begun(begun, Init(Path("zoo"), dry_run=True))
    text = words()
    assert text.startswith("A dry run: nothing was changed. New campaign zoo")
    assert "0 images" in text
    assert "2 answers would be added" in text
    assert "Next:" not in text


def test_after_init_an_open_round_is_gone_on_with(words: Callable[[], str]) -> None:
    status = replace(BARE, round=ROUND, progress=HALF, labelled=1)
    campaign_output.show_begun(Begun(False, (), ("owl",), (), None, status), Init(Path("zoo")))
    assert words().endswith("Next: tailwise label zoo label the 3 images left in round 2")


def test_a_long_command_is_not_broken_into_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    status = replace(BARE, round=ROUND, progress=HALF, labelled=1)
    folder = Path("tailwise-quickstart") / "campaign of the second year"
    campaign_output.show_begun(Begun(False, (), ("owl",), (), None, status), Init(folder))
    *_, line, what = capsys.readouterr().out.splitlines()
    assert line.strip() == campaign_output.command("label", folder)
    assert what.strip() == "label the 3 images left in round 2"


# next


def test_a_round_is_shown_with_its_reasons_and_the_users_own_words(words: Callable[[], str]) -> None:
    campaign_output.show_proposal(CHOSEN, NAMES, Path("zoo"))
    text = words()
    for line in (
        "Round 2: 4 of 8 images", "entropy, λ = 0.25 (auto), learnt from 2 labels",
        "within 0.0070 % of the best possible batch, certified", "0.4 s (fit 0.4), simple features",
        "[bold]owl 2 1.0 1.5 ", "Зебра 0 3.0 2.5 ", "L1 score of the labelled set: 1.000 → 0.167",
        "note: Зебра can reach at most 2.5 of the 3.0 wanted", "note: a [red] note", "tailwise label zoo",
    ):  # fmt: skip
        assert line in text


def test_a_cold_start_shows_no_counts_and_a_dry_run_no_next_step(words: Callable[[], str]) -> None:
    cold = replace(
        CHOSEN, round=None, cold_start=True, expected_counts=None, target=None, gap=None, status="heuristic",
        unreachable=(), seconds={},
    )  # fmt: skip
    campaign_output.show_proposal(cold, NAMES, Path("zoo"))
    text = words()
    assert text.startswith("A dry run, no round was opened: 4 of 8 images, a cold start 0.0 s (all cached)")
    assert "expected" not in text
    assert "Next:" not in text


def test_a_balance_that_is_a_number_is_not_said_twice(words: Callable[[], str]) -> None:
    campaign_output.show_proposal(replace(CHOSEN, balance="0.25"), NAMES, Path("zoo"))
    assert "λ = 0.25, learnt" in words()


@pytest.mark.parametrize(
    ("status", "gap", "lines"),
    [
        ("greedy", 0.52, ("boundary, covering the pool, learnt from 2 labels", "within 52 % of the best possible batch",
                          "images are chosen to cover the pool. L1 score")),
        ("optimal chunks", 0.0, ("boundary, exact class quotas, learnt from 2 labels",
                                 "chosen in chunks, each the best possible after those before it, certified",
                                 "images at its border, and some of these are of other classes. L1 score")),
    ],
)  # fmt: skip
def test_the_phases_of_boundary_are_named_and_so_is_why_counts_differ_from_the_target(
    words: Callable[[], str], status: str, gap: float, lines: tuple[str, ...]
) -> None:
    campaign_output.show_proposal(replace(CHOSEN, strategy="boundary", status=status, gap=gap), NAMES, Path("zoo"))
    text = words()
    assert all(line in text for line in lines)
    assert "λ" not in text


def test_of_many_classes_those_farthest_from_their_target_are_shown(words: Callable[[], str]) -> None:
    size = 40
    many = replace(
        CHOSEN, class_ids=tuple(range(size)), expected_counts=(1.0,) * size,
        unreachable=tuple((n, 2.0, 1.0) for n in range(8)),
        target=tuple(1.0 if n < 15 else 2.0 for n in range(size)), why={"counts": [0] * size},
    )  # fmt: skip
    campaign_output.show_proposal(many, {n: f"class-{n}" for n in range(size)}, Path("zoo"))
    text = words()
    assert re.findall(r"class-(\d+) 0 ", text) == [str(n) for n in range(15, 40)]
    assert "The 25 of 40 classes farthest from their target." in text
    assert "… and 3 more classes out of reach" in text


# label


@pytest.mark.parametrize(
    ("host", "token", "line"),
    [
        ("127.0.0.1", "secret", "lets others in the network in"),
        ("0.0.0.0", "secret", "Anyone with a link can label"),
        ("127.0.0.1", None, "everybody on this machine can label"),
    ],
)
def test_the_link_stands_in_a_line_of_its_own(
    host: str, token: str | None, line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    link = "http://127.0.0.1:8765/?token=" + "x" * 60
    shared = None if token is None else link.replace("x", "y")
    campaign_output.show_serving(Serving(link, "", 8765, token, annotator_link=shared), "zoo", BARE, host=host)
    shown = capsys.readouterr().out
    assert f"  {link}\n" in shown  # not broken, so that it can be clicked
    assert ("People who only label get this one" in " ".join(shown.split())) is (shared is not None)
    assert shared is None or f"  {shared}\n" in shown
    assert line in " ".join(shown.split())


def test_stopping_tells_what_came_meanwhile(words: Callable[[], str]) -> None:
    after = replace(BARE, labelled=2, annotators={"ann": 2, "ben": 1}, round=ROUND, progress=HALF)
    campaign_output.show_stopped(replace(BARE, annotators={"ann": 1}), after, Path("zoo"))
    assert words().startswith("Stopped; 2 answers more than before. 2 images labelled, round 2: 1 of 4 answered.")


# status, advise


def test_a_status_shows_images_labels_classes_people_and_agreement(words: Callable[[], str]) -> None:
    status = Status(
        14, 10, 1, 3, 4, {7: 3, 9: 1}, 1, 2, 1, 2, ROUND, HALF, {"ann": 4, "[red]ben": 5}
    )  # fmt: skip
    classes = [ClassRow(7, "[bold]owl", 0), ClassRow(9, "Зебра", 1, retired=True)]
    campaign_output.show_status("zoo", status, classes, Agreement(0.5, 3, 0.7), Path("zoo"))
    text = words()
    for line in (
        "images 10 images, 1 copy, 3 in quarantine", "labelled 4 (40%), 1 none of the classes, 2 skipped, 1 conflict",
        "1 of 4 answered (entropy, λ = 0.25)", "[bold]owl 3 ", "Зебра (retired) 1 ", "[red]ben 5 ann 4",
        "Agreement (Krippendorff's α): 0.50 over 3 images",
    ):  # fmt: skip
        assert line in text


def test_an_empty_campaign_has_a_status_too(words: Callable[[], str]) -> None:
    empty = replace(BARE, images=0, usable=0)
    campaign_output.show_status("zoo", empty, [], Agreement(None, 0, None), Path("zoo"))
    assert "0 images" in words()


def test_of_many_classes_those_with_the_fewest_labels_are_shown() -> None:
    classes = [ClassRow(n, f"class-{n}", n) for n in range(30)]
    text = drawn(campaign_output.class_table({n: n for n in range(30)}, classes))
    assert re.findall(r"class-(\d+) ", text) == [str(n) for n in range(25)]
    assert "The 25 of 30 classes with the fewest labels." in " ".join(text.split())


@pytest.mark.parametrize(
    ("worth_it", "what", "verb"), [("yes", "gain", "next"), ("unclear", "pending", "label"), ("no", "gain", None)]
)
def test_advice_leads_to_the_command_that_follows_from_it(
    worth_it: str, what: str, verb: str | None, words: Callable[[], str]
) -> None:
    advice = Advice(worth_it, "[red]Because.", (Evidence(what, worth_it, "so [it] is"),))
    campaign_output.show_advice(advice, Path("zoo"))
    text = words()
    assert f"Is another round worth it? {worth_it}. [red]Because." in text
    assert "so [it] is" in text
    assert (f"tailwise {verb} zoo" in text) if verb else ("Next:" not in text)


# import, export, doctor


def test_all_that_an_import_could_not_take_is_listed_with_what_to_do(words: Callable[[], str]) -> None:
    done = Imported(
        added=1, same=2, overwritten=3, unanswered=4, new_classes=("fox",), problems=("row 3: no label",),
        conflicts=(Disagreement("a.png", (("ann", "owl"), ("ben", "kite"))),),
        changed=(Change("b.png", "ann", "owl", "kite"),), unmatched=(Unmatched("c.png", "no image has that name"),),
        unknown_classes=(UnknownClass("newt", 5, "no class is called so"),),
    )  # fmt: skip
    data_commands.show_imported(done)
    text = words()
    for line in (
        "1 answer added 2 were there already 3 overwritten 4 records without an answer", "1 class added: fox",
        "newt 5 records: no class is called so", "--create-classes", "c.png no image has that name",
        "b.png ann: owl → kite", "a.png ann: owl, ben: kite", "row 3: no label",
    ):  # fmt: skip
        assert line in text
    assert "--overwrite" not in text  # it was given


def test_an_import_of_nothing_says_so(words: Callable[[], str]) -> None:
    data_commands.show_imported(Imported(dry_run=True))
    assert words() == "A dry run: nothing was changed. 0 answers would be added"


def test_an_export_names_what_it_left_out(words: Callable[[], str]) -> None:
    data_commands.show_exported(Exported(Path("out"), "folders", 2, 2, (("x.png", "it is empty"),)), 1, dry_run=True)
    text = words()
    assert "Would write 2 records of 2 images to out (folders)" in text
    assert "note: 1 image on which people differ has no label in it" in text
    assert "x.png it is empty" in text


def test_findings_are_shown_with_their_severity_and_how_to_fix_them(words: Callable[[], str]) -> None:
    found = [Finding("ledger", "it is [bold]damaged", "error", "go back"), Finding("busy", "held", "note")]
    data_commands.show_findings(
        found, [Finding("models", "gone", "warning", "make them again")], Path("zoo"), dry_run=False
    )
    text = words()
    assert text.startswith("✓ models: make them again ✗ error ledger it is [bold]damaged fix: go back · note busy held")
    assert "tailwise doctor zoo --fix NAME" in text
