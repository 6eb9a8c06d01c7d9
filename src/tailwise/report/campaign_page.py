"""The report of a campaign: a campaign in; one HTML page that needs nothing else, its figures and its tables out.

The page follows the reader's light or dark ground. Files are whole or absent, and the page is written last.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from html import escape
from pathlib import Path

from .. import __version__
from ..campaign.learning_curve import Curve
from ..campaign.ledger import HasLedger, Ledger, ledger_of, now
from ..campaign.rounds import why_counts_differ
from ..errors import BadFile
from ..files import write_whole
from ..types import Progress, no_progress
from .campaign_summary import CampaignSummary, RoundSummary, format_time, read_summary
from .experiment import DrawnFigure, figure_html, html_page, make_folders, write_figure_files, write_table
from .names import strategy_title
from .tables import DASH, Cell, Grid, html, number, plural

FOLDER = "report"
VERDICTS = {"yes": "Yes", "no": "No", "unclear": "Unclear"}
MORE_CSS = """
figure img { background: var(--ground); }
.verdict { border: 1px solid var(--rule); border-left: 6px solid var(--soft); border-radius: 6px;
  background: var(--wash); padding: .8rem 1.1rem; margin: 1.4rem 0; }
.verdict.yes { border-left-color: var(--blue); } .verdict.no { border-left-color: #009e73; }
.verdict h2 { border: 0; margin: 0; padding: 0; font-size: 1.1rem; }
.numbers { display: grid; grid-template-columns: repeat(auto-fit, minmax(8rem, 1fr)); gap: .6rem; margin: 1.4rem 0; }
.numbers div { background: var(--wash); border: 1px solid var(--rule); border-radius: 6px; padding: .6rem .9rem; }
.numbers b { display: block; font-size: 1.5rem; line-height: 1.2; font-variant-numeric: tabular-nums; }
.numbers span { color: var(--soft); font-size: .84rem; }
td:not(.n) { white-space: normal; max-width: 24rem; overflow-wrap: break-word; }
""".strip()


def write_campaign_report(
    campaign: HasLedger | Ledger,
    folder: str | Path | None = None,
    *,
    at: int | None = None,
    report: Progress = no_progress,
) -> Path:
    """Write report.html, figures/ and tables/ into a folder, or into the campaign's own; gives the path of the page.

    `at` is the moment that the page names, in microseconds since 1970; the same campaign at the same moment gives the
    same bytes.
    """
    ledger = ledger_of(campaign)
    where = campaign_report_place(ledger, folder).parent
    make_folders(where, where / "figures", where / "tables")
    summary = read_summary(ledger, at=now() if at is None else at, report=report)
    grids = campaign_grids(summary)
    for grid in grids:
        write_table(grid, where / "tables")
    report(1.0, "drawing")
    page = where / "report.html"
    write_whole(page, render_campaign(summary, grids, _write_figures(summary, where / "figures")).encode())
    return page


def campaign_report_place(campaign: HasLedger | Ledger, folder: str | Path | None = None) -> Path:
    """Where the page would be; a file in the place of its folder is refused."""
    where = ledger_of(campaign).folder / FOLDER if folder is None else Path(folder)
    if where.exists() and not where.is_dir():
        raise BadFile(f"cannot write a report to {where}: there is a file of that name; name a folder")
    return where / "report.html"


def render_campaign(summary: CampaignSummary, grids: Sequence[Grid], drawn: Sequence[DrawnFigure]) -> str:
    """The whole page; all text is escaped."""
    figures = {one.title: figure_html(one) for one in drawn}
    tables = {grid.name: html(grid) for grid in grids}
    sections: list[tuple[str, str, list[str | None]]] = [
        ("curve", "How good is the model?", [figures.get("Learning curve"), tables.get("learning-curve")]),
        ("balance", "How balanced are the labels?", [figures.get("Labels by class and round"), tables.get("classes")]),
        ("rounds", "What did each round bring?", [figures.get("Expected and realised counts"), tables.get("rounds"),
                                                  tables.get("certificates")]),
        ("confusion", "What is taken for what?", [figures.get("Which classes are taken for which")]),
        ("people", "Who labelled, and do they agree?", [_agreement(summary), tables.get("people"),
                                                        tables.get("pairs")]),
        ("made", "How it was made", [_made(summary)]),
    ]  # fmt: skip
    return html_page(
        summary.name,
        f"Labelling campaign, as of {format_time(summary.at)}",
        [(key, name, "\n".join(part for part in parts if part)) for key, name, parts in sections],
        above_links=f"{_numbers(summary)}\n{_verdict(summary)}\n",
        more_css=f"{MORE_CSS}\n",
    )


def campaign_grids(summary: CampaignSummary) -> list[Grid]:
    """The tables that this summary has rows for."""
    made = (_curve_grid, _class_grid, _round_grid, _certificate_grid, _people_grid, _pair_grid)
    return [grid for grid in (make(summary) for make in made) if grid.body]


def _write_figures(summary: CampaignSummary, folder: Path) -> list[DrawnFigure]:
    """Write each figure as .png, .svg and .pdf; the page has it on a dark ground too."""
    from .campaign_figures import DARK, LIGHT, campaign_figure_specs  # matplotlib loads here, when it is used
    from .figures import figure_bytes, settle

    drawn = []
    for spec in campaign_figure_specs(summary):
        png = write_figure_files(spec.draw(LIGHT), folder / spec.name)
        dark = figure_bytes(settle(spec.draw(DARK)), "png")
        drawn.append(DrawnFigure(spec.title, spec.caption, png, dark))
    return drawn


def _numbers(summary: CampaignSummary) -> str:
    status = summary.status
    tiles = [
        (f"{status.labelled:,}", f"of {status.usable:,} images labelled"),
        (f"{len(summary.rounds)}", "round" if len(summary.rounds) == 1 else "rounds"),
        (f"{len(summary.people)}", "person" if len(summary.people) == 1 else "people"),
        _level(summary.curve),
        (f"{status.conflicts:,}", "open conflict" if status.conflicts == 1 else "open conflicts"),
    ]
    return (
        '<div class="numbers">'
        + "".join(f"<div><b>{big}</b><span>{small}</span></div>" for big, small in tiles)
        + "</div>"
    )


def _level(curve: Curve | None) -> tuple[str, str]:
    """The balanced accuracy, where enough was measured, and of which classes, where not of all."""
    level = curve.points[-1].balanced_accuracy if curve is not None and curve.points and curve.is_measured else None
    if curve is None or level is None:
        return DASH, "balanced accuracy"
    covered, classes = int((curve.measured > 0).sum()), len(curve.class_ids)
    some = f", of {covered} of {classes} classes" if covered < classes else ""
    return f"{100 * level.value:.0f} %", f"balanced accuracy{some}"


def _verdict(summary: CampaignSummary) -> str:
    advice = summary.advice
    points = "".join(f"<li>{escape(one.text)}</li>" for one in advice.evidence)
    return (
        f'<div class="verdict {advice.worth_it}"><h2>Is another round worth it? {VERDICTS[advice.worth_it]}</h2>'
        f"<p>{escape(advice.because)}</p>{f'<ul>{points}</ul>' if points else ''}</div>"
    )


def _agreement(summary: CampaignSummary) -> str:
    alpha = summary.agreement.alpha
    if not summary.people:
        return "<p>Nobody has answered yet.</p>"
    if alpha.value is None:
        return f"<p>Agreement between people cannot be measured: {escape(alpha.reason)}.</p>"
    return (
        f"<p>Krippendorff's alpha is <strong>{number(alpha.value)}</strong> on "
        f"{plural(alpha.images, 'shared image')}, where people gave the same answer in "
        f"{100 * (alpha.same or 0):.0f} % of comparisons. 1 is full agreement, "
        "0 is chance; below 0.67 no firm conclusions should be drawn, from 0.80 on labels count as reliable.</p>"
    )


def _made(summary: CampaignSummary) -> str:
    status = summary.status
    aside = f" and {status.aside:,} that cannot be used now" if status.aside else ""
    facts = {
        "Campaign": f"{summary.name} ({summary.key[:12]})",
        "Created": format_time(summary.created),
        "Report": format_time(summary.at),
        "Images": f"{status.images:,}: {status.usable:,} usable, {status.duplicates:,} duplicates, "
        f"{status.quarantined:,} in quarantine",
        "Answers": f"{status.labelled:,} images labelled{aside}, {status.other:,} of no class, "
        f"{status.skipped:,} skipped, {status.conflicts:,} open conflicts",
        "Measured with": DASH
        if summary.curve is None
        else f"{summary.curve.learner} on {summary.curve.backbone} features",
        "Settings": ", ".join(
            f"{name} {value!r}" for name, value in asdict(summary.settings).items() if name != "name"
        ),
        "Version": f"tailwise {__version__}",
    }
    return "<dl>" + "".join(f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in facts.items()) + "</dl>"


def _curve_grid(summary: CampaignSummary) -> Grid:
    points = summary.curve.points if summary.curve is not None else ()
    body, records = [], []
    for point in points:
        levels = [point.accuracy, point.balanced_accuracy]
        shown = [DASH if one is None else f"{100 * one.value:.1f} ± {100 * one.error:.1f}" for one in levels]
        guesses = f"{point.right} of {point.guessed}" if point.guessed else DASH
        name = "before the rounds" if point.round_id == 0 else f"round {point.round_id}"
        body.append(_cells(name, f"{point.labels:,}", str(point.classes_seen), *shown, guesses))
        values = [part for one in levels
                  for part in ((math.nan, math.nan) if one is None else (one.value, one.error))]  # fmt: skip
        records.append((point.round_id, point.labels, point.classes_seen, *values, point.guessed, point.right))
    return Grid(
        "learning-curve", "The model after each round", ("after", "labels", "classes", "accuracy (%)",
        "balanced (%)", "guesses right"), tuple(body),
        ("± is one standard error. Guesses: of the images of the round that had a guess before anybody looked.",),
        ("round", "labels", "classes", "accuracy", "accuracy_error", "balanced_accuracy", "balanced_accuracy_error",
         "guessed", "right"), tuple(records), words=1,
    )  # fmt: skip


def _class_grid(summary: CampaignSummary) -> Grid:
    recalls = summary.curve.recalls() if summary.curve is not None else [math.nan] * len(summary.classes)
    last = next((one for one in reversed(summary.rounds) if one.expected is not None), None)
    total = max(int(summary.counts.sum()), 1)
    body, records = [], []
    for place, (klass, count) in enumerate(zip(summary.classes, summary.counts.tolist(), strict=True)):
        recall = float(recalls[place])
        target = math.nan if last is None or last.target is None else float(last.target[place])
        shown = (f"{count:,}", f"{100 * count / total:.0f}", number(100 * recall, 0), number(target, 1))
        body.append(_cells(str(place + 1), klass.name, *shown))
        records.append((klass.id, klass.name, count, recall, target))
    for klass in summary.retired:
        count = summary.status.labels.get(klass.id, 0)
        body.append(_cells(DASH, f"{klass.name} (retired)", f"{count:,}", DASH, DASH, DASH))
        records.append((klass.id, klass.name, count, math.nan, math.nan))
    return Grid(
        "classes", "Classes", ("", "class", "labels", "share (%)", "recognised (%)", "wanted in the last round"),
        tuple(body), ("Recognised: by cross-validation, after the last round.",),
        ("class_id", "class", "labels", "recall", "wanted"), tuple(records), words=2,
    )  # fmt: skip


def _round_grid(summary: CampaignSummary) -> Grid:
    body, records = [], []
    for one in summary.rounds:
        method = strategy_title(one.strategy) + (" (cold start)" if one.cold_start else "")
        shown = (method, format_time(one.opened_at), format_time(one.closed_at), f"{one.done:,} of {one.images:,}")
        body.append(_cells(f"round {one.id}", *shown))
        records.append((one.id, one.strategy, one.balance, one.opened_at, one.closed_at or "", one.images, one.done))
    return Grid(
        "rounds", "Rounds", ("round", "chosen by", "opened", "closed", "answered"), tuple(body), (),
        ("round", "strategy", "balance", "opened_at", "closed_at", "images", "answered"), tuple(records), words=4,
    )  # fmt: skip


def _certificate_grid(summary: CampaignSummary) -> Grid:
    body, records = [], []
    for one in summary.rounds:
        lam = None if one.cold_start else one.lam
        values = [math.nan if value is None else value for value in (lam, one.l1, one.seconds)]
        gap = DASH if one.gap is None else f"{one.gap:.1e}".replace("e-0", "e-").replace("-", "−")
        gap = "0" if one.gap is not None and one.gap < 1e-12 else gap
        body.append(
            _cells(
                f"round {one.id}", DASH if one.cold_start else one.status, one.balance, number(values[0]),
                DASH if one.cold_start else gap, DASH if one.cold_start else number(values[1], 1), _off(one),
                number(values[2], 1),
            )
        )  # fmt: skip
        records.append((one.id, one.status, one.balance, *values, math.nan if one.gap is None else one.gap))
    last = next((one for one in reversed(summary.rounds) if one.unreachable), None)
    note = (
        "Gap: how far, at most, the choice is from the best possible one. Distance: of the expected counts from the "
        "target, and of the realised from the expected ones, in images."
    )
    reasons = dict.fromkeys(why_counts_differ(one.strategy, one.status) for one in summary.rounds if not one.cold_start)
    return Grid(
        "certificates", "Certificate of each choice", ("round", "status", "balance", "λ", "gap", "distance to target",
        "realised off by", "seconds"), tuple(body), (note, *filter(None, reasons), *_short_of(last)),
        ("round", "status", "balance", "lam", "l1", "seconds", "gap"), tuple(records), words=3,
    )  # fmt: skip


def _short_of(one: RoundSummary | None, most: int = 6) -> list[str]:
    """Which classes a round could not reach, in a sentence; none where there is no such round."""
    if one is None:
        return []
    parts = [f"{name} {reachable:.1f} of {wanted:.1f}" for name, wanted, reachable in one.unreachable[:most]]
    more = f" and {len(one.unreachable) - most} more" if len(one.unreachable) > most else ""
    return [
        f"In round {one.id} the pool was short, by the model's probabilities: it could reach {', '.join(parts)}{more}."
    ]


def _off(one: RoundSummary) -> str:
    """Images that turned out to be of another class than expected."""
    if one.expected is None or not one.realised.any():
        return DASH
    return number(float(abs(one.expected - one.realised).sum() / 2), 1)


def _people_grid(summary: CampaignSummary) -> Grid:
    body = tuple(
        _cells(one.name, f"{one.labels:,}", f"{one.other:,}", f"{one.skips:,}", number(one.seconds or math.nan, 1),
               format_time(one.first), format_time(one.last))
        for one in summary.people
    )  # fmt: skip
    records = tuple(
        (one.name, one.labels, one.other, one.skips, math.nan if one.seconds is None else one.seconds, one.first,
         one.last)
        for one in summary.people
    )  # fmt: skip
    header = ("person", "labels", "of no class", "skipped", "seconds each", "first answer", "last answer")
    columns = ("person", "labels", "other", "skips", "median_seconds", "first", "last")
    return Grid("people", "People", header, body, (), columns, records, words=1)


def _pair_grid(summary: CampaignSummary) -> Grid:
    body, records = [], []
    for pair in summary.agreement.pairs:
        same, kappa = (math.nan if one is None else one for one in (pair.kappa.same, pair.kappa.value))
        body.append(_cells(pair.first, pair.second, f"{pair.kappa.images:,}", number(100 * same, 0), number(kappa)))
        records.append((pair.first, pair.second, pair.kappa.images, same, kappa))
    header = ("person", "and", "shared images", "same answer (%)", "Cohen's kappa")
    return Grid(
        "pairs", "Agreement by pairs", header, tuple(body), (), ("first", "second", "images", "same", "kappa"),
        tuple(records),
    )  # fmt: skip


def _cells(*texts: str) -> tuple[Cell, ...]:
    return tuple(Cell(text) for text in texts)
