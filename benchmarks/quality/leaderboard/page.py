"""The leaderboard's page: scores in; README.md, figures and results.csv.gz out. The same scores give the same bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.quality.leaderboard import tables
from benchmarks.quality.leaderboard.analysis import (
    ADJUSTED,
    ADJUSTED_END,
    CLASSES,
    ENOUGH_SEEDS,
    PLAIN,
    PLAIN_END,
    Analysis,
    Setup,
    name_of,
)
from benchmarks.quality.leaderboard.figures import balance_figure, curve_figure, gain_figure, rank_figure
from benchmarks.quality.leaderboard.rows import FILE, RANDOM, CellKey, Method, Score, read_scores, write_scores
from benchmarks.quality.leaderboard.statistics import SIGNIFICANT, overall, trials_in
from tailwise.files import write_whole
from tailwise.report.figures import write_figure
from tailwise.report.tables import number

MOST_LOSSES = 60  # lines of the table
CURVES = ("cifar.01", "tiny100", "gtsrb", "flowers")  # drawn where they ran
HOW_TO_READ = Path(__file__).with_name("how_to_read.md")
COMMAND = """```sh
make bench-quality DATA=folder ARGS="--only leaderboard --only leaderboard-longtail --only leaderboard-parts"
```"""


def write_page(scores: Sequence[Score], setup: Setup, folder: Path) -> Path:
    """Write README.md, its figures and results.csv.gz."""
    folder.mkdir(parents=True, exist_ok=True)
    write_scores(scores, folder / FILE)
    analysis = Analysis(read_scores(folder / FILE), setup)  # rounded: the file alone gives the same page
    figures = dict(_figures(analysis))
    for name in ("ranks", "gains", "curves", "balance"):
        (folder / f"{name}.png").unlink(missing_ok=True)  # one that is no longer drawn must not stay
    for name, figure in figures.items():
        write_figure(figure, folder / f"{name}.png")
    write_whole(folder / "README.md", page_text(analysis).encode())
    return folder / "README.md"


def page_text(analysis: Analysis) -> str:
    """The page in Markdown."""
    parts = [_opening(analysis), COMMAND, *_short(analysis), *_losses(analysis), *_rivals(analysis)]
    parts += [*_methods(analysis), *_by_cell(analysis), *_balance(analysis), *_parts(analysis), *_long(analysis)]
    names = ", ".join(f"*{short}* {name}" for short, name in analysis.setup.pools.items())
    how = HOW_TO_READ.read_text(encoding="utf-8").strip().replace("POOLS", names)
    return "\n\n".join([*parts, how]) + "\n"


def _figures(analysis: Analysis) -> Iterator[tuple[str, Figure]]:
    if analysis.ranks.mean:
        yield "ranks", rank_figure(analysis.ranks, analysis.shown, analysis.default)
    if pairs := _balance_pairs(analysis):
        measures = {"adjusted": ADJUSTED, "plain": PLAIN}
        yield "balance", balance_figure(analysis.trials, pairs, analysis.cells, measures, analysis.setup.pools)
    others = [one for one in analysis.methods if one != RANDOM]
    if analysis.cells and others:
        yield "gains", gain_figure(analysis.trials, others, analysis.cells, ADJUSTED, analysis.shown, analysis.default)
        yield (
            "curves",
            curve_figure(
                analysis.trials,
                analysis.drawn,
                _curve_cells(analysis),
                "adjusted",
                analysis.shown,
                analysis.setup.pools,
            ),
        )


def _balance_pairs(analysis: Analysis) -> dict[str, tuple[Method, Method]]:
    """The same idea with and without equal treatment of the classes, where both ran."""
    pairs = {
        "base, equally many per class, instead of margin": (Method("base"), Method("margin")),
        "boundary with class quotas instead of without": (Method("boundary", "auto"), Method("boundary")),
        "entropy with balance instead of without": (Method("entropy", "auto"), Method("entropy")),
    }
    return {words: pair for words, pair in pairs.items() if set(pair) <= set(analysis.trials)}


def _curve_cells(analysis: Analysis) -> list[CellKey]:
    """Both regimes of four pools."""
    pools = list(dict.fromkeys(pool for pool, _ in analysis.cells))
    chosen = [*(pool for pool in CURVES if pool in pools), *(pool for pool in pools if pool not in CURVES)][:4]
    return [cell for cell in analysis.cells if cell[0] in chosen]


def _opening(analysis: Analysis) -> str:
    seeds = [len(trials_in(analysis.trials, one, cell)) for one in analysis.methods for cell in analysis.cells]
    count = sum(len(runs) for one in analysis.methods for runs in analysis.trials[one].values())
    missing, ran = seeds.count(0), [one for one in seeds if one] or [0]
    gaps = f" {missing} of {len(seeds)} combinations of method and cell have not run yet." if missing else ""
    if min(ran) < ENOUGH_SEEDS:
        gaps += f" **Preliminary:** conclude nothing from fewer than {ENOUGH_SEEDS} seeds."
    if analysis.waiting:
        names = ", ".join(name_of(one) for one in analysis.waiting)
        gaps += f" Stored, but not shown with fewer than {ENOUGH_SEEDS} seeds in half of the cells: {names}."
    left_out = "; ".join(f"{name_of(Method(name))}, which {why}" for name, why in analysis.setup.left_out.items())
    pools = len({pool for pool, _ in analysis.cells})
    return (
        "# Leaderboard: which strategy learns fastest from a long tail?\n\n"
        f"{len(analysis.methods)} methods on {pools} pool{'s' if pools != 1 else ''}, with few labels and with more: "
        f"{count:,} trials, {min(ran)} to {max(ran)} seeds for each method and cell.{gaps} The default of Tailwise is "
        f"**{name_of(analysis.default)}**. All of this page is written by a command from [{FILE}]({FILE}); "
        f"[definitions](#how-to-read-this-page) are at the end.{f' Not run: {left_out}.' if left_out else ''}"
    )


def _short(analysis: Analysis) -> Iterator[str]:
    yield "## The default in short"
    if analysis.default not in analysis.trials:
        yield f"The default, {name_of(analysis.default)}, has not run yet."
        return
    adjusted, plain = (analysis.gain(analysis.default, one) for one in (ADJUSTED, PLAIN))
    saved, saved_plain = (analysis.saved(analysis.default, one) for one in (ADJUSTED_END, PLAIN_END))
    lines = [
        f"- **Over random selection:** {tables.points(adjusted)} points adjusted, {tables.points(plain)} plain, in the "
        f"mean of {plain.cells} cells; in the worst cell {number(100 * adjusted.worst, 1, sign=True)} and "
        f"{number(100 * plain.worst, 1, sign=True)}.",
        f"- **Labels saved** at the end: {tables.saved_text(saved)} adjusted, {tables.saved_text(saved_plain)} plain.",
    ]
    strongest = analysis.others[:1]
    for rival in dict.fromkeys([*strongest, *(one for one in analysis.drawn if one in analysis.others)]):
        found = [overall(analysis.trials, analysis.default, rival, analysis.cells, one) for one in (ADJUSTED, PLAIN)]
        first, second = map(tables.points, found)
        what = ", the strongest of the other strategies" * (rival in strongest)
        lines.append(f"- **Against {name_of(rival)}{what}:** {first} points adjusted, {second} plain.")
    better, worse = len(analysis.significant(1)), len(analysis.significant(-1))
    lines.append(
        f"- Of {len(analysis.tests):,} tests against all other methods it is significantly better in {better:,} and "
        f"**significantly worse in {worse:,}** (5 % after Holm's correction)."
    )
    fewer = ", ".join(f"{' '.join(cell)} ({number(less, 1)} fewer)" for cell, less in analysis.fewer_classes().items())
    lines.append(f"- **Classes found** at the end, against random selection: {fewer or 'nowhere fewer'}.")
    yield "\n".join(lines)
    if analysis.ranks.mean:
        yield "![Mean ranks and critical difference](ranks.png)"


def _losses(analysis: Analysis) -> Iterator[str]:
    if not analysis.tests:
        return
    yield "## Where it loses"
    tests, losses = len(analysis.tests), len(analysis.losses)
    if not losses:
        yield f"In none of {tests:,} comparisons with p < 0.05, even before correction."
        return
    yield (
        f"Every comparison that the default loses with p < 0.05 before correction, adjusted or plain: {losses} of "
        f"{tests:,}. Were all methods equal, there would be about {SIGNIFICANT / 2 * tests:.0f} by chance. Bold: a "
        "loss that is significant after Holm's correction."
    )
    table, lines = tables.loss_table(analysis, MOST_LOSSES)
    yield table
    if lines > MOST_LOSSES:
        yield f"And {lines - MOST_LOSSES} more pairs of cell and method, less certain or smaller than these."


def _rivals(analysis: Analysis) -> Iterator[str]:
    if analysis.tests:
        yield "## The default against everyone"
        yield (
            "The default minus each other method in points, in the mean over cells; in how many cells it is ahead; in "
            "how many it is significantly better or worse after Holm's correction. Bold: two standard errors or more "
            "from zero, or a significant loss."
        )
        yield tables.rival_table(analysis)


def _methods(analysis: Analysis) -> Iterator[str]:
    ranks = analysis.ranks
    yield "## All methods"
    yield (
        "Points over random selection in the mean over cells. Classes found: how many more than random selection, at "
        "the end. Labels saved: at the end, adjusted. Seconds: the median, on one busy core."
    )
    if ranks.mean:
        yield (
            f"Ranks of {len(ranks.mean)} methods (those as published, and the default) in {ranks.cells} cells by "
            f"adjusted accuracy: Friedman's p {tables.p_value(ranks.p)}, critical difference {number(ranks.critical)}."
        )
    yield tables.method_table(analysis)


def _by_cell(analysis: Analysis) -> Iterator[str]:
    if not analysis.cells:
        return
    yield "## Gains by cell"
    yield "![Gains over random selection, adjusted](gains.png)"
    yield "Random: balanced accuracy in %, mean over rounds. Others: points over it. Bold: p < 0.05 before correction."
    for title, measure in (("Adjusted", ADJUSTED), ("Plain", PLAIN), ("Adjusted, at the end", ADJUSTED_END)):
        yield f"**{title}**"
        yield tables.cell_table(analysis, analysis.cells, measure)
    yield "## Learning curves"
    yield "![Learning curves on four pools](curves.png)"
    yield "Bands: standard errors over seeds. Methods of a seed share its luck: their differences are surer."
    yield "## Classes found at the end"
    yield tables.cell_table(analysis, analysis.cells, CLASSES)
    yield "## Labels saved at the end, adjusted"
    yield tables.saved_table(analysis)


def _balance(analysis: Analysis) -> Iterator[str]:
    table, pairs = tables.balance_table(analysis), _balance_pairs(analysis)
    if table or pairs:
        yield "## What balance adds"
    if pairs:
        yield "![What class balance adds, pool by pool](balance.png)"
        yield "Methods with and without class balance, paired by seed; bars are two standard errors."
    if table:
        yield (
            'Each strategy with `balance="auto"` minus the same without, in points, in the mean over cells. Bold: two '
            "standard errors or more from zero."
        )
        yield table


def _parts(analysis: Analysis) -> Iterator[str]:
    table = tables.parts_table(analysis)
    if table:
        yield "## What each part contributes"
        name = name_of(next(one for one in analysis.setup.parts if one in analysis.trials).whole)
        yield f"{name} minus the same with a part changed, in points, in the mean over cells: what the part adds."
        yield table


def _long(analysis: Analysis) -> Iterator[str]:
    if analysis.long_cells:
        yield "## The long-tail protocol: 20 rounds of 100 labels"
        seeds = [len(trials_in(analysis.trials, one, cell)) for one in analysis.drawn for cell in analysis.long_cells]
        few = f" **Preliminary:** conclude nothing from fewer than {ENOUGH_SEEDS}." * (min(seeds) < ENOUGH_SEEDS)
        count = str(min(seeds)) if min(seeds) == max(seeds) else f"{min(seeds)} to {max(seeds)}"
        yield f"{count} seeds for each method and pool.{few}"
        for title, measure in (("Adjusted", ADJUSTED), ("Plain", PLAIN), ("Classes found at the end", CLASSES)):
            yield f"**{title}**"
            yield tables.cell_table(analysis, analysis.long_cells, measure)
