"""Strict JSON: what is sound parses as the standard library parses it; what is not is refused, in time."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailwise.errors import BadInput
from tailwise.web import security

leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
values = st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=30)


def is_text(value: object) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def nesting(value: object) -> int:
    if isinstance(value, list | dict):
        inner = value.values() if isinstance(value, dict) else value
        return 1 + max((nesting(one) for one in inner), default=0)
    return 0


@given(values, st.booleans())
def test_sound_json_parses_as_it_always_does(value: object, escaped: bool) -> None:
    if not is_text(value) or nesting(value) > security.MAX_DEPTH:
        return
    assert security.parse_json(json.dumps(value, ensure_ascii=escaped).encode()) == value


@given(values)
def test_the_depth_is_that_of_the_value(value: object) -> None:
    assert security.depth(json.dumps(value).encode()) == min(nesting(value), security.MAX_DEPTH + 1)


@given(st.binary(max_size=200))
def test_any_bytes_give_a_value_or_a_reason(body: bytes) -> None:
    try:
        value = security.parse_json(body)
    except BadInput:
        return
    assert is_text(value)
    assert json.loads(body) == value


def test_the_depth_is_limited_exactly() -> None:
    most = security.MAX_DEPTH
    assert security.parse_json(b"[" * most + b"]" * most) is not None
    with pytest.raises(BadInput, match="nested more than 32 deep"):
        security.parse_json(b"[" * (most + 1) + b"]" * (most + 1))


def test_brackets_in_strings_are_no_depth() -> None:
    assert security.parse_json(json.dumps(["[" * 1000, '\\"[' * 1000]).encode()) == ["[" * 1000, '\\"[' * 1000]


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "[1, NaN]", "1e999", "-1e999", "9" * 5000])
def test_numbers_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(BadInput):
        security.parse_json(text.encode())


@pytest.mark.parametrize("text", [r'"\ud800"', r'"\udc00 x"', r'{"\ud800": 1}', r'"\ude00\ud83d"', r'["ok", "\udfff"]'])
def test_half_of_a_pair_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="surrogate"):
        security.parse_json(text.encode())


def test_a_whole_pair_is_a_character() -> None:
    assert security.parse_json(rb'"\ud83d\ude00"') == "😀"


@pytest.mark.parametrize(
    "body",
    [b'"' + b'\\"' * 500_000, b'"' * 1_000_000, b"[" * 1_000_000, b'["' + b"\\" * 999_999, b"[[" + b'"[",' * 250_000],
    ids=["escapes", "quotes", "open", "backslashes", "strings"],
)  # fmt: skip
def test_no_megabyte_takes_longer_than_a_moment(body: bytes) -> None:
    started = time.process_time()
    with pytest.raises(BadInput):
        security.parse_json(body)
    assert time.process_time() - started < 2
