"""Connecting with Label Studio, played by a small server that repeats what Label Studio 1.23.2 answered."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tailwise.campaign.service import Campaign
from tailwise.cli.output import run
from tailwise.errors import BadFile, BadInput
from tailwise.formats.label_studio import label_config
from tailwise.formats.label_studio_api import (
    FILE,
    Connection,
    Server,
    Studio,
    config_differences,
    connect,
    read_annotator_map,
)
from tailwise.web.label_studio import follow_round
from tailwise.web.settings import campaign_token

RECORDED = json.loads((Path(__file__).parent / "data" / "label-studio-1.23.json").read_text(encoding="utf-8"))
KEY = "head.body.signature"  # like a personal access token
TOKEN = "campaign-token-0123456789"
CLASSES = ["owl", "kite", "gull"]


class Player:
    """A server that gives the recorded answers of each request in turn, and keeps what was asked."""

    def __init__(self, exchanges: list[dict[str, Any]]) -> None:
        self.asked: list[tuple[str, str, Any]] = []
        self._answers: defaultdict[tuple[str, str], list[tuple[int, Any]]] = defaultdict(list)
        for one in exchanges:
            self._answers[one["method"], one["path"]].append((one["status"], one["response"]))
        player = self

        class Handler(BaseHTTPRequestHandler):
            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                player.asked.append((self.command, self.path, json.loads(body) if body else None))
                player.authorization = self.headers.get("Authorization", "")
                kept = player._answers[self.command, self.path]
                status, answer = (
                    kept.pop(0) if len(kept) > 1 else kept[0] if kept else (404, {"detail": "not recorded"})
                )
                content = json.dumps(answer).replace("SERVER", player.server).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_PATCH = do_DELETE = handle_any

            def log_message(self, *_: object) -> None:
                pass

        self.authorization = ""
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self.server = f"127.0.0.1:{self._http.server_port}"  # plays the campaign's server as well

    @contextmanager
    def running(self) -> Iterator[Player]:
        thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield self
        finally:
            self._http.shutdown()
            thread.join()
            self._http.server_close()

    def sent(self, method: str, path: str) -> list[Any]:
        return [body for how, where, body in self.asked if (how, where) == (method, path)]


@contextmanager
def playing(*parts: str) -> Iterator[Player]:
    """Label Studio, and the campaign's server, both at one address."""
    health = {
        "method": "GET",
        "path": "/health",
        "status": 200,
        "response": {"status": "UP", "model_class": "Tailwise"},
    }
    state = {"method": "GET", "path": "/api/state", "status": 200, "response": {}}
    exchanges = [one for part in parts for one in RECORDED[part]]
    with Player([health, state, *exchanges]).running() as player:
        yield player


def place(task: dict[str, Any]) -> tuple[int, int] | None:
    """The first three tasks are in round 2."""
    order = RECORDED["task_ids"][:3]
    return (2, 1 + order.index(task["id"])) if task["id"] in order else None


def connected(player: Player, classes: list[str] = CLASSES, **options: Any) -> Any:  # noqa: ANN401
    wanted = {"place": lambda _: None, **options}
    return connect(Studio(player.url, KEY), 2, Server(player.url, TOKEN), classes, **wanted)


def test_a_project_gets_webhook_backend_configuration_and_the_round() -> None:
    with playing("first") as player:
        done = connected(player, place=place)
    assert (done.title, done.config_written, done.tasks, done.in_round) == ("Birds", True, 4, 3)
    with_token = f"http://tailwise:{TOKEN}@{player.server}"
    ((config,), *_), webhook, backend = (
        [list(body.values()) for body in player.sent("PATCH", "/api/projects/2/")],
        player.sent("POST", "/api/webhooks/"),
        player.sent("POST", "/api/ml/"),
    )
    assert config == label_config(CLASSES).decode()
    assert (webhook[0]["url"], webhook[0]["send_for_all_actions"]) == (f"{with_token}/webhook", False)
    assert backend[0]["url"] == with_token
    order = [path for method, path, _ in player.asked if method == "POST"]
    assert order.index("/api/webhooks/") < order.index("/api/ml/"), "else Label Studio adds a webhook of its own"
    places = [player.sent("PATCH", f"/api/tasks/{number}/")[0]["data"] for number in RECORDED["task_ids"][:3]]
    assert [(one["round"], one["rank"]) for one in places] == [(2, 1), (2, 2), (2, 3)]
    assert player.sent("PATCH", "/api/projects/2/")[-1] == {"model_version": done.model_version}
    assert player.authorization.startswith("Bearer ")


def test_connecting_again_updates_what_is_there() -> None:
    with playing("again", "access") as player:
        done = connected(player)
    assert done.config_written is False
    assert player.sent("POST", "/api/webhooks/") == player.sent("POST", "/api/ml/") == []
    assert [body["url"] for body in player.sent("PATCH", "/api/ml/2")] == [f"http://tailwise:{TOKEN}@{player.server}"]
    assert not [path for method, path, _ in player.asked if method == "PATCH" and path.startswith("/api/tasks/")]


def test_accounts_become_annotators_under_every_name_that_label_studio_uses() -> None:
    with playing("again", "access") as player:
        plain, named = connected(player), connected(player, annotators=read_annotator_map("1=anna"))
    assert plain.connection.people == {"user 1": "anna@example.org", "anna@example.org": "anna@example.org"}
    assert named.connection.people == {"user 1": "anna", "anna@example.org": "anna"}


def test_a_configuration_that_does_not_fit_is_an_error_that_names_the_differences() -> None:
    with playing("again", "access") as player, pytest.raises(BadInput) as error:
        connected(player, ["owl", "kite", "heron"])
    assert "no choice for the class 'heron'; its choice 'gull' is not a class of the campaign" in str(error.value)
    assert "--write-config" in str(error.value)
    assert not [method for method, path, _ in player.asked if method != "GET" and "token" not in path]
    with playing("again", "access") as player:
        assert connected(player, ["owl", "kite", "heron"], write_config=True).config_written


@pytest.mark.parametrize(
    ("part", "key", "what"),
    [
        ("bad personal token", KEY, "refused the API token: 401 Token is invalid"),
        ("bad legacy token", "abc", "refused the API token: 401 Invalid token."),
        ("no project", KEY, "has no project 2 that this API token can see"),
        ("local webhook", KEY, "SSRF_PROTECTION_ENABLED=false"),
    ],
)
def test_what_label_studio_refuses_is_explained_without_any_token(part: str, key: str, what: str) -> None:
    with playing(part) as player, pytest.raises(BadInput) as error:
        connect(Studio(player.url, key), 2, Server(player.url, TOKEN), CLASSES, place=place)
    assert what in str(error.value)
    assert TOKEN not in str(error.value)
    assert key not in str(error.value)


def test_an_access_that_ends_is_renewed_once() -> None:
    expired = {"method": "GET", "path": "/api/projects/2/", "status": 401, "response": {"detail": "Token is expired"}}
    with Player([*RECORDED["access"], *RECORDED["again"], expired, *RECORDED["again"]]).running() as player:
        studio = Studio(player.url, KEY)
        assert [studio.get("/api/projects/2/")["title"] for _ in range(3)] == ["Birds"] * 3
    assert len(player.sent("POST", "/api/token/refresh/")) == 2


def test_nobody_at_an_address_is_said_so() -> None:
    with Player([]).running() as gone:
        pass
    with pytest.raises(BadInput, match=r"cannot reach Label Studio at .*; is it running"):
        Studio(gone.url, KEY).get("/api/version")
    with pytest.raises(BadInput, match="start `tailwise label DIR --ml-backend`"):
        Server(gone.url, TOKEN).check()


@pytest.mark.parametrize(
    ("exchange", "what"),
    [
        ({"path": "/health", "status": 200, "response": {"status": "UP"}}, "is not a Tailwise server"),
        ({"path": "/health", "status": 404, "response": {}}, r"is not an ML backend \(status 404\)"),
        ({"path": "/api/state", "status": 401, "response": {}}, "serves another campaign"),
    ],
    ids=["another program", "without --ml-backend", "another campaign"],
)
def test_another_server_is_refused_before_label_studio_gets_its_address(exchange: dict[str, Any], what: str) -> None:
    health = {
        "method": "GET",
        "path": "/health",
        "status": 200,
        "response": {"status": "UP", "model_class": "Tailwise"},
    }
    given = {"method": "GET", **exchange}
    with (
        Player([given] if exchange["path"] == "/health" else [health, given]).running() as player,
        pytest.raises(BadInput, match=what),
    ):
        Server(player.url, TOKEN).check()


@pytest.mark.parametrize(("url", "key"), [("localhost:8080", KEY), ("ftp://x", KEY), ("http://x", " ")])
def test_an_invalid_address_and_a_missing_token_are_refused(url: str, key: str) -> None:
    with pytest.raises(BadInput):
        Studio(url, key)


def test_the_choice_for_none_of_the_classes_and_aliases_fit() -> None:
    assert config_differences(label_config(CLASSES).decode(), CLASSES) == []
    alias = '<View><Choices name="a" toName="b"><Choice value="An owl" alias="owl"/></Choices></View>'
    assert config_differences(alias, ["owl"]) == []
    assert config_differences("<View/>", ["owl"]) == ["it has no <Choices> with a <Choice> for each class"]


def test_a_connection_is_kept_without_any_token(tmp_path: Path) -> None:
    assert Connection.read(tmp_path) is None
    kept = Connection("http://lab:8080", 3, {"user 1": "anna"})
    kept.write(tmp_path)
    assert Connection.read(tmp_path) == kept
    (tmp_path / FILE).write_text('{"url": 5}', encoding="utf-8")
    with pytest.raises(BadFile, match="run `tailwise connect` again"):
        Connection.read(tmp_path)


def test_an_annotator_map_is_text_lines_or_json(tmp_path: Path) -> None:
    wanted = {"1": "anna", "user 1": "anna", "b@x.org": "ben"}
    (tmp_path / "lines").write_text("1=anna\nb@x.org = ben\n", encoding="utf-8")
    (tmp_path / "json").write_text('{"1": "anna", "b@x.org": "ben"}', encoding="utf-8")
    for given in ("1=anna,b@x.org=ben", str(tmp_path / "lines"), str(tmp_path / "json")):
        assert read_annotator_map(given) == wanted
    for bad in ("1=", "no-such-file", "=anna", "1=anna,ben"):
        with pytest.raises(BadInput, match="annotator map"):
            read_annotator_map(bad)


# With a campaign.


@pytest.fixture
def campaign(tmp_path: Path) -> Iterator[Campaign]:
    (tmp_path / "photos").mkdir()
    for number in range(2):
        Image.new("L", (4, 4), 60 * number).save(tmp_path / "photos" / f"{number}.png")
    with Campaign.create(tmp_path / "birds", tmp_path / "photos", CLASSES, backbone="simple") as made:
        yield made


def test_the_command_connects_and_shows_no_token(
    campaign: Campaign, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LABEL_STUDIO_API_KEY", KEY)
    with playing("first") as player:
        given = [player.url, str(campaign.folder), "--project", "2", "--server", player.url]
        assert run(["connect", "label-studio", *given, "--annotator-map", "1=anna"]) == 0
    shown = capsys.readouterr().out
    assert "Connected 'Birds' (project 2) with birds." in shown
    kept = (campaign.folder / FILE).read_text(encoding="utf-8")
    assert json.loads(kept)["people"] == {"user 1": "anna", "anna@example.org": "anna"}
    assert not any(secret in shown + kept for secret in (KEY, campaign_token(campaign.folder)))


def test_the_command_fails_with_one_line_where_the_classes_differ(
    campaign: Campaign, capsys: pytest.CaptureFixture[str]
) -> None:
    campaign.add_class("heron")
    with playing("again", "access") as player:
        given = [player.url, str(campaign.folder), "--project", "2", "--server", player.url, "--api-key", KEY]
        assert run(["connect", "label-studio", *given]) != 0
    assert "it has no choice for the class 'heron'" in capsys.readouterr().err
    assert not (campaign.folder / FILE).exists()


def test_a_new_round_is_brought_to_the_connected_project(campaign: Campaign, caplog: pytest.LogCaptureFixture) -> None:
    def follow(key: str | None) -> None:
        follow_round(lambda query: query(campaign.ledger), campaign.folder, key)

    follow(KEY)
    with playing("again", "access") as player:
        Connection(player.url, 2).write(campaign.folder)
        follow(None)
        assert player.asked == []
        follow(KEY)
    assert len([path for _, path, _ in player.asked if path.startswith("/api/dm/actions")]) == 1
    assert player.asked[-1][:2] == ("PATCH", "/api/projects/2/")
    follow(KEY)  # it is gone: people label on, and the log says why
    missing, unreachable = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert "LABEL_STUDIO_API_KEY" in missing
    assert "cannot reach Label Studio" in unreachable
    assert KEY not in unreachable
