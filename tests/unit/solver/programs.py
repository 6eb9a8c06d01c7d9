"""Programs from plain arrays, and the arrays back out of them."""

from __future__ import annotations

import numpy as np

from tailwise.matrix.shards import LocalBackend, Rows, shard_bounds
from tailwise.solver.program import Program
from tailwise.targets import Ranges
from tailwise.types import Float64Array, FloatArray


def make_program(
    proba: FloatArray, cost: Float64Array, budget: int, lam: float, ranges: Ranges, *,
    threads: int | None = None, shards: int = 1,
) -> Program:  # fmt: skip
    """A program on rows in this process."""
    rows = Rows(backend=LocalBackend(proba, shard_bounds(*proba.shape, shards), threads))
    return Program(rows, rows.hold(cost), budget, lam, ranges)


def proba_of(program: Program) -> Float64Array:
    """P, (N, C)."""
    return program.rows.take(np.arange(program.rows.size))
