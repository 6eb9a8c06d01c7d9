"""The report of an experiment: rows of trials in; an HTML page, figures (png, svg, pdf) and tables (csv, md, tex) out.

The page is one file without scripts, fonts or addresses; all text is escaped. The same input gives the same bytes;
each file is whole or absent, and the page is written last. The second half writes the findings as sentences: a gain
nearer to zero than two standard errors is "within noise", and one seed supports no claim.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import BadFile
from ..experiments.experiment import Row
from ..files import write_whole
from .gain_tables import gain_rows, random_rows, saving_rows, study_tables
from .names import PoolSweep, Study
from .summary import Results
from .tables import Grid, html, latex, markdown, tidy_csv

if TYPE_CHECKING:
    from .atlas import Plate
import math

from ..strategies.strategy import DEFAULT
from .gain_tables import COMPARED, labels_shown
from .names import Condition, Method
from .summary import CLEAR, Gain, Saving, count_errors, curve, gains, mean_gains, passes_by_chance, savings
from .tables import number, with_spread

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


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawn plate."""

    title: str
    caption: str
    png: bytes


@dataclass(frozen=True, slots=True)
class Page:
    """All that the page says.

    Attributes
    ----------
    facts: size of the experiment, in a line.
    findings, savings: sentences; `cautions` are what one must know to read them.
    missing: title of a plate and what it would need.
    """

    title: str
    facts: str
    findings: Sequence[Finding]
    savings: Sequence[str]
    cautions: Sequence[str]
    grids: Sequence[Grid]
    pictures: Sequence[Picture]
    missing: Sequence[tuple[str, str]]
    config: str
    versions: Mapping[str, str]


def render(page: Page) -> str:
    """The whole page."""
    no_saving = "There is no Random to compare with, or no level to compare at."
    sections = [
        ("findings", "What was found", _findings(page)),
        ("savings", "Labels saved", _sentences(page.savings, no_saving) + _grids(page, "savings-")),
        ("gains", "Gains by balance", _grids(page, "gains-")),
        ("figures", "Figures", _figures(page)),
        ("measures", "All measures", _grids(page, "accuracy-", "balanced-accuracy-", "tail-accuracy-", "l1-score-")),
        ("counts", "Expected and true class counts", _grids(page, "counts-")),
        ("made", "How it was made", _made(page)),
    ]
    shown = [(key, name, body) for key, name, body in sections if body]
    links = "".join(f'<a href="#{key}">{name}</a>' for key, name, _ in shown)
    bodies = "\n".join(f'<section id="{key}"><h2>{name}</h2>\n{body}\n</section>' for key, name, body in shown)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(page.title)}</title>\n<style>\n{CSS}\n</style>\n</head>\n<body>\n<main>\n"
        f'<h1>{escape(page.title)}</h1>\n<p class="lead">{escape(page.facts)}</p>\n<nav>{links}</nav>\n'
        f"{bodies}\n</main>\n</body>\n</html>\n"
    )


def _findings(page: Page) -> str:
    parts = []
    for kind, heading in KINDS.items():
        own = [finding for finding in page.findings if finding.kind == kind]
        parts += [f"<h3>{heading}</h3>"] if own else []
        for where in dict.fromkeys(finding.where for finding in own):
            texts = [finding.text for finding in own if finding.where == where]
            parts.append(f'<p class="where">{escape(where)}</p>\n{_sentences(texts)}')
    if not parts:
        parts.append("<p>No strategy ran both with and without balance: there is no gain to speak of.</p>")
    return "\n".join([*parts, *(f'<p class="note">{escape(text)}</p>' for text in page.cautions)])


def _grids(page: Page, *starts: str) -> str:
    return "\n".join(html(grid) for grid in page.grids if grid.name.startswith(starts))


def _sentences(texts: Sequence[str], otherwise: str = "") -> str:
    if not texts:
        return f"<p>{escape(otherwise)}</p>" if otherwise else ""
    return "<ul>\n" + "\n".join(f"<li>{escape(text)}</li>" for text in texts) + "\n</ul>"


def _figures(page: Page) -> str:
    parts = [_figure(number, picture) for number, picture in enumerate(page.pictures, start=1)]
    if page.missing:
        lines = [f"{title}: needs {what}." for title, what in page.missing]
        parts.append(f"<h3>Figures that these results cannot support</h3>\n{_sentences(lines)}")
    return "\n".join(parts)


def _figure(number: int, picture: Picture) -> str:
    source = base64.b64encode(picture.png).decode()
    title, caption = escape(picture.title), escape(picture.caption)
    return (
        f'<figure><img alt="{title}" src="data:image/png;base64,{source}">'
        f"<figcaption><strong>{number}. {title}.</strong> {caption}</figcaption></figure>"
    )


def _made(page: Page) -> str:
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in page.versions.items())
    config = f"<h3>The experiment</h3>\n<pre>{escape(page.config)}</pre>" if page.config.strip() else ""
    return (f"<dl>{rows}</dl>\n" if rows else "") + config


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
    published: whether to show the paper's numbers next to ours.
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
    from .figures import figure_bytes, settle

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


def gain_findings(results: Results) -> list[Finding]:
    """One sentence for each balanced method in each condition: its gain over all cycles, on the tail, in balance."""
    found = []
    for condition in results.trials:
        tails = {gain.method: gain for gain in mean_gains(results, condition, "tail_accuracy")}
        for gain in mean_gains(results, condition):
            text = f"{gain_sentence(results, gain)}{_tail_words(tails[gain.method])}{_balance_words(results, gain)}."
            found.append(Finding(gain.verdict, place(condition), text))
    return found


def gain_sentence(results: Results, gain: Gain) -> str:
    """A gain in words, with its error, its cycles and its seeds."""
    cycles = len([one for one in gains(results, gain.condition) if one.method == gain.method])
    points = f"{with_spread(100 * gain.difference.mean, 100 * gain.difference.error, sign=True)} points of accuracy"
    over = f"mean of {_plural(cycles, 'cycle')}, {_plural(gain.difference.seeds, 'seed')}"
    names = f"{gain.method.shown} against {gain.base.shown}"
    return f"{names}: {points} ({over}{'; within noise' if gain.verdict == 'within noise' else ''})"


def default_findings(results: Results) -> list[Finding]:
    """The default strategy against random choice, and who is ahead of it; nothing where it or Random did not run."""
    found = []
    for condition in results.trials:
        ours, base = results.find(condition, DEFAULT, balanced=True), results.find(condition, "random")
        if ours is None or base is None:
            continue
        gains_over = {name: mean_gains(results, condition, name, over=base) for name in COMPARED}
        parts = [
            _points_of(gain, COMPARED[name])
            for name, some in gains_over.items()
            for gain in some
            if gain.method == ours and not math.isnan(gain.difference.mean)  # without a tail
        ]
        text = f"{ours.shown}, the default, against {base.shown}: {', '.join(parts)}."
        found += [Finding("default", place(condition), one) for one in (text, _ahead(results, condition, ours))]
    return found


def _ahead(results: Results, condition: Condition, ours: Method) -> str:
    """The methods that are better than one of them, in the mean over cycles, by two standard errors."""
    found = [(gain, where) for name, where in COMPARED.items()
             for gain in mean_gains(results, condition, name, over=ours)]  # fmt: skip
    better = [f"{gain.method.shown} {_points_of(gain, where)}" for gain, where in found if gain.verdict == "up"]
    last = max(
        (curve(results, condition, one) for one in results.methods(condition)), key=lambda one: one.last.accuracy.mean
    )
    end = f"Highest at the end: {last.method.shown}, {number(100 * last.last.accuracy.mean, 1)} %."
    if any(gain.verdict == "one seed" for gain, _ in found):
        return f"One seed does not show who is ahead of it. {end}"
    return f"Ahead of it: {', '.join(better)}. {end}" if better else f"No method is clearly ahead of it. {end}"


def _points_of(gain: Gain, where: str) -> str:
    return f"{with_spread(100 * gain.difference.mean, 100 * gain.difference.error, 1, sign=True)} points{where}"


def saving_findings(results: Results) -> list[str]:
    """One sentence for each condition and level: what Random needs, what the others save, who never gets there."""
    found = []
    for condition in results.trials:
        levels: dict[float, list[Saving]] = {}
        for one in savings(results, condition):
            levels.setdefault(one.level, []).append(one)
        found += [f"{place(condition)}: {level_sentence(some)}" for some in levels.values()]
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
    agree = f", ahead in {one.ahead} of {_plural(one.seeds, 'seed')}" if one.ahead < one.seeds else ""
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
    fewest = f"With {_plural(min(seeds), 'seed')}" + (" or more" if max(seeds) > min(seeds) else "")
    return (
        f"A gain counts as one when it is at least {CLEAR:.0f} paired standard errors from zero. {fewest}, "
        f"pure noise does that in about {number(100 * max(chances), 0)} % of comparisons: of the {len(seeds)} here, "
        f"{number(sum(chances), 1)} would be expected by chance."
    )


def place(condition: Condition) -> str:
    """A condition in words."""
    return f"{condition.pool}, {condition.setting} ({condition.learner})"


def _tail_words(gain: Gain) -> str:
    if math.isnan(gain.difference.mean):
        return ""
    text = with_spread(100 * gain.difference.mean, 100 * gain.difference.error, sign=True)
    return f"; on the tail {text}{' (within noise)' if gain.verdict == 'within noise' else ''}"


def _balance_words(results: Results, gain: Gain) -> str:
    """The L1 scores at the end, without and with balance."""
    before, after = (curve(results, gain.condition, one).last.l1_score.mean for one in (gain.base, gain.method))
    return f"; L1 score of the labelled set at the end {number(after)} instead of {number(before)}"


def _plural(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"
