"""The tables of an experiment: results in; gains, accuracies, label savings and count errors as `Grid`s out.

Gains are the paper's tables 1 to 3, with its printed numbers next to ours. The same as short rows for a terminal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple

from . import summary
from .names import NOT_THE_PAPERS, Condition, Method, Published, Study, data_set, published_gain
from .summary import CLEAR, CountError, Curve, Gain, Results, Saving, mean_gains, savings
from .tables import DASH, Cell, Grid, merge_down, number, plural, with_spread

PAPER_TABLE = {"cifar10": "Table 1", "cifar100": "Table 2", "tinyimagenet": "Table 3"}
MEASURE_NAMES = {
    "accuracy": "Accuracy",
    "adjusted_accuracy": "Accuracy with decisions adjusted to equal class shares",
    "balanced_accuracy": "Balanced accuracy",
    "tail_accuracy": "Accuracy on the tail",
    "l1_score": "L1 score of the labelled set",
}
WHERE = ("pool", "learner", "setting", "imbalance_factor")
VERDICTS = {"up": "better", "down": "worse"}
COMPARED = {"accuracy": "", "adjusted_accuracy": " adjusted", "tail_accuracy": " on the tail"}


def gain_table(results: Results, study: Study, *, measure: str = "accuracy", published: bool = True) -> Grid:
    """Gains per cycle, imbalance × method, in points of accuracy (the paper's tables 1 to 3), plain or adjusted."""
    found = [gain for condition in study.conditions for gain in summary.gains(results, condition, measure)]
    plain = measure == "accuracy"
    paper = {
        gain: published_gain(gain.condition, gain.method, gain.cycle, gain.share) if published and plain else None
        for gain in found
    }
    cycles = sorted({gain.cycle for gain in found})
    printed = {gain.cycle for gain, theirs in paper.items() if theirs is not None}
    strange = any(one is not None and not one.same_setting for one in paper.values())
    header = ["setting", "method"]
    for cycle in cycles:
        header += [f"cycle {cycle}", *([f"paper{'†' if strange else ''}"] if cycle in printed else [])]
    lines = [_gain_line(line, cycles, printed, paper) for line in _by_method(found)]
    like = PAPER_TABLE.get(data_set(study.pool)) if plain else None
    what = MEASURE_NAMES[measure][:1].lower() + MEASURE_NAMES[measure][1:]
    title = f"Gain in {what} by class balancing, in points: {study.name}" + (f" (the paper's {like})" if like else "")
    stem = study.stem if plain else f"{measure.replace('_', '-')}-{study.stem}"
    return Grid(
        f"gains-{stem}", title, tuple(header), _merged(lines), _gain_notes(found, bool(printed), strange),
        (*WHERE, "method", "base", "cycle", "labelled", "share", "gain_points", "paired_standard_error", "seeds",
         "verdict", "published_points", "papers_setting"),
        tuple(_gain_record(gain, theirs) for gain, theirs in paper.items()),
    )  # fmt: skip


def measure_table(results: Results, study: Study, measure: str) -> Grid:
    """A measure per cycle, imbalance × method, mean ± standard deviation; accuracies in percent."""
    found = [one for condition in study.conditions for one in summary.curves(results, condition) if one.has(measure)]
    cycles = sorted({point.cycle for one in found for point in one.points})
    factor, digits = (1.0, 3) if measure == "l1_score" else (100.0, 2)
    lines = []
    for one in found:
        bands = {point.cycle: point.measure(measure) for point in one.points}
        texts = [
            with_spread(bands[c].mean * factor, bands[c].std * factor, digits) if c in bands else DASH for c in cycles
        ]
        lines.append([Cell(one.condition.setting), Cell(one.method.shown), *map(Cell, texts)])
    unit = "" if measure == "l1_score" else ", in percent"
    seeds = _seeds_text([point.accuracy.seeds for one in found for point in one.points])
    return Grid(
        f"{measure.replace('_', '-')}-{study.stem}", f"{MEASURE_NAMES[measure]}{unit}: {study.name}",
        ("setting", "method", *_cycle_names(found, cycles)), _merged(lines),
        (f"Mean ± standard deviation over {seeds}; {DASH}: no number.",),
        (*WHERE, "method", "cycle", "labelled", "share", "mean", "std", "seeds"),
        tuple(
            (*astuple(one.condition), one.method.label, point.cycle, point.labelled, point.share,
             point.measure(measure).mean, point.measure(measure).std, point.measure(measure).seeds)
            for one in found for point in one.points
        ),
    )  # fmt: skip


def saving_table(results: Results, study: Study) -> Grid:
    """Labels that each method needs for a level of accuracy, compared with Random."""
    found = [one for condition in study.conditions for one in savings(results, condition)]
    lines = [[Cell(text) for text in (one.condition.setting, *_saving_texts(one))] for one in found]
    return Grid(
        f"savings-{study.stem}", f"Labels needed for an accuracy: {study.name}",
        ("setting", "level", "method", "labels", "Random", "fewer labels", "seeds ahead"), _merged(lines, 2),
        (
            "Labels, the initial set included, at which the mean learning curve first meets the level, by straight "
            "lines between its points. Seeds ahead: in how many seeds the method alone got there first.",
            "≥: Random does not meet the level with all its labels, so the saving is at least this.",
        ),
        (*WHERE, "level", "method", "labels", "reference", "reference_labels", "saved_share", "is_lower_limit",
         "seeds_ahead", "seeds"),
        tuple(
            (*astuple(one.condition), one.level, one.method.label, one.needed, one.reference.label,
             one.reference_needed, one.share, one.at_least, one.ahead, one.seeds)
            for one in found
        ),
        words=3,
    )  # fmt: skip


def count_table(results: Results, study: Study, class_names: Sequence[str] = ()) -> Grid:
    """Expected against true class counts of each batch."""
    found = [one for condition in study.conditions for one in summary.count_errors(results, condition)]
    lines = [[Cell(text) for text in _count_texts(one, class_names)] for one in found]
    return Grid(
        f"counts-{study.stem}", f"Expected and true class counts of the batches: {study.name}",
        ("setting", "method", "cycle", "batch", "in another class", "error per class", "farthest class", "expected",
         "true"),
        _merged(lines, 2),
        (
            "In another class: Σ|expected − true| / 2 as a share of the batch. Error per class: the mean of "
            "|expected − true| over the classes as a share of the batch. Mean ± standard deviation over seeds.",
        ),
        (*WHERE, "method", "cycle", "picks", "misplaced_share", "misplaced_std", "mean_absolute_error_share",
         "mean_absolute_error_std", "seeds", "farthest_class", "farthest_expected", "farthest_realised"),
        tuple(
            (*astuple(one.condition), one.method.label, one.cycle, one.picks, one.misplaced.mean, one.misplaced.std,
             one.absolute.mean, one.absolute.std, one.absolute.seeds, one.worst, one.worst_expected, one.worst_realised)
            for one in found
        ),
    )  # fmt: skip


def study_tables(
    results: Results, study: Study, *, published: bool = True, class_names: Mapping[str, Sequence[str]] | None = None
) -> list[Grid]:
    """Every table of a study that has rows."""
    measures = _measures(results, study)
    grids = [
        gain_table(results, study, published=published),
        *(gain_table(results, study, measure=one) for one in measures if one == "adjusted_accuracy"),
        *(measure_table(results, study, measure) for measure in measures),
        saving_table(results, study),
        count_table(results, study, (class_names or {}).get(study.pool, ())),
    ]
    return [grid for grid in grids if grid.body]


def _measures(results: Results, study: Study) -> list[str]:
    """All of them but accuracies that are plain accuracy again, such as balanced accuracy on a balanced test set."""
    runs = (trials for condition in study.conditions for trials in results.trials[condition].values())
    rows = [row for trials in runs for trial in trials.values() for row in trial.values()]
    again = [
        name
        for name in ("adjusted_accuracy", "balanced_accuracy")
        if all(math.isclose(row.accuracy, getattr(row, name), abs_tol=1e-9) for row in rows)
    ]
    return [name for name in MEASURE_NAMES if name not in again]


def gain_rows(results: Results) -> list[list[str]]:
    """Accuracies and gains for a terminal, the header first: one row per condition and method.

    Accuracy at the end ± standard deviation; gains are means over all cycles ± paired standard error, in points.
    """
    titles = [f"gain{where}" for where in COMPARED.values()]
    rows = [[*_place_columns(results), "method", "accuracy at the end", *titles, "seeds", "balance is"]]
    for condition in results.trials:
        rows += _accuracy_rows(results, condition, over=None)
    return rows


def random_rows(results: Results) -> list[list[str]]:
    """Gains over Random for a terminal, the header first: one row per condition and method.

    Means over all cycles ± paired standard error, in points; nothing but the header where there is no Random.
    """
    names = ["method", "accuracy at the end", "gain over Random", "gain adjusted", "gain on the tail", "seeds", "is"]
    rows = [[*_place_columns(results), *names]]
    for condition in results.trials:
        base = results.find(condition, "random")
        rows += _accuracy_rows(results, condition, over=base) if base is not None else []
    return rows


def _accuracy_rows(results: Results, condition: Condition, over: Method | None) -> list[list[str]]:
    """Accuracy at the end and gains of each method: over one of them, or each balanced one over its base."""
    place = [getattr(condition, name) for name in _place_columns(results)]
    measured = [{gain.method: gain for gain in mean_gains(results, condition, name, over=over)} for name in COMPARED]
    rows = []
    for one in summary.curves(results, condition):
        last, gain = one.last.accuracy, measured[0].get(one.method)
        accuracy = with_spread(100 * last.mean, 100 * last.std)
        points = [gain_points(of[one.method]) if one.method in of else "" for of in measured]
        verdict = VERDICTS.get(gain.verdict, gain.verdict) if gain else ""
        rows.append([*place, one.method.shown, accuracy, *points, str(last.seeds), verdict])
    return rows


def compared_rows(results: Results, *, over_random: bool) -> list[list[str]]:
    """Accuracies and gains for a terminal, the header first: plain, adjusted and on the tail, side by side.

    Accuracies are means over all cycles. A gain is the difference of the accuracies as they are printed, ± the paired
    standard error: over Random, or of a balanced method over its base. In parentheses: within noise.
    """
    names = ["accuracy", "gain", "adjusted accuracy", "gain adjusted", "tail accuracy", "gain on the tail"]
    rows = [[*_place_columns(results), "method", *names, "seeds"]]
    for condition in results.trials:
        base = results.find(condition, "random") if over_random else None
        if over_random and base is None:
            continue
        place = [getattr(condition, name) for name in _place_columns(results)]
        means = {name: cycle_means(results, condition, name) for name in COMPARED}
        found = {
            name: {one.method: one for one in mean_gains(results, condition, name, over=base)} for name in COMPARED
        }
        for one in summary.curves(results, condition):
            cells = []
            for name in COMPARED:
                mean, gain = means[name][one.method], found[name].get(one.method)
                if math.isnan(mean):
                    cells += ["", ""]
                else:
                    cells += [number(mean, 1), gain_shown(gain, means[name]) if gain else ""]
            rows.append([*place, one.method.shown, *cells, str(one.last.accuracy.seeds)])
    return rows


def cycle_means(results: Results, condition: Condition, measure: str) -> dict[Method, float]:
    """The mean of a measure over all cycles from 1 on, in percent, over the seeds that all methods have completed."""
    trials = results.trials[condition]
    cycles = {cycle for runs in trials.values() for trial in runs.values() for cycle in trial if cycle > 0}
    complete = [{seed for seed, trial in runs.items() if cycles <= trial.keys()} for runs in trials.values()]
    common = set.intersection(*complete)
    means = {}
    for method, runs in trials.items():
        values = [
            getattr(row, measure) for seed, trial in runs.items() if seed in common or not common
            for cycle, row in trial.items() if cycle > 0
        ]  # fmt: skip
        means[method] = 100 * sum(values) / len(values) if values else math.nan
    return means


def gain_shown(gain: Gain, means: Mapping[Method, float]) -> str:
    """A gain with one digit, as the difference of two means as they are printed; within noise in parentheses."""
    points = round(means[gain.method], 1) - round(means[gain.base], 1)
    text = with_spread(points, 100 * gain.difference.error, 1, sign=True)
    return f"({text})" if gain.verdict == "within noise" else text


def saving_rows(results: Results) -> list[list[str]]:
    """Label savings for a terminal, the header first; nothing more where there is no Random to compare with."""
    columns = _place_columns(results)
    rows = [[*columns, "level", "method", "labels", "Random", "fewer labels", "seeds ahead"]]
    for condition in results.trials:
        place = [getattr(condition, name) for name in columns]
        rows += [[*place, *_saving_texts(one)] for one in savings(results, condition)]
    return rows


def _place_columns(results: Results) -> list[str]:
    """Attributes of a condition that say where a row holds; pool and learner only where there are several."""
    return ["pool", "learner", "setting"] if len(results.studies) > 1 else ["setting"]


def gain_points(gain: Gain, digits: int = 2) -> str:
    """A gain ± its paired standard error, in points."""
    return with_spread(100 * gain.difference.mean, 100 * gain.difference.error, digits, sign=True)


def _by_method(found: list[Gain]) -> list[list[Gain]]:
    lines: dict[tuple[Condition, str], list[Gain]] = {}
    for gain in found:
        lines.setdefault((gain.condition, gain.method.label), []).append(gain)
    return list(lines.values())


def _gain_line(
    line: list[Gain], cycles: list[int], printed: set[int], paper: dict[Gain, Published | None]
) -> list[Cell]:
    cells = [Cell(line[0].condition.setting), Cell(line[0].method.shown)]
    at = {gain.cycle: gain for gain in line}
    for cycle in cycles:
        gain = at.get(cycle)
        cells.append(Cell(gain_points(gain), gain.verdict in VERDICTS) if gain else Cell(DASH))
        if cycle in printed:
            theirs = paper[gain] if gain else None
            cells.append(Cell(number(theirs.points, sign=True) if theirs else DASH))
    return cells


def _gain_notes(found: list[Gain], printed: bool, strange: bool) -> tuple[str, ...]:
    seeds = _seeds_text([gain.difference.seeds for gain in found])
    notes = [
        f"Mean ± paired standard error over {seeds}. Bold: at least {CLEAR:.0f} standard errors from "
        "zero; all else is within noise."
    ]
    if printed:
        notes.append("paper: the gain printed in the paper, a mean over 3 runs.")
    if strange:
        notes.append(
            f"† {NOT_THE_PAPERS}: the paper trained a deep net on the images, from 10 % of them on, 5 % a cycle."
        )
    return tuple(notes)


def _gain_record(gain: Gain, theirs: Published | None) -> tuple[object, ...]:
    paper = (theirs.points, theirs.same_setting) if theirs else ("", "")
    numbers = (100 * gain.difference.mean, 100 * gain.difference.error, gain.difference.seeds)
    names = (gain.method.label, gain.base.label, gain.cycle, gain.labelled, gain.share)
    return (*astuple(gain.condition), *names, *numbers, VERDICTS.get(gain.verdict, gain.verdict), *paper)


def _cycle_names(found: list[Curve], cycles: list[int]) -> list[str]:
    """Cycles with the share labelled then, where all conditions agree on it."""
    names = []
    for cycle in cycles:
        shares = {f"{100 * point.share:.3g} %" for one in found for point in one.points if point.cycle == cycle}
        names.append(f"cycle {cycle} ({shares.pop()})" if len(shares) == 1 else f"cycle {cycle}")
    return names


def _seeds_text(numbers: list[int]) -> str:
    """Between how many seeds the numbers of a table are means of."""
    least, most = min(numbers, default=0), max(numbers, default=0)
    return f"{least} to {most} seeds" if least != most else plural(most, "seed")


def _merged(lines: list[list[Cell]], columns: int = 1) -> tuple[tuple[Cell, ...], ...]:
    texts = merge_down([tuple(cell.text for cell in line) for line in lines], columns)
    return tuple(
        tuple(Cell(text, cell.strong) for text, cell in zip(row, line, strict=True))
        for row, line in zip(texts, lines, strict=True)
    )


def _saving_texts(one: Saving) -> list[str]:
    return [
        f"{100 * one.level:.0f} %", one.method.shown, labels_shown(one.needed), labels_shown(one.reference_needed),
        saving_shown(one), f"{one.ahead} of {one.seeds}",
    ]  # fmt: skip


def labels_shown(labels: float) -> str:
    """A number of labels, or "not reached".

    >>> labels_shown(1234.4), labels_shown(float("nan"))
    ('1,234', 'not reached')
    """
    return "not reached" if math.isnan(labels) else f"{labels:,.0f}"


def saving_shown(one: Saving) -> str:
    """The share of labels saved, in percent."""
    if math.isnan(one.share):
        return DASH
    saved = f"{number(100 * one.share, 0)} %"
    if one.at_least and saved == "0 %":
        return "> 0 %"  # met with the very last label, and not by the reference: it needs more, nobody knows how many
    return f"≥ {saved}" if one.at_least else saved


def _count_texts(one: CountError, class_names: Sequence[str]) -> list[str]:
    worst = class_names[one.worst] if one.worst < len(class_names) else str(one.worst)
    return [
        one.condition.setting, one.method.shown, str(one.cycle), f"{one.picks:,.0f}",
        f"{with_spread(100 * one.misplaced.mean, 100 * one.misplaced.std, 1)} %",
        f"{with_spread(100 * one.absolute.mean, 100 * one.absolute.std, 2)} %",
        worst, number(one.worst_expected, 1), number(one.worst_realised, 1),
    ]  # fmt: skip
