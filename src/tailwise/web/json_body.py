"""Strict JSON of request bodies: UTF-8, finite numbers, whole characters, bounded nesting."""

from __future__ import annotations

import json
import math
import re
from typing import NoReturn

from ..errors import BadInput

MAX_DEPTH = 32
# Possessive, and an open string ends with the text: so a body of a million quotes is still scanned once.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_BRACKETS = re.compile(rb"[\[\]{}]")


def parse_json(body: bytes) -> object:
    r"""The value of a JSON text.

    >>> parse_json(b'{"seconds": 1.5}')
    {'seconds': 1.5}
    >>> parse_json(b'[NaN]')
    Traceback (most recent call last):
    ...
    tailwise.errors.BadInput: the body contains NaN, which is not valid JSON; send null or a number
    """
    openings = body.count(b"[") + body.count(b"{")
    if openings > MAX_DEPTH and depth(body) > MAX_DEPTH:  # most bodies have too few brackets to be deep
        raise BadInput(f"the body is nested more than {MAX_DEPTH} deep; send a flatter one")
    try:
        value: object = json.loads(body.decode("utf-8"), parse_constant=_no_constant, parse_float=_finite)
        # A lone surrogate can only be written as an escape; it parses, but no file and no database can hold it.
        if b"\\u" in body:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except BadInput:
        raise
    except UnicodeDecodeError:
        raise BadInput("the body is not UTF-8; send JSON as UTF-8") from None
    except UnicodeEncodeError:
        raise BadInput("the body contains half of a surrogate pair, which is not text; send whole characters") from None
    except (ValueError, RecursionError) as error:
        raise BadInput(f"the body is not valid JSON: {error}") from None
    return value


def depth(body: bytes) -> int:
    """How deep arrays and objects are nested, without brackets in strings; stops counting above MAX_DEPTH.

    >>> depth(b'{"a": [1, "[["]}')
    2
    """
    deepest = level = 0
    for bracket in _BRACKETS.finditer(_STRING.sub(b"", body)):
        level += 1 if bracket.group() in b"[{" else -1
        deepest = max(deepest, level)
        if deepest > MAX_DEPTH:
            break
    return deepest


def _no_constant(name: str) -> NoReturn:
    raise BadInput(f"the body contains {name}, which is not valid JSON; send null or a number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise BadInput(f"the body contains the number {text[:40]}, which is too large")
    return value
