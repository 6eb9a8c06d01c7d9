"""Believable results of experiments that never ran: recalls grow with the labels of a class, balance moves labels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from tailwise.experiments.experiment import Row
from tailwise.targets import l1_score

PAPER_METHODS = (
    ("random", "0"), ("entropy", "0"), ("entropy", "auto"), ("kcenter", "0"), ("kcenter", "auto"),
    ("vaal", "0"), ("vaal", "auto"),
)  # fmt: skip
EVERY_METHOD = (*PAPER_METHODS, ("coreset", "0"), ("entropy-l1-pseudo-label", "auto"))
SKEW = {"random": 0.0, "entropy": 0.5, "kcenter": 0.3, "vaal": 0.15, "bald": 0.4, "coreset": 0.25, "margin": 0.45}
WORTH = {"random": 1.0, "entropy": 1.45, "kcenter": 1.3, "vaal": 1.2, "bald": 1.4, "coreset": 1.15, "margin": 1.5}

RowMaker = Callable[..., list[Row]]


@dataclass(frozen=True, slots=True)
class Plan:
    """One trial: what is chosen from what, and how."""

    pool: str
    learner: str
    factor: float
    strategy: str
    balance: str
    seed: int
    classes: int
    cycles: int
    per_class: int
    version: str


def synthetic_rows(
    *, pool: str = "cifar10", learner: str = "resnet18", factors: Sequence[float] = (1.0, 0.3, 0.1),
    methods: Sequence[tuple[str, str]] = PAPER_METHODS, seeds: Sequence[int] = (0, 1, 2), classes: int = 10,
    cycles: int = 4, per_class: int = 5000, version: str = "0.1.0",
) -> list[Row]:  # fmt: skip
    """Rows as the runner writes them; the same arguments give the same rows."""
    return [
        row
        for factor in factors
        for strategy, balance in methods
        for seed in seeds
        for row in _trial(Plan(pool, learner, factor, strategy, balance, seed, classes, cycles, per_class, version))
    ]


def _trial(plan: Plan) -> list[Row]:
    rng = np.random.default_rng([plan.seed, sum(map(ord, plan.strategy + plan.balance)), int(1000 * plan.factor)])
    tastes = np.random.default_rng(plan.seed).normal(size=plan.classes)  # which classes a model finds hard
    first = np.full(plan.classes, plan.per_class // 10)
    left = np.full(plan.classes, plan.per_class) - first
    left[plan.classes // 2 :] = (left[plan.classes // 2 :] * plan.factor).astype(int)
    counts, worth, rows = first.copy(), first.astype(float), []
    budget = plan.per_class * plan.classes // 20
    for cycle in range(plan.cycles + 1):
        noise = np.random.default_rng([plan.seed, 7]) if cycle == 0 else rng  # the first model is shared
        recalls = _recalls(worth / first, tastes, noise)
        shares = _shares(plan, tastes, counts, left, rng)
        realised = _draw(shares, left, budget) if cycle < plan.cycles else None
        rows.append(_row(plan, cycle, recalls, counts, left, realised, rng))
        if realised is not None:
            counts, left = counts + realised, left - realised
            worth = worth + WORTH.get(_base(plan), 1.1) * realised
    return rows


def _base(plan: Plan) -> str:
    return "entropy" if plan.strategy == "entropy-l1-pseudo-label" else plan.strategy


def _recalls(worth: np.ndarray, tastes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    hard = 0.42 + 0.06 * tastes
    return np.clip(1 - hard * worth**-0.3 * 0.6 + rng.normal(0, 0.004, len(worth)), 0, 1)


def _shares(
    plan: Plan, tastes: np.ndarray, counts: np.ndarray, left: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    natural = (left + 1e-9) * np.exp(SKEW.get(_base(plan), 0.3) * tastes)
    shares = natural / natural.sum()
    if plan.balance != "0":
        target = np.maximum((counts.sum() + plan.per_class * plan.classes / 20) / plan.classes - counts, 0)
        strength = 0.55 if plan.strategy == "entropy-l1-pseudo-label" else 0.85
        shares = (1 - strength) * shares + strength * target / target.sum()
    shares = shares * np.exp(rng.normal(0, 0.08, plan.classes))
    return shares / shares.sum()


def _draw(shares: np.ndarray, left: np.ndarray, budget: int) -> np.ndarray:
    drawn = np.minimum(np.floor(shares * budget).astype(int), left)
    while drawn.sum() < budget:
        room = left - drawn
        drawn[int(np.argmax(np.where(room > 0, shares * budget - drawn, -np.inf)))] += 1
    return drawn


def _row(
    plan: Plan, cycle: int, recalls: np.ndarray, counts: np.ndarray, left: np.ndarray, realised: np.ndarray | None,
    rng: np.random.Generator,
) -> Row:  # fmt: skip
    chosen = realised is not None
    expected = (realised * np.exp(rng.normal(0, 0.1, plan.classes))) if realised is not None else np.empty(0)
    expected = expected * (realised.sum() / expected.sum()) if realised is not None else expected
    return Row(
        experiment="synthetic", pool=plan.pool, setting="balanced" if plan.factor == 1 else f"step {plan.factor:g}",
        imbalance=plan.factor, learner=plan.learner, strategy=plan.strategy, balance=plan.balance, seed=plan.seed,
        cycle=cycle, labelled=int(counts.sum()), share=float(counts.sum()) / (plan.per_class * plan.classes),
        accuracy=float(recalls.mean()), adjusted_accuracy=float(recalls.mean()),
        balanced_accuracy=float(recalls.mean()),
        tail_accuracy=math.nan if plan.factor == 1 else float(recalls[plan.classes // 2 :].mean()),
        l1_score=l1_score(counts), recalls=tuple(recalls.tolist()), counts=tuple(counts.tolist()),
        pool_counts=tuple(left.tolist()), picks=int(realised.sum()) if realised is not None else 0,
        lam=(0.0 if plan.balance == "0" else 0.6) if chosen else math.nan, gap=1e-5 if chosen else math.nan,
        informativeness=1000.0 if chosen else math.nan, l1=10.0 if chosen else math.nan,
        batch_l1_score=l1_score(realised) if realised is not None else math.nan, expected=tuple(expected.tolist()),
        realised=tuple(realised.tolist()) if realised is not None else (), temperature=1.0, seconds_fit=1.0,
        seconds_predict=0.1, seconds_select=0.4, version=plan.version,
    )  # fmt: skip


@pytest.fixture(scope="session")
def make_rows() -> RowMaker:
    return synthetic_rows


@pytest.fixture(scope="session")
def every_method() -> tuple[tuple[str, str], ...]:
    return EVERY_METHOD
