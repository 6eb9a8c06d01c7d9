"""The table of pools: a name and perhaps a folder in, a `Pool` out."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, Protocol

from ..errors import BadInput
from ..registry import Registry
from .images import Pool


class PoolLoader(Protocol):
    """Reads a pool; `path` is where its files are, None where it needs none."""

    def __call__(self, path: Path | None, **settings: Any) -> Pool:  # noqa: ANN401 - each pool types its own settings
        """Read the pool."""
        ...


POOLS: Registry[PoolLoader] = Registry("pool")


def load_pool(name: str, path: Path | None = None, **settings: Any) -> Pool:  # noqa: ANN401 - as above
    """Read a pool by name.

    >>> load_pool("digits").train.classes
    10
    """
    loader = POOLS[name]
    known = [setting for setting in inspect.signature(loader).parameters if setting != "path"]
    unknown = sorted(set(settings) - set(known))
    if unknown:
        raise BadInput(f"pool {name!r} has no setting {unknown[0]!r}; its settings are {', '.join(known) or 'none'}")
    return loader(path, **settings)
