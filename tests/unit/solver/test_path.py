"""λ by rule and by wish, against a full sweep."""

from __future__ import annotations

import numpy as np
import pytest

import tailwise
from tailwise.errors import BadInput, TargetUnreachable
from tailwise.solver.path import AUTO_SHARE, paper_grid, paper_lam, parse_balance, wished_lam


def pool(seed: int = 0, size: int = 3_000, classes: int = 6) -> np.ndarray:
    rng = np.random.default_rng(seed)
    logits = 2.5 * rng.normal(size=(size, classes)) + np.linspace(2, -2, classes)
    powers = np.exp(logits)
    return (powers / powers.sum(axis=1, keepdims=True)).astype(np.float32)


def test_bisection_finds_what_a_full_sweep_of_the_rule_finds() -> None:
    def falling(lam: float) -> float:
        return 40 * np.exp(-2 * lam) + 3

    grid = paper_grid(1.0)
    losses = np.array([falling(lam) for lam in grid])
    met = grid[losses <= losses.min() + 0.01 * (falling(0.0) - losses.min())]
    assert paper_lam(falling, grid) == met[0]


@pytest.mark.parametrize(("end", "expected"), [(1.0, 1.0), (0.55, 0.6), (5.0, 3.0)])
def test_the_rule_takes_the_last_percent(end: float, expected: float) -> None:
    assert paper_lam(lambda lam: 100 * max(0.0, 1 - lam / end), paper_grid(1.0)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("seed", "score"), [(0, "entropy"), (1, "margin"), (2, "margin"), (3, "entropy"), (4, "margin"), (6, "entropy")]
)
def test_paper_is_the_choice_of_the_path(seed: int, score: str) -> None:
    size, classes, budget = [(700, 4, 60), (1_500, 10, 100), (400, 3, 25), (900, 6, 200)][seed % 4]
    proba = pool(seed, size, classes)
    path = tailwise.balance_path(proba, budget, score=score, seed=seed)
    assert tailwise.select(proba, budget, score=score, balance="paper", seed=seed).lam == path.chosen
    assert path.chosen in path.lam.tolist()
    limit = path.l1[-1] + 0.01 * max(0.0, path.l1[0] - path.l1[-1])
    assert path.l1[path.lam.tolist().index(path.chosen)] <= limit


@pytest.mark.parametrize(("budget", "classes"), [(0, 3), (50, 3), (10, 1)])
def test_where_nothing_can_be_balanced_the_rules_and_the_path_say_zero(budget: int, classes: int) -> None:
    proba = pool(0, 50, classes)
    batches = [tailwise.select(proba, budget, balance=rule, score="entropy") for rule in ("auto", "paper")]
    assert [batch.lam for batch in batches] == [tailwise.balance_path(proba, budget).chosen] * 2 == [0.0, 0.0]
    assert [batch.notes for batch in batches] == [(), ()]


@pytest.mark.parametrize("score", ["entropy", "margin", "least-confidence"])
@pytest.mark.parametrize("seed", range(4))
def test_auto_gives_up_no_more_than_lambda_for_each_image_of_balance(seed: int, score: str) -> None:
    proba = pool(seed, 1_500, 10)
    plain, batch = (tailwise.select(proba, 100, score=score, balance=rule) for rule in (0, "auto"))
    given_up, won = plain.informativeness - batch.informativeness, plain.l1 - batch.l1
    assert won > 0.2 * plain.l1
    assert given_up <= batch.lam * won + 1e-3 * plain.informativeness


def test_auto_is_a_share_of_the_spread_of_the_scores() -> None:
    scores = np.random.default_rng(0).permutation(np.linspace(5.0, 9.0, 3_001))
    batch = tailwise.select(pool(size=3_001), 300, score=scores)
    assert batch.lam == pytest.approx(AUTO_SHARE * 4.0, rel=0.03)
    larger = tailwise.select(pool(size=3_001), 300, score=1e3 * scores)
    assert larger.lam == pytest.approx(1e3 * batch.lam)
    assert set(larger.indices) == set(batch.indices)


def test_auto_solves_once() -> None:
    lines: list[str] = []
    tailwise.select(pool(), 150, report=lines.append, score="entropy")
    assert not [line for line in lines if line.startswith("λ = ")]  # the lines of a sweep
    tailwise.select(pool(), 150, balance="paper", report=lines.append, score="entropy")
    assert [line for line in lines if line.startswith("λ = ")]


def test_auto_is_steady_with_small_batches() -> None:
    lams = [tailwise.select(pool(seed, 2_000, 20), 20, score="margin").lam for seed in range(12)]
    assert max(lams) < 1.1 * min(lams)


def test_a_batch_that_a_limit_kept_from_its_target_says_so() -> None:
    soft = pool(1, 600, 30) ** 0.5
    proba = soft / soft.sum(axis=1, keepdims=True)
    wanted = np.linspace(0, 4, 30)
    for rule, limit in (("auto", "pays at most"), ("paper", "near the end of its sweep")):
        batch = tailwise.select(proba, 60, target=wanted, balance=rule, score="entropy")
        assert limit in batch.notes[0]
        assert f"λ = {batch.lam:.4g}" in batch.notes[0]
        assert batch.to_dict()["notes"] == list(batch.notes)
        assert batch.notes[0] in repr(batch)
        assert tailwise.select(proba, 60, target=wanted, balance=2 * batch.lam, score="entropy").l1 < batch.l1


def test_a_batch_that_is_as_near_to_its_target_as_any_says_nothing() -> None:
    proba = np.eye(3)[[0] * 80 + [1] * 15 + [2] * 5]
    batch = tailwise.select(proba, 30, score="entropy")
    assert (batch.expected_counts[2], batch.l1) == (5.0, 10.0)
    assert batch.unreachable
    assert batch.notes == ()


def test_the_path_falls_in_informativeness_and_l1() -> None:
    path = tailwise.balance_path(pool(), 150, lams=[0.1, 0.3, 1.0, 3.0])
    assert path.lam.tolist() == [0.0, 0.1, 0.3, 1.0, 3.0]
    slack = 1e-3 * path.informativeness[0]  # each point is solved to a gap of 1e-3
    assert (np.diff(path.informativeness) <= slack).all()
    assert (np.diff(path.l1) <= slack).all()
    assert path.l1[-1] < 0.2 * path.l1[0]
    assert (path.l1_score >= 0).all()
    assert path.to_frame().shape == (5, 5)
    assert path.to_dict()["chosen"] == path.chosen


@pytest.mark.parametrize("share", [10, 2])
def test_a_wish_is_met_by_a_small_lambda(share: int) -> None:
    batch = tailwise.select(pool(), 150, balance=f"within {share}%", score="entropy")
    assert batch.l1 <= share / 100 * 150
    weaker = tailwise.select(pool(), 150, balance=batch.lam * 0.9, score="entropy")
    assert weaker.l1 > share / 100 * 150


def test_a_wish_that_holds_without_balance_costs_nothing() -> None:
    assert tailwise.select(pool(), 150, balance="within 100%", score="entropy").lam == 0.0


def test_a_wish_beyond_reach_says_how_near_one_can_come() -> None:
    proba = np.tile([0.9, 0.1], (100, 1))
    with pytest.raises(TargetUnreachable, match=r"within 5%.*closest batch is 80\.0 % away.*'within 80%'"):
        tailwise.select(proba, 10, balance="within 5%", score="entropy")
    assert tailwise.select(proba, 10, balance="within 80%", score="entropy").l1 == pytest.approx(8.0)


@pytest.mark.parametrize("bad", ["within", "within -3%", "5", "auto!", -1, np.nan, np.inf, True, None])
def test_settings_that_mean_nothing_are_rejected(bad: object) -> None:
    if bad == "5":  # a number in quotes is a number
        assert parse_balance("5") == 5.0
        return
    with pytest.raises(BadInput, match="balance"):
        parse_balance(bad)  # type: ignore[arg-type]


def test_wished_lam_is_the_smallest_to_two_percent() -> None:
    lam = wished_lam(lambda lam: 1 / (1 + lam), 1.0, 0.1, str)
    assert 9.0 <= lam <= 9.0 * 1.03


def test_other_scores_sweep_at_their_own_scale() -> None:
    tiny = np.random.default_rng(0).random(3_000) * 1e-3
    batch = tailwise.select(pool(), 150, score=tiny)
    assert 0 < batch.lam < 0.01
