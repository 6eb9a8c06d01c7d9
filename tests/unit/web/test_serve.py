"""Starting and stopping: which port, which address, what is refused, and what signals do."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import httpx
import pytest
from PIL import Image

from tailwise.campaign.service import Campaign
from tailwise.errors import BadFile, BadInput
from tailwise.web.app import make_app
from tailwise.web.serve import Options, Serving, running
from tailwise.web.settings import FIRST_PORT, WebSettings


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "images").mkdir()
    Image.new("RGB", (8, 8)).save(tmp_path / "images" / "1.png")
    Campaign.create(tmp_path / "campaign", tmp_path / "images", ["a"]).close()
    return tmp_path / "campaign"


def is_up(serving: Serving) -> bool:
    answer = httpx.get(f"{serving.url}api/job", headers={"X-Tailwise-Token": serving.token or ""}, trust_env=False)
    return answer.status_code == 200


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that another program listens on."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


def test_a_free_port_is_found_and_told(folder: Path) -> None:
    with running(folder, Options(port=0)) as serving:
        assert serving.link == f"http://127.0.0.1:{serving.port}/?token={serving.token}"
        assert is_up(serving)


def test_when_the_usual_port_is_taken_the_next_one_is_used(folder: Path) -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            other.bind(("127.0.0.1", FIRST_PORT))
            other.listen()
        except OSError:
            pass  # somebody else has it, which is the same to us
        with running(folder) as serving:
            assert serving.port != FIRST_PORT
            assert is_up(serving)


def test_a_port_that_was_asked_for_and_is_taken_is_refused(folder: Path, taken: int) -> None:
    with pytest.raises(BadInput, match=f"port {taken} of 127.0.0.1 is taken"), running(folder, Options(port=taken)):
        pass
    with Campaign.open(folder):
        pass  # the campaign was let go of


@pytest.mark.parametrize("host", ["203.0.113.7", "no-such-host.invalid"])
def test_an_address_that_is_not_ours_is_refused(folder: Path, host: str) -> None:
    with pytest.raises(BadInput, match="cannot listen on"), running(folder, Options(host=host, port=0)):
        pass


def test_the_newer_kind_of_address_works(folder: Path) -> None:
    with running(folder, Options(host="::1", port=0)) as serving:
        assert serving.url == f"http://[::1]:{serving.port}/"
        assert is_up(serving)


def test_listening_everywhere_gives_a_link_that_others_can_open(folder: Path) -> None:
    with running(folder, Options(host="0.0.0.0", port=0)) as serving:
        assert "0.0.0.0" not in serving.link
        assert is_up(serving)


def test_the_same_campaign_is_served_again_after_it_was_stopped(folder: Path) -> None:
    with running(folder, Options(port=0)) as first:
        pass
    with running(folder, Options(port=first.port)) as second:
        assert second == first
        assert is_up(second)


def test_a_broken_ledger_is_told_before_anything_listens(folder: Path) -> None:
    (folder / "campaign.sqlite").write_bytes(b"no database" * 100)
    with pytest.raises(BadFile), running(folder, Options(port=0)):
        pass


@pytest.mark.parametrize("overlap", [0, -1])
def test_an_overlap_that_is_none_is_refused(folder: Path, overlap: int) -> None:
    with pytest.raises(BadInput, match="overlap"), running(folder, Options(port=0, overlap=overlap)):
        pass


def test_the_browser_is_opened_with_the_link(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    done = threading.Event()
    monkeypatch.setattr("webbrowser.open", lambda link: (opened.append(link), done.set()))
    with running(folder, Options(port=0, open_browser=True)) as serving:
        assert done.wait(10)
        assert opened == [serving.link]


def test_a_fault_while_it_runs_still_stops_the_server(folder: Path) -> None:
    before = threading.active_count()
    with pytest.raises(KeyError), running(folder, Options(port=0)):
        raise KeyError
    assert threading.active_count() == before
    with Campaign.open(folder):
        pass


@pytest.mark.parametrize("ml_backend", [False, True])
def test_the_paths_that_take_a_body_are_those_of_the_document_which_a_start_does_not_make(ml_backend: bool) -> None:
    app = make_app(cast(Campaign, None), WebSettings("x" * 32, ml_backend=ml_backend))
    assert app.openapi_schema is None
    (guard,) = app.user_middleware
    documented = {path for path, methods in app.openapi()["paths"].items() if "post" in methods}
    assert guard.kwargs["posts"] == documented
    assert len(documented) > 5
