from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from tailwise.experiments.experiment import Row
from tailwise.report.curves import COLOURS, MARKERS, curve_figure, gain_figure
from tailwise.report.figures import figure_bytes
from tailwise.report.names import report_order
from tailwise.report.summary import Results, curve, gains

RowMaker = Callable[..., list[Row]]


@pytest.fixture(scope="module")
def results(make_rows: RowMaker) -> Results:
    return Results.of(make_rows(factors=(1.0, 0.1)))


def whole(results: Results, measure: str = "accuracy") -> Figure:
    study = results.studies[0]
    return curve_figure(results, study, list(results.trials[study.conditions[0]]), measure)


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_one_panel_per_imbalance_shows_the_numbers(results: Results) -> None:
    figure = whole(results)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["IF 1, balanced", "IF 0.1, step"]
    condition = results.studies[0].conditions[1]
    for container, method in zip(figure.axes[1].containers, list(results.trials[condition]), strict=True):
        points = curve(results, condition, method).points
        line, _, (bars,) = container
        np.testing.assert_allclose(line.get_xdata().astype(float), [point.share for point in points])
        np.testing.assert_allclose(line.get_ydata().astype(float), [100 * point.accuracy.mean for point in points])
        spans = [abs(low[1] - high[1]) / 2 for low, high in bars.get_segments()]
        np.testing.assert_allclose(spans, [100 * point.accuracy.std for point in points], rtol=1e-6)


def test_classical_is_dashed_and_balanced_solid_in_the_colour_of_the_strategy(results: Results) -> None:
    lines = [container[0] for container in whole(results).axes[0].containers]
    methods = list(results.trials[results.studies[0].conditions[0]])
    for line, method in zip(lines, methods, strict=True):
        assert line.get_color() == COLOURS[report_order().index(method.strategy)]
        assert (line.get_linestyle() == "-") is method.balanced
        assert (line.get_markerfacecolor() == "white") is not method.balanced
    assert lines[0].get_color() == "#7b838c"


def test_the_legend_names_strategies_once_and_explains_the_dashes(results: Results) -> None:
    assert legend(whole(results)) == ["Random", "Entropy", "KCenter", "VAAL", "classical", "class-balanced (CB)"]


def test_panels_share_their_scale_and_tick_where_the_points_are(results: Results) -> None:
    one, two = whole(results).axes
    assert one.get_ylim() == two.get_ylim()
    np.testing.assert_allclose(one.get_xticks(), [0.10, 0.15, 0.20, 0.25, 0.30])


def test_a_condition_without_a_tail_has_no_panel_of_the_tail(results: Results) -> None:
    figure = whole(results, "tail_accuracy")
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["IF 0.1, step"]


def test_several_balances_are_named_one_by_one_and_look_different(make_rows: RowMaker) -> None:
    methods = [("entropy", "0"), ("entropy", "auto"), ("entropy", "0.6")]
    figure = whole(Results.of(make_rows(factors=(0.1,), methods=methods)))
    assert set(legend(figure)) == {"Entropy", "Entropy-CB (auto)", "Entropy-CB (λ = 0.6)"}
    looks = {(line[0].get_linestyle(), line[0].get_marker()) for line in figure.axes[0].containers}
    assert len(looks) == 3


def test_several_settings_are_named_one_by_one_and_look_different(make_rows: RowMaker) -> None:
    rows = make_rows(factors=(0.1,), methods=[("kcenter", "0"), ("kcenter", "auto")])
    figure = whole(Results.of([*rows, *(replace(row, settings="parts=4") for row in rows)]))
    assert set(legend(figure)) == {"KCenter", "KCenter (parts 4)", "KCenter-CB", "KCenter-CB (parts 4)"}
    looks = {
        (line[0].get_linestyle(), line[0].get_marker(), line[0].get_markerfacecolor())
        for line in figure.axes[0].containers
    }
    assert len(looks) == 4


def test_one_seed_has_no_bars(make_rows: RowMaker) -> None:
    figure = whole(Results.of(make_rows(factors=(0.1,), seeds=(0,))))
    assert all(not container.has_yerr for container in figure.axes[0].containers)


def test_gains_are_drawn_in_points_with_the_papers_numbers(results: Results) -> None:
    study = results.studies[0]
    figure = gain_figure(results, study)
    axes: Axes = figure.axes[1]
    expected = [
        100 * gain.difference.mean for gain in gains(results, study.conditions[1]) if gain.method.strategy == "entropy"
    ]
    np.testing.assert_allclose(axes.containers[0][0].get_ydata().astype(float), expected)
    dashes = [line.get_ydata() for line in axes.lines if line.get_marker() == "_"]
    np.testing.assert_allclose(np.asarray(dashes[0], dtype=float), [0.54, 0.86, 0.57, 0.27])
    assert "printed in the paper" in legend(figure)
    assert "printed in the paper" not in legend(gain_figure(results, study, published=False))


def test_every_point_lies_inside_its_panel(results: Results) -> None:
    figure = gain_figure(results, results.studies[0])
    figure_bytes(figure, "png")
    for axes in figure.axes:
        frame = axes.get_window_extent()
        for line in axes.lines[1:]:
            places = line.get_transform().transform(line.get_xydata())
            assert ((places >= frame.min) & (places <= frame.max)).all()


def test_colours_differ_for_the_red_blind_and_the_green_blind() -> None:
    """Distances after Machado et al. (2009), severity 1; 0.1 of the unit cube is easily told apart in lines."""
    protan = np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    )
    deutan = np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    )
    strategies = ("random", "entropy", "kcenter", "vaal", "coreset")
    main = [np.array(to_rgb(COLOURS[report_order().index(name)])) for name in strategies]
    for blind in (np.eye(3), protan, deutan):
        seen = [blind @ colour for colour in main]
        nearest = min(np.linalg.norm(a - b) for i, a in enumerate(seen) for b in seen[:i])
        assert nearest > 0.1


def test_every_registered_strategy_has_a_look_of_its_own() -> None:
    places = range(len(report_order()))
    looks = {(COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)]) for place in places}
    assert len(looks) == len(places)
