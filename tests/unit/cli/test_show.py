from __future__ import annotations

from dataclasses import replace
from io import StringIO
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

import tailwise
from tailwise.cli import bench
from tailwise.cli.output import bar, certificate, percent, plain, shell_line
from tailwise.cli.select_output import class_table, shown_classes


@pytest.fixture
def batch() -> tailwise.Selection:
    proba = np.random.default_rng(0).dirichlet([4.0, 2.0, 1.0], size=50)
    return tailwise.select(proba, 10, counts=[3, 2, 1], balance=1.0, score="entropy")


@pytest.mark.parametrize("share", [1e-8, 3.33e-5, 9.99e-5, 0.00101, 0.0199, 0.0999, 0.5, 1.0, 12.34])
def test_a_percentage_is_never_better_than_the_truth_and_near_it(share: float) -> None:
    shown = float(percent(share).removesuffix(" %"))
    assert 100 * share <= shown * (1 + 1e-6)
    assert shown <= 100 * share * 1.1


def test_the_certificate_speaks_of_the_gap_only_where_there_is_one() -> None:
    assert certificate("optimal", 0.0) == "optimal: no batch is better, to one in a million"
    assert certificate("within gap", 8e-5) == "within 0.0080 % of the best possible batch, certified"
    assert certificate("time limit", 8e-5).endswith("certified (time limit)")
    for none in (np.inf, None):
        assert certificate("greedy", none) == "greedy: this method gives no bound"
    assert certificate("optimal chunks", 0.0).startswith("chosen in chunks, each the best possible after")
    assert "each within 0.0071 % of" in certificate("optimal chunks", 7.01e-5)


def test_of_many_classes_those_farthest_from_their_target_are_shown(batch: tailwise.Selection) -> None:
    target = np.zeros(40)
    expected = np.zeros(40)
    expected[5:30] = 2.0
    many = replace(batch, target=target, target_high=target, expected_counts=expected)
    assert shown_classes(many) == list(range(5, 30))


def test_the_table_has_labelled_target_and_expected_of_each_class(batch: tailwise.Selection) -> None:
    console = Console(width=80, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123 - not written to
    console.print(class_table(batch, np.array([3.0, 2.0, 1.0])))
    lines = console.export_text().splitlines()
    console.file.close()
    for cls, line in enumerate(lines[-3:]):
        expected = f"{batch.expected_counts[cls]:.1f}"
        assert line.split()[:4] == [str(cls), str(3 - cls), f"{batch.target[cls]:.1f}", expected]
        assert "│" in line


def test_a_bar_is_as_long_as_its_value_and_marks_the_target() -> None:
    assert bar(1.0, None, 1.0).plain == "█" * 24
    assert bar(0.0, None, 0.0).plain == ""
    assert bar(0.5, None, 1.0).plain == "█" * 12
    assert bar(1.0, 0.5, 1.0).plain == "█" * 12 + "│" + "█" * 11
    assert len(bar(0.1, 1.0, 1.0).plain) == 24


def test_markup_and_control_characters_of_the_user_are_shown_as_they_are() -> None:
    console = Console(width=80)
    with console.capture() as captured:
        console.print(plain("a[red]b\x1b[2J.csv"))
    assert captured.get() == "a[red]b\\x1b[2J.csv\n"


@pytest.mark.parametrize(
    ("system", "line"), [("posix", "tailwise label 'my birds'"), ("nt", 'tailwise label "my birds"')]
)
def test_a_command_is_quoted_for_the_shell_of_the_system(
    monkeypatch: pytest.MonkeyPatch, system: str, line: str
) -> None:
    monkeypatch.setattr("tailwise.cli.output.os", SimpleNamespace(name=system))
    assert shell_line("tailwise", "label", "my birds") == line


def test_the_gains_of_the_demo_fit_into_80_columns_with_no_name_cut_off() -> None:
    table = bench._table("method", "accuracy at the end", "gain over Random", "gain adjusted", "gain on the tail", "is")
    table.add_row("Boundary-CB", "89.78 ± 1.15", "+9.47 ± 1.04", "+3.43 ± 0.54", "+17.75 ± 2.16", "better")
    console = Console(width=80, file=StringIO())
    console.print(table)
    shown = console.file.getvalue()  # type: ignore[attr-defined] # the StringIO
    assert "…" not in shown
    assert "Boundary-CB 89.78 ± 1.15" in shown
