"""The report of an experiment: rows of trials in; an HTML page, figures (png, svg, pdf) and tables (csv, md, tex) out.

The same input gives the same bytes; each file is whole or absent, and the page is written last.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..bench.results import Row
from ..errors import BadFile
from ..files import write_whole
from .findings import chance_sentence, count_sentence, default_findings, gain_findings, saving_findings
from .gain_tables import gain_rows, random_rows, saving_rows, study_tables
from .grid import Grid, latex, markdown, tidy_csv
from .names import Study
from .page import Page, Picture, render
from .summary import Results
from .sweeps import PoolSweep

if TYPE_CHECKING:
    from .atlas import Plate

__all__ = ["gain_rows", "random_rows", "saving_rows", "write_report"]

FIGURE_KINDS = ("png", "svg", "pdf")


def write_report(
    rows: Iterable[Row], folder: Path, *, title: str, sweeps: Sequence[PoolSweep] = (), published: bool = True,
    config: str = "", versions: Mapping[str, str] | None = None,
    class_names: Mapping[str, Sequence[str]] | None = None,
) -> Path:  # fmt: skip
    """Write folder/report.html, folder/figures/ and folder/tables/; gives the path of the page.

    Parameters
    ----------
    rows: one per trial and cycle, in any order; an experiment that is half done can be reported.
    folder: made if it is not there; files of an earlier report are replaced.
    title: of the page.
    sweeps: λ sweeps, for Fig. 4.
    published: whether the paper's numbers stand beside ours.
    config: the experiment's file, as text.
    versions: of what made the results, by name; those of the rows are always shown.
    class_names: by pool, for figures of few classes.
    """
    from .atlas import atlas  # matplotlib loads here, when it is used

    results = Results.of(rows)
    _make(folder, folder / "figures", folder / "tables")
    grids = [
        grid for study in results.studies
        for grid in study_tables(results, study, published=published, class_names=class_names)
    ]  # fmt: skip
    for grid in grids:
        write_table(grid, folder / "tables")
    plates = atlas(results, sweeps, published=published, class_names=class_names)
    pictures = [write_plate(plate, folder / "figures") for plate in plates if plate.draw]
    page = Page(
        title=title,
        facts=facts(results),
        findings=[*default_findings(results), *gain_findings(results)],
        savings=saving_findings(results),
        cautions=[text for text in (chance_sentence(results), count_sentence(results)) if text],
        grids=grids,
        pictures=pictures,
        missing=[(plate.title, plate.missing) for plate in plates if not plate.draw],
        config=config,
        versions={"Results made with": f"tailwise {', '.join(_versions(results))}", **(versions or {})},
    )
    where = folder / "report.html"
    write_whole(where, render(page).encode())
    return where


def write_table(grid: Grid, folder: Path) -> None:
    """A table as .csv, .md and .tex."""
    write_whole(folder / f"{grid.name}.csv", tidy_csv(grid))
    write_whole(folder / f"{grid.name}.md", markdown(grid).encode())
    write_whole(folder / f"{grid.name}.tex", latex(grid).encode())


def write_plate(plate: Plate, folder: Path) -> Picture:
    """A plate as .png, .svg and .pdf."""
    from .style import figure_bytes, settle

    if plate.draw is None:
        raise ValueError(f"{plate.name} is missing and cannot be drawn")
    figure = settle(plate.draw())
    made = {kind: figure_bytes(figure, kind) for kind in FIGURE_KINDS}
    for kind, content in made.items():
        write_whole(folder / f"{plate.name}.{kind}", content)
    return Picture(plate.title, plate.caption, made["png"])


def facts(results: Results) -> str:
    """The size of an experiment, in a line."""
    trials = [trial for methods in results.trials.values() for runs in methods.values() for trial in runs.values()]
    models = sum(len(trial) for trial in trials)
    seeds, settings = len(results.seeds), len(results.trials)
    return (
        f"{_names(results.studies)}. {settings} setting{'' if settings == 1 else 's'}, "
        f"{seeds} seed{'' if seeds == 1 else 's'}, "
        f"{len(trials):,} trials, {models:,} rows."
    )


def _names(studies: Sequence[Study]) -> str:
    return "; ".join(study.name for study in studies)


def _versions(results: Results) -> list[str]:
    runs = (trials for methods in results.trials.values() for trials in methods.values())
    return sorted({row.version for trials in runs for trial in trials.values() for row in trial.values()})


def _make(*folders: Path) -> None:
    for folder in folders:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadFile(f"cannot make the folder {folder}: {error.strerror or error}") from error
