"""The table of pools: a name and perhaps a folder in, a `Pool` out."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from ..registry import Registry, check_settings
from .images import Pool

PoolLoader: TypeAlias = Callable[..., Pool]
"""loader(path: Path | None = None, *, settings of its own) → Pool; `path` is where the files are."""

POOLS: Registry[PoolLoader] = Registry("pool")


def load_pool(name: str, path: str | Path | None = None, **settings: Any) -> Pool:  # noqa: ANN401 - each types its own
    """Read a pool by name; `path` is where its files are, None for its usual place or where it needs none.

    >>> load_pool("digits").train.classes
    10
    """
    loader = POOLS[name]
    known = [setting for setting in inspect.signature(loader).parameters if setting != "path"]
    check_settings(f"pool {name!r}", settings, known)
    return loader(None if path is None else Path(path).expanduser(), **settings)
