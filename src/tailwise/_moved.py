"""Import paths that the documentation of 0.1.0 showed: they work for one more release, with a DeprecationWarning."""

from __future__ import annotations

import warnings
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType

MOVED = {
    "balance": "softmax", "balance.calibrate": "softmax", "bench": "experiments",
    "bench.config": "experiments.experiment",
    "bench.runner": "experiments.runner", "bench.store": "experiments.store",
    "learn": "learners", "learn.base": "learners.learner", "learn.calibrated": "learners.learner",
    "learn.simple_features": "learners.features", "pool": "pools", "pool.digits": "pools.mnist",
    "pool.longtail": "pools.longtail", "pool.tree": "pools.folder", "scale": "inference",
    "scale.cluster": "ray.cluster", "scale.inference": "inference.pipeline",
    "scale.shard_store": "inference.shard_store",
}  # fmt: skip


class OldName:
    """Loads a module that passes every attribute on to the module that has it now."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """A module without files of its own, so that its submodules are looked up here as well."""
        module, new = ModuleType(spec.name), f"tailwise.{MOVED[spec.name.removeprefix('tailwise.')]}"
        warnings.warn(f"{spec.name} is now {new}; the old name goes with the next release", DeprecationWarning, 2)
        vars(module).update(__path__=[], __getattr__=lambda name: getattr(import_module(new), name))
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is left to do."""


def find_spec(name: str) -> ModuleSpec | None:
    """How to load a module under an old name; None for any other name."""
    return ModuleSpec(name, OldName()) if name.removeprefix("tailwise.") in MOVED else None  # type: ignore[arg-type]
