"""The page of a study that trains a net from scratch: rows in, Markdown out, with the paper's gains next to ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tailwise.experiments.experiment import Experiment, Row
from tailwise.report.gain_tables import gain_table
from tailwise.report.names import Condition, Method
from tailwise.report.summary import CLEAR, Band, Results, band
from tailwise.report.tables import DASH, Cell, Grid, markdown, with_spread

MEASURES = {"accuracy": "plain", "adjusted_accuracy": "adjusted"}
PAPER = """The paper trained a ResNet-18 for 100 epochs, from 5,000 first labels with 2,500 more in each of four cycles,
over three seeds. So its gains, printed next to ours, are of another setting: we have a smaller net and fewer labels."""


def page(experiment: Experiment, rows: Sequence[Row]) -> str:
    """What was run and how far it is; gains over random, and gains of balance next to those that the paper prints."""
    parts = [f"# From scratch: {experiment.name}", _setting(experiment), PAPER]
    if not rows:
        command = f"python -m benchmarks.quality --data FOLDER --only {experiment.name}"
        return "\n\n".join([*parts, f"**Not yet run**: `{command}` runs it."]) + "\n"
    results = Results.of(rows)
    parts += [
        _state(experiment, rows),
        f"![Learning curves](figures/opening-{experiment.pool.name}-{experiment.learner.name}.png)",
    ]
    for study in results.studies:
        parts += [markdown(over_random(results, condition)) for condition in study.conditions]
        parts += [markdown(gain_table(results, study, measure=measure)) for measure in MEASURES]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def over_random(results: Results, condition: Condition) -> Grid:
    """Gains over random in points, paired by seed: mean of the cycles from 1 on and the last cycle."""
    random = results.find(condition, "random")
    methods = [method for method in results.trials[condition] if random and method != random]
    lines, records = [], []
    for method in methods:
        cells = [Cell(method.shown)]
        for measure in MEASURES:
            for last in (False, True):
                gain = paired_gain(results, condition, method, random, measure, last=last)
                cells.append(_cell(gain))
                when = "last" if last else "mean"
                records.append((condition.setting, method.label, measure, when, gain.mean, gain.error, gain.seeds))
        lines.append((*cells, Cell(str(gain.seeds))))
    return Grid(
        "over-random", f"Gain over Random, in points: {condition.pool}, {condition.setting}",
        ("method", "plain, mean of the cycles", "last cycle", "adjusted, mean", "last cycle", "seeds"), tuple(lines),
        ("Paired by seed, ± standard error. Bold: at least 2 standard errors from zero; all else is within noise.",),
        ("setting", "method", "measure", "cycles", "gain_points", "standard_error", "seeds"), tuple(records), words=1,
    )  # fmt: skip


def paired_gain(
    results: Results, condition: Condition, method: Method, base: Method | None, measure: str, *, last: bool
) -> Band:
    """Points of a method over another on the seeds in which both are whole, over the cycles from 1 on or the last."""
    if base is None:
        return band([])
    ours, theirs = results.trials[condition][method], results.trials[condition][base]
    end = max(cycle for trial in (*ours.values(), *theirs.values()) for cycle in trial)
    cycles = [end] if last else list(range(1, end + 1))
    whole = [seed for seed in ours if end in ours[seed] and end in theirs.get(seed, {})]

    def mean(trial: Mapping[int, Row]) -> float:
        return 100 * sum(getattr(trial[cycle], measure) for cycle in cycles) / len(cycles)

    return band([mean(ours[seed]) - mean(theirs[seed]) for seed in whole])


def _cell(gain: Band) -> Cell:
    if not gain.seeds:
        return Cell(DASH)
    return Cell(with_spread(gain.mean, gain.error, sign=True), gain.mean != 0 and abs(gain.mean) >= CLEAR * gain.error)


def _setting(experiment: Experiment) -> str:
    settings = ", ".join(f"{name} {value}" for name, value in experiment.learner.settings.items())
    factors = " and ".join(str(factor) for factor in experiment.imbalance.factors)
    return (
        f"`{experiment.learner.name}`, trained on {experiment.pool.name} images anew in every cycle ({settings}); "
        f"{experiment.start.initial:,} first labels, {experiment.budget:,} in each of {experiment.cycles} cycles, "
        f"{experiment.imbalance.profile} tail {factors}, {len(experiment.seeds)} seeds."
    )


def _state(experiment: Experiment, rows: Sequence[Row]) -> str:
    methods = sum(len(part.balance) for part in experiment.strategies)
    asked = len(experiment.seeds) * len(experiment.imbalance.factors) * methods
    return f"{sum(row.cycle == experiment.cycles for row in rows)} of {asked} trials are complete."
