"""Tailwise picks the images worth labelling next from a long-tailed pool, informative and class-balanced.

The public names; each is loaded when it is first used, so that `import tailwise` stays fast. Import paths that the
documentation of 0.1.0 showed still work, with a DeprecationWarning.
"""

from __future__ import annotations

import importlib
import logging
import sys
import warnings
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING

__version__ = "0.2.0"

if TYPE_CHECKING:
    from . import errors, score, strategies
    from .calibration import calibrate
    from .campaign.service import Campaign
    from .matrix.open import TopK
    from .selection import Selection, Trust
    from .strategies.select import balance_path, select
    from .targets import Target
    from .types import Predictions, ProgressBar

__all__ = [
    "Campaign",
    "Predictions",
    "ProgressBar",
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
    "ProgressBar": "types",
    "Selection": "selection",
    "Target": "targets",
    "TopK": "matrix.open",
    "Trust": "selection",
    "balance_path": "strategies.select",
    "calibrate": "calibration",
    "select": "strategies.select",
}
_MODULES = frozenset({"errors", "score", "strategies"})


logging.getLogger(__name__).addHandler(logging.NullHandler())  # silent, until a program asks for the log


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


# Modules that the documentation of 0.1.0 showed, and where they are now.
_MOVED = {
    "balance": "softmax", "balance.calibrate": "softmax", "bench": "experiments",
    "bench.config": "experiments.experiment",
    "bench.runner": "experiments.runner", "bench.store": "experiments.store",
    "learn": "learners", "learn.base": "learners.learner", "learn.calibrated": "learners.learner",
    "learn.simple_features": "learners.features", "pool": "pools", "pool.digits": "pools.datasets",
    "pool.longtail": "pools.pool", "pool.tree": "pools.folder", "scale": "inference",
    "scale.cluster": "ray.cluster", "scale.inference": "inference.pipeline",
    "scale.shard_store": "inference.storage",
}  # fmt: skip


class _OldNames(Loader):
    """Finds and loads modules under their names of 0.1.0, which work for one more release."""

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        """Asked for modules that are found nowhere else; None for all but those that have moved."""
        package, _, old = name.partition(".")
        return ModuleSpec(name, self, is_package=True) if package == __name__ and old in _MOVED else None

    def exec_module(self, module: ModuleType) -> None:
        """Pass on every attribute of the module that has it now."""
        new = f"{__name__}.{_MOVED[module.__name__.partition('.')[2]]}"
        warnings.warn(f"{module.__name__} is now {new}; the old name goes with the next release", DeprecationWarning, 2)
        vars(module)["__getattr__"] = lambda name: getattr(importlib.import_module(new), name)


sys.meta_path.append(_OldNames())
