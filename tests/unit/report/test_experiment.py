from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from tailwise.errors import BadFile
from tailwise.experiments.experiment import Row
from tailwise.report.experiment import chance_sentence, gain_findings, saving_findings, write_report
from tailwise.report.figure_specs import figure_specs, histogram_condition
from tailwise.report.figures import path_figure, settle
from tailwise.report.names import PoolSweep, Reference, file_stem, sweep_of
from tailwise.report.summary import Results
from tailwise.strategies.select import BalancePath

RowMaker = Callable[..., list[Row]]
SMALL = [("random", "0"), ("entropy", "0"), ("entropy", "auto")]
VOID = {"meta", "img", "br"}


class Checker(HTMLParser):
    """Every tag is closed in its order; addresses and ids are kept."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []
        self.ids: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href")]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def sweep() -> PoolSweep:
    numbers = np.array([3.0, 2.0, 1.0])
    path = BalancePath(np.array([0.0, 0.5, 1.0]), numbers, numbers * 10, numbers / 10, numbers * 0, chosen=0.5)
    return PoolSweep("cifar10", "step 0.1", path, (Reference("Entropy", 3.0, 30.0, 0.3),))


@pytest.fixture(scope="module")
def report(make_rows: RowMaker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report") / "new" / "folder"
    rows = make_rows(factors=(0.1,), methods=SMALL, seeds=(0, 1), cycles=2)
    page = write_report(
        rows, folder, title="<script>alert(1)</script>", sweeps=[sweep()], config='name = "<b>"\n',
        versions={"numpy": "2 & more"}, class_names={"cifar10": [f"<i>{place}" for place in range(10)]},
    )  # fmt: skip
    assert page == folder / "report.html"
    return folder


def test_the_page_is_well_formed_and_needs_nothing_else(report: Path) -> None:
    text = (report / "report.html").read_text(encoding="utf-8")
    checker = Checker()
    checker.feed(text)
    checker.close()
    assert checker.open == []
    assert not checker.tags & {"script", "link", "iframe", "object"}
    assert all(address.startswith(("data:image/png;base64,", "#")) for address in checker.addresses)
    assert {address[1:] for address in checker.addresses if address.startswith("#")} == set(checker.ids)
    assert "http" not in text
    assert "url(" not in text
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text


def test_all_text_is_escaped(report: Path) -> None:
    text = (report / "report.html").read_text(encoding="utf-8")
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "<i>" not in text
    assert "&lt;i&gt;" in text  # the class that was farthest off
    assert "name = &quot;&lt;b&gt;&quot;" in text
    assert "2 &amp; more" in text


def test_names_from_the_rows_are_escaped_and_cannot_leave_the_folder(make_rows: RowMaker, tmp_path: Path) -> None:
    rows = make_rows(factors=(1.0,), methods=SMALL[:1], seeds=(0,), cycles=1)
    bad = [replace(row, pool="../<b>", learner="$x_", strategy="</td>$") for row in rows]
    write_report(bad, tmp_path / "in", title="t")
    text = (tmp_path / "in" / "report.html").read_text(encoding="utf-8")
    assert "<b>" not in text
    assert "</td>$" not in text
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_every_figure_and_table_comes_in_every_format(report: Path) -> None:
    figures, tables = (sorted((report / name).iterdir()) for name in ("figures", "tables"))
    for files, kinds in ((figures, {".png", ".svg", ".pdf"}), (tables, {".csv", ".md", ".tex"})):
        stems = {path.name.removesuffix(path.suffix) for path in files}
        assert {path.name for path in files} == {stem + kind for stem in stems for kind in kinds}
        assert all(path.stat().st_size for path in files)
    assert {path.name for path in report.iterdir()} == {"report.html", "figures", "tables"}
    assert (report / "tables" / "gains-cifar10-resnet18.csv").is_file()
    assert (report / "figures" / "balance-path-cifar10-step-0.1.pdf").is_file()


def test_the_same_rows_in_any_order_give_the_same_bytes(make_rows: RowMaker, tmp_path: Path) -> None:
    rows = make_rows(factors=(0.1,), methods=SMALL[1:2], seeds=(0, 1), cycles=1)
    for name, some in (("one", rows), ("two", rows[::-1])):
        write_report(some, tmp_path / name, title="t")
    one, two = (
        {path.relative_to(tmp_path / name): path.read_bytes() for path in (tmp_path / name).rglob("*.*")}
        for name in ("one", "two")
    )
    assert len(one) > 15
    assert one == two


def test_figures_that_cannot_be_drawn_are_named_with_what_they_need(make_rows: RowMaker) -> None:
    results = Results.of(make_rows(factors=(1.0,), methods=SMALL[:2], seeds=(0,)))
    missing = {
        spec.name.removesuffix("-cifar10-resnet18"): spec.missing for spec in figure_specs(results) if not spec.draw
    }
    assert missing == {
        "balance-path": "a λ sweep on the model of cycle 0",
        "gains": "a strategy that ran both with and without balance on the same seeds",
        "tail-accuracy": "a pool with a tail",
        "classes-balance": "rows of Entropy-CB, KCenter, KCenter-CB",
        "pseudo-label": "rows of Entropy and Entropy-L1-Pseudo-Label",
        "coreset": "rows of CoreSet and of another strategy",
    }


def test_with_every_method_every_figure_of_the_paper_is_there(
    make_rows: RowMaker, every_method: tuple[tuple[str, str], ...]
) -> None:
    results = Results.of(make_rows(methods=every_method, seeds=(0, 1)))
    specs = figure_specs(results, [sweep()])
    assert [spec.title for spec in specs if not spec.draw] == []
    text = " ".join(spec.title for spec in specs)
    for name in ("Fig. 2", "Fig. 3", "Fig. 4", "Fig. 5", "Supp. B", "Supp. C", "Supp. D", "Tables 1"):
        assert name in text
    assert histogram_condition(results.studies[0]).imbalance == 0.3


MANY = [(name, balance) for name in ("entropy", "kcenter", "vaal", "bald", "margin") for balance in ("0", "auto")]


@pytest.mark.parametrize("methods", [SMALL, [*SMALL, ("kcenter", "0"), ("entropy", "0.6")], [("random", "0"), *MANY]])
def test_no_figure_is_cut_at_its_edge(make_rows: RowMaker, methods: list[tuple[str, str]]) -> None:
    results = Results.of(make_rows(factors=(0.3,), methods=methods, seeds=(0, 1)))
    for spec in figure_specs(results, [sweep()]):
        if spec.draw:
            figure = settle(spec.draw())
            drawn, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
            assert drawn.x0 >= -0.01, spec.name
            assert drawn.y0 >= -0.01, spec.name
            assert drawn.x1 <= width + 0.01, spec.name
            assert drawn.y1 <= height + 0.01, spec.name


def test_the_page_says_what_is_missing(report: Path) -> None:
    text = (report / "report.html").read_text(encoding="utf-8")
    assert "Figures that these results cannot support" in text
    assert "CoreSet against the others (Supp. C): cifar10, resnet18: needs rows of CoreSet" in text


def with_gains(make_rows: RowMaker, points: list[float]) -> Results:
    """One balanced method whose gain at cycle 1 is given for each seed."""
    rows = []
    for seed, gain in enumerate(points):
        for balance in ("0", "auto"):
            made = make_rows(factors=(0.1,), methods=[("entropy", balance)], seeds=(seed,), cycles=1)
            accuracy = 0.6 + (gain / 100 if balance == "auto" else 0)
            rows += [replace(row, accuracy=accuracy if row.cycle else 0.5) for row in made]
    return Results.of(rows)


@pytest.mark.parametrize(
    ("points", "kind", "words"),
    [
        ([1.0, 3.0], "up", "Entropy-CB against Entropy: +2.00 ± 1.00 points of accuracy (mean of 1 cycle, 2 seeds)"),
        ([-1.0, -3.0], "down", "−2.00 ± 1.00 points"),
        ([1.0, -3.0], "within noise", "−1.00 ± 2.00 points of accuracy (mean of 1 cycle, 2 seeds; within noise)"),
        ([9.0], "one seed", "+9.00 ± – points of accuracy (mean of 1 cycle, 1 seed)"),
    ],
)
def test_findings_claim_no_more_than_their_numbers(
    make_rows: RowMaker, points: list[float], kind: str, words: str
) -> None:
    (finding,) = gain_findings(with_gains(make_rows, points))
    assert finding.kind == kind
    assert words in finding.text
    assert finding.where == "cifar10, step 0.1 (resnet18)"


def test_the_page_says_what_chance_alone_would_do(make_rows: RowMaker) -> None:
    assert "about 30 % of comparisons: of the 1 here, 0.3" in chance_sentence(with_gains(make_rows, [1.0, 3.0]))
    assert "one seed" in chance_sentence(with_gains(make_rows, [1.0]))


def test_savings_are_told_with_who_never_got_there(make_rows: RowMaker) -> None:
    curves = {"random": [0.5, 0.6, 0.7], "entropy": [0.5, 0.7, 0.72], "kcenter": [0.5, 0.55, 0.6]}
    rows = [
        replace(row, accuracy=curves[row.strategy][row.cycle], labelled=100 * (row.cycle + 1))
        for row in make_rows(factors=(0.1,), methods=[(name, "0") for name in curves], seeds=(0, 1), cycles=2)
    ]
    assert saving_findings(Results.of(rows)) == [
        "cifar10, step 0.1 (resnet18): for 70 % Random needs 300 labels; Entropy 200 (33 % fewer); "
        "not reached by KCenter.",
        "cifar10, step 0.1 (resnet18): Random does not reach 72 % with its 300 labels; Entropy 300 (as many); "
        "not reached by KCenter.",
    ]


def test_a_sweep_survives_its_plain_form() -> None:
    made = sweep()
    one = {"informativeness": 3.0, "l1": 30.0, "l1_score": 0.3}
    content = {**made.path.to_dict(), "pool": "cifar10", "setting": "step 0.1", "references": {"entropy": one}}
    read = sweep_of(json.loads(json.dumps(content)))
    assert read.references == made.references
    np.testing.assert_array_equal(read.path.l1, made.path.l1)


def test_references_cross_every_panel_of_the_sweep() -> None:
    made = sweep()
    figure = path_figure(made.path, made.references)
    for axes, value in zip(figure.axes, (3.0, 30.0, 0.3), strict=True):
        heights = [line.get_ydata() for line in axes.lines if line.get_label() == "Entropy"]
        assert heights == [[value, value]]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["Entropy"]


def test_a_folder_that_cannot_be_made_is_an_error(make_rows: RowMaker, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(BadFile, match="cannot make the folder"):
        write_report(make_rows(methods=SMALL[:1], seeds=(0,)), tmp_path / "file" / "report", title="t")


def test_file_names_are_safe() -> None:
    assert re.fullmatch(r"[a-z0-9.-]+", file_stem("../../etc/Pass wd\0: é"))
    assert file_stem("///") == "unnamed"


def test_tables_for_the_terminal_load_no_matplotlib() -> None:
    probe = "import sys, tailwise.report.experiment; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", probe], check=False).returncode == 0
