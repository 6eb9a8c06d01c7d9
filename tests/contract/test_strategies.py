"""What every registered strategy promises, checked on each of them, with and without balance."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

import tailwise
from tailwise import Target
from tailwise.errors import BadInput, PoolExhausted, UnknownName
from tailwise.experiments.trial_run import RecordingOracle
from tailwise.strategies import STRATEGIES, make

WITHOUT_BALANCE = {"coreset", "direct", "galaxy"}
BY_QUOTA = {"base"}  # equal quotas are the target where nothing is labelled: balance changes nothing then
COUNTS = [9, 4, 1, 0]
BY_PLACES = {"boundary"}  # balances the classes at whose borders images lie, not expected counts: see its own tests
CASES = [(name, lam) for name in STRATEGIES for lam in (0.0, 0.7) if not (lam and name in WITHOUT_BALANCE)]
SIZE, CLASSES, BUDGET = 120, 4, 15


def predictions(seed: int = 0, size: int = SIZE) -> tailwise.Predictions:
    rng = np.random.default_rng(seed)
    proba = rng.dirichlet([3.0, 1.0, 0.4, 0.1], size=size)
    return tailwise.Predictions(
        proba=proba,
        embeddings=rng.normal(size=(size, 6)),
        labelled_embeddings=rng.normal(size=(8, 6)),
        mc_proba=rng.dirichlet([3.0, 1.0, 0.4, 0.1], size=(5, size)),
        labelledness=rng.random(size),
        labelled_proba=rng.dirichlet([3.0, 1.0, 0.4, 0.1], size=8),
        labelled_labels=np.array([0, 1, 0, 2, 0, 0, 1, 3]),
    )


def select(
    strategy: tailwise.strategies.Strategy, given: tailwise.Predictions, budget: int, **more: object
) -> tailwise.Selection:
    """A batch; a strategy that reads labels can read those of its picks, and no others."""
    if not strategy.reads_labels:
        return strategy.select(given, budget, **more)
    oracle = RecordingOracle(np.random.default_rng(9).integers(CLASSES, size=SIZE))
    batch = strategy.select(given, budget, oracle=oracle, **more)
    assert set(oracle.asked) <= set(batch.indices.tolist())
    assert len(oracle.asked) == len(set(oracle.asked))
    return batch


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def strategy(request: pytest.FixtureRequest) -> tailwise.strategies.Strategy:
    name, lam = request.param
    return make(name, balance=lam)


def test_picks_are_distinct_in_range_and_as_many_as_asked(strategy: tailwise.strategies.Strategy) -> None:
    batch = select(strategy, predictions(), BUDGET, counts=[5, 3, 0, 0])
    assert len(set(batch.indices.tolist())) == BUDGET
    assert batch.indices.min() >= 0
    assert batch.indices.max() < SIZE
    assert batch.indices.dtype == np.int64
    assert batch.method == strategy.name


def test_the_numbers_of_the_answer_fit_its_picks(strategy: tailwise.strategies.Strategy) -> None:
    batch = select(strategy, predictions(), BUDGET)
    proba = np.asarray(predictions().proba)
    np.testing.assert_allclose(batch.expected_counts, proba[batch.indices].sum(axis=0))
    assert batch.l1 == pytest.approx(np.abs(batch.target - batch.expected_counts).sum())
    assert batch.bound <= batch.objective
    assert batch.gap >= 0
    assert batch.seconds > 0


def test_the_same_seed_gives_the_same_picks(strategy: tailwise.strategies.Strategy) -> None:
    first, second = (select(strategy, predictions(), BUDGET, seed=3) for _ in range(2))
    assert first.indices.tolist() == second.indices.tolist()


@pytest.mark.parametrize("form", ["path", "text", "memory map"])
def test_files_and_memory_maps_give_the_picks_of_arrays(
    strategy: tailwise.strategies.Strategy, form: str, tmp_path: Path
) -> None:
    given = predictions()
    for name in ("proba", "embeddings", "labelled_embeddings"):
        np.save(tmp_path / f"{name}.npy", getattr(given, name))
    places = {name: tmp_path / f"{name}.npy" for name in ("proba", "embeddings", "labelled_embeddings")}
    forms = {"path": lambda place: place, "text": str, "memory map": lambda place: np.load(place, mmap_mode="r")}
    filed = replace(given, **{name: forms[form](place) for name, place in places.items()})
    wanted, found = select(strategy, given, BUDGET, counts=COUNTS), select(strategy, filed, BUDGET, counts=COUNTS)
    assert found.indices.tolist() == wanted.indices.tolist()
    assert found.expected_counts.tolist() == wanted.expected_counts.tolist()
    assert (found.objective, found.bound, found.status) == (wanted.objective, wanted.bound, wanted.status)


def test_a_class_without_labels_and_one_without_probability_do_no_harm(
    strategy: tailwise.strategies.Strategy,
) -> None:
    given = predictions()
    proba = np.hstack([np.asarray(given.proba), np.zeros((SIZE, 1))])
    passes = np.concatenate([np.asarray(given.mc_proba), np.zeros((5, SIZE, 1))], axis=2)
    labelled = np.hstack([np.asarray(given.labelled_proba), np.zeros((8, 1))])
    wider = replace(given, proba=proba, mc_proba=passes, labelled_proba=labelled)
    batch = select(strategy, wider, BUDGET, counts=[9, 4, 1, 0, 0])
    assert len(set(batch.indices.tolist())) == BUDGET


def test_a_budget_of_zero_is_an_empty_batch(strategy: tailwise.strategies.Strategy) -> None:
    batch = select(strategy, predictions(), 0)
    assert batch.indices.tolist() == []
    assert batch.expected_counts.tolist() == [0.0] * CLASSES


def test_a_budget_of_the_whole_pool_is_the_whole_pool(strategy: tailwise.strategies.Strategy) -> None:
    batch = select(strategy, predictions(size=20), 20)
    assert sorted(batch.indices.tolist()) == list(range(20))


def test_a_budget_beyond_the_pool_is_refused(strategy: tailwise.strategies.Strategy) -> None:
    with pytest.raises(PoolExhausted, match="asked for 121 picks, but only 120"):
        select(strategy, predictions(), SIZE + 1)


def test_every_array_that_a_strategy_needs_is_asked_for(strategy: tailwise.strategies.Strategy) -> None:
    for need in strategy.needs:
        if need != "proba":
            with pytest.raises(BadInput, match=f"needs predictions.{need}"):
                select(strategy, replace(predictions(), **{need: None}), BUDGET)


def test_no_array_beyond_the_needs_is_read(strategy: tailwise.strategies.Strategy) -> None:
    given = predictions()
    unneeded = {field.name for field in fields(given)} - set(strategy.needs)
    bare = replace(given, **dict.fromkeys(unneeded))
    assert select(strategy, bare, BUDGET).indices.tolist() == select(strategy, given, BUDGET).indices.tolist()


@pytest.mark.parametrize("name", [name for name in STRATEGIES if name not in WITHOUT_BALANCE | BY_PLACES])
def test_balance_brings_the_expected_counts_nearer_to_the_target(name: str) -> None:
    counts = COUNTS if name in BY_QUOTA else None
    plain, balanced = (select(make(name, balance=lam), predictions(), BUDGET, counts=counts) for lam in (0.0, 50.0))
    assert balanced.l1 < plain.l1


@pytest.mark.parametrize("name", [name for name in STRATEGIES if name not in WITHOUT_BALANCE])
@pytest.mark.parametrize("rule", ["auto", "paper"])
def test_a_rule_finds_a_lambda_for_every_strategy(name: str, rule: str) -> None:
    batch = select(make(name, balance=rule), predictions(), BUDGET, counts=[9, 3, 2, 2], target=Target.uniform())
    assert batch.lam > 0


@pytest.mark.parametrize("name", sorted(WITHOUT_BALANCE))
@pytest.mark.parametrize("balance", [1.0, "paper"])
def test_a_strategy_without_a_balanced_form_says_so(name: str, balance: object) -> None:
    with pytest.raises(BadInput, match=f"{name} has no balanced form"):
        make(name, balance=balance)


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_every_strategy_balances_by_default_as_select_does(name: str) -> None:
    assert make(name) == make(name, balance="auto")


@pytest.mark.parametrize("name", [name for name in STRATEGIES if STRATEGIES[name].reads_labels])
@pytest.mark.parametrize("oracle", [None, 7])
def test_a_strategy_that_reads_labels_asks_for_an_oracle(name: str, oracle: object) -> None:
    with pytest.raises(BadInput, match=f"strategy '{name}' reads the label of each pick .* oracle is {oracle}"):
        make(name, balance=0).select(predictions(), BUDGET, oracle=oracle)


def test_unknown_names_and_settings_are_refused() -> None:
    with pytest.raises(UnknownName, match="did you mean 'kcenter'"):
        make("k-center", balance=0)
    with pytest.raises(BadInput, match="no setting 'lamda'"):
        make("entropy", balance=0, lamda=1.0)
    with pytest.raises(BadInput, match="balance"):
        make("entropy", balance=-1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"embeddings": np.zeros((5, 6))}, "5 rows"),
        ({"embeddings": np.full((SIZE, 6), np.nan)}, "NaN or infinity in row 0"),
        ({"labelled_embeddings": np.zeros((3, 7))}, "7"),
        ({"embeddings": np.zeros(SIZE)}, "float matrix"),
    ],
)
def test_embeddings_that_do_not_fit_are_refused(change: dict, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        make("kcenter", balance=0).select(replace(predictions(), **change), BUDGET)


def test_dropout_passes_that_do_not_fit_are_refused() -> None:
    for bad in (np.zeros((SIZE, CLASSES)), np.zeros((3, SIZE, 2)), np.full((2, SIZE, CLASSES), np.nan)):
        with pytest.raises(BadInput, match="mc_proba"):
            make("bald", balance=0).select(replace(predictions(), mc_proba=bad), BUDGET)


def test_every_strategy_has_a_title_of_its_own() -> None:
    titles = [vars(kind).get("title", "") for kind in map(STRATEGIES.__getitem__, STRATEGIES)]
    assert all(titles)
    assert len(set(titles)) == len(titles)
