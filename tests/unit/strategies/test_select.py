"""`tailwise.select` as its users call it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import numpy as np
import pandas as pd
import pytest

import tailwise
from tailwise.errors import BadInput, BadProbabilities, PoolExhausted, UnknownName
from tailwise.score import SCORES, entropy, margin
from tailwise.types import ScoreName, StrategyName


def pool(seed: int = 0, size: int = 2_000, classes: int = 5) -> np.ndarray:
    rng = np.random.default_rng(seed)
    logits = 2.5 * rng.normal(size=(size, classes)) + np.linspace(2, -2, classes)
    powers = np.exp(logits)
    return (powers / powers.sum(axis=1, keepdims=True)).astype(np.float32)


def test_the_certificate_adds_up() -> None:
    proba = pool()
    counts = np.array([30, 20, 10, 5, 0])
    batch = tailwise.select(proba, 100, counts=counts, balance=0.8, score="entropy")
    omega = np.maximum((counts.sum() + 100) / 5 - counts, 0)  # Eq. 4
    expected = proba[batch.indices].astype(np.float64).sum(axis=0)
    np.testing.assert_allclose(batch.target, omega)
    np.testing.assert_allclose(batch.expected_counts, expected, rtol=1e-12)
    assert batch.informativeness == pytest.approx(entropy(proba)[batch.indices].sum(), rel=1e-6)
    assert batch.l1 == pytest.approx(np.abs(omega - expected).sum())
    assert batch.objective == pytest.approx(-batch.informativeness + 0.8 * batch.l1)
    assert batch.gap == pytest.approx((batch.objective - batch.bound) / (batch.informativeness + 0.8 * batch.l1))
    assert batch.bound <= batch.objective
    assert batch.indices.dtype == np.int64
    assert len(batch) == 100


def test_lambda_zero_is_plain_top_b_best_first() -> None:
    proba = pool()
    scores = margin(proba)
    batch = tailwise.select(proba, 50, score="margin", balance=0)
    assert batch.indices.tolist() == np.argsort(-scores, kind="stable")[:50].tolist()
    assert batch.status == "optimal"


def test_a_huge_lambda_buys_balance() -> None:
    proba = pool()
    plain, balanced = (tailwise.select(proba, 100, balance=lam, score="entropy") for lam in (0, 1e5))
    assert balanced.l1 < 0.02 * plain.l1


def test_scores_may_be_an_array_and_larger_is_better() -> None:
    scores = np.arange(2_000.0)
    batch = tailwise.select(pool(), 3, score=scores, balance=0)
    assert batch.indices.tolist() == [1999, 1998, 1997]


def test_files_give_the_picks_of_the_array(tmp_path: Path) -> None:
    np.save(tmp_path / "p.npy", pool())
    from_file = tailwise.select(tmp_path / "p.npy", 40, balance=1.0, score="entropy")
    assert from_file.indices.tolist() == tailwise.select(pool(), 40, balance=1.0, score="entropy").indices.tolist()


def test_half_precision_is_solved_as_it_is_stored() -> None:
    half = pool().astype(np.float16)
    batch = tailwise.select(half, 60, balance=1.0, score="entropy")
    expected = half[batch.indices].astype(np.float64).sum(axis=0)
    np.testing.assert_allclose(batch.expected_counts, expected)


def test_the_target_may_be_counts_shares_or_ranges() -> None:
    proba = pool()
    wanted = np.array([10.0, 20.0, 30.0, 20.0, 20.0])
    by_counts = tailwise.select(proba, 100, target=wanted, balance=2.0, score="entropy")
    by_shares = tailwise.select(proba, 100, target=tailwise.Target.shares(wanted), balance=2.0, score="entropy")
    assert by_counts.indices.tolist() == by_shares.indices.tolist()
    ranges = tailwise.Target.ranges(low={4: 25.0}, high=40)
    ranged = tailwise.select(proba, 100, target=ranges, balance=2.0, score="entropy")
    assert ranged.expected_counts[4] > 24.5
    assert ranged.target.tolist() == [0, 0, 0, 0, 25]
    assert ranged.target_high.tolist() == [40] * 5


def test_classes_beyond_reach_are_named_with_numbers() -> None:
    proba = pool()
    batch = tailwise.select(proba, 100, target=[0, 0, 0, 0, 100], balance=1.0, score="entropy")
    (shortfall,) = batch.unreachable
    most = np.sort(proba[:, 4].astype(np.float64))[-100:].sum()
    assert (shortfall.cls, shortfall.wanted) == (4, 100.0)
    assert shortfall.reachable == pytest.approx(most, rel=1e-6)
    assert "class 4 can reach at most" in repr(batch)


def test_a_class_without_any_probability_does_no_harm() -> None:
    proba = np.hstack([pool(), np.zeros((2_000, 1), dtype=np.float32)])
    batch = tailwise.select(proba, 60, balance=1.0, score="entropy")
    assert [shortfall.cls for shortfall in batch.unreachable] == [5]
    assert batch.unreachable[0].reachable == 0.0
    assert "can reach at most 0.0 of" in str(batch.unreachable[0])  # not -0.0


def test_one_class_is_top_b() -> None:
    batch = tailwise.select(np.ones((10, 1)), 4, score=np.arange(10.0))
    assert batch.indices.tolist() == [9, 8, 7, 6]


def test_the_answer_travels_as_json_and_as_a_frame() -> None:
    batch = tailwise.select(pool(), 10, balance=1.0, score="entropy")
    plain = json.loads(batch.to_json())
    assert plain["indices"] == batch.indices.tolist()
    assert plain["gap"] == batch.gap
    assert batch.to_frame()["index"].tolist() == batch.indices.tolist()
    assert batch.to_frame()["rank"].tolist() == list(range(1, 11))


def test_an_absent_bound_is_null_in_json() -> None:
    rng = np.random.default_rng(0)
    predictions = tailwise.Predictions(pool(size=50), rng.normal(size=(50, 3)), rng.normal(size=(5, 3)))
    batch = tailwise.strategies.make("kcenter", balance=0).select(predictions, 5)
    assert json.loads(batch.to_json())["bound"] is None
    assert "no bound" in repr(batch)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"budget": 2_001}, PoolExhausted, "asked for 2001 picks, but only 2000 images"),
        ({"budget": -1}, BadInput, "budget is -1"),
        ({"budget": 2.5}, BadInput, "budget is 2.5"),
        ({"budget": 5, "score": "entropie"}, UnknownName, "did you mean 'entropy'"),
        ({"budget": 5, "score": [1.0]}, BadInput, "must have 2000 entries"),
        ({"budget": 5, "counts": [1, 2]}, BadInput, "must have 5 entries"),
        ({"budget": 5, "target": [1, 2]}, BadInput, "5 classes"),
        ({"budget": 5, "target": [1, 2, -3, 0, 0]}, BadInput, "class 2 is -3"),
        ({"budget": 5, "gap": -1.0}, BadInput, "gap"),
        ({"budget": 5, "time_limit": -1.0}, BadInput, "time_limit"),
        ({"budget": 5, "seed": -1}, BadInput, "seed"),
        ({"budget": 5, "balance": "some"}, BadInput, "balance"),
    ],
)
def test_bad_requests_are_refused_with_what_is_wrong(arguments: dict, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        tailwise.select(pool(), **arguments)


def test_steps_are_reported() -> None:
    lines: list[str] = []
    tailwise.select(pool(), 100, balance=1.0, report=lines.append, score="entropy")
    assert any("gap" in line for line in lines)


# -- what is chosen where nothing is asked for -------------------------------------------------------------------------

COUNTS = np.array([30, 20, 10, 5, 1])


def embedded(seed: int = 3, size: int = 600) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Probabilities (N, C), embeddings (N, d) that they follow from, and those of 66 labelled images."""
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(size + 66, 8)).astype(np.float32)
    logits = points @ rng.normal(size=(8, 5)) + np.linspace(2, -2, 5)
    powers = np.exp(logits[66:])
    return powers / powers.sum(axis=1, keepdims=True), points[66:], points[:66]


def test_without_embeddings_it_is_base() -> None:
    batch = tailwise.select(pool(), 40, counts=COUNTS)
    wanted = tailwise.strategies.make("base", balance="auto").select(tailwise.Predictions(pool()), 40, counts=COUNTS)
    assert batch.method == "base"
    assert batch.indices.tolist() == wanted.indices.tolist()


def test_with_embeddings_it_is_boundary(tmp_path: Path) -> None:
    proba, around, labelled = embedded()
    told = tailwise.Predictions(proba, around, labelled)
    wanted = tailwise.strategies.make("boundary", balance="auto").select(told, 40, counts=COUNTS, seed=4)
    batch = tailwise.select(proba, 40, embeddings=around, labelled_embeddings=labelled, counts=COUNTS, seed=4)
    assert batch.method == "boundary"
    assert batch.indices.tolist() == wanted.indices.tolist()
    for name, values in {"proba": proba, "pool": around, "labelled": labelled}.items():
        np.save(tmp_path / f"{name}.npy", values)
    filed = tailwise.select(
        tmp_path / "proba.npy", 40, embeddings=tmp_path / "pool.npy", labelled_embeddings=tmp_path / "labelled.npy",
        counts=COUNTS, seed=4,
    )  # fmt: skip
    assert filed.indices.tolist() == wanted.indices.tolist()


def test_where_nothing_is_labelled_no_labelled_embeddings_are_needed() -> None:
    proba, around, _ = embedded()
    batches = [
        tailwise.select(proba, 20, embeddings=around, counts=counts, labelled_embeddings=labelled)
        for counts in (None, np.zeros(5), {0: 0}) for labelled in (None, np.empty((0, 8), dtype=np.float32))
    ]  # fmt: skip
    assert len({tuple(batch.indices.tolist()) for batch in batches}) == 1
    with pytest.raises(BadInput, match="there are labelled images, but no labelled_embeddings"):
        tailwise.select(proba, 20, embeddings=around, counts=COUNTS)


def test_a_sparse_softmax_is_judged_by_margin() -> None:
    sparse = tailwise.TopK.of(pool(), 3)
    batch = tailwise.select(sparse, 40, counts=COUNTS)
    assert batch.method == "margin"
    assert batch.indices.tolist() == tailwise.select(sparse, 40, counts=COUNTS, score="margin").indices.tolist()


def test_a_strategy_goes_by_its_name() -> None:
    proba, around, labelled = embedded()
    wanted = tailwise.strategies.make("kcenter", balance=0.5).select(
        tailwise.Predictions(proba, around, labelled), 20, counts=COUNTS
    )
    batch = tailwise.select(
        proba, 20, strategy="kcenter", embeddings=around, labelled_embeddings=labelled, counts=COUNTS, balance=0.5
    )
    assert batch.indices.tolist() == wanted.indices.tolist()
    with pytest.raises(UnknownName, match="no strategy is called 'nearest'"):
        tailwise.select(proba, 20, strategy="nearest")
    with pytest.raises(BadInput, match="score is given as well"):
        tailwise.select(proba, 20, strategy="base", score="entropy")
    with pytest.raises(BadInput, match=r"'bald' needs predictions\.mc_proba"):
        tailwise.select(proba, 20, strategy="bald")


def test_logits_are_turned_into_probabilities(tmp_path: Path) -> None:
    proba = pool()
    logits = np.log(proba) + np.linspace(-50, 50, len(proba), dtype=np.float32)[:, None]
    np.save(tmp_path / "logits.npy", logits)
    wanted = tailwise.select(proba, 40, counts=COUNTS)
    for given in (logits, logits.astype(np.float64), tmp_path / "logits.npy"):
        batch = tailwise.select(given, 40, counts=COUNTS, logits=True)
        assert batch.indices.tolist() == wanted.indices.tolist()
        np.testing.assert_allclose(batch.expected_counts, wanted.expected_counts, rtol=1e-4)
    with pytest.raises(BadInput, match="If these are logits, give logits=True"):
        tailwise.select(logits, 40)


def test_logits_keep_the_names_of_their_classes() -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(np.log(pool()), columns=list("abcde"))
    counts = dict(zip("abcde", COUNTS.tolist(), strict=True))
    batch = tailwise.select(table, 40, counts=counts, logits=True)
    assert batch.indices.tolist() == tailwise.select(np.log(pool()), 40, counts=COUNTS, logits=True).indices.tolist()


def test_labelled_images_say_how_far_the_default_can_be_trusted() -> None:
    proba = pool()
    labels = np.array([np.random.default_rng(row).choice(5, p=p / p.sum()) for row, p in enumerate(proba[:300])])
    batch = tailwise.select(proba[300:], 40, counts=COUNTS, labelled_proba=proba[:300], labels=labels)
    assert batch.method == "base"
    assert batch.trust is not None
    assert batch.trust.labels == 300
    assert abs(batch.trust.accuracy - batch.trust.confidence) < 0.1


def test_places_are_what_is_balanced_at_the_borders() -> None:
    proba, around, labelled = embedded()
    boundary = tailwise.select(proba, 40, embeddings=around, labelled_embeddings=labelled, counts=COUNTS)
    for batch in (tailwise.select(proba, 40, counts=COUNTS, target=tailwise.Target.uniform()), boundary):
        assert batch.places is not None
        assert batch.places[:2].tolist() == [0, 0]  # they have 30 and 20 labels already
        assert sorted((COUNTS + batch.places)[2:].tolist()) == [18, 19, 19]
        assert "  places     0   0 " in repr(batch)
        assert batch.to_dict()["places"] == batch.places.tolist()
    equally = tailwise.select(proba, 40, counts=COUNTS).places
    assert equally is not None
    assert equally.tolist() == [8] * 5  # base, where no target is given
    assert tailwise.select(proba, 40, score="entropy").places is None


def test_tables_and_columns_of_lists_are_read_like_arrays() -> None:
    import polars
    import pyarrow as pa

    proba = np.random.default_rng(0).dirichlet([2.0, 1.0, 0.5], 40)
    rows, picks = proba.tolist(), tailwise.select(proba, 5).indices.tolist()
    columns = {name: proba[:, at] for at, name in enumerate("abc")}
    for given in (
        pd.Series(list(proba)), pd.DataFrame({"proba": list(proba)}), polars.DataFrame(columns),
        polars.Series("proba", rows), polars.DataFrame({"proba": rows}), pa.table(columns), pa.array(rows),
        pa.chunked_array([pa.array(rows[:20]), pa.array(rows[20:])]), pa.table({"proba": pa.array(rows)}),
    ):  # fmt: skip
        batch = tailwise.select(given, 5)  # type: ignore[arg-type]
        assert batch.indices.tolist() == picks
        assert batch.class_names in (None, ("a", "b", "c"))
    with pytest.raises(BadInput, match="lists of different lengths"):
        tailwise.select(pd.Series([[0.5, 0.5], [1.0]]), 1)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="give one column of the data set"):
        tailwise.select([{"proba": [0.5, 0.5]}], 1)  # type: ignore[arg-type]


def test_logits_are_recognised() -> None:
    with pytest.raises(BadProbabilities, match=r"did you forget softmax\? If these are logits, give logits=True"):
        tailwise.select(np.random.default_rng(0).normal(size=(20, 3)), 5)


def test_the_names_for_type_checkers_are_those_of_the_registries() -> None:
    assert set(get_args(StrategyName)) == set(tailwise.strategies.STRATEGIES)
    assert set(get_args(ScoreName)) == set(SCORES)


def test_picks_with_costs_are_listed_by_what_they_give_per_cost() -> None:
    rng = np.random.default_rng(0)
    proba, cost = rng.dirichlet([3.0, 2.0, 1.0], size=300), rng.uniform(1, 3, 300)
    batch = tailwise.select(proba, 25, score="entropy", cost=cost, balance=0)
    worth = np.array([pick.score for pick in batch.picks]) / cost[batch.indices]
    assert len(batch.indices) > 5
    assert (np.diff(worth) <= 1e-9).all()
