"""Tailwise picks the images worth labelling next from a long-tailed pool, informative and class-balanced.

The public names; each is loaded when it is first used, so that `import tailwise` stays fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from ._version import __version__

if TYPE_CHECKING:
    from . import errors, score, strategies
    from .api import Campaign
    from .balance.calibration import calibrate
    from .balance.target import Target
    from .solve.top_k import TopK
    from .strategies.path import balance_path
    from .strategies.select import select
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
    "Campaign": "api",
    "Predictions": "types",
    "Selection": "types",
    "Target": "balance.target",
    "TopK": "solve.top_k",
    "Trust": "types",
    "balance_path": "strategies.path",
    "calibrate": "balance.calibration",
    "select": "strategies.select",
}
_ROOMS = frozenset({"errors", "score", "strategies"})


if not TYPE_CHECKING:  # a type checker reads the imports above instead, and so finds misspelt names

    def __getattr__(name: str) -> object:
        """Load a public name from its room."""
        if name in _ROOMS:
            return importlib.import_module(f".{name}", __name__)
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """Show the public names, loaded or not."""
    return sorted(__all__)
