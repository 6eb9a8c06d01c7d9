from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from tailwise.experiments.experiment import Row
from tailwise.report.curves import counts_figure, histogram_figure, histogram_seed
from tailwise.report.figures import figure_bytes
from tailwise.report.names import Condition, Method
from tailwise.report.summary import Results

RowMaker = Callable[..., list[Row]]
METHODS = [("random", "0"), ("entropy", "0"), ("entropy", "auto")]


def cells(results: Results) -> list[tuple[Condition, Method]]:
    (condition,) = results.trials
    return [(condition, method) for method in list(results.trials[condition])]


@pytest.fixture(scope="module")
def results(make_rows: RowMaker) -> Results:
    return Results.of(make_rows(factors=(0.3,), methods=METHODS))


def test_the_bars_of_all_cycles_add_up_to_what_is_labelled(results: Results) -> None:
    figure = histogram_figure(results, [cells(results)])
    for axes, (condition, method) in zip(figure.axes, cells(results), strict=True):
        rows = list(results.trials[condition][method][0].values())
        pool, *layers = axes.containers
        assert len(layers) == len(rows)
        heights = np.array([[bar.get_height() for bar in layer] for layer in layers])
        np.testing.assert_allclose(heights[0], rows[0].counts)
        np.testing.assert_allclose(heights.sum(axis=0), rows[-1].counts)
        assert sum(bar.get_height() for bar in pool) == pytest.approx(rows[-1].labelled)
        assert pool[0].get_height() > pool[9].get_height()
        assert f"L1 score {rows[-1].l1_score:.2f}" in axes.texts[0].get_text()


@pytest.mark.parametrize("classes", [10, 100, 200])
def test_any_number_of_classes_can_be_drawn_and_few_are_named(make_rows: RowMaker, classes: int) -> None:
    results = Results.of(make_rows(factors=(0.1,), methods=METHODS[1:], seeds=(0,), classes=classes, per_class=100))
    names = [f"a long class name ${place}" for place in range(classes)]
    axes = histogram_figure(results, [cells(results)], names).axes[0]
    labels = [label.get_text() for label in axes.get_xticklabels()]
    if classes == 10:
        assert labels == ["a long clas…"] * 10
    else:
        assert len(axes.get_xticks()) < 12
        condition, method = cells(results)[0]
        (trial,) = results.trials[condition][method].values()
        counts = [row.counts for row in trial.values()]
        outlines = [patch.get_data() for patch in axes.patches]
        np.testing.assert_allclose(outlines[-1].values, counts[-1])
        np.testing.assert_allclose(outlines[-1].baseline, counts[-2])


@pytest.mark.parametrize("names", [["猫"] * 10, ["one"] * 9, []])
def test_names_that_cannot_be_drawn_give_way_to_numbers(results: Results, names: Sequence[str]) -> None:
    axes = histogram_figure(results, [cells(results)], names).axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == [str(place) for place in range(10)]


def test_histograms_of_a_row_share_a_seed(make_rows: RowMaker) -> None:
    rows = make_rows(factors=(0.3,), methods=METHODS, seeds=(0, 1))
    kept = [row for row in rows if not (row.balance == "auto" and row.seed == 0)]
    results = Results.of(kept)
    assert histogram_seed(results, cells(results)) == 1
    apart = Results.of(row for row in kept if not (row.balance == "0" and row.seed == 1))
    assert histogram_seed(apart, cells(apart)) is None


def test_dots_are_expected_and_true_counts_over_seeds(results: Results) -> None:
    (condition,) = results.trials
    figure = counts_figure(results, condition, list(results.trials[condition]))
    method = list(results.trials[condition])[2]
    rows = [trial[1] for trial in results.trials[condition][method].values()]
    dots = figure.axes[2].collections[1].get_offsets()
    np.testing.assert_allclose(dots[:, 0], np.mean([row.expected for row in rows], axis=0))
    np.testing.assert_allclose(dots[:, 1], np.mean([row.realised for row in rows], axis=0))
    assert len(figure.axes[2].collections) == 4  # the last cycle has no batch
    assert figure_bytes(figure, "png").startswith(b"\x89PNG")
