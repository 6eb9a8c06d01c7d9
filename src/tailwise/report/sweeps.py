"""A λ sweep with the methods that it is compared to: what Fig. 4 is drawn from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..strategies.path import PATH_COLUMNS, BalancePath
from .names import strategy_shown


@dataclass(frozen=True, slots=True)
class Reference:
    """A method without a λ to sweep: a line across each panel."""

    name: str
    informativeness: float
    l1: float
    l1_score: float


@dataclass(frozen=True, slots=True, eq=False)
class PoolSweep:
    """The sweep on the first model of a pool."""

    pool: str
    setting: str
    path: BalancePath
    references: tuple[Reference, ...] = ()


def sweep_of(content: Mapping[str, Any]) -> PoolSweep:
    """A sweep from plain values: those of `BalancePath.to_dict`, with pool, setting and references.

    >>> numbers = {"lam": [0.0, 1.0], "informativeness": [3.0, 2.0], "l1": [9.0, 1.0], "l1_score": [0.5, 0.1],
    ...            "gap": [0.0, 0.0], "chosen": 1.0, "pool": "digits", "setting": "step 0.1",
    ...            "references": {"entropy": {"informativeness": 3.0, "l1": 9.0, "l1_score": 0.5}}}
    >>> sweep_of(numbers).references
    (Reference(name='Entropy', informativeness=3.0, l1=9.0, l1_score=0.5),)
    """
    columns = {name: np.asarray(content[name], dtype=np.float64) for name in PATH_COLUMNS}
    compared = content.get("references", {})
    return PoolSweep(
        content["pool"], content["setting"], BalancePath(**columns, chosen=float(content["chosen"])),
        tuple(Reference(strategy_shown(name), **numbers) for name, numbers in compared.items()),
    )  # fmt: skip
