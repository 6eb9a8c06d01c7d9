"""Which defaults are never worse: rows of the variants in, one table of paired gains out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.quality.studies import Study
from tailwise.experiments.experiment import Row
from tailwise.report.names import Condition, Method
from tailwise.report.summary import Band, Gain, Results, band, mean_gains
from tailwise.report.tables import DASH, Cell, Grid, merge_down, number, with_spread

MEASURES = ("accuracy", "adjusted_accuracy")
COLUMNS = ("setting", "variant", "method", "measure", "mean", "gain", "error", "seeds", "verdict")
VERDICTS = {"up": "better", "down": "worse"}
NOTES = (
    "Means over all cycles from 1 on, in %; gains over the same strategy with λ = 0, paired by seed, ± standard error, "
    "in points. Strong: two standard errors or more from zero.",
    "Adjusted: the softmax divided by the classes' estimated shares among all images before the largest is taken.",
)


def defaults_table(found: Mapping[Study, Sequence[Row]]) -> Grid:
    """One line per setting, variant and method; the plain and the adjusted accuracy with the gains of balance."""
    records = [record for study, rows in found.items() for record in _records(study, Results.of(rows))]
    lines: dict[tuple[str, str, str], dict[str, dict[str, Any]]] = {}
    for record in records:
        place = (record["setting"], record["variant"], record["method"])
        lines.setdefault(place, {})[record["measure"]] = record
    ordered = sorted(lines, key=lambda place: place[0])
    body = [
        (*map(Cell, words), *(cell for name in MEASURES for cell in _cells(lines[place][name])))
        for place, words in zip(ordered, merge_down(ordered, columns=2), strict=True)
    ]
    return Grid(
        name="defaults",
        title="Gain of balance by loss, calibration, λ rule and score",
        header=("setting", "variant", "method", "accuracy", "gain", "adjusted", "gain"),
        body=tuple(body),
        notes=NOTES,
        columns=COLUMNS,
        records=tuple(tuple(record[name] for name in COLUMNS) for record in records),
        words=3,
    )


def _records(study: Study, results: Results) -> list[dict[str, Any]]:
    """One record per condition, method and measure."""
    found = []
    for condition in results.trials:
        for measure in MEASURES:
            gains = {gain.method: gain for gain in mean_gains(results, condition, measure)}
            for method in results.trials[condition]:
                mean = _mean(results, condition, method, measure)
                words = {"setting": condition.setting, "variant": study.compares, "method": method.label}
                found.append({**words, "measure": measure, "mean": mean.mean, **_gain(gains.get(method), mean)})
    return found


def _gain(gain: Gain | None, mean: Band) -> dict[str, Any]:
    if gain is None:
        return {"gain": None, "error": None, "seeds": mean.seeds, "verdict": ""}
    difference = gain.difference
    return {
        "gain": difference.mean, "error": difference.error, "seeds": difference.seeds,
        "verdict": VERDICTS.get(gain.verdict, gain.verdict),
    }  # fmt: skip


def _mean(results: Results, condition: Condition, method: Method, measure: str) -> Band:
    """Over the cycles from 1 on, then over seeds."""
    trials = results.trials[condition][method].values()
    return band([band([getattr(row, measure) for cycle, row in trial.items() if cycle]).mean for trial in trials])


def _cells(record: Mapping[str, Any]) -> tuple[Cell, Cell]:
    mean = Cell(number(100 * record["mean"], 1))
    if record["gain"] is None:
        return mean, Cell(DASH)
    text = with_spread(100 * record["gain"], 100 * record["error"], sign=True)
    return mean, Cell(text, record["verdict"] in VERDICTS.values())
