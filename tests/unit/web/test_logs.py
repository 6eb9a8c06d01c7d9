from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

import tailwise.web
from tailwise.web.settings import LONGEST, escaped, get_log

HOSTILE = "7\nERROR all is lost\r\x1b[2J\x00\x85\u2028\u202e\ud800"


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """What a plain handler writes of one logger of the server."""
    log, out = get_log("tailwise.web.a_test"), io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    log.addHandler(handler)
    yield out
    log.removeHandler(handler)


def test_a_message_is_one_line_of_printable_characters(written: io.StringIO) -> None:
    get_log("tailwise.web.a_test").warning("annotation %s was left out, 100%%", HOSTILE)
    (line,) = written.getvalue().splitlines()
    assert line.isprintable()
    assert line.startswith(r"WARNING annotation 7\nERROR all is lost\r\x1b[2J\x00")
    assert line.endswith(" was left out, 100%")


def test_no_line_of_a_traceback_looks_like_one_of_the_log(written: io.StringIO) -> None:
    log = get_log("tailwise.web.a_test")
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        log.exception("%s failed", "POST /x\n")
    first, *others = written.getvalue().splitlines()
    assert first == r"ERROR POST /x\n failed"
    assert any("ValueError: 7" in line for line in others)
    assert all(line.startswith("    ") and line.isprintable() for line in others)


def test_a_long_message_is_cut(written: io.StringIO) -> None:
    get_log("tailwise.web.a_test").warning("%s", "x" * 1_000_000)
    assert len(written.getvalue()) < LONGEST + 100
    assert "(1,000,000 characters)" in written.getvalue()


def test_what_can_be_printed_stays() -> None:
    text = "Größe 3 µm – 'a\\b' 木 🦉"
    assert escaped(text) == text


def test_every_module_of_the_server_takes_its_logger_from_here() -> None:
    folder = Path(tailwise.web.__file__).parent
    users = [path.name for path in folder.glob("*.py") if "getLogger" in path.read_text(encoding="utf-8")]
    assert users == ["settings.py"]
