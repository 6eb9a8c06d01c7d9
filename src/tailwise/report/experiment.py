"""The report of an experiment: rows of trials in; an HTML page, figures (png, svg, pdf) and tables (csv, md, tex) out.

The page states the findings as sentences: a gain nearer to zero than two standard errors is "within noise", and one
seed supports no claim. It is one file without scripts, fonts or addresses; the same input gives the same bytes.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import BadFile
from ..experiments.experiment import Row
from ..files import write_whole
from ..strategies.strategy import DEFAULT
from ..types import Progress, no_progress
from .gain_tables import (
    COMPARED,
    compared_rows,
    cycle_means,
    gain_points,
    gain_rows,
    gain_shown,
    labels_shown,
    random_rows,
    saving_rows,
    study_tables,
)
from .names import Condition, Method, PoolSweep
from .summary import (
    CLEAR,
    Gain,
    Results,
    Saving,
    count_errors,
    curve,
    curves,
    gains,
    mean_gains,
    passes_by_chance,
    savings,
)
from .tables import Grid, html, latex, markdown, number, plural, tidy_csv

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["compared_rows", "gain_rows", "random_rows", "saving_rows", "write_report"]

FIGURE_KINDS = ("png", "svg", "pdf")
OPENING = "Accuracy, plain and adjusted"  # the figure that the page opens with
KINDS = {
    "default": "The default strategy against random choice",
    "up": "Where balance helps",
    "down": "Where balance hurts",
    "within noise": "Where no difference is clear of noise",
    "one seed": "From one seed alone: no statement about noise",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence, where it holds, and what it is about: a key of KINDS."""

    kind: str
    where: str
    text: str


@dataclass(frozen=True, slots=True)
class DrawnFigure:
    """A figure as the page shows it, as PNG; with a second one for a dark ground where there is one."""

    title: str
    caption: str
    png: bytes
    dark_png: bytes = b""


def write_report(
    rows: Iterable[Row], folder: Path, *, title: str, sweeps: Sequence[PoolSweep] = (), published: bool = True,
    config: str = "", versions: Mapping[str, str] | None = None,
    class_names: Mapping[str, Sequence[str]] | None = None, report: Progress = no_progress,
) -> Path:  # fmt: skip
    """Write folder/report.html, folder/figures/ and folder/tables/; gives the path of the page.

    Each file is whole or absent, and the page is written last.

    Parameters
    ----------
    rows: one per trial and cycle, in any order; an experiment that is half done can be reported.
    folder: made if it is not there; files of an earlier report are replaced.
    title: of the page.
    sweeps: λ sweeps, for Fig. 4.
    published: whether to show the paper's numbers next to ours.
    config: the experiment's file, as text.
    versions: of what made the results, by name; those of the rows are always shown.
    class_names: by pool, for figures of few classes.
    report: called before each figure.
    """
    report(0.0, "loading what draws the figures")
    from .figure_specs import figure_specs  # matplotlib loads here, when it is used

    results = Results.of(rows)
    make_folders(folder, folder / "figures", folder / "tables")
    grids = [
        grid for study in results.studies
        for grid in study_tables(results, study, published=published, class_names=class_names)
    ]  # fmt: skip
    for grid in grids:
        write_table(grid, folder / "tables")
    figures, missing = [], []
    specs = figure_specs(results, sweeps, published=published, class_names=class_names)
    for place, spec in enumerate(specs):
        report(place / len(specs), f"drawing figure {place + 1} of {len(specs)}")
        if spec.draw is None:
            missing.append(f"{spec.title}: needs {spec.missing}.")
        else:
            png = write_figure_files(spec.draw(), folder / "figures" / spec.name)
            figures.append(DrawnFigure(spec.title, spec.caption, png))
    trials = [trial for methods in results.trials.values() for runs in methods.values() for trial in runs.values()]
    made_with = sorted({row.version for trial in trials for row in trial.values()})
    facts = (
        f"{'; '.join(study.name for study in results.studies)}. {plural(len(results.trials), 'setting')}, "
        f"{plural(len(results.seeds), 'seed')}, {len(trials):,} trials, {sum(map(len, trials)):,} rows."
    )
    sections = [
        *_result_sections(results, grids, figures, missing),
        ("made", "How it was made",
         _made_html({"Results made with": f"tailwise {', '.join(made_with)}", **(versions or {})}, config)),
    ]  # fmt: skip
    page = folder / "report.html"
    report(1.0, "writing the page")
    first = next((one for one in figures if one.title.startswith(OPENING)), None)
    opening = "" if first is None else figure_html(first)
    lead = f'{opening}<p class="note">{escape(facts)}</p>\n'
    write_whole(page, html_page(title, opening_sentence(results), sections, above_links=lead).encode())
    return page


def opening_sentence(results: Results) -> str:
    """What was found, in one sentence: the default against random choice, else the largest gain of balance."""
    for condition in results.trials:
        ours, base = results.find(condition, DEFAULT, balanced=True), results.find(condition, "random")
        if ours is None or base is None:
            continue
        accuracy, adjusted = (cycle_means(results, condition, name) for name in ("accuracy", "adjusted_accuracy"))
        plain, fair = (
            f"{number(means[ours], 1)} % instead of {number(means[base], 1)} %" for means in (accuracy, adjusted)
        )
        return (
            f"With {ours.shown}, the default, accuracy is {plain} with random choice, and with decisions adjusted to "
            f"equal class shares {fair} ({_condition_text(condition)}; means over all cycles)."
        )
    found = [gain for condition in results.trials for gain in mean_gains(results, condition)]
    if not found:
        methods = {one.shown for runs in results.trials.values() for one in runs}
        return f"{plural(len(methods), 'method')} in {plural(len(results.trials), 'setting')}, compared below."
    best = max(found, key=lambda one: one.difference.mean)
    return (
        f"Balance changes the accuracy of {best.base.shown} by {gain_points(best, 1)} points in its best setting, "
        f"{_condition_text(best.condition)}."
    )


def make_folders(*folders: Path) -> None:
    """Make folders that are not there yet."""
    for folder in folders:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadFile(f"cannot make the folder {folder}: {error.strerror or error}") from error


def write_table(grid: Grid, folder: Path) -> None:
    """A table as .csv, .md and .tex."""
    write_whole(folder / f"{grid.name}.csv", tidy_csv(grid))
    write_whole(folder / f"{grid.name}.md", markdown(grid).encode())
    write_whole(folder / f"{grid.name}.tex", latex(grid).encode())


def write_figure_files(figure: Figure, stem: Path) -> bytes:
    """A figure as .png, .svg and .pdf; gives the PNG."""
    from .figures import figure_bytes, settle

    settled = settle(figure)
    made = {kind: figure_bytes(settled, kind) for kind in FIGURE_KINDS}
    for kind, content in made.items():
        write_whole(stem.with_name(f"{stem.name}.{kind}"), content)
    return made["png"]


# The findings, as sentences.


def gain_findings(results: Results) -> list[Finding]:
    """One sentence for each balanced method in each condition: its gain over all cycles, on the tail, in balance."""
    found = []
    for condition in results.trials:
        tails = {gain.method: gain for gain in mean_gains(results, condition, "tail_accuracy")}
        for gain in mean_gains(results, condition):
            text = _gain_sentence(results, gain, tails[gain.method])
            found.append(Finding(gain.verdict, _condition_text(condition), text))
    return found


def _gain_sentence(results: Results, gain: Gain, tail: Gain) -> str:
    """A gain with its error, its cycles and its seeds; the gain on the tail; the L1 scores at the end."""
    cycles = len([one for one in gains(results, gain.condition) if one.method == gain.method])
    over = f"mean of {plural(cycles, 'cycle')}, {plural(gain.difference.seeds, 'seed')}"
    noise = "; within noise" if gain.verdict == "within noise" else ""
    parts = [f"{gain.method.shown} against {gain.base.shown}: {gain_points(gain)} points of accuracy ({over}{noise})"]
    if not math.isnan(tail.difference.mean):
        noise = " (within noise)" if tail.verdict == "within noise" else ""
        parts.append(f"on the tail {gain_points(tail)}{noise}")
    before, after = (curve(results, gain.condition, one).last.l1_score.mean for one in (gain.base, gain.method))
    parts.append(f"L1 score of the labelled set at the end {number(after)} instead of {number(before)}")
    return "; ".join(parts) + "."


def default_findings(results: Results) -> list[Finding]:
    """The default strategy against random choice, and who is ahead of it; nothing where it or Random did not run."""
    found = []
    for condition in results.trials:
        ours, base = results.find(condition, DEFAULT, balanced=True), results.find(condition, "random")
        if ours is None or base is None:
            continue
        parts = [
            f"{gain_shown(gain, cycle_means(results, condition, name))} points{where}"
            for name, where in COMPARED.items()
            for gain in mean_gains(results, condition, name, over=base)
            if gain.method == ours and not math.isnan(gain.difference.mean)  # without a tail
        ]
        text = f"{ours.shown}, the default, against {base.shown}: {', '.join(parts)}."
        where = _condition_text(condition)
        found += [Finding("default", where, one) for one in (text, _ahead(results, condition, ours))]
    return found


def _ahead(results: Results, condition: Condition, ours: Method) -> str:
    """The methods that are better than one of them, in the mean over cycles, by two standard errors."""
    found = [(gain, where) for name, where in COMPARED.items()
             for gain in mean_gains(results, condition, name, over=ours)]  # fmt: skip
    better = [f"{gain.method.shown} {gain_points(gain, 1)} points{where}" for gain, where in found
              if gain.verdict == "up"]  # fmt: skip
    best = max(curves(results, condition), key=lambda one: one.last.accuracy.mean)
    end = f"Highest at the end: {best.method.shown}, {number(100 * best.last.accuracy.mean, 1)} %."
    if any(gain.verdict == "one seed" for gain, _ in found):
        return f"One seed does not show who is ahead of it. {end}"
    return f"Ahead of it: {', '.join(better)}. {end}" if better else f"No method is clearly ahead of it. {end}"


def saving_findings(results: Results) -> list[str]:
    """One sentence for each condition and level: what Random needs, what the others save, who never gets there."""
    found = []
    for condition in results.trials:
        levels: dict[float, list[Saving]] = {}
        for one in savings(results, condition):
            levels.setdefault(one.level, []).append(one)
        found += [f"{_condition_text(condition)}: {level_sentence(some)}" for some in levels.values()]
    return found


def level_sentence(some: Sequence[Saving]) -> str:
    """All methods at one level, the most sparing first."""
    first = some[0]
    level, other = f"{100 * first.level:.0f} %", first.reference.shown
    if math.isnan(first.reference_needed):
        opening = f"{other} does not reach {level} with its {labels_shown(first.reference_most)} labels"
    else:
        opening = f"for {level} {other} needs {labels_shown(first.reference_needed)} labels"
    reached = sorted((one for one in some if not math.isnan(one.needed)), key=lambda one: one.needed)
    never = [one.method.shown for one in some if math.isnan(one.needed)]
    parts = [opening, *(saving_words(one) for one in reached)]
    return "; ".join([*parts, *([f"not reached by {', '.join(never)}"] if never else [])]) + "."


def saving_words(one: Saving) -> str:
    """A saving in words; it says in how many seeds it holds where that is not all of them."""
    percent = number(100 * abs(one.share), 0)
    fewer = "as many" if percent == "0" else f"{percent} % {'fewer' if one.share > 0 else 'more'}"
    least = "at least " if one.at_least and one.share > 0 and percent != "0" else ""
    agree = f", ahead in {one.ahead} of {plural(one.seeds, 'seed')}" if one.ahead < one.seeds else ""
    return f"{one.method.shown} {labels_shown(one.needed)} ({least}{fewer}{agree})"


def count_sentence(results: Results) -> str:
    """How far class counts were from what the models expected, over the balanced batches."""
    errors = [
        one.misplaced.mean for condition in results.trials for one in count_errors(results, condition)
        if one.method.balanced
    ]  # fmt: skip
    if not errors:
        return ""
    mean, worst = sum(errors) / len(errors), max(errors)
    return (
        f"Of the balanced batches, {number(100 * mean, 1)} % of the images on average (at most "
        f"{number(100 * worst, 1)} %) were of another class than the model's probabilities led one to expect."
    )


def chance_sentence(results: Results) -> str:
    """What "two standard errors" is worth with so few seeds."""
    found = [gain for condition in results.trials for gain in mean_gains(results, condition)]
    seeds = [gain.difference.seeds for gain in found if gain.difference.seeds > 1]
    if not seeds:
        return "Every comparison rests on one seed: differences may be chance. Run more seeds."
    chances = [passes_by_chance(one) for one in seeds]
    fewest = f"With {plural(min(seeds), 'seed')}" + (" or more" if max(seeds) > min(seeds) else "")
    return (
        f"A gain counts as one when it is at least {CLEAR:.0f} paired standard errors from zero. {fewest}, "
        f"pure noise does that in about {number(100 * max(chances), 0)} % of comparisons: of the {len(seeds)} here, "
        f"{number(sum(chances), 1)} would be expected by chance."
    )


def _condition_text(condition: Condition) -> str:
    return f"{condition.pool}, {condition.setting} ({condition.learner})"


# The page; all text is escaped.


def _result_sections(
    results: Results, grids: Sequence[Grid], figures: Sequence[DrawnFigure], missing: Sequence[str]
) -> list[tuple[str, str, str]]:
    """Sections of the page as id, heading and HTML; `missing` says what the figures that are not there would need."""
    drawn = [figure_html(one, place) for place, one in enumerate(figures, start=1)]
    if missing:
        drawn.append(f"<h3>Figures that these results cannot support</h3>\n{_list_html(missing)}")
    saved = saving_findings(results)
    no_saving = "<p>There is no Random to compare with, or no level to compare at.</p>"
    measures = ("accuracy-", "balanced-accuracy-", "tail-accuracy-", "l1-score-")
    return [
        ("findings", "What was found", _findings_html(results)),
        ("savings", "Labels saved", (_list_html(saved) if saved else no_saving) + _tables_html(grids, "savings-")),
        ("gains", "Gains by balance", _tables_html(grids, "gains-")),
        ("figures", "Figures", "\n".join(drawn)),
        ("measures", "All measures", _tables_html(grids, *measures)),
        ("counts", "Expected and true class counts", _tables_html(grids, "counts-")),
    ]


def _findings_html(results: Results) -> str:
    """Findings by kind and condition, then what one must know to read them."""
    findings = [*default_findings(results), *gain_findings(results)]
    parts = []
    for kind, heading in KINDS.items():
        own = [finding for finding in findings if finding.kind == kind]
        parts += [f"<h3>{heading}</h3>"] if own else []
        for where in dict.fromkeys(finding.where for finding in own):
            texts = [finding.text for finding in own if finding.where == where]
            parts.append(f'<p class="where">{escape(where)}</p>\n{_list_html(texts)}')
    if not parts:
        parts.append("<p>No strategy ran both with and without balance: there is no gain to speak of.</p>")
    cautions = [text for text in (chance_sentence(results), count_sentence(results)) if text]
    return "\n".join([*parts, *(f'<p class="note">{escape(text)}</p>' for text in cautions)])


def _made_html(versions: Mapping[str, str], config: str) -> str:
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in versions.items())
    shown = f"<h3>The experiment</h3>\n<pre>{escape(config)}</pre>" if config.strip() else ""
    return f"<dl>{rows}</dl>\n{shown}"


def _list_html(texts: Sequence[str]) -> str:
    return "<ul>\n" + "\n".join(f"<li>{escape(text)}</li>" for text in texts) + "\n</ul>"


def _tables_html(grids: Sequence[Grid], *starts: str) -> str:
    return "\n".join(html(grid) for grid in grids if grid.name.startswith(starts))


def figure_html(one: DrawnFigure, place: int | None = None) -> str:
    """A figure with its caption, numbered where a place is given; readers with a dark ground see its dark version."""
    title = escape(one.title)
    image = f'<img alt="{title}" src="data:image/png;base64,{base64.b64encode(one.png).decode()}">'
    if one.dark_png:
        dark = base64.b64encode(one.dark_png).decode()
        source = f'<source media="screen and (prefers-color-scheme: dark)" srcset="data:image/png;base64,{dark}">'
        image = f"<picture>{source}{image}</picture>"
    name = title if place is None else f"{place}. {title}"
    return f"<figure>{image}<figcaption><strong>{name}.</strong> {escape(one.caption)}</figcaption></figure>"


def html_page(
    title: str, lead: str, sections: Sequence[tuple[str, str, str]], *, above_links: str = "", more_css: str = ""
) -> str:
    """A whole page; sections are id, heading and HTML, and those without HTML are left out."""
    shown = [(key, name, body) for key, name, body in sections if body]
    links = "".join(f'<a href="#{key}">{name}</a>' for key, name, _ in shown)
    bodies = "\n".join(f'<section id="{key}"><h2>{name}</h2>\n{body}\n</section>' for key, name, body in shown)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{CSS}\n{more_css}</style>\n</head>\n<body>\n<main>\n"
        f'<h1>{escape(title)}</h1>\n<p class="lead">{escape(lead)}</p>\n{above_links}<nav>{links}</nav>\n'
        f"{bodies}\n</main>\n</body>\n</html>\n"
    )


CSS = """
:root { color-scheme: light dark; --ink: #22282f; --soft: #5b6570; --rule: #d9dee4; --ground: #fff; --wash: #f5f7f9;
  --blue: #0072b2; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ed; --soft: #a3acb6; --rule: #39414a; --ground: #15191e; --wash: #1d2228; --blue: #6cb6e8; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .4rem; overflow-wrap: anywhere; }
h2 { font-size: 1.3rem; margin: 2.8rem 0 .6rem; padding-top: 1rem; border-top: 1px solid var(--rule); }
h3 { font-size: 1.02rem; margin: 1.5rem 0 .3rem; }
p, ul { margin: .4rem 0; } li { margin: .25rem 0; } ul { padding-left: 1.2rem; }
.lead, .note, figcaption, nav { color: var(--soft); }
.where { font-weight: 600; margin: .7rem 0 0; font-size: .95rem; }
.note, figcaption { font-size: .86rem; }
nav a { margin-right: 1.1rem; } a { color: var(--blue); }
.scroll { overflow-x: auto; margin: 1.4rem 0 .4rem; }
table { border-collapse: collapse; font-size: .86rem; font-variant-numeric: tabular-nums; width: 100%; }
caption { text-align: left; font-weight: 600; padding-bottom: .45rem; }
th, td { text-align: left; padding: .22rem .6rem .22rem 0; white-space: nowrap; }
th { font-weight: 500; color: var(--soft); border-bottom: 1px solid var(--ink); }
th.n, td.n { text-align: right; padding: .22rem 0 .22rem .8rem; }
tr.group td { border-top: 1px solid var(--rule); }
tbody tr:first-child td { border-top: 0; }
figure { margin: 1.8rem 0; break-inside: avoid; }
figure img { max-width: 100%; height: auto; background: #fff; border: 1px solid var(--rule);
  border-radius: 6px; padding: .6rem; }
pre { background: var(--wash); border: 1px solid var(--rule); border-radius: 6px; padding: .8rem 1rem; overflow-x: auto;
  font-size: .82rem; line-height: 1.45; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1.2rem; } dd { margin: 0; }
@media print {
  :root { color-scheme: light; --ink: #000; --soft: #444; --rule: #bbb; --ground: #fff; --wash: #fff; }
  body { font-size: 10pt; } main { max-width: none; padding: 0; } nav { display: none; }
  h2, h3, caption { break-after: avoid; } tr, li { break-inside: avoid; }
  .scroll { overflow: visible; } table { font-size: 7.5pt; } th.n, td.n { padding-left: .35rem; }
  pre { white-space: pre-wrap; }
}
""".strip()
