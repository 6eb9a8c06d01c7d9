"""Draws the gallery: what every strategy picks from one pool of points in the plane. `make docs` calls it.

The pool has four classes, the rarest with a tenth of the points of the most common one, and 25 labels as long-tailed.
The model is our linear learner on random Fourier features of the points, so that all strategies have what they need.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from sklearn.linear_model import LogisticRegression

import tailwise
from tailwise.learners import make_learner
from tailwise.strategies import DEFAULT, STRATEGIES, WITHOUT_EMBEDDINGS, make

SIZES = (400, 200, 100, 40)  # points per class
CENTRES = np.array([(-1.1, -0.2), (0.9, -0.7), (0.5, 1.2), (2.4, 0.6)])
SPREADS = np.array([(1.0, 0.8), (0.7, 0.6), (0.6, 0.5), (0.3, 0.4)])
LABELLED = (14, 7, 3, 1)  # labels per class
BUDGET, FEATURES = 24, 96
ACROSS, UP = np.linspace(-4, 3.6, 160), np.linspace(-3, 3, 120)  # of the picture
COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#b279a2")
MODES = ("light", "dark")
NAMES = ("common", "second", "third", "rare")
# With λ = "auto" a score pays little for balance; in so small a pool the pictures would look alike.
LAM = {"entropy": 0.5, "margin": 0.5, "least-confidence": 0.5, "random": 0.5, "bald": 0.2, "vaal": 0.5}


@dataclass(frozen=True, slots=True, eq=False)
class Toy:
    """The pool, and all that strategies may ask for."""

    points: np.ndarray  # (N, 2)
    labels: np.ndarray  # (N,)
    labelled_points: np.ndarray  # (L, 2)
    counts: np.ndarray  # (C,) labels per class
    predictions: tailwise.Predictions
    borders: np.ndarray  # (120, 160) predicted class at each place of the picture


def toy(seed: int = 3) -> Toy:
    """The pool of all pictures."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(len(SIZES)), SIZES)
    points = CENTRES[labels] + SPREADS[labels] * rng.normal(size=(len(labels), 2))
    frequencies, phases = 0.9 * rng.normal(size=(2, FEATURES)), rng.uniform(0, 2 * np.pi, FEATURES)

    def features(where: np.ndarray) -> np.ndarray:  # (n, 2) → (n, d), rows of about length 1
        return (np.cos(where @ frequencies + phases) * np.sqrt(2 / FEATURES)).astype(np.float32)

    known = np.concatenate([rng.choice(np.flatnonzero(labels == k), n, replace=False) for k, n in enumerate(LABELLED)])
    rest = np.setdiff1d(np.arange(len(labels)), known)
    model = make_learner("linear", strength=40.0).fit(
        features(points[known]), labels[known], classes=len(SIZES), seed=0
    )
    pool = features(points[rest])
    is_labelled = np.isin(np.arange(len(labels)), known)
    discriminator = LogisticRegression(class_weight="balanced").fit(features(points), is_labelled)
    grid = np.stack(np.meshgrid(ACROSS, UP), axis=-1)
    predictions = tailwise.Predictions(
        proba=model.predict_proba(pool), embeddings=pool, labelled_embeddings=features(points[known]),
        mc_proba=model.mc_proba(pool, passes=20, seed=0), labelledness=discriminator.predict_proba(pool)[:, 1],
        labelled_proba=model.predict_proba(features(points[known])), labelled_labels=labels[known],
    )  # fmt: skip
    borders = model.predict_proba(features(grid.reshape(-1, 2))).argmax(axis=1).reshape(grid.shape[:2])
    return Toy(points[rest], labels[rest], points[known], np.array(LABELLED), predictions, borders)


def picks(pool: Toy, name: str, balance: float | str) -> np.ndarray:
    """Rows that a strategy picks."""
    oracle = (lambda rows: pool.labels[rows]) if STRATEGIES[name].reads_labels else None
    chosen = make(name, balance=balance).select(
        pool.predictions, budget=BUDGET, counts=pool.counts, seed=0, oracle=oracle
    )
    return np.asarray(chosen.indices)


def balances(name: str) -> list[tuple[str, float | str]]:
    """The panels of a strategy: title and balance."""
    if STRATEGIES[name].reads_labels or name == "coreset":
        return [("no balanced form", 0.0)]
    lam = LAM.get(name, "auto")
    return [("balance = 0", 0.0), (f"balance = {lam!r}".replace("'", '"'), lam)]


def draw(pool: Toy, title: str, rows: np.ndarray, *, dark: bool) -> bytes:
    """A WebP image: the pool with the picks, and the true classes of the picks as bars below."""
    ink, colours = "#e8eaed" if dark else "#202124", np.array(COLOURS)
    figure = Figure(figsize=(4.6, 4.3), dpi=120, layout="constrained")
    above, below = figure.subplots(2, 1, height_ratios=(5.2, 1))
    for k in range(len(SIZES)):
        inside = (pool.borders == k).astype(float)
        above.contour(ACROSS, UP, inside, levels=[0.5], colors=ink, linewidths=0.7, alpha=0.4)
    above.scatter(*pool.points.T, s=9, c=colours[pool.labels], alpha=0.4, linewidths=0)
    above.scatter(*pool.labelled_points.T, s=34, marker="x", c=ink, linewidths=1.2)
    above.scatter(*pool.points[rows].T, s=64, c=colours[pool.labels[rows]], edgecolors=ink, linewidths=1.4)
    above.set(xlim=(-4, 3.6), ylim=(-3, 3), xticks=[], yticks=[])
    above.set_title(title, color=ink, fontsize=12, family="monospace")
    bars = below.bar(NAMES, np.bincount(pool.labels[rows], minlength=len(SIZES)), color=COLOURS, width=0.7)
    below.bar_label(bars, color=ink, fontsize=10)
    below.set(ylim=(0, BUDGET + 6), yticks=[])
    below.tick_params(colors=ink, length=0, labelsize=10)
    above.spines[:].set(color=ink, alpha=0.3)
    below.spines[:].set_visible(False)
    out = io.BytesIO()
    figure.savefig(out, format="webp", transparent=True, pil_kwargs={"quality": 85, "method": 4})
    return out.getvalue()


def in_order() -> list[str]:
    """The names of all strategies, the two defaults first."""
    return sorted(STRATEGIES, key=lambda name: (name != DEFAULT, name != WITHOUT_EMBEDDINGS, name))


def pictures() -> Iterator[tuple[str, bytes]]:
    """Every picture with its path: for each strategy without and with balance, for the light and the dark page."""
    pool = toy()
    for name in in_order():
        for number, (title, balance) in enumerate(balances(name)):
            rows = picks(pool, name, balance)
            for mode in MODES:
                yield f"gallery/{name}-{number}-{mode}.webp", draw(pool, title, rows, dark=mode == "dark")


def page() -> str:
    """The page of the gallery, in Markdown."""
    sections = []
    for name in in_order():
        about = (STRATEGIES[name].__doc__ or "").split("\n\n")[0].replace("\n", " ").strip()
        images = [
            f"![Picks of {name}](gallery/{name}-{number}-{mode}.webp#only-{mode}){{ loading=lazy }}"
            for number in range(len(balances(name)))
            for mode in MODES
        ]
        pair = '<div class="tw-gallery" markdown>\n' + "\n".join(images) + "\n</div>\n"
        sections.append(f"## {STRATEGIES[name].title} {{ #{name} }}\n\n`{name}` · {about}\n\n{pair}")
    return INTRODUCTION + "\n".join(sections)


INTRODUCTION = f"""# Gallery: what every strategy picks

One pool of {sum(SIZES) - sum(LABELLED)} points with four classes, the rarest a tenth as common as the most common one.
Crosses are the {sum(LABELLED)} labels so far, lines are the borders of the model, large points are the {BUDGET} picks.
The bars count the picks by their true class: look at what balance does to "rare". Where there are two pictures, the
first one is the classical method (`balance=0`).

The pictures show how a strategy thinks, not how good it is: that is on the
[leaderboard](results/leaderboard/README.md). [Strategies](strategies.md) explains what each needs and computes.

"""
