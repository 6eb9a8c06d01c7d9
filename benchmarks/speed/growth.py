"""From 10⁵ to 10⁷ rows: seconds and memory of `select` against N, with slopes, and a figure of both."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from .apart import Answer, call_apart
from .instances import Instance
from .measured import Measured, Row, Run, Sheet

NAME = "growth"
SIZES = (100_000, 316_000, 1_000_000, 3_160_000, 10_000_000)
FIGURE = Path(__file__).parents[2] / "docs" / "images" / "growth.png"
RUNS = 3  # per size, of which the one in the middle counts
STEEPEST = 1.1  # seconds ∝ N^slope


def measure(run: Run) -> Iterator[Measured]:
    """One pool per size, half precision, 100 classes, one in a hundred picked, each in a fresh process, no numba."""
    answers: dict[int, Answer] = {}
    for size in SIZES[:3] if run.quick else SIZES:
        sheet = Sheet(NAME, Instance(size, 100, run.seeds(1)[0]).name, run.seeds(1)[0])
        answers[size] = answer = _run(size, run.seeds(1)[0])
        if "error" in answer:
            yield sheet.failed("seconds", "", answer["error"])
            return
        yield sheet.tell("seconds", answer["seconds"], f"gap {answer['gap']:.0e}")
        yield sheet.tell("own memory, GB", answer["own"])
    sizes = np.array(list(answers))
    seconds, memory = (np.array([answer[name] for answer in answers.values()]) for name in ("seconds", "own"))
    sheet = Sheet(NAME, f"{sizes[0]:,} to {sizes[-1]:,} × 100")
    yield sheet.at_most("slope of log seconds in log N, largest three", slope(sizes[-3:], seconds[-3:]), STEEPEST)
    per_row = 1e9 * (memory[-1] - memory[-2]) / (sizes[-1] - sizes[-2])
    yield sheet.tell("bytes of own memory per row, largest two", float(per_row))
    if not run.quick:
        draw(sizes, seconds, memory)


def _run(size: int, seed: int) -> Answer:
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "proba.npy")
        answer = call_apart("million:prepare", 1_800, path=path, seed=seed, size=size, dtype="float16")
        if "error" in answer:
            return answer
        runs = [call_apart("out_of_core:solve", 1_800, path=path, numba=False) for _ in range(RUNS)]
        failed = [run for run in runs if "error" in run]
        return failed[0] if failed else sorted(runs, key=lambda run: run["seconds"])[RUNS // 2]


def slope(sizes: np.ndarray, values: np.ndarray) -> float:
    """Of the least-squares line through the logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def draw(sizes: np.ndarray, seconds: np.ndarray, memory: np.ndarray) -> None:
    """Both against N, on logarithmic axes."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    from tailwise.report.figures import write_figure

    figure, axes = pyplot.subplots(1, 2, figsize=(8.4, 3.3), constrained_layout=True)
    for ax, values, label in ((axes[0], seconds, "seconds"), (axes[1], memory, "own memory, GB")):
        ax.loglog(sizes, values, "o-", color="#3b6fb6", linewidth=1.8, markersize=5)
        fitted = slope(sizes[-3:], values[-3:])
        ax.loglog(sizes, values[-1] * (sizes / sizes[-1]), "--", color="#999999", linewidth=1)
        place = (sizes[0], values[-1] * sizes[0] / sizes[-1])
        ax.annotate("∝ N", place, color="#777777", xytext=(12, -2), textcoords="offset points")
        ax.set_xlabel("rows (100 classes, half precision, from a file)")
        ax.set_ylabel(label)
        ax.set_title(f"slope {fitted:.2f} over the largest three", fontsize=10)
        ax.grid(visible=True, which="major", alpha=0.25)
        ax.spines[["top", "right"]].set_visible(False)
    FIGURE.parent.mkdir(parents=True, exist_ok=True)
    write_figure(figure, FIGURE)


ROW = Row(NAME, "seconds grow no faster than N^1.1; the memory is reported", measure)
