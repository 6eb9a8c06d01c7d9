"""The page's pure modules, each called in the browser and compared with what it must give."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

if TYPE_CHECKING:
    from .conftest import Page


@pytest.fixture(scope="module")
def js(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:  # noqa: ANN401 - selenium's driver
    """A page from which modules can be imported; no server stands behind it, only the files."""
    from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
    from threading import Thread

    import tailwise
    from tailwise.web import service

    root = tmp_path_factory.mktemp("www")
    (root / "static").symlink_to(Path(tailwise.__file__).parent / "web" / "static")
    (root / "index.html").write_text("<!doctype html><title>modules</title>", encoding="utf-8")

    class Files(SimpleHTTPRequestHandler):
        extensions_map: ClassVar = {end: kind.partition(";")[0] for end, kind in service.CONTENT_TYPES.items()}

        def __init__(self, *values: Any, **named: Any) -> None:  # noqa: ANN401
            super().__init__(*values, directory=str(root), **named)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Files)
    Thread(target=server.serve_forever, daemon=True).start()
    browser.get(f"http://127.0.0.1:{server.server_port}/index.html")
    yield JavaScript(browser)  # type: ignore[misc]
    browser.get("about:blank")
    server.shutdown()
    server.server_close()


class JavaScript:
    """Calls functions of the page's modules."""

    def __init__(self, driver: Any) -> None:  # noqa: ANN401
        self.driver = driver

    def __call__(self, module: str, script: str, *values: Any) -> Any:  # noqa: ANN401
        """The value of a script in which the module is `m` and the values are `v`."""
        wrapped = (
            "const done = arguments[arguments.length - 1]; const v = [...arguments].slice(1, -1);"
            "import(`/static/js/${arguments[0]}.js`).then((m) => {" + script + "}).then((value) => done({ value }),"
            " (error) => done({ error: String(error) }));"
        )
        answer = self.driver.execute_async_script(wrapped, module, *values)
        assert "error" not in answer, answer
        return answer.get("value")


LINE = """
const said = (image, key) => (line) => m.answered(line, { key: image }, { key, kind: 'label', class_id: 1 });
const with_ = (...keys) => m.withPictures(m.emptyTimeline(), keys.map((key) => ({ key })));
const word = (item) => [item.key, ...item.answers.map((answer) => answer.key)].join(':');
const brief = (line) => [line.items.map(word).join(' '), line.cursor];
const was = (key, image) => ({ key, image, kind: 'skip', class_id: null });
"""


@pytest.mark.parametrize(
    ("script", "wanted"),
    [
        ("return brief(with_('a', 'b'))", ["a b", 0]),
        ("return brief(m.withPictures(with_('a', 'b'), [{ key: 'b' }, { key: 'c' }]))", ["a b c", 0]),
        ("return brief(m.toOpen(said('a', 'k1')(with_('a', 'b'))))", ["a:k1 b", 1]),
        ("return brief(m.toOpen(said('b', 'k1')(m.moved(with_('a', 'b'), 1))))", ["a b:k1", 0]),
        ("return brief(m.toOpen(said('a', 'k1')(with_('a'))))", ["a:k1", 1]),
        ("return brief(m.moved(with_('a', 'b'), 5))", ["a b", 1]),
        ("return brief(m.moved(with_('a', 'b'), -5))", ["a b", 0]),
        ("return brief(m.moved(m.emptyTimeline(), 1))", ["", 0]),
        ("return brief(m.without(with_('a', 'b', 'c'), new Set(['a', 'c'])))", ["b", 0]),
        ("return brief(m.without(m.moved(with_('a', 'b', 'c'), 2), new Set(['a'])))", ["b c", 1]),
        ("return brief(m.without(said('a', 'k')(with_('a', 'b')), new Set(['a', 'b'])))", ["a:k", 0]),
        ("return brief(m.without(m.moved(with_('a', 'b'), 1), new Set(['a', 'b'])))", ["", 0]),
        ("return brief(said('z', 'k')(with_('a')))", ["z:k a", 1]),
        ("return brief(m.withNext(m.moved(with_('a', 'b', 'c'), 1), [{ key: 'c' }, { key: 'z' }]))", ["a c z b", 1]),
        ("return brief(m.withNext(m.toOpen(said('a', 'k')(with_('a'))), [{ key: 'a' }, { key: 'z' }]))", ["a:k z", 1]),
        ("return brief(m.movedTo(with_('a', 'b', 'c'), 'c'))", ["a b c", 2]),
        ("return brief(m.movedTo(with_('a'), 'nowhere'))", ["a", 0]),
        (
            "return brief(m.withPast(with_('c'), [was('k1', 'a'), was('k2', 'b'), was('k3', 'a')]))",
            ["b:k2 a:k1:k3 c", 2],
        ),
        ("return brief(m.takenBack(said('a', 'k2')(said('a', 'k1')(with_('a'))), new Set(['k2'])))", ["a:k1", 0]),
        ("return m.latest(with_('a')).length", 0),
        ("return m.latest(said('b', 'k2')(said('a', 'k1')(with_('a', 'b')))).map((one) => one.image)", ["b"]),
        (
            "const line = said('a', 'k3')(said('b', 'k2')(said('a', 'k1')(with_('a', 'b'))));"
            "return m.latest(line).map((one) => one.answer.key)",
            ["k3"],
        ),
        (
            "const two = said('c', 'g7-1')(said('b', 'g7-0')(said('a', 'p1')(with_('a', 'b', 'c'))));"
            "return m.latest(two).map((one) => one.image)",
            ["b", "c"],
        ),
        (
            "const line = m.withPictures(with_('a', 'b'), [{ key: 'b', seal: '2' }, { key: 'c', seal: '3' }]);"
            "return line.items.map((item) => item.seal ?? '')",
            ["", "2", "3"],
        ),
        ("return m.committed(said('a', 'k')(with_('a')), new Set(['k'])).items[0].answers[0].saved", True),
        ("return [...m.skips(m.withPast(said('b', 'k')(with_('b', 'c')), [was('k1', 'a')]))]", ["a"]),
        (
            "const skip = m.answered(with_('a'), { key: 'a' }, { key: 'k', kind: 'skip', class_id: null });"
            "return [[...m.skips(skip)], [...m.skips(m.committed(skip, new Set(['k'])))]]",
            [[], ["a"]],
        ),
        ("return brief(m.forgotten(m.moved(said('a', 'k')(with_('a', 'b', 'c')), 2), new Set(['a'])))", ["b c", 1]),
        ("return brief(m.forgotten(m.moved(with_('a', 'b'), 1), new Set(['b'])))", ["a", 1]),
        ("return m.committed(said('a', 'k')(with_('a')), new Set(['x'])).items[0].answers[0].saved", False),
    ],
)  # fmt: skip
def test_the_timeline(script: str, wanted: Any, js: Any) -> None:  # noqa: ANN401
    assert js("timeline", LINE + script) == wanted


def op(number: int, kind: str = "answer", who: str = "Ada") -> dict[str, Any]:
    return {
        "type": kind,
        "key": f"key{number}",
        "annotator": who,
        "image": f"i{number}",
        "kind": "label",
        "class_id": 2,
    }


@pytest.mark.parametrize(
    ("ops", "sent"),
    [
        ([], 0),
        ([op(1), op(2), op(3)], 3),
        ([op(1), op(2, "undo"), op(3)], 1),
        ([op(1, "undo"), op(2)], 1),
        ([op(1, "settle"), op(2, "settle")], 1),
        ([op(1), op(2, who="Ben")], 1),
        ([op(n) for n in range(150)], 100),
    ],
)
def test_a_request_holds_the_leading_answers_of_one_person(ops: list[dict[str, Any]], sent: int, js: Any) -> None:  # noqa: ANN401
    assert js("outbox", "return m.nextBatch(v[0]).map((op) => op.key)", ops) == [one["key"] for one in ops[:sent]]


@pytest.mark.parametrize(
    ("change", "path", "body"),
    [
        (
            {},
            "/api/answers",
            {"annotator": "Ada", "answers": [{"key": "key1", "image": "i1", "kind": "label", "class_id": 2}]},
        ),
        (
            {"kind": "skip", "class_id": None, "seconds": 1.5, "at": 12},
            "/api/answers",
            {"annotator": "Ada", "answers": [{"key": "key1", "image": "i1", "kind": "skip", "seconds": 1.5, "at": 12}]},
        ),
        (
            {"kind": "other", "class_id": None, "seal": "0123456789abcdef"},
            "/api/answers",
            {
                "annotator": "Ada",
                "answers": [{"key": "key1", "image": "i1", "seal": "0123456789abcdef", "kind": "other"}],
            },
        ),
        ({"type": "undo", "undoes": "key0"}, "/api/undo", {"annotator": "Ada", "key": "key1", "undoes": "key0"}),
        (
            {"type": "settle", "kind": "settle-label"},
            "/api/settle",
            {"annotator": "Ada", "key": "key1", "image": "i1", "kind": "settle-label", "class_id": 2},
        ),
        (
            {"type": "settle", "kind": "settle-other", "class_id": None},
            "/api/settle",
            {"annotator": "Ada", "key": "key1", "image": "i1", "kind": "settle-other"},
        ),
    ],
)  # fmt: skip
def test_what_is_sent(change: dict[str, Any], path: str, body: dict[str, Any], js: Any) -> None:  # noqa: ANN401
    assert js("outbox", "return JSON.parse(JSON.stringify(m.requestFor([v[0]])))", {**op(1), **change}) == [path, body]


def test_the_past_is_the_server_s_history_and_what_waits(js: Any) -> None:  # noqa: ANN401
    newest_first = [
        {"key": "k2", "image": "b", "kind": "label", "class_id": 1},
        {"key": "k1", "image": "a", "kind": "skip", "class_id": None},
    ]
    waiting = [
        {**op(2), "key": "k2", "image": "b"},
        {**op(3), "key": "k3", "image": "c"},
        {**op(4, "undo"), "undoes": "k3"},
        {**op(5), "key": "k5", "image": "a"},
    ]
    past = js("past", "return m.pastOf(v[0], v[1])", newest_first, waiting)
    assert [(one["key"], one["image"]) for one in past] == [("k1", "a"), ("k2", "b"), ("k5", "a")]


@pytest.mark.parametrize(
    ("event", "action", "place"),
    [
        ({"code": "Digit1", "key": "1"}, "digit", 0),
        ({"code": "Digit0", "key": "0"}, "digit", 9),
        ({"code": "Digit1", "key": "!", "shiftKey": True}, "digit", 10),
        ({"code": "Digit1", "key": "&"}, "digit", 0),  # a French keyboard
        ({"code": "Numpad5", "key": "5"}, "digit", 4),
        ({"code": "Numpad4", "key": "ArrowLeft"}, "left", None),
        ({"code": "Digit1", "key": "1", "ctrlKey": True}, None, 0),
        ({"code": "KeyZ", "key": "z", "ctrlKey": True}, "undo", None),
        ({"code": "KeyZ", "key": "z", "metaKey": True}, "undo", None),
        ({"code": "KeyZ", "key": "Z", "ctrlKey": True, "shiftKey": True}, None, None),
        ({"code": "KeyZ", "key": "z"}, "zoom", None),
        ({"code": "KeyU", "key": "U"}, "undo", None),
        ({"code": "Backspace", "key": "Backspace"}, "undo", None),
        ({"code": "Slash", "key": "?", "shiftKey": True}, "help", None),
        ({"code": "KeyQ", "key": "q"}, None, None),
    ],
)
def test_the_keys(event: dict[str, Any], action: str | None, place: int | None, js: Any) -> None:  # noqa: ANN401
    script = "const e = new KeyboardEvent('keydown', v[0]); return [m.actionOf(e), m.placeOf(e)]"
    assert js("keys", script, event) == [action, place]


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("  Ada   Lovelace ", {"name": "Ada Lovelace"}),
        ("Zoë", {"name": "Zoë"}),
        ("", {"fault": "Please type a name."}),
        ("  ", {"fault": "Please type a name."}),
        ("x" * 60, {"name": "x" * 60}),
        ("x" * 61, {"fault": "Please use at most 60 letters."}),
        ("a\u202eb", {"fault": "The name has letters that cannot be shown."}),
        ("a\u0007b", {"fault": "The name has letters that cannot be shown."}),
    ],
)
def test_names(typed: str, wanted: dict[str, str], js: Any) -> None:  # noqa: ANN401
    assert js("check_name", "return m.checkName(v[0])", typed) == wanted


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("", ["Owl", "barn owl", "École", "owlet"]),
        ("owl", ["Owl", "owlet", "barn owl"]),
        ("ECO", ["École"]),
        ("x", []),
    ],
)
def test_classes_are_found_by_what_is_typed(typed: str, wanted: list[str], js: Any) -> None:  # noqa: ANN401
    classes = [{"name": name} for name in ("Owl", "barn owl", "École", "owlet")]
    assert js("matching", "return m.matching(v[0], v[1]).map((one) => one.name)", classes, typed) == wanted


def test_a_point_stays_under_the_pointer_while_zooming(js: Any) -> None:  # noqa: ANN401
    script = "return m.zoomed({ scale: 2, x: 10, y: -4 }, 1.5, 30, 20)"
    look = js("looks", script)
    assert look["scale"] == 3
    for pointer, before, after in ((30, 10, look["x"]), (20, -4, look["y"])):
        assert (pointer - before) / 2 == pytest.approx((pointer - after) / 3)


@pytest.mark.parametrize(("factor", "scale"), [(0.1, 1), (100, 12), (1.25, 2.5)])
def test_zoom_has_its_limits(factor: float, scale: float, js: Any) -> None:  # noqa: ANN401
    assert js("looks", "return m.zoomed({ scale: 2, x: 0, y: 0 }, v[0], 0, 0)", factor)["scale"] == scale


def test_the_enlarged_image_never_leaves_the_stage(js: Any) -> None:  # noqa: ANN401
    assert js("looks", "return m.held({ scale: 3, x: 999, y: -999 }, 100, 50)") == {"scale": 3, "x": 100, "y": -50}
    assert js("looks", "return m.held({ scale: 1, x: 5, y: 5 }, 100, 50)") == {"scale": 1, "x": 0, "y": 0}


def test_keys_of_answers_fit_the_server_and_never_repeat(js: Any) -> None:  # noqa: ANN401
    keys = js("ids", "return [...Array.from({ length: 500 }, m.newKey), ...m.newBatch(200)]")
    assert len(set(keys)) == 700
    assert all(8 <= len(key) <= 64 and key.replace("-", "").isalnum() for key in keys)
    assert len({js("ids", "return m.batchOf(v[0])", key) for key in keys[-3:]}) == 1
