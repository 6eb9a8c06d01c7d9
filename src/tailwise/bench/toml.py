"""Plain values as TOML: the standard library reads it, but does not write it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

BARE = re.compile(r"[A-Za-z0-9_-]+")


def dump(values: Mapping[str, Any], path: tuple[str, ...] = ()) -> str:
    r"""A table as TOML: plain values first, then tables, then lists of tables.

    >>> print(dump({"name": "a", "pool": {"size": 2}, "ways": [{"x": 1.0}]}), end="")
    name = "a"
    <BLANKLINE>
    [pool]
    size = 2
    <BLANKLINE>
    [[ways]]
    x = 1.0
    """
    plain = [f"{_key(key)} = {_value(value)}\n" for key, value in values.items() if not _is_table(value)]
    tables = []
    for key, value in values.items():
        inner = (*path, key)
        heading = ".".join(_key(step) for step in inner)
        if isinstance(value, Mapping):
            tables.append(f"\n[{heading}]\n{dump(value, inner)}")
        elif _is_table(value):
            tables += [f"\n[[{heading}]]\n{dump(one, inner)}" for one in value]
    return "".join([*plain, *tables])


def _is_table(value: object) -> bool:
    tables = isinstance(value, list) and bool(value) and all(isinstance(one, Mapping) for one in value)
    return isinstance(value, Mapping) or tables


def _key(key: str) -> str:
    return key if BARE.fullmatch(key) else _text(key)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(one) for one in value)}]"
    return repr(value)


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
