"""The checks at the door, one by one; tests/web/test_security.py tries them over a real connection."""

from __future__ import annotations

from typing import Any

import pytest

from tailwise.errors import BadInput
from tailwise.web import security
from tailwise.web.settings import WebSettings, is_host_name, is_token

TOKEN = "t" * 32


def scope(method: str = "GET", path: str = "/api/state", query: bytes = b"", **headers: str) -> dict[str, Any]:
    sent = {"host": "localhost:8765", **{name.replace("_", "-"): value for name, value in headers.items()}}
    pairs = [(name.encode(), value.encode("latin-1")) for name, value in sent.items()]
    return {"type": "http", "method": method, "path": path, "query_string": query, "headers": pairs}


def code(settings: WebSettings, asked: dict[str, Any]) -> str | None:
    no = security.check_access(asked, settings)
    if no is None and asked["method"] == "POST":
        no = security.check_content_type(asked) or security.check_length(asked, settings.body_bytes)
    return no.code if no else None


SETTINGS = WebSettings(TOKEN)


def test_a_sound_request_passes() -> None:
    assert code(SETTINGS, scope(x_tailwise_token=TOKEN)) is None
    assert code(SETTINGS, scope("POST", x_tailwise_token=TOKEN, content_type="application/json; charset=UTF-8")) is None


def test_the_host_is_asked_first_and_the_token_before_the_body() -> None:
    assert code(SETTINGS, scope("POST", host="evil.example", origin="null")) == "foreign_host"
    assert code(SETTINGS, scope("POST", origin="null")) == "foreign_origin"
    assert code(SETTINGS, scope("POST", content_length="999999999")) == "no_token"
    assert code(SETTINGS, scope("POST", x_tailwise_token=TOKEN, content_length="9")) == "not_json"


def test_two_hosts_are_no_host() -> None:
    asked = scope(x_tailwise_token=TOKEN)
    asked["headers"].append((b"host", b"localhost"))
    assert code(SETTINGS, asked) == "bad_host"


def test_a_proxy_with_its_own_name_and_encryption_is_served_when_it_is_named() -> None:
    behind = WebSettings(TOKEN, other_names=("lab.example",))
    sent = {"host": "lab.example", "x_tailwise_token": TOKEN, "content_type": "application/json"}
    assert code(behind, scope("POST", origin="https://lab.example", **sent)) is None
    assert code(SETTINGS, scope("POST", origin="https://lab.example", **sent)) == "foreign_host"


def test_cookies_of_other_programs_are_passed_over() -> None:
    for cookie in (f"a=b; tailwise_8765={TOKEN}", f"tailwise_8765={TOKEN}; x={{}}; _ga=1.2"):
        assert code(SETTINGS, scope(cookie=cookie)) is None
    for cookie in (f"tailwise_8766={TOKEN}", f"xtailwise_8765={TOKEN}", "tailwise_8765", f"tailwise_8765=x{TOKEN}"):
        assert code(SETTINGS, scope(cookie=cookie)) == "no_token"


@pytest.mark.parametrize("length", ["-1", "+5", "1_0", "0x10", "٣", "1.0", ""])
def test_a_length_that_is_no_number_is_refused(length: str) -> None:
    asked = scope("POST", x_tailwise_token=TOKEN, content_type="application/json")
    asked["headers"].append((b"content-length", length.encode("utf-8")))
    assert code(SETTINGS, asked) == "bad_length"


def test_the_link_is_the_front_door_alone() -> None:
    assert security.link_token(scope(path="/", query=b"token=abc")) == "abc"
    assert security.link_token(scope(path="/", query=b"token=")) == ""
    assert security.link_token(scope(path="/api/state", query=b"token=abc")) is None
    assert security.link_token(scope("POST", path="/", query=b"token=abc")) is None
    assert security.link_token(scope(path="/", query=b"other=abc")) is None


def test_tokens_are_equal_or_not() -> None:
    assert is_token(TOKEN, TOKEN)
    for wrong in ("", TOKEN[:-1], TOKEN + "t", "é", "\udcff"):
        assert not is_token(wrong, TOKEN)


@pytest.mark.parametrize("token", ["", "short", "with space in the middle", "é" * 20, "x" * 201, "a\nb" * 10])
def test_a_token_that_can_be_guessed_or_not_be_sent_is_refused(token: str) -> None:
    with pytest.raises(BadInput, match="the token must be"):
        WebSettings(token)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.168.0.1", "lab.example", "fe80::1"])
def test_only_this_machine_may_do_without_a_token(host: str) -> None:
    with pytest.raises(BadInput, match="without a token"):
        WebSettings(None, host)
    assert WebSettings(TOKEN, host).token == TOKEN


@pytest.mark.parametrize("name", ["http://lab", "lab:80", "lab/x", "a b", "lab.", "*", "-lab"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    assert not is_host_name(name)
    with pytest.raises(BadInput, match="not a host name"):
        WebSettings(TOKEN, other_names=(name,))


def test_any_address_is_served_only_when_listening_everywhere() -> None:
    asked = scope(host="192.168.1.5:8765", x_tailwise_token=TOKEN)
    assert code(WebSettings(TOKEN, "0.0.0.0"), asked) is None
    assert code(WebSettings(TOKEN, "192.168.1.5"), asked) is None
    assert code(WebSettings(TOKEN, "192.168.1.6"), asked) == "foreign_host"
