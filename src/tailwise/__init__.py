"""Tailwise picks the images worth labelling next from a long-tailed pool, informative and class-balanced.

The public names; each is loaded when it is first used, so that `import tailwise` stays fast.
"""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING

from ._version import __version__

if TYPE_CHECKING:
    from . import errors, score, strategies
    from .calibration import calibrate
    from .campaign.service import Campaign
    from .matrix.open import TopK
    from .strategies.select import balance_path, select
    from .targets import Target
    from .types import Predictions, Selection, Trust

__all__ = [
    "Campaign",
    "Predictions",
    "Selection",
    "Target",
    "TopK",
    "Trust",
    "__version__",
    "balance_path",
    "calibrate",
    "errors",
    "score",
    "select",
    "strategies",
]

_HOME = {
    "Campaign": "campaign.service",
    "Predictions": "types",
    "Selection": "types",
    "Target": "targets",
    "TopK": "matrix.open",
    "Trust": "types",
    "balance_path": "strategies.select",
    "calibrate": "calibration",
    "select": "strategies.select",
}
_MODULES = frozenset({"errors", "score", "strategies"})


if not TYPE_CHECKING:  # a type checker reads the imports above instead, and so finds misspelt names

    def __getattr__(name: str) -> object:
        """Load a public name from its module."""
        if name in _MODULES:
            return importlib.import_module(f".{name}", __name__)
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """Show the public names, loaded or not."""
    return sorted(__all__)


class _OldNames:
    """Asked for modules that are found nowhere else: those of 0.1.0 that have moved."""

    @staticmethod
    def find_spec(name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        """How to load a module under its old name."""
        if not name.startswith(f"{__name__}."):
            return None
        from ._moved import find_spec

        return find_spec(name)


sys.meta_path.append(_OldNames)
