"""Which figures an experiment supports: results and sweeps in; one `FigureSpec` per figure out.

A spec says what the paper calls the figure and what it shows, and draws it, or says which rows are missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from matplotlib.figure import Figure

from .curves import counts_figure, curve_figure, gain_figure, histogram_figure, histogram_seed, opening_figure
from .figures import path_figure
from .names import (
    NOT_THE_PAPERS,
    Condition,
    Method,
    PoolSweep,
    Study,
    file_stem,
    method_order,
    published_gain,
    strategy_title,
)
from .summary import Results, curves, gains

PSEUDO = "entropy-l1-pseudo-label"
MAIN = ("random", "entropy", "kcenter", "vaal", "bald")
HISTOGRAM_FACTOR = 0.3  # the imbalance of the paper's Fig. 2 and 3
BARS = "Bars: standard deviation over seeds, drawn side by side."
DASHES = "Dashed and hollow: classical; solid and filled: class-balanced."


@dataclass(frozen=True, slots=True, eq=False)
class FigureSpec:
    """A figure of the report that can be drawn, or what it would need."""

    name: str  # the stem of its files
    title: str
    caption: str
    draw: Callable[[], Figure] | None
    missing: str = ""  # what would be needed


def figure_specs(
    results: Results, sweeps: Sequence[PoolSweep] = (), *, published: bool = True,
    class_names: Mapping[str, Sequence[str]] | None = None,
) -> list[FigureSpec]:  # fmt: skip
    """All figures: those of the sweeps, then those of each study, in the order of the paper."""
    specs = sweep_specs(sweeps)
    for study in results.studies:
        names = (class_names or {}).get(study.pool, ())
        specs += [
            *opening_specs(results, study),
            *curve_specs(results, study),
            *gain_specs(results, study, published=published),
            *measure_specs(results, study),
            *histogram_specs(results, study, names),
            *supplement_specs(results, study, names),
            *counts_specs(results, study),
        ]
    return specs


def sweep_specs(sweeps: Sequence[PoolSweep]) -> list[FigureSpec]:
    """Fig. 4, once for each setting of a pool: of several sweeps (seeds) the first is shown."""
    if not sweeps:
        return [
            FigureSpec("balance-path", "What balance costs (Fig. 4)", "", None, "a λ sweep on the model of cycle 0")
        ]
    first: dict[str, PoolSweep] = {}
    for sweep in sweeps:
        first.setdefault(file_stem(f"balance-path-{sweep.pool}-{sweep.setting}"), sweep)
    specs = []
    for stem, sweep in first.items():
        caption = (
            "Informativeness of the batch, l1 distance of its expected counts from the target, and L1 score of the "
            f"labelled set, against λ; model of cycle 0. The rule takes λ = {sweep.path.chosen:.3g}."
        )
        title = f"What balance costs (Fig. 4): {sweep.pool}, {sweep.setting}"
        specs.append(FigureSpec(stem, title, caption, partial(path_figure, sweep.path, sweep.references)))
    return specs


def opening_specs(results: Results, study: Study) -> list[FigureSpec]:
    """The first condition's learning curves, plain next to adjusted, each on the same scale."""
    caption = (
        "Against the share of the original training set that is labelled, of the same models. Adjusted: the softmax is "
        f"divided by the classes' estimated shares among all images before the largest is taken. {DASHES}"
    )
    title = f"Accuracy, plain and adjusted: {study.name}, {study.conditions[0].setting}"
    draw = partial(opening_figure, results, study.conditions[0])
    return [FigureSpec(f"opening-{study.stem}", title, caption, draw)]


def curve_specs(results: Results, study: Study) -> list[FigureSpec]:
    """Fig. 5 and 6, Supp. A: the paper's strategies; then any others, with Random."""
    there = dict.fromkeys(one.strategy for one in _methods(results, study))
    main = [one for one in MAIN if one in there]
    others = [one for one in there if one not in (*MAIN, PSEUDO, "coreset")]
    caption = (
        f"Accuracy on the test set against the share of the original training set that is labelled. {DASHES} {BARS}"
    )
    specs = []
    if main:
        title = f"Learning curves (Fig. 5, 6, Supp. A): {study.name}"
        specs.append(_curve_spec(results, study, "accuracy", title, caption, main))
    if others:
        shown = [*(["random"] if "random" in there else []), *others]
        title = f"Learning curves of further strategies: {study.name}"
        specs.append(_curve_spec(results, study, "accuracy-others", title, caption, shown))
    return specs


def gain_specs(results: Results, study: Study, *, published: bool) -> list[FigureSpec]:
    """Tables 1 to 3 as a figure."""
    found = [gain for condition in study.conditions for gain in gains(results, condition)]
    title, stem = f"What balance adds (Tables 1 to 3): {study.name}", f"gains-{study.stem}"
    if not found:
        return [
            FigureSpec(stem, title, "", None, "a strategy that ran both with and without balance on the same seeds")
        ]
    caption = (
        "Accuracy of the balanced method less that of its base, in points, ± one paired standard error over seeds."
    )
    printed = [published_gain(gain.condition, gain.method, gain.cycle, gain.share) for gain in found if published]
    if any(printed):
        same = all(one is None or one.same_setting for one in printed)
        caption += f" Short dashes: the numbers printed in the paper{'' if same else f' ({NOT_THE_PAPERS})'}."
    return [FigureSpec(stem, title, caption, lambda: gain_figure(results, study, published=published))]


def measure_specs(results: Results, study: Study) -> list[FigureSpec]:
    """L1 score, accuracy on the tail, and accuracy of adjusted decisions."""
    there = dict.fromkeys(one.strategy for one in _methods(results, study))
    main = [one for one in MAIN if one in there] or list(there)
    captions = {
        "l1_score": (
            "Balance of the labelled set",
            f"0: every class equally often; 1: one class alone. {DASHES} {BARS}",
        ),
        "tail_accuracy": ("Accuracy on the tail", f"Mean recall of the classes that were thinned out. {DASHES} {BARS}"),
        "adjusted_accuracy": (
            "Accuracy with decisions adjusted to equal class shares",
            "The softmax is divided by the classes' estimated shares among all images before the largest is taken. "
            f"{DASHES} {BARS}",
        ),
    }
    specs = []
    for measure, (title, caption) in captions.items():
        name = measure.replace("_", "-")
        if not any(one.has(measure) for condition in study.conditions for one in curves(results, condition)):
            needs = "a pool with a tail"
            specs.append(FigureSpec(f"{name}-{study.stem}", f"{title}: {study.name}", "", None, needs))
        else:
            specs.append(_curve_spec(results, study, name, f"{title}: {study.name}", caption, main, measure))
    return specs


def histogram_specs(results: Results, study: Study, names: Sequence[str]) -> list[FigureSpec]:
    """Fig. 2 and 3."""
    condition = histogram_condition(study)
    wanted = (
        (
            "classes-methods", "What the methods pick (Fig. 2)",
            (("random", False), ("entropy", False), ("kcenter", False)),
        ),
        (
            "classes-balance", "What balance changes (Fig. 3)",
            (("entropy", False), ("entropy", True), ("kcenter", False), ("kcenter", True)),
        ),
    )  # fmt: skip
    specs = []
    for name, title, keys in wanted:
        cells = [(condition, one) for one in (results.find(condition, s, balanced=b) for s, b in keys) if one]
        spec = f"{name}-{study.stem}", f"{title}: {study.name}, {condition.setting}"
        missing = _missing(results, condition, keys)
        if len(cells) < 2 or histogram_seed(results, cells) is None:
            specs.append(FigureSpec(*spec, "", None, missing or "one seed that all its methods ran with"))
        else:
            specs.append(_histogram_spec(results, *spec, [cells], names, f" Left out: {missing}." if missing else ""))
    return specs


def supplement_specs(results: Results, study: Study, names: Sequence[str]) -> list[FigureSpec]:
    """Supp. B (pseudo-labels), Supp. C (CoreSet) and Supp. D (class distributions)."""
    there = dict.fromkeys(one.strategy for one in _methods(results, study))
    opening = "Accuracy against the share labelled. "
    found = []
    title, stem = f"Softmax against pseudo-labels (Supp. B): {study.name}", f"pseudo-label-{study.stem}"
    if PSEUDO in there and "entropy" in there:
        found.append(
            _curve_spec(results, study, "pseudo-label", title, opening + DASHES + " " + BARS, ["entropy", PSEUDO])
        )
    else:
        found.append(FigureSpec(stem, title, "", None, "rows of Entropy and Entropy-L1-Pseudo-Label"))
    title, stem = f"CoreSet against the others (Supp. C): {study.name}", f"coreset-{study.stem}"
    if "coreset" in there and len(there) > 1:
        classical = [one for one in _methods(results, study) if not one.balanced and one.strategy in (*MAIN, "coreset")]
        caption = opening + "All without balance. " + BARS
        found.append(FigureSpec(stem, title, caption, lambda: curve_figure(results, study, classical)))
    else:
        found.append(FigureSpec(stem, title, "", None, "rows of CoreSet and of another strategy"))
    return [*found, _distribution_spec(results, study, names)]


def counts_specs(results: Results, study: Study) -> list[FigureSpec]:
    """Expected against true counts, in the most imbalanced condition."""
    condition = study.conditions[-1]
    there = list(results.trials[condition])
    methods = [one for one in there if one.strategy in MAIN][:8] or there[:8]
    stem, title = f"counts-{study.stem}", f"Expected and true class counts: {study.name}, {condition.setting}"
    rows = [row for one in methods for trial in results.trials[condition][one].values() for row in trial.values()]
    if not any(row.picks > 0 and row.expected for row in rows):
        return [FigureSpec(stem, title, "", None, "batches with expected counts")]
    caption = (
        "Each dot is one class in one batch, mean over seeds: images of the class that the model expected among the "
        "picks, and those that were there. Balance can only be as good as these counts."
    )
    return [FigureSpec(stem, title, caption, lambda: counts_figure(results, condition, methods))]


def histogram_condition(study: Study) -> Condition:
    """The paper's imbalance for histograms where it ran, else the strongest."""
    return next((one for one in study.conditions if one.imbalance == HISTOGRAM_FACTOR), study.conditions[-1])


def _methods(results: Results, study: Study) -> list[Method]:
    return sorted({one for condition in study.conditions for one in results.trials[condition]}, key=method_order)


def _curve_spec(
    results: Results, study: Study, name: str, title: str, caption: str, strategies: Sequence[str],
    measure: str = "accuracy",
) -> FigureSpec:  # fmt: skip
    methods = [one for one in _methods(results, study) if one.strategy in strategies]
    absent = [strategy_title(one) for one in ("random", "entropy", "kcenter", "vaal") if one not in strategies]
    note = f" No rows of {', '.join(absent)}." if absent and name == "accuracy" else ""
    return FigureSpec(
        f"{name}-{study.stem}", title, caption + note, lambda: curve_figure(results, study, methods, measure)
    )


def _missing(results: Results, condition: Condition, keys: Sequence[tuple[str, bool]]) -> str:
    absent = [(s, b) for s, b in keys if results.find(condition, s, balanced=b) is None]
    names = [strategy_title(strategy) + ("-CB" if balanced else "") for strategy, balanced in absent]
    return f"rows of {', '.join(names)}" if names else ""


def _histogram_spec(
    results: Results, name: str, title: str, grid: Sequence[Sequence[tuple[Condition, Method]]], names: Sequence[str],
    more: str = "",
) -> FigureSpec:  # fmt: skip
    seeds = sorted({str(histogram_seed(results, line)) for line in grid})
    caption = (
        f"Labelled images of each class, cycle upon cycle; seed {', '.join(seeds)}. Behind: the pool, scaled to as "
        f"many images, which is what a draw at random would give. Dashed: equally many of every class.{more}"
    )
    return FigureSpec(name, title, caption, lambda: histogram_figure(results, grid, names))


def _distribution_spec(results: Results, study: Study, names: Sequence[str]) -> FigureSpec:
    """Supp. D: one row per condition."""
    keys = (("random", False), ("entropy", False), ("entropy", True))
    stem, title = f"distributions-{study.stem}", f"Class distributions with L1 scores (Supp. D): {study.name}"
    grid = []
    for condition in study.conditions:
        line = [(condition, one) for one in (results.find(condition, s, balanced=b) for s, b in keys) if one]
        if len(line) > 1 and histogram_seed(results, line) is not None:
            grid.append(line)
    if not grid:
        return FigureSpec(stem, title, "", None, "rows of Random, Entropy and Entropy-CB on a common seed")
    return _histogram_spec(results, stem, title, grid, names)
