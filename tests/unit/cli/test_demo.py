from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tailwise.cli.demo import BUDGET, experiment, run_demo
from tailwise.errors import BadFile


def test_balance_beats_entropy_and_chance_on_average() -> None:
    scores = np.array([[batch.l1_score for batch in experiment(seed).batches] for seed in range(3)])
    chance, entropy, balanced = scores.mean(axis=0)
    assert balanced < 0.8 * min(chance, entropy)


def test_the_pool_is_long_tailed_and_the_batches_are_whole() -> None:
    demo = experiment(0)
    assert demo.pool[5:].max() < 0.25 * demo.pool[:5].min()
    assert set(demo.labelled) == {10}
    assert [batch.counts.sum() for batch in demo.batches] == [BUDGET] * 3
    assert all(np.isfinite(batch.selection.gap) for batch in demo.batches)


def test_the_figure_is_left_in_the_folder_and_named_last(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_demo(tmp_path / "new" / "demo", seed=1)
    figure = tmp_path / "new" / "demo" / "batches.png"
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert capsys.readouterr().out.splitlines()[-1] == f"Figure: {figure}"


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadFile, match="cannot make the folder"):
        run_demo(tmp_path / "file" / "demo", seed=0)
