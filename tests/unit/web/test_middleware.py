"""The guard, asked without a network: bodies that stall or stop, faults in the app, and what never reaches it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tailwise.web.security import SECURITY_HEADERS, ErrorResponse, SecurityMiddleware, read_body
from tailwise.web.settings import WebSettings

TOKEN = "t" * 32
Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


def receiving(*messages: Message) -> Receive:
    """Gives the messages one by one, and then waits for ever."""
    left = list(messages)

    async def receive() -> Message:
        if not left:
            await asyncio.sleep(3600)
        return left.pop(0)

    return receive


def part(body: bytes, *, more: bool = False) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


def reading(*messages: Message, limit: int = 100, seconds: float = 5.0) -> bytes | ErrorResponse:
    return asyncio.run(read_body(receiving(*messages), limit, seconds))


def test_a_body_in_parts_is_put_together() -> None:
    assert reading(part(b'{"a":', more=True), part(b" 1", more=True), part(b"}")) == b'{"a": 1}'


def test_a_body_that_stalls_is_given_up() -> None:
    found = reading(part(b"{", more=True), seconds=0.05)
    assert isinstance(found, ErrorResponse)
    assert (found.status, found.code) == (400, "too_slow")


def test_a_body_that_stops_is_given_up() -> None:
    found = reading(part(b"{", more=True), {"type": "http.disconnect"})
    assert isinstance(found, ErrorResponse)
    assert found.code == "cut"


def test_a_body_is_counted_while_it_comes() -> None:
    found = reading(part(b" " * 60, more=True), part(b" " * 60, more=True))  # a third part would be waited for
    assert isinstance(found, ErrorResponse)
    assert found.status == 413


def ask(app: App, method: str = "GET", path: str = "/api/x", *, kind: str = "http", body: bytes = b"") -> list[Message]:
    """What the guard sends for a sound request."""
    headers = [(b"host", b"localhost"), (b"x-tailwise-token", TOKEN.encode()), (b"content-type", b"application/json")]
    scope = {"type": kind, "method": method, "path": path, "query_string": b"", "headers": headers}
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    guard = SecurityMiddleware(app, WebSettings(TOKEN), frozenset({"/api/x"}))  # type: ignore[arg-type]
    asyncio.run(guard(scope, receiving(part(body)), send))
    return sent


async def echo(_scope: Message, receive: Receive, send: Send) -> None:
    got = await receive()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"Cache-Control", b"private")]})
    await send({"type": "http.response.body", "body": got["body"]})


def test_a_sound_body_reaches_the_app_as_it_was_sent() -> None:
    start, end = ask(echo, "POST", body=b'{"a": [1]}')
    assert end["body"] == b'{"a": [1]}'
    assert dict(start["headers"])[b"cache-control"] == b"private"
    assert {name for name, _ in start["headers"]} >= set(SECURITY_HEADERS)


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/api/x"), ("POST", "/api/y"), ("PUT", "/api/x"), ("DELETE", "/")]
)
def test_no_other_request_has_a_body_for_the_app(method: str, path: str) -> None:
    assert ask(echo, method, path, body=b"[" * 100_000)[-1]["body"] == b""


def test_a_fault_of_the_app_is_an_answer_like_any_other(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(*_: object) -> None:
        raise KeyError("secret")

    start, *rest = ask(broken)
    assert start["status"] == 500
    told = json.loads(b"".join(message["body"] for message in rest))
    assert told["error"]["code"] == "broken"
    assert "secret" not in json.dumps(told)
    assert "secret" in caplog.text


def test_a_fault_after_the_first_byte_adds_nothing_to_the_answer() -> None:
    async def late(_scope: Message, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise KeyError

    assert [message["type"] for message in ask(late)] == ["http.response.start"]


def test_a_websocket_is_closed_before_the_app_sees_it() -> None:
    async def never(*_: object) -> None:
        raise AssertionError

    assert ask(never, kind="websocket") == [{"type": "websocket.close", "code": 1008}]


def test_the_start_and_the_end_of_the_app_pass() -> None:
    seen: list[str] = []

    async def life(scope: Message, *_: object) -> None:
        seen.append(scope["type"])

    ask(life, kind="lifespan")
    assert seen == ["lifespan"]
