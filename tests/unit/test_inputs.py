"""Arrays of other libraries, and names: what is read, how it is aligned, and what is rejected with a reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

import tailwise
from tailwise.errors import BadInput, BadProbabilities
from tailwise.inputs import class_names, real_array

CLASSES = ["owl", "kite", "wren", "rook"]
COUNTS = [40.0, 20.0, 5.0, 0.0]


def pool(size: int = 300) -> np.ndarray:
    return np.random.default_rng(0).dirichlet([3.0, 1.0, 0.4, 0.2], size=size)


def frame() -> pd.DataFrame:
    return pd.DataFrame(pool(), columns=CLASSES)


def picks(proba: Any, **arguments: Any) -> list[int]:  # noqa: ANN401 - whatever a user may give
    return tailwise.select(proba, 20, balance=1.0, **({"score": "entropy"} | arguments)).indices.tolist()


BY_POSITION = picks(pool(), counts=COUNTS)


# -- names of classes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "counts",
    [
        pd.Series(COUNTS, index=CLASSES),
        pd.Series(COUNTS, index=CLASSES).sort_values(),
        pd.Series(COUNTS, index=CLASSES)[["wren", "owl", "kite"]],  # as value_counts leaves out what never occurs
        dict(zip(reversed(CLASSES), reversed(COUNTS), strict=True)),
        {"owl": 40, "kite": 20, "wren": 5},
        {0: 40, 2: 5, 1: 20},
        Counter({"owl": 40, "kite": 20, "wren": 5}),
        pd.Series(COUNTS),
        COUNTS,
    ],
)
def test_counts_are_aligned_with_the_columns_of_a_table(counts: Any) -> None:  # noqa: ANN401 - see above
    assert picks(frame(), counts=counts) == BY_POSITION
    batch = tailwise.strategies.make("entropy", balance=1.0).select(tailwise.Predictions(frame()), 20, counts=counts)
    assert batch.indices.tolist() == BY_POSITION


def test_counts_by_class_number_need_no_table() -> None:
    labels = pd.Series([0] * 40 + [1] * 20 + [2] * 5).sample(frac=1.0, random_state=0)
    assert picks(pool(), counts=labels.value_counts()) == BY_POSITION
    assert picks(pool(), counts=labels.value_counts(ascending=True)) == BY_POSITION
    assert picks(pool(), counts={np.int64(2): 5, 1: 20, 0: 40}) == BY_POSITION


def test_columns_that_are_numbers_in_another_order_are_names() -> None:
    proba = frame().set_axis([3, 2, 1, 0], axis=1)
    assert picks(proba, counts={3: 40, 2: 20, 1: 5}) == BY_POSITION


def test_targets_go_by_name_too() -> None:
    wanted = pd.Series([2.0, 3.0, 5.0, 10.0], index=CLASSES)
    expected = tailwise.select(pool(), 20, target=wanted.to_numpy(), score="entropy")
    for target in (wanted[::-1], wanted.to_dict(), tailwise.Target.counts(wanted[::-1])):
        assert (
            tailwise.select(frame(), 20, target=target, score="entropy").indices.tolist() == expected.indices.tolist()
        )
    shares = tailwise.select(frame(), 20, target=tailwise.Target.shares({"owl": 1, "rook": 3}), score="entropy")
    assert shares.target.tolist() == [5.0, 0.0, 0.0, 15.0]
    ranges = tailwise.select(
        frame(), 20, target=tailwise.Target.ranges({"rook": 4}, pd.Series([9.0], index=["owl"])), score="entropy"
    )
    assert ranges.target.tolist() == [0, 0, 0, 4]
    assert ranges.target_high.tolist() == [9, 20, 20, 20]


@pytest.mark.parametrize(
    ("proba", "counts", "message"),
    [
        (
            frame(),
            pd.Series(COUNTS, index=["owl", "kite", "wren", "crow"]),
            "counts names class 'crow', but the columns",
        ),
        (frame(), pd.Series([1.0, 2.0], index=["owl", "owl"]), "names class 'owl' twice"),
        (frame(), {"owl": 1, 0: 2}, "names class 0 twice"),
        (frame(), {"owl": "many"}, "counts must be numbers"),
        (frame(), {"owl": -1}, "counts of class 0 is -1"),
        (frame(), {True: 1}, "names class True"),
        (frame(), {4: 1}, "names class 4"),
        (pool(), pd.Series(COUNTS, index=CLASSES), "probabilities have no class names"),
        (pool(), {"owl": 1}, "probabilities have no class names"),
        (pool(), pd.Series(COUNTS[:3]), "must have 4 entries"),
        (
            frame().set_axis(["a", "b", "b", "c"], axis=1),
            {"a": 1},
            "two columns of the probabilities have the same name",
        ),
    ],
)
def test_counts_that_cannot_be_aligned_are_rejected(proba: Any, counts: Any, message: str) -> None:  # noqa: ANN401
    with pytest.raises(BadInput, match=message):
        picks(proba, counts=counts)


def test_names_are_read_from_tables_of_other_libraries() -> None:
    assert class_names(pa.table({"owl": [0.5], "kite": [0.5]})) == ("owl", "kite")
    assert class_names(pd.DataFrame(pool())) is None
    assert class_names(pool()) is None
    assert class_names([[0.5, 0.5]]) is None


def test_scores_are_aligned_with_the_rows_of_a_table() -> None:
    proba = frame().set_axis([f"{row}.jpg" for row in range(300)])
    scores = pd.Series(np.arange(300.0), index=proba.index)
    expected = picks(pool(), score=np.arange(300.0))
    for given in (scores, scores[::-1], scores.sample(frac=1.0, random_state=1), scores.reset_index(drop=True)):
        assert picks(proba, score=given) == expected
        path = tailwise.balance_path(proba, 20, score=given, lams=[1.0])
        assert path.l1.tolist() == tailwise.balance_path(pool(), 20, score=np.arange(300.0), lams=[1.0]).l1.tolist()
    with pytest.raises(BadInput, match="they name different rows"):
        picks(proba, score=scores.rename({"0.jpg": "other.jpg"}))


# -- masked and complex -----------------------------------------------------------------------------------------------


def masked(array: Any) -> np.ma.MaskedArray:  # noqa: ANN401 - see above
    made = np.ma.masked_array(array, mask=False)
    made[-1] = np.ma.masked
    return made


PREDICTIONS: dict[str, Any] = {
    "proba": pool(),
    "embeddings": np.random.default_rng(1).normal(size=(300, 3)),
    "labelled_embeddings": np.random.default_rng(2).normal(size=(5, 3)),
    "mc_proba": np.random.default_rng(3).dirichlet(np.ones(4), size=(3, 300)),
    "labelledness": np.random.default_rng(4).random(300),
}
NEEDED = {"proba": "entropy", "embeddings": "kcenter", "labelled_embeddings": "coreset", "mc_proba": "bald"}


def choose(**changed: Any) -> list[int]:  # noqa: ANN401 - see above
    name = NEEDED.get(next(iter(changed)), "vaal")
    predictions = tailwise.Predictions(**(PREDICTIONS | changed))
    return tailwise.strategies.make(name, balance=0).select(predictions, 5).indices.tolist()


@pytest.mark.parametrize("field", PREDICTIONS)
def test_masked_and_complex_predictions_are_rejected(field: str) -> None:
    for spoil, message in ((masked, "masked entries"), (np.complex128, "must be real numbers, but holds complex128")):
        with pytest.raises(BadInput, match=message):
            choose(**{field: spoil(PREDICTIONS[field])})
    assert choose(**{field: np.ma.masked_array(PREDICTIONS[field])}) == choose(**{field: PREDICTIONS[field]})


@pytest.mark.parametrize("spoil", [masked, lambda values: [*values[:-1], np.ma.masked], np.complex64])
def test_masked_and_complex_numbers_are_rejected(spoil: Callable[[Any], Any]) -> None:
    for arguments in ({"score": spoil(np.ones(300))}, {"counts": spoil([1, 2, 3, 4])}, {"target": spoil([5, 5, 5, 5])}):
        with pytest.raises(BadInput, match=r"masked entries|must be real numbers"):
            picks(pool(), **arguments)
    with pytest.raises(BadInput, match=r"masked entries|must be real numbers"):
        tailwise.balance_path(pool(), 5, lams=spoil([1, 2, 3]))


# -- tensors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [torch.float16, torch.float32, torch.float64])
def test_tensors_are_read_as_arrays_are(kind: torch.dtype) -> None:
    tensor = torch.tensor(pool(), dtype=kind)
    expected = picks(tensor.numpy())
    assert picks(tensor) == expected
    assert picks(torch.nn.Parameter(tensor)) == expected
    scores = torch.arange(300.0, requires_grad=True)
    assert picks(tensor, score=scores) == picks(tensor.numpy(), score=np.arange(300.0))
    assert picks(tensor, counts=[torch.tensor(count, requires_grad=True) for count in COUNTS]) == picks(
        tensor.numpy(), counts=COUNTS
    )


def test_tensors_that_hold_nothing_are_rejected() -> None:
    with pytest.raises(BadInput, match="proba cannot be read as an array"):
        picks(torch.zeros(300, 4, device="meta"))


def test_bfloat16_is_widened_and_its_rows_sum_to_1() -> None:
    """Rounding moves sums by up to 2^-9; the rows are divided by them, so that bounds hold as they do for float32."""
    rough = torch.tensor(np.random.default_rng(5).dirichlet(np.full(100, 0.3), size=2_000)).to(torch.bfloat16)
    wide = rough.double().numpy()
    sums = wide.sum(axis=1, keepdims=True)
    assert np.abs(sums - 1).max() > 1e-3  # more than float32 may be off
    batch = tailwise.select(rough.requires_grad_(), 30, balance=1.0, score="entropy")
    exact = tailwise.select(wide / sums, 30, balance=1.0, score="entropy")
    assert batch.objective == pytest.approx(exact.objective, rel=1e-3)
    np.testing.assert_allclose(batch.expected_counts, (wide / sums)[batch.indices].sum(axis=0), atol=1e-5)
    assert batch.bound <= batch.objective


def test_bfloat16_rows_that_are_not_probabilities_are_rejected() -> None:
    rough = torch.tensor(pool()).to(torch.bfloat16)
    rough[7] *= 1.05
    with pytest.raises(BadProbabilities, match=r"row 7 sums to 1\.0[45]"):
        picks(rough)
    assert choose(mc_proba=torch.tensor(PREDICTIONS["mc_proba"]).to(torch.bfloat16))


def test_jax_arrays_give_the_picks_of_the_same_numbers() -> None:
    jnp = pytest.importorskip("jax.numpy", reason="jax is not installed: pip install jax")
    made = pool().astype(np.float32)
    rows = np.arange(len(made))
    options = {"exclude": rows[:9], "include": rows[20:22], "groups": rows // 3, "counts": np.array([5, 3, 1, 0])}
    theirs = {name: jnp.asarray(value) for name, value in options.items()}
    assert picks(jnp.asarray(made)) == picks(made)
    assert picks(jnp.asarray(made), **theirs) == picks(made, **options)
    with pytest.raises(BadProbabilities, match="did you forget softmax"):
        picks(jnp.log(jnp.asarray(made)))


def test_jax_bfloat16_is_widened_and_its_rows_sum_to_1() -> None:
    jnp = pytest.importorskip("jax.numpy", reason="jax is not installed: pip install jax")
    rough = jnp.asarray(np.random.default_rng(5).dirichlet(np.full(100, 0.3), size=2_000)).astype(jnp.bfloat16)
    wide = np.asarray(rough, dtype=np.float64)
    sums = wide.sum(axis=1, keepdims=True)
    assert np.abs(sums - 1).max() > 1e-3  # more than float32 may be off
    batch = tailwise.select(rough, 30, balance=1.0, score="entropy")
    np.testing.assert_allclose(batch.expected_counts, (wide / sums)[batch.indices].sum(axis=0), atol=1e-5)


def test_logits_get_a_hint() -> None:
    with pytest.raises(BadProbabilities, match="If these are logits, give logits=True"):
        picks(np.log(pool()))


# -- limits -----------------------------------------------------------------------------------------------------------


def test_scores_and_weights_whose_sums_would_overflow_are_rejected() -> None:
    for arguments in ({"score": np.full(300, 1e308)}, {"balance": 1e308}, {"counts": [1e308] * 4}):
        with pytest.raises(BadInput, match=r"1e\+15|1e\+100"):
            tailwise.select(pool(), 20, **({"score": "entropy"} | arguments))  # type: ignore[arg-type] # numbers of many kinds
    scores = np.linspace(-1e100, 1e100, 300)
    assert np.isfinite(tailwise.select(pool(), 20, score=scores).objective)


def test_numbers_in_objects_are_numbers() -> None:
    assert real_array(np.array([1, 2.5], dtype=object), "score").tolist() == [1.0, 2.5]
    assert real_array(pd.Series([1, 2], dtype="Int64"), "score").tolist() == [1, 2]
    assert picks(pd.DataFrame(pool()).astype("Float64")) == picks(pool())
    assert real_array(np.arange(3, dtype=">f4"), "score").dtype.isnative
    with pytest.raises(BadInput, match="float64 cannot hold"):
        real_array([10**400], "score")


def test_paths_of_any_kind_are_opened(tmp_path: Path) -> None:
    class Path2:
        def __fspath__(self) -> str:
            return str(tmp_path / "p.npy")

    np.save(tmp_path / "p.npy", pool())
    assert picks(Path2()) == picks(pool())
