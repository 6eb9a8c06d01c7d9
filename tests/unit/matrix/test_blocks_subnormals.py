"""A process that counts subnormal numbers as 0 (torch can make it do so) picks from float16 as any other does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tailwise
from tailwise.matrix.blocks import flushes_subnormals

SIZE, CLASSES, SMALL = 200, 500, 6e-5  # below 2^-14 a half is subnormal

CHILD = """
import sys
import numpy as np
import torch
import tailwise
from tailwise.matrix.blocks import flushes_subnormals

assert torch.set_flush_denormal(True), "this processor cannot"
assert flushes_subnormals()
batch = tailwise.select(np.load(sys.argv[1]), 10, balance=1.0, score="entropy")
print(*batch.indices.tolist(), batch.objective.hex(), batch.bound.hex())
"""


def halves() -> np.ndarray:
    """Rows of which three hundredths are in subnormal numbers, and rows that hold few of them."""
    rng = np.random.default_rng(0)
    rows = np.full((SIZE, CLASSES), SMALL)
    rows[np.arange(SIZE), rng.integers(CLASSES, size=SIZE)] = 1 - (CLASSES - 1) * SMALL
    return np.concatenate([rows, rng.dirichlet(np.full(CLASSES, 0.02), size=SIZE)]).astype(np.float16)


def test_half_precision_gives_the_same_batch_where_subnormals_are_flushed(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    np.save(tmp_path / "p.npy", halves())
    command = [sys.executable, "-W", "error", "-c", CHILD, str(tmp_path / "p.npy")]
    child = subprocess.run(command, capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stderr
    batch = tailwise.select(halves(), 10, balance=1.0, score="entropy")
    assert child.stdout.split() == [*map(str, batch.indices.tolist()), batch.objective.hex(), batch.bound.hex()]


def test_this_process_flushes_nothing() -> None:
    assert not flushes_subnormals()
