from __future__ import annotations

import csv
import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from tailwise.experiments.experiment import Row
from tailwise.report.experiment import default_findings
from tailwise.report.gain_tables import (
    compared_rows,
    count_table,
    gain_rows,
    gain_table,
    measure_table,
    random_rows,
    saving_rows,
    saving_shown,
    study_tables,
)
from tailwise.report.summary import Results, savings
from tailwise.report.tables import Cell, Grid, html, latex, markdown, tidy_csv

RowMaker = Callable[..., list[Row]]


@pytest.fixture(scope="module")
def results(make_rows: RowMaker) -> Results:
    return Results.of(make_rows(factors=(1.0, 0.1)))


@pytest.fixture(scope="module")
def by_hand(make_rows: RowMaker) -> Results:
    """Entropy at 60 and 62 %, balanced at 61 and 65 %: gains of 1 and 3 points."""
    template = make_rows(factors=(0.1,), methods=[("entropy", "0")], seeds=(0,), cycles=1)
    accuracies = {("0", 0): 0.60, ("0", 1): 0.62, ("auto", 0): 0.61, ("auto", 1): 0.65}
    return Results.of(
        replace(row, balance=balance, seed=seed, accuracy=accuracy if row.cycle else 0.5)
        for (balance, seed), accuracy in accuracies.items()
        for row in template
    )


def records(grid: Grid) -> list[dict[str, str]]:
    return list(csv.DictReader(tidy_csv(grid).decode().splitlines()))


def test_gains_stand_beside_those_of_the_paper(by_hand: Results) -> None:
    grid = gain_table(by_hand, by_hand.studies[0])
    assert grid.header == ("setting", "method", "cycle 1", "paper")
    assert "| step 0.1 | Entropy-CB | **+2.00 ± 1.00** | +0.54 |" in markdown(grid).splitlines()
    assert r"step 0.1 & Entropy-CB & \textbf{+2.00 $\pm$ 1.00} & +0.54 \\" in latex(grid).splitlines()
    assert records(grid) == [
        {
            "pool": "cifar10", "learner": "resnet18", "setting": "step 0.1", "imbalance_factor": "0.1",
            "method": "entropy-cb", "base": "entropy", "cycle": "1", "labelled": "7500.0", "share": "0.15",
            "gain_points": "2.0", "paired_standard_error": "1.0", "seeds": "2", "verdict": "better",
            "published_points": "0.54", "papers_setting": "True",
        }
    ]  # fmt: skip


def test_the_papers_numbers_can_be_left_out(by_hand: Results) -> None:
    grid = gain_table(by_hand, by_hand.studies[0], published=False)
    assert grid.header == ("setting", "method", "cycle 1")
    assert records(grid)[0]["published_points"] == ""


def test_features_are_marked_as_not_the_papers_setting(make_rows: RowMaker) -> None:
    results = Results.of(make_rows(pool="cifar10-features", learner="linear", factors=(0.1,)))
    grid = gain_table(results, results.studies[0])
    assert grid.header[3] == "paper†"
    assert any("not the paper's setting" in note for note in grid.notes)
    assert {record["papers_setting"] for record in records(grid)} == {"False"}


def test_accuracies_are_percent_with_the_standard_deviation(by_hand: Results) -> None:
    grid = measure_table(by_hand, by_hand.studies[0], "accuracy")
    assert grid.header == ("setting", "method", "cycle 0 (10 %)", "cycle 1 (15 %)")
    lines = markdown(grid).splitlines()
    assert "| step 0.1 | Entropy | 50.00 ± 0.00 | 61.00 ± 1.41 |" in lines
    assert "|  | Entropy-CB | 50.00 ± 0.00 | 63.00 ± 2.83 |" in lines


def test_the_spread_of_one_seed_is_a_dash_and_empty_in_csv(make_rows: RowMaker) -> None:
    results = Results.of(make_rows(factors=(0.1,), seeds=(0,)))
    grid = measure_table(results, results.studies[0], "accuracy")
    assert all(cell.text.endswith("± –") for row in grid.body for cell in row[2:])
    assert {record["std"] for record in records(grid)} == {""}
    assert "over 1 seed;" in grid.notes[0]
    assert not any(cell.strong for row in gain_table(results, results.studies[0]).body for cell in row)


def test_latex_is_a_booktabs_table_with_as_many_cells_as_columns(results: Results) -> None:
    for grid in study_tables(results, results.studies[0]):
        text = latex(grid)
        assert all(rule in text for rule in (r"\toprule", r"\midrule", r"\bottomrule", r"\caption{", r"\label{tab:"))
        body = [line for line in text.splitlines() if line.endswith(r"\\")]
        assert {line.replace(r"\&", "").count("&") for line in body} == {len(grid.header) - 1}
        assert not set("±−λ≥†–") & set(text)


def test_a_pool_without_a_tail_has_no_row_in_the_table_of_tails(results: Results) -> None:
    grid = measure_table(results, results.studies[0], "tail_accuracy")
    assert {record["setting"] for record in records(grid)} == {"step 0.1"}


def test_balanced_accuracy_is_shown_only_where_it_differs(results: Results, make_rows: RowMaker) -> None:
    names = [grid.name for grid in study_tables(results, results.studies[0])]
    assert not any(name.startswith("balanced-accuracy") for name in names)
    other = Results.of(replace(row, balanced_accuracy=row.accuracy / 2) for row in make_rows(factors=(0.1,)))
    names = [grid.name for grid in study_tables(other, other.studies[0])]
    assert "balanced-accuracy-cifar10-resnet18" in names


def test_gains_of_adjusted_decisions_stand_beside_where_they_differ(results: Results, make_rows: RowMaker) -> None:
    names = [grid.name for grid in study_tables(results, results.studies[0])]
    assert not any("adjusted" in name for name in names)
    rows = [
        replace(row, adjusted_accuracy=row.accuracy + (0.01 if row.balance != "0" else 0.0))
        for row in make_rows(factors=(0.1,))
    ]
    other = Results.of(rows)
    tables = {grid.name: grid for grid in study_tables(other, other.studies[0])}
    plain, adjusted = tables["gains-cifar10-resnet18"], tables["gains-adjusted-accuracy-cifar10-resnet18"]
    assert "adjusted-accuracy-cifar10-resnet18" in tables
    for before, after in zip(records(plain), records(adjusted), strict=True):
        assert float(after["gain_points"]) == pytest.approx(float(before["gain_points"]) + 1.0)
        assert after["published_points"] == ""


def test_class_names_stand_in_the_table_of_counts(results: Results) -> None:
    names = [f"kind {place}" for place in range(10)]
    grid = count_table(results, results.studies[0], names)
    assert all(row[6].text.startswith("kind ") for row in grid.body)
    assert all(row[6].text.isdigit() for row in count_table(results, results.studies[0]).body)


def test_every_language_escapes_what_it_must() -> None:
    cell = Cell("=<b>|a_b & 5 %*", strong=True)
    grid = Grid("n", "t <i>", ("x", "y"), ((cell, Cell("1")),), ("<u>",), ("x",), ((cell.text,), (-1.5,), (math.nan,)))
    assert r"**=&lt;b&gt;\|a_b & 5 %\***" in markdown(grid)
    assert r"\textbf{=\textless{}b\textgreater{}|a\_b \& 5 \%*}" in latex(grid)
    assert "<strong>=&lt;b&gt;|a_b &amp; 5 %*</strong>" in html(grid)
    assert "<i>" not in html(grid)
    assert "<u>" not in html(grid)
    assert tidy_csv(grid).decode().splitlines() == ["x", "'=<b>|a_b & 5 %*", "-1.5", '""']


def lines(table: list[list[str]]) -> list[dict[str, str]]:
    header, *rows = table
    return [dict(zip(header, row, strict=True)) for row in rows]


def test_the_terminal_gets_every_method_with_its_gain(by_hand: Results) -> None:
    base, balanced = lines(gain_rows(by_hand))
    assert base["method"] == "Entropy"
    assert base["accuracy at the end"] == "61.00 ± 1.41"
    assert base["gain"] == ""
    assert (balanced["gain"], balanced["seeds"], balanced["balance is"]) == ("+2.00 ± 1.00", "2", "better")
    assert "pool" not in base


def versus_random(rows: list[Row], better: float) -> Results:
    """Random, and the default so much better in every cycle of every seed, but for a bit of noise."""
    rows = [row for row in rows if row.strategy == "random"]
    ours = [
        replace(row, strategy="boundary", balance="auto", accuracy=row.accuracy + better + 0.001 * row.seed,
                adjusted_accuracy=row.accuracy - better, tail_accuracy=row.tail_accuracy + better)
        for row in rows
    ]  # fmt: skip
    return Results.of(rows + ours)


def test_every_method_is_compared_with_random_and_losses_are_called_so(make_rows: RowMaker) -> None:
    rows = make_rows(factors=(0.1,), methods=[("random", "0")])
    base, ours = lines(random_rows(versus_random(rows, 0.05)))
    assert (base["method"], base["gain over Random"], base["is"]) == ("Random", "", "")
    assert (ours["method"], ours["gain over Random"], ours["is"]) == ("Boundary-CB", "+5.10 ± 0.06", "better")
    assert ours["gain adjusted"].startswith("−5.00")
    assert lines(random_rows(versus_random(rows, -0.05)))[1]["is"] == "worse"
    assert lines(random_rows(Results.of([row for row in make_rows() if row.strategy == "entropy"]))) == []


def test_a_gain_is_the_difference_of_the_accuracies_as_they_are_printed(make_rows: RowMaker) -> None:
    rows = make_rows(factors=(0.1,), methods=[("random", "0"), ("entropy", "0"), ("entropy", "auto")])
    header, *found = compared_rows(Results.of(rows), over_random=True)
    base, *others = ([line[at] for at, name in enumerate(header) if name != "seeds"][-6:] for line in found)
    assert base[1::2] == ["", "", ""]
    for cells in others:
        for at in (0, 2, 4):
            gain = float(cells[at + 1].strip("()").split()[0].replace("−", "-"))
            assert gain == round(float(cells[at]) - float(base[at]), 1)
    _, plain, balanced = (line[-7:] for line in compared_rows(Results.of(rows), over_random=False)[1:])
    assert plain[1] == ""
    shown = float(balanced[1].strip("()").split()[0].replace("−", "-"))
    assert shown == round(float(balanced[0]) - float(plain[0]), 1)
    none = compared_rows(Results.of([row for row in rows if row.strategy == "entropy"]), over_random=True)
    assert len(none) == 1


def test_the_default_is_judged_in_words_and_who_is_ahead_of_it_is_named(make_rows: RowMaker) -> None:
    rows = make_rows(factors=(0.1,), methods=[("random", "0")])
    good, ahead = (one.text for one in default_findings(versus_random(rows, 0.05)))
    assert good.startswith("Boundary-CB, the default, against Random: +5.1 ± 0.1 points, −5.0 ± 0.0 points adjusted, ")
    assert ahead.startswith("Ahead of it: Random +5.0 ± 0.0 points adjusted. Highest at the end: Boundary-CB, ")
    _, lost = (one.text for one in default_findings(versus_random(rows, -0.05)))
    assert lost.startswith(
        "Ahead of it: Random +4.9 ± 0.1 points, Random +5.0 ± 0.0 points on the tail. Highest at the"
    )
    balanced = make_rows(factors=(1.0,), methods=[("random", "0")], seeds=(0,))
    alone, unknown = (one.text for one in default_findings(versus_random(balanced, 0.05)))
    assert "tail" not in alone
    assert unknown.startswith("One seed does not show who is ahead of it.")
    assert default_findings(Results.of(rows)) == []


def test_pools_are_named_where_there_are_several(make_rows: RowMaker) -> None:
    rows = make_rows(factors=(0.1,)) + make_rows(pool="digits", learner="linear", factors=(0.1,))
    assert {line["pool"] for line in lines(gain_rows(Results.of(rows)))} == {"cifar10", "digits"}


def test_savings_for_the_terminal_say_not_reached(results: Results) -> None:
    found = lines(saving_rows(results))
    assert {"setting", "level", "method", "labels", "Random", "fewer labels", "seeds ahead"} == set(found[0])
    assert "not reached" in {line["labels"] for line in found}
    assert all(line["fewer labels"] == "–" for line in found if line["labels"] == "not reached")


@pytest.mark.parametrize(("needed", "reference", "shown"), [
    (90.0, 120.0, "25 %"), (90.0, math.nan, "≥ 50 %"), (180.0, math.nan, "> 0 %"), (120.0, 120.0, "0 %"),
    (math.nan, 120.0, "–"),
])  # fmt: skip
def test_a_saving_is_a_share_or_a_limit_of_one(results: Results, needed: float, reference: float, shown: str) -> None:
    some = savings(results, next(iter(results.trials)))[0]
    one = replace(some, needed=needed, reference_needed=reference, reference_most=180.0)
    assert saving_shown(one) == shown


def test_without_random_there_is_only_the_header_of_savings(by_hand: Results) -> None:
    assert len(saving_rows(by_hand)) == 1
