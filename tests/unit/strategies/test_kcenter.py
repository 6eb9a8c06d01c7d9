"""k-center as a strategy: where embeddings may come from, what is checked, and what two rounds say of themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

import tailwise
from tailwise.errors import BadInput
from tailwise.strategies import make

BUDGET = 24


def predictions(seed: int = 0, size: int = 240) -> tailwise.Predictions:
    rng = np.random.default_rng(seed)
    classes = rng.choice(4, size=size, p=[0.6, 0.25, 0.1, 0.05])
    centres = rng.normal(size=(4, 6))
    proba = 0.1 + 2.0 * np.eye(4)[classes] + rng.random((size, 4))
    return tailwise.Predictions(
        proba / proba.sum(axis=1, keepdims=True),
        embeddings=(centres[classes] + rng.normal(size=(size, 6))).astype(np.float32),
        labelled_embeddings=rng.normal(size=(10, 6)).astype(np.float32),
    )


def in_shards(array: np.ndarray, folder: Path) -> Path:
    folder.mkdir()
    for number, part in enumerate(np.array_split(array, 3)):
        np.save(folder / f"part-{number}.npy", part)
    return folder


def in_parquet(array: np.ndarray, folder: Path) -> Path:
    columns = {f"feature_{at}": array[:, at] for at in range(array.shape[1])}
    parquet.write_table(pyarrow.table(columns), folder.with_suffix(".parquet"), row_group_size=50)
    return folder.with_suffix(".parquet")


def in_one_file(array: np.ndarray, folder: Path) -> Path:
    np.save(folder.with_suffix(".npy"), array)
    return folder.with_suffix(".npy")


@pytest.mark.parametrize("written", [in_one_file, in_shards, in_parquet])
@pytest.mark.parametrize("as_text", [False, True])
def test_embeddings_in_files_give_the_picks_of_those_in_memory(
    written: Callable[[np.ndarray, Path], Path], as_text: bool, tmp_path: Path
) -> None:
    given = predictions()
    places = {name: written(getattr(given, name), tmp_path / name) for name in ("embeddings", "labelled_embeddings")}
    filed = replace(given, **{name: str(place) if as_text else place for name, place in places.items()})
    expected, found = (make("kcenter", balance=0.4).select(one, BUDGET) for one in (given, filed))
    assert found.indices.tolist() == expected.indices.tolist()
    assert found.informativeness == expected.informativeness


@pytest.mark.parametrize("name", ["embeddings", "labelled_embeddings"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_the_first_bad_row_is_named_whatever_is_read_together(
    name: str, bad: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tailwise.strategies import strategy

    monkeypatch.setattr(strategy, "CHECKED_BYTES", 1)
    given = predictions()
    broken = getattr(given, name).copy()
    broken[[9, 7], [0, 5]] = bad
    with pytest.raises(BadInput, match=f"^{name} holds NaN or infinity in row 7$"):
        make("kcenter", balance=0).select(replace(given, **{name: broken}), BUDGET)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"embeddings": np.ones((240, 6), dtype=int)}, r"embeddings must be a float matrix .* int64 \(240, 6\)"),
        ({"embeddings": np.ones(240)}, r"embeddings must be a float matrix .* float64 \(240,\)"),
        ({"embeddings": np.ones((239, 6))}, "embeddings has 239 rows, but the probabilities have 240"),
        ({"labelled_embeddings": np.ones((2, 5))}, "embeddings have 6 features, but labelled_embeddings have 5"),
        ({"embeddings": [["a"] * 6] * 240}, "embeddings must be numbers, but holds text"),
        ({"embeddings": np.full((240, 6), -1e150)}, r"embeddings holds a number beyond ±1e\+100 in row 0"),
    ],
)
def test_embeddings_that_cannot_be_used_are_refused(change: dict[str, object], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        make("kcenter", balance=0).select(replace(predictions(), **change), BUDGET)


def test_lists_of_numbers_are_embeddings_too() -> None:
    given = predictions()
    listed = replace(
        given, embeddings=given.embeddings.tolist(), labelled_embeddings=given.labelled_embeddings.tolist()
    )
    expected, found = (make("kcenter", balance=0).select(one, BUDGET) for one in (given, listed))
    assert found.indices.tolist() == expected.indices.tolist()


def test_two_rounds_name_themselves_and_tell_the_radius() -> None:
    given, told = predictions(), []
    batch = make("kcenter", parts=3, balance=0.4).select(given, BUDGET, report=told.append)
    assert batch.method == "kcenter (coreset of 72)"
    assert len(np.unique(batch.indices)) == BUDGET
    wide = given.embeddings.astype(np.float64)
    centres = np.concatenate([given.labelled_embeddings.astype(np.float64), wide[batch.indices]])
    radius = np.sqrt(((wide[:, None] - centres[None]) ** 2).sum(axis=2)).min(axis=1).max()
    assert "not exact, but among 72 candidates" in told[-1]
    assert told[-1].endswith(f"within {radius:.6g} of a pick or a labelled image")


def test_one_part_is_exact_and_so_are_so_many_that_every_image_is_a_candidate() -> None:
    given = predictions()
    exact, one, many = (
        make("kcenter", balance=0.4, **more).select(given, BUDGET) for more in ({}, {"parts": 1}, {"parts": 10})
    )
    assert exact.method == one.method == many.method == "kcenter"
    assert exact.indices.tolist() == one.indices.tolist() == many.indices.tolist()


@pytest.mark.parametrize("parts", [2, 5])
def test_two_rounds_can_be_balanced_by_a_rule(parts: int) -> None:
    given = predictions()
    plain, balanced = (make("kcenter", parts=parts, balance=rule).select(given, BUDGET) for rule in (0, "auto"))
    assert balanced.lam > 0
    assert balanced.l1 < plain.l1


@pytest.mark.parametrize("parts", [0, -2, 1.5, "2", True, None])
def test_parts_must_be_a_whole_number_above_zero(parts: object) -> None:
    with pytest.raises(BadInput, match=r"parts is .*whole number"):
        make("kcenter", balance=0, parts=parts)


def test_nothing_is_picked_from_any_number_of_parts() -> None:
    assert len(make("kcenter", balance=0, parts=3).select(predictions(), 0)) == 0
