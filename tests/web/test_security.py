"""What strangers, other sites and broken programs send: each is answered as it should be, and nothing is recorded.

The server is real, and so is its port; what no client library would send is sent as bytes.
"""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

from tailwise.errors import BadInput
from tailwise.web.security import SECURITY_HEADERS
from tailwise.web.serve import Options, run, running

from .api_client import Api, Raw, exchange, new_key, read_answer, reopened, request, serving_api
from .conftest import PATIENCE

MEGABYTE = 1 << 20


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with serving_api(tmp_path_factory.mktemp("security"), images=6) as made:
        yield made


def head(api: Api, **changes: str | None) -> dict[str, str]:
    """The headers of a sound request, some of them changed or, with None, left out."""
    usual = {
        "Host": f"127.0.0.1:{api.serving.port}",
        "X-Tailwise-Token": api.serving.token or "",
        "Content-Type": "application/json",
    }
    named = {name.replace("_", "-"): value for name, value in changes.items()}
    return {name: value for name, value in {**usual, **named}.items() if value is not None}


def post(api: Api, body: bytes, path: str = "/api/answers", **changes: str | None) -> Raw:
    headers = head(api, **changes) | {"Content-Length": str(len(body))}
    return exchange(api.serving.port, request("POST", path, headers, body))


def get(api: Api, path: str, **changes: str | None) -> Raw:
    return exchange(api.serving.port, request("GET", path, head(api, **changes)))


def sound_body(api: Api) -> bytes:
    image = api.rows("SELECT key FROM image ORDER BY id")[0][0]
    said = {"key": new_key(), "image": image, "kind": "label", "class_id": 1}
    return json.dumps({"annotator": "eve", "answers": [said]}).encode()


@pytest.fixture(autouse=True)
def nothing_is_recorded(api: Api) -> Iterator[None]:
    """No test of this file may leave an event, whatever it sends."""
    before = api.rows("SELECT count(*) FROM event")
    yield
    assert api.rows("SELECT count(*) FROM event") == before


# Host: a foreign name that points here (DNS rebinding) must not be served.


@pytest.mark.parametrize(
    ("host", "status", "code"),
    [
        ("evil.example", 403, "foreign_host"),
        ("evil.example:8765", 403, "foreign_host"),
        ("127.0.0.1.evil.example", 403, "foreign_host"),
        ("localhost.evil.example", 403, "foreign_host"),
        ("10.0.0.7", 403, "foreign_host"),
        ("0.0.0.0", 403, "foreign_host"),
        ("2130706433", 403, "foreign_host"),  # 127.0.0.1 as one number
        ("", 400, "bad_host"),
        ("user@localhost", 400, "bad_host"),
        ("localhost/evil", 400, "bad_host"),
        ("localhost:8765:1", 400, "bad_host"),
    ],
)
def test_a_foreign_or_empty_host_is_refused(api: Api, host: str, status: int, code: str) -> None:
    for answer in (get(api, "/api/state", Host=host), post(api, sound_body(api), Host=host)):
        assert (answer.status, answer.code) == (status, code)


def test_a_request_without_a_host_is_refused(api: Api) -> None:
    old = request("GET", "/api/state", head(api, Host=None)).replace(b"HTTP/1.1", b"HTTP/1.0")
    answer = exchange(api.serving.port, old)
    assert (answer.status, answer.code) == (400, "bad_host")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:{port}", "127.0.0.1", "[::1]:{port}"])
def test_the_names_of_this_machine_are_served(api: Api, host: str) -> None:
    assert get(api, "/api/state", Host=host.format(port=api.serving.port)).status == 200


# Origin: other sites cannot write, with or without the cookie.


@pytest.mark.parametrize(
    "origin", ["null", "http://evil.example", "https://127.0.0.1.evil.example", "http://127.0.0.1:1", "file://", ""]
)
def test_a_foreign_origin_is_refused(api: Api, origin: str) -> None:
    answer = post(api, sound_body(api), Origin=origin)
    assert (answer.status, answer.code) == (403, "foreign_origin")


def test_the_own_origin_is_served_as_far_as_the_rest_is_sound(api: Api) -> None:
    answer = post(api, b"{}", Origin=f"http://127.0.0.1:{api.serving.port}")
    assert (answer.status, answer.code) == (422, "invalid")


def test_the_cookie_alone_writes_only_with_our_origin(api: Api) -> None:
    cookie = f"tailwise_{api.serving.port}={api.serving.token}"
    bare = post(api, sound_body(api), X_Tailwise_Token=None, Cookie=cookie)
    assert (bare.status, bare.code) == (403, "no_origin")
    ours = post(api, b"{}", X_Tailwise_Token=None, Cookie=cookie, Origin=f"http://127.0.0.1:{api.serving.port}")
    assert ours.status == 422


def test_no_answer_allows_another_site_to_read_it(api: Api) -> None:
    for answer in (get(api, "/api/state"), get(api, "/api/state", Origin="http://evil.example")):
        assert not [name for name in answer.headers if name.startswith("access-control")]


# The token.


def test_without_a_token_nothing_is_served(api: Api) -> None:
    for path in (
        "/api/state",
        "/api/openapi.json",
        "/image/0123456789abcdef",
        "/static/js/main.js",
        "/nothing",
        "/health",
    ):
        answer = get(api, path, X_Tailwise_Token=None)
        assert (answer.status, answer.code) == (401, "no_token"), path


@pytest.mark.parametrize("token", ["", "x", "0" * 32, "é" * 16, "Bearer x"])
def test_a_wrong_token_is_refused(api: Api, token: str) -> None:
    assert get(api, "/api/state", X_Tailwise_Token=token).status == 401
    assert get(api, "/api/state", X_Tailwise_Token=None, Cookie=f"tailwise_{api.serving.port}={token}").status == 401


def test_a_part_of_the_token_is_no_token(api: Api) -> None:
    assert api.serving.token is not None
    assert get(api, "/api/state", X_Tailwise_Token=api.serving.token[:-1]).status == 401
    assert get(api, "/api/state", X_Tailwise_Token=api.serving.token + "x").status == 401


def test_the_link_becomes_a_cookie_and_the_token_leaves_the_address_bar(api: Api) -> None:
    with httpx.Client(trust_env=False) as browser:
        first = browser.get(api.serving.link)
        assert first.status_code == 303
        assert first.headers["location"] == "/"
        cookie = first.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert "Domain" not in cookie
        page = browser.get(api.serving.url)
        assert page.status_code == 200
        assert page.headers["content-type"].startswith("text/html")
        assert browser.get(f"{api.serving.url}api/state").status_code == 200


def test_a_link_with_a_wrong_token_sets_no_cookie_and_says_what_to_do(api: Api) -> None:
    answer = httpx.get(f"{api.serving.url}?token={'0' * 32}", trust_env=False)
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers
    assert "tailwise label" in answer.text
    assert "<h1>This link is not valid</h1>" in answer.text
    style = answer.text.split("<style>")[1].split("</style>")[0]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = answer.headers["content-security-policy"]
    assert policy == (
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    )


def test_the_whole_link_can_be_pasted_where_a_token_is_asked_for(api: Api) -> None:
    def pasted(text: str) -> int:
        return httpx.get(api.serving.url, params={"token": text}, trust_env=False).status_code

    assert api.serving.token is not None
    assert pasted(api.serving.link) == pasted(f" {api.serving.link}#grid ") == pasted(api.serving.token) == 303
    assert pasted(api.serving.link + "x") == pasted("http://127.0.0.1/?a=b") == pasted("?token=") == 401


def test_a_person_who_comes_from_another_site_gets_in_at_the_second_try(api: Api) -> None:
    """Browsers hold a Strict cookie back when a link on another site is followed; a refresh is our own request."""
    coming = get(api, "/", X_Tailwise_Token=None, Sec_Fetch_Mode="navigate", Sec_Fetch_Site="cross-site")
    assert coming.status == 200
    assert coming.headers["refresh"] == "0; url=/"
    again = get(api, "/", X_Tailwise_Token=None, Sec_Fetch_Mode="navigate", Sec_Fetch_Site="same-origin")
    assert again.status == 401


def test_a_new_token_ends_the_old_links(tmp_path: Path) -> None:
    def tokens(one: Api) -> list[str]:
        return [one.serving.token or "", one.serving.annotator_token or ""]

    with serving_api(tmp_path, images=1) as before:
        old, folder = tokens(before), before.folder
    assert len(set(old)) == 2
    with reopened(folder) as same:
        assert tokens(same) == old
    with reopened(folder, Options(port=0, new_token=True)) as after:
        assert not set(tokens(after)) & set(old)
        for token in old:
            assert get(after, "/api/state", X_Tailwise_Token=token).status == 401
            assert httpx.get(f"{after.serving.url}?token={token}", trust_env=False).status_code == 401
    for file in ("token", "token-annotator"):
        assert (folder / file).stat().st_mode & 0o777 == 0o600


# The owner and the annotators: two tokens, two roles.

OWNER_ROUTES = {
    ("POST", "/api/classes/add"),
    ("POST", "/api/classes/edit"),
    ("POST", "/api/settle"),
    ("POST", "/api/next"),
    ("POST", "/api/dashboard/measure"),
    ("POST", "/api/dashboard/settings"),
    ("POST", "/api/map/start"),
    ("POST", "/api/review/errors/start"),
    ("POST", "/api/review/duplicates/start"),
    ("GET", "/api/dashboard/labels.csv"),
    ("POST", "/setup"),
    ("POST", "/predict"),
    ("POST", "/webhook"),
}
"""Train, settle, change classes or settings, export, start what takes long; and Label Studio, which trains."""


def test_annotators_cannot_use_the_routes_of_the_owner_and_can_use_all_others(tmp_path: Path) -> None:
    with serving_api(tmp_path, Options(port=0, ml_backend=True), images=2) as api:
        paths = api.get("/api/openapi.json")["paths"]
        routes = [(method.upper(), path) for path, methods in paths.items() for method in methods]
        assert set(routes) >= OWNER_ROUTES
        for method, path in routes:
            place = path.replace("{key}", "0" * 16)
            # A body that fits no schema: the role is checked first, and nothing is done in any case.
            roles = {
                role: post(api, b"[]", place, X_Tailwise_Token=token) if method == "POST"
                else get(api, place, X_Tailwise_Token=token)
                for role, token in (("owner", api.serving.token), ("annotator", api.serving.annotator_token))
            }  # fmt: skip
            if (method, path) in OWNER_ROUTES:
                assert (roles["annotator"].status, roles["annotator"].code) == (403, "owner_only"), path
                assert b"needs the owner's link" in roles["annotator"].body
                assert roles["owner"].status == (422 if method == "POST" else 200), path
            else:
                assert roles["annotator"].status == roles["owner"].status != 403, path


def test_the_state_names_the_role_of_the_link(api: Api) -> None:
    for link, role in ((api.serving.link, "owner"), (api.serving.annotator_link, "annotator")):
        assert link is not None
        with httpx.Client(trust_env=False) as browser:
            assert browser.get(link).status_code == 303
            assert browser.get(f"{api.serving.url}api/state").json()["role"] == role
            foreign = browser.post(f"{api.serving.url}api/next", json={}, headers={"Origin": api.serving.url[:-1]})
            assert foreign.status_code == (403 if role == "annotator" else 409)


def test_the_ticket_of_a_notebook_opens_the_page_for_its_owner(api: Api) -> None:
    with httpx.Client(trust_env=False) as browser:
        assert browser.get(f"{api.serving.url}?token={api.serving.ticket}").status_code == 303
        assert browser.get(f"{api.serving.url}api/state").json()["role"] == "owner"


def test_both_tokens_at_once_are_the_owners(api: Api) -> None:
    cookie = f"tailwise_{api.serving.port}={api.serving.annotator_token}"
    assert json.loads(get(api, "/api/state", Cookie=cookie).body)["role"] == "owner"


def test_without_tokens_everybody_is_the_owner(tmp_path: Path) -> None:
    with serving_api(tmp_path, Options(port=0, with_token=False), images=1) as api:
        assert api.get("/api/state")["role"] == "owner"
        assert not (tmp_path / "campaign" / "token-annotator").exists()
        assert api.refused("/api/next") != (403, "owner_only")


def test_annotators_undo_answers_but_no_decisions(tmp_path: Path) -> None:
    with serving_api(tmp_path, images=1, settings={"overlap": 2}) as api:
        image = api.lease()[0]
        said, key, undo = api.answer(image, 1), new_key(), new_key()
        api.answer(image, 2, annotator="bob")
        api.post("/api/settle", annotator="ada", key=key, image=image, kind="settle-label", class_id=1)

        api.client.headers["X-Tailwise-Token"] = api.serving.annotator_token or ""
        assert api.refused("/api/undo", annotator="ada", key=new_key(), undoes=key) == (403, "owner_only")
        taken = api.post("/api/undo", annotator="ada", key=new_key(), undoes=said["key"])
        assert taken["undone"]["kind"] == "label"

        api.client.headers["X-Tailwise-Token"] = api.serving.token or ""
        assert api.post("/api/undo", annotator="ada", key=undo, undoes=key)["undone"]["kind"] == "settle-label"
        api.client.headers["X-Tailwise-Token"] = api.serving.annotator_token or ""
        assert api.refused("/api/undo", annotator="ada", key=new_key(), undoes=undo) == (403, "owner_only")


def test_the_token_is_in_no_answer(api: Api) -> None:
    assert api.serving.token is not None
    for path in ("/api/state", "/api/openapi.json", "/", "/api/nothing"):
        for token in (api.serving.token, api.serving.annotator_token or ""):
            assert token not in get(api, path).body.decode()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.168.1.5"])
def test_listening_to_the_network_without_a_token_is_refused(tmp_path: Path, host: str) -> None:
    with pytest.raises(BadInput, match="without a token"):
        run(tmp_path / "not even opened", Options(host=host, with_token=False))


def test_without_a_token_this_machine_alone_is_served_and_other_sites_still_cannot_write(tmp_path: Path) -> None:
    with serving_api(tmp_path, Options(port=0, with_token=False), images=1) as api:
        assert api.get("/api/state")["campaign"]["name"] == "Birds"
        assert get(api, "/api/state", Host="evil.example").status == 403
        assert post(api, sound_body(api), Origin="null").code == "foreign_origin"
        assert api.rows("SELECT count(*) FROM event") == [(0,)]


def test_listening_everywhere_serves_addresses_and_own_names_but_no_foreign_name(tmp_path: Path) -> None:
    with serving_api(tmp_path, Options(host="0.0.0.0", port=0, other_names=("lab.example",)), images=1) as api:
        assert get(api, "/api/state", Host="192.168.1.5:8765").status == 200
        assert get(api, "/api/state", Host="lab.example").status == 200
        assert get(api, "/api/state", Host="evil.example").status == 403
        assert get(api, "/api/state", Host="192.168.1.5", X_Tailwise_Token=None).status == 401


# What a form of another site can send.


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/jsonp", "",
     None, "application/json; charset=utf-16", "text/plain; application/json"],
)  # fmt: skip
def test_what_is_not_called_json_is_not_read(api: Api, kind: str | None) -> None:
    answer = post(api, sound_body(api), Content_Type=kind)
    assert (answer.status, answer.code) == (415, "not_json")


def test_a_compressed_body_is_not_unpacked(api: Api) -> None:
    assert post(api, sound_body(api), Content_Encoding="gzip").status == 415


# Names of images and files.


@pytest.mark.parametrize(
    "name",
    [
        "../../../../etc/passwd", "..%2f..%2fetc%2fpasswd", "%2e%2e%2fcampaign.sqlite", "%252e%252e%252fpasswd",
        "..%5c..%5cetc", "%2fetc%2fpasswd", "/etc/passwd", "//etc/passwd", "0123456789abcde%00", "%00",
        "0123456789abcdef%0a", "0123456789ABCDEF", "0123456789abcdef0", "000_0.png", "-1", "0", "%ff%fe",
    ],
)  # fmt: skip
def test_an_image_is_known_by_its_key_alone(api: Api, name: str) -> None:
    for place in ("/image/", "/static/"):
        answer = get(api, place + name)
        assert answer.status in (404, 422), answer.body
        assert b"root:" not in answer.body


@pytest.mark.parametrize("path", ["/image/\xff", "/image/\0", "/image/a b"])
def test_a_path_that_is_no_path_is_no_request(api: Api, path: str) -> None:
    assert get(api, path).status == 400


def test_an_unknown_key_is_not_found(api: Api) -> None:
    answer = get(api, "/image/0123456789abcdef")
    assert (answer.status, answer.code) == (404, "unknown")


@pytest.mark.parametrize("image", ["../1", "0123456789abcdef\0", "/etc/passwd", "", "x" * 10_000])
def test_an_answer_to_no_key_is_refused(api: Api, image: str) -> None:
    said = {"key": new_key(), "image": image, "kind": "skip"}
    assert api.refused("/api/answers", annotator="eve", answers=[said]) == (422, "invalid")


@pytest.mark.parametrize("size", ["0", "-1", "513", "999999", "abc", "160.0", "", "1e3"])
def test_an_image_comes_in_four_sizes_only(api: Api, size: str) -> None:
    key = api.rows("SELECT key FROM image")[0][0]
    answer = get(api, f"/image/{key}?size={size}")
    assert (answer.status, answer.code) == (422, "invalid")


def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret.png"
    Image.new("RGB", (8, 8), (1, 2, 3)).save(secret)
    with serving_api(tmp_path, images=2) as api:
        key, path = api.rows("SELECT key, path FROM image ORDER BY id")[0]
        file = tmp_path / "images" / path
        file.unlink()
        file.symlink_to(secret)
        answer = get(api, f"/image/{key}?size=160")
        assert (answer.status, answer.code) == (400, "bad_input")
        assert str(tmp_path) not in answer.body.decode()


def test_an_image_is_sent_afresh_with_nothing_that_was_hidden_in_it(tmp_path: Path) -> None:
    with serving_api(tmp_path, images=1) as api:
        key, path = api.rows("SELECT key, path FROM image")[0]
        file = tmp_path / "images" / path
        notes = Image.Exif()
        notes[0x010E] = "taken at home"
        Image.open(file).save(file, "JPEG", comment="<script>alert(1)</script>", exif=notes)
        assert b"taken at home" in file.read_bytes()
        answer = get(api, f"/image/{key}?size=160")
        assert answer.status == 200
        assert answer.headers["content-type"] == "image/jpeg"
        assert answer.body.startswith(b"\xff\xd8\xff")
        assert b"<script>" not in answer.body
        assert b"taken at home" not in answer.body


# Bodies.


def test_a_gigabyte_is_refused_before_it_is_sent(api: Api) -> None:
    headers = head(api) | {"Content-Length": str(1 << 30)}
    started = time.monotonic()
    answer = exchange(api.serving.port, request("POST", "/api/answers", headers), b"x")
    assert (answer.status, answer.code) == (413, "too_large")
    assert answer.headers["connection"] == "close"
    assert time.monotonic() - started < PATIENCE


def test_a_gigabyte_that_does_not_say_so_is_refused_after_a_megabyte(api: Api) -> None:
    """In chunks, with no length named; the server stops reading, so most of it is never sent."""
    headers = head(api) | {"Transfer-Encoding": "chunked"}
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    sent = 0
    with socket.create_connection(("127.0.0.1", api.serving.port), timeout=10) as line:
        line.sendall(request("POST", "/api/answers", headers))
        answer: Raw | None = None
        try:
            while sent < 1 << 30 and answer is None:
                line.sendall(chunk)
                sent += 0x10000
                line.setblocking(False)
                try:
                    ready = line.recv(1, socket.MSG_PEEK)
                    assert ready
                    line.settimeout(10)
                    answer = read_answer(line)
                except BlockingIOError:
                    line.settimeout(10)
        except (BrokenPipeError, ConnectionResetError):
            pass  # closed under our hands, which is as good an answer
    assert sent < 64 * MEGABYTE
    assert answer is None or (answer.status, answer.code) == (413, "too_large")


def test_who_sends_too_much_hears_why(api: Api) -> None:
    """Also when it is still sending: the connection is not closed under its hands."""
    for size in (2 * MEGABYTE, 20 * MEGABYTE):
        answer = api.client.post("/api/answers", content=b" " * size, headers={"Content-Type": "application/json"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")


def test_a_body_up_to_the_limit_is_read_and_one_byte_more_is_not(api: Api) -> None:
    body = b"{}".ljust(MEGABYTE)
    assert post(api, body).status == 422
    assert post(api, body + b" ").status == 413


def test_deep_json_is_refused(api: Api) -> None:
    for deep in (b"[" * 100_000, b"[" * 100_000 + b"]" * 100_000, b'{"a":' * 100_000 + b"1" + b"}" * 100_000):
        answer = post(api, deep)
        assert (answer.status, answer.code) == (400, "bad_json")


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"nonsense", b"\xff\xfe{}", b"\xef\xbb\xbf{}", b'{"annotator": "\xed\xa0\x80"}',
        b"{'a': 1}", b"{} {}",
        b'{"seconds": NaN}', b'{"seconds": Infinity}', b'{"seconds": -Infinity}', b'{"seconds": 1e999}',
        b'{"seconds": ' + b"9" * 5000 + b"}",
        b'{"annotator": "\\ud800"}', b'{"annotator": "\\udfff x"}', b'{"\\ud800": 1}',
        b'{"annotator": "\\ude00\\ud83d"}',
    ],
)  # fmt: skip
def test_what_is_no_sound_json_is_refused(api: Api, body: bytes) -> None:
    answer = post(api, body)
    assert (answer.status, answer.code) == (400, "bad_json")


@pytest.mark.parametrize("body", [b"null", b"1", b'"text"', b"[]", b"true", b"{}", b'{"annotator": 5, "answers": []}'])
def test_json_of_another_shape_is_refused(api: Api, body: bytes) -> None:
    answer = post(api, body)
    assert (answer.status, answer.code) == (422, "invalid")


def test_a_body_that_ends_early_leaves_the_server_alone(api: Api) -> None:
    headers = head(api) | {"Content-Length": "1000"}
    with socket.create_connection(("127.0.0.1", api.serving.port), timeout=10) as line:
        line.sendall(request("POST", "/api/answers", headers, b'{"annotator":'))
    assert api.get("/api/job")["state"] == "idle"


def test_many_idle_connections_do_not_hold_up_the_others(api: Api) -> None:
    lines = [socket.create_connection(("127.0.0.1", api.serving.port), timeout=10) for _ in range(200)]
    try:
        for line in lines:
            line.sendall(b"POST /api/answers HTTP/1.1\r\nHost: localhost\r\n")
        assert api.get("/api/job")["state"] == "idle"
    finally:
        for line in lines:
            line.close()


@pytest.mark.parametrize("path", ["/api/lease", "/api/release", "/api/answers", "/api/undo", "/api/settle"])
@pytest.mark.parametrize("name", ["", " ", "\u202eada", "a\u0000b", "a\nb", "\u2066x", "x" * 61, "a\u2028b"], ids=ascii)
def test_a_name_that_cannot_be_shown_is_refused(api: Api, path: str, name: str) -> None:
    image = api.rows("SELECT key FROM image ORDER BY id")[0][0]
    answer = {"key": new_key(), "image": image, "kind": "label", "class_id": 1}
    bodies: dict[str, dict[str, Any]] = {
        "/api/lease": {"count": 1},
        "/api/release": {"images": [image]},
        "/api/answers": {"answers": [answer]},
        "/api/undo": {"key": new_key()},
        "/api/settle": {"key": new_key(), "image": image, "kind": "settle-other"},
    }
    assert api.refused(path, annotator=name, **bodies[path]) in {(400, "bad_input"), (422, "invalid")}


def test_a_class_name_with_markup_stays_text(tmp_path: Path) -> None:
    names = ("<img src=x onerror=alert(1)>", "</script><script>alert(1)</script>", '"; DROP TABLE event; --', "ß" * 200)
    with serving_api(tmp_path, images=1, classes=names) as api:
        answer = api.client.get("/api/state")
        assert [one["name"] for one in answer.json()["classes"]] == list(names)
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("name", ["\u202eowl", "x" * 10_000, "a\x07b", " "], ids=["rtl", "10 kB", "bell", "space"])
def test_a_class_name_that_cannot_be_shown_never_gets_into_a_campaign(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInput, match="class name"), serving_api(tmp_path, images=1, classes=("owl", name)):
        pass


# Every answer.


def answers_of_all_kinds(api: Api) -> dict[str, Raw]:
    key, sha256 = api.rows("SELECT key, sha256 FROM image")[0]
    return {
        "page": get(api, "/"),
        "script": get(api, "/static/js/main.js"),
        "json": get(api, "/api/state"),
        "image": get(api, f"/image/{key}?size=160&seal={sha256[:16]}"),
        "image without a seal": get(api, f"/image/{key}?size=160"),
        "image with another seal": get(api, f"/image/{key}?size=160&seal={'0' * 16}"),
        "not found": get(api, "/nothing"),
        "wrong method": exchange(api.serving.port, request("DELETE", "/api/state", head(api))),
        "no token": get(api, "/api/state", X_Tailwise_Token=None),
        "foreign host": get(api, "/api/state", Host="evil.example"),
        "redirect": get(api, f"/?token={api.serving.token}"),
        "invalid": post(api, b"{}"),
        "no json": post(api, b"{"),
        "too large": post(api, b" " * (MEGABYTE + 1)),
    }


def test_every_answer_carries_the_security_headers(api: Api) -> None:
    for kind, answer in answers_of_all_kinds(api).items():
        for name, value in SECURITY_HEADERS.items():
            if name != b"cache-control":
                assert answer.headers.get(name.decode()) == value.decode(), (kind, name)
        assert "server" not in answer.headers


def test_what_is_private_is_not_kept_by_any_cache(api: Api) -> None:
    kinds = answers_of_all_kinds(api)
    for kind in ("json", "image with another seal", "not found", "no token", "redirect", "invalid"):
        assert kinds[kind].headers["cache-control"] == "no-store", kind
    assert kinds["image without a seal"].headers["cache-control"] == "private, no-cache"
    assert kinds["image"].headers["cache-control"] == "private, max-age=31536000, immutable"


def test_every_error_has_the_one_shape(api: Api) -> None:
    kinds = answers_of_all_kinds(api)
    for kind in ("not found", "wrong method", "no token", "foreign host", "invalid", "no json", "too large"):
        answer = kinds[kind]
        assert answer.headers["content-type"] == "application/json", kind
        told = json.loads(answer.body)
        assert set(told) == {"error"}, kind
        assert set(told["error"]) == {"code", "message"}, kind
        assert all(isinstance(part, str) and part for part in told["error"].values()), kind


def test_the_policy_allows_nothing_from_elsewhere_and_nothing_inline() -> None:
    policy = SECURITY_HEADERS[b"content-security-policy"].decode()
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert "unsafe" not in policy
    assert "http" not in policy


def test_no_documentation_from_elsewhere_is_served(api: Api) -> None:
    for path in ("/docs", "/redoc", "/openapi.json"):
        assert get(api, path).status == 404


def test_a_websocket_is_refused(api: Api) -> None:
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    headers = head(api) | upgrade | {"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}
    assert exchange(api.serving.port, request("GET", "/api/state", headers)).status != 101


def test_the_server_leaves_no_thread_and_no_open_file(tmp_path: Path) -> None:
    threads, files = threading.active_count(), open_files()
    with serving_api(tmp_path, images=2) as api:
        for key in api.lease():
            api.answer(key)
            api.client.get(f"/image/{key}?size=160")
        assert threading.active_count() > threads
    assert threading.active_count() == threads
    assert open_files() <= files


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_second_server_for_the_same_campaign_says_who_holds_it(tmp_path: Path) -> None:
    """In another process; here it would be the same holder."""
    import subprocess
    import sys

    script = "import sys; from tailwise.web.serve import run; run(sys.argv[1])"
    with serving_api(tmp_path, images=1) as api:
        second = subprocess.run(
            [sys.executable, "-c", script, str(api.folder)], capture_output=True, text=True, timeout=60, check=False
        )
    assert second.returncode != 0
    assert "LedgerBusy" in second.stderr
    assert "the labelling page" in second.stderr


def test_running_needs_a_campaign(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no campaign in"), running(tmp_path):
        pass
