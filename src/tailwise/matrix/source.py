"""Where the work is done: rows in this process, or in an engine that another package brings along.

An engine is an entry point of the group `tailwise.engines`: a function (matrix, engine, shards) → context manager that
gives `Rows`. `tailwise[ray]` brings "ray".

The border: whatever the user gives as probabilities in, checked `Rows` and costs out, from one read of the data.

Everything behind this module trusts its arrays.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from ..errors import BadInput, BadProbabilities, UnknownName
from ..files import is_file, with_home
from ..inputs import is_bfloat16, real_array, shown, whole_number
from ..score import Score
from ..types import FloatArray, Proba
from .blocks import BFLOAT16_TOLERANCE, SUM_TOLERANCE
from .open import Matrix, as_matrix
from .shards import Column, LocalHands, Rows, shard_bounds
from .top_k import DESCRIPTION, TopK

if TYPE_CHECKING:
    from .open import Matrix


Engine: TypeAlias = "Callable[[Matrix, str, int | None], AbstractContextManager[Rows]]"
ENGINES = {"ray": "tailwise.ray.rows:ray_rows"}  # where each function is; it is imported when it is asked for
LOCAL = "local"
ADDRESS, ADDRESS_OF = re.compile(r"auto|[^\s/=]+:\d+"), "ray"  # an address alone is one of Ray's


@contextmanager
def rows_on(matrix: Matrix, engine: str = LOCAL, shards: int | None = None) -> Iterator[Rows]:
    """Rows on an engine: "local", or the name of another, perhaps with an address ("ray=host:6379")."""
    if shards is not None:
        shards = min(whole_number(shards, "shards", least=1, but=", or None"), max(1, matrix.shape[0]))
    named: object = engine
    if isinstance(named, str) and named == LOCAL:
        yield Rows(hands=LocalHands(matrix, shard_bounds(*matrix.shape, shards or 1)))
        return
    with _find(engine)(matrix, engine, shards) as rows:
        yield rows


def _find(engine: str) -> Engine:
    """The engine that a name, a name with an address, or an address alone belongs to."""
    if not isinstance(engine, str):
        raise BadInput(f"the engine is {shown(engine)}; it must be a name such as {LOCAL!r} or 'ray'")
    name = ADDRESS_OF if ADDRESS.fullmatch(engine) else re.split(r"\W", engine, maxsplit=1)[0]
    if name not in ENGINES:
        forms = [LOCAL, *(f"{one}, {one}=HOST:PORT" for one in sorted(ENGINES))]
        raise UnknownName(f"no engine is called {shown(engine)}; known: {', '.join(forms)}")
    module, function = ENGINES[name].split(":")
    found: Engine = getattr(import_module(module), function)
    return found


def open_proba(proba: Proba) -> Matrix:
    """Open probabilities, wherever they are; only their form is looked at."""
    if type(proba) is np.ndarray:  # the usual case
        array: Matrix = real_array(proba, "proba")
    else:
        sparse = _sparse(proba)
        array = as_matrix(proba, "proba") if sparse is None else sparse
    if array.ndim != 2:
        raise BadInput(f"probabilities must be a matrix (images × classes), but have shape {array.shape}")
    if array.dtype not in SUM_TOLERANCE:
        raise BadInput(f"probabilities must be float16, float32 or float64, but are {array.dtype}; convert them")
    if array.shape[1] == 0:
        raise BadInput("probabilities have no class columns")
    return _summing_to_1(np.asarray(array)) if is_bfloat16(proba) else array


def _summing_to_1(rounded: FloatArray) -> FloatArray:
    """Rows that bfloat16 has rounded, divided by their sums, as bounds hold for sums near 1; others are left to `scan`.

    Each entry is off by up to 2^-9 of itself, and so is a sum: five times what rows in float16 may be off by.
    """
    sums = rounded.sum(axis=1, dtype=np.float64, keepdims=True)  # (N, 1)
    return rounded / np.where(np.abs(sums - 1) <= BFLOAT16_TOLERANCE, sums, 1.0).astype(rounded.dtype)


def _sparse(proba: object) -> TopK | None:
    """A sparse softmax, given or in a folder; None where it is none."""
    if isinstance(proba, str | os.PathLike):
        folder = with_home(proba)
        return TopK.open(folder) if is_file(folder / DESCRIPTION) else None
    return proba if isinstance(proba, TopK) else None


def scan(rows: Rows, score: Score | None = None) -> Column:
    """Check every row and score it, in one pass; returns the costs 0 − score, zeros without a score."""
    costs, (bad, problems) = rows.scan(score, SUM_TOLERANCE[rows.dtype])
    if bad:
        shown = "; ".join(problems)
        more = f" (and {bad - len(problems):,} more)" if bad > len(problems) else ""
        hint = "; if these are logits, give logits=True, or apply softmax first" if 2 * bad > rows.size else ""
        raise BadProbabilities(f"{shown}{more}. Each row must hold probabilities, ≥ 0 and summing to 1{hint}")
    return costs
