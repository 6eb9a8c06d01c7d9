"""How a campaign looks on a terminal: what init found, what next chose and why, the page's link, how it all stands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..campaign.rounds import how_chosen, why_counts_differ
from ..inputs import many
from ..targets import l1_score
from .output import BAR, bar, certificate, frameless, plain, shell_line
from .select_output import MOST_CLASSES, MOST_NOTES

if TYPE_CHECKING:
    from ..campaign.advice import Advice
    from ..campaign.choosing import Proposal
    from ..campaign.classes import ClassRow
    from ..campaign.indexing import Indexed
    from ..campaign.learning_curve import Agreement
    from ..campaign.state import Status
    from ..web.serve import Serving
    from .campaign_commands import Begun, Init


MOST_LISTED = 10
LEANS = {"yes": ("▲", "green"), "no": ("▼", "red"), "unclear": ("·", "yellow")}
WORTH = {"yes": "green", "no": "red", "unclear": "yellow"}


def show_begun(begun: Begun, asked: Init) -> None:
    """What is there now: images by what became of them, classes, labels; and how to go on."""
    console = Console(highlight=False)
    if asked.dry_run:
        console.print("[yellow]A dry run: nothing was changed.[/]")
    name, status = plain(asked.folder.resolve().name), begun.status
    headline = "New campaign" if begun.created else "Campaign"
    classes = many(len(begun.classes), "class", "classes")
    labelled = f", {status.labelled:,} labelled" if status.labelled else ""
    console.print(f"[bold]{headline} {name}[/]: {many(status.usable, 'image')}, {classes}{labelled}")
    for folder, found in begun.indexed:
        console.print()
        _show_indexed(console, folder, found)
    if begun.new_classes:
        console.print()
        names = ", ".join(begun.new_classes[:MOST_LISTED]) + (", …" if len(begun.new_classes) > MOST_LISTED else "")
        console.print(f"{many(len(begun.new_classes), 'new class', 'new classes')}: {plain(names)}")
    if begun.imported is not None:
        from .data_commands import imported_lines

        console.print()
        for line in imported_lines(begun.imported):
            console.print(line)
    if not asked.dry_run:
        _hint(console, _after_init(status, asked.folder))


def _show_indexed(console: Console, folder: Path, found: Indexed) -> None:
    console.print(f"[bold]{plain(nearer(folder))}[/]", soft_wrap=True)
    others = sum(count for _, count in found.passed_over)
    rows = [
        (found.added, "new", "green"),
        (found.duplicates, "copy of another image" if found.duplicates == 1 else "copies of other images", "dim"),
        (found.known, "known, as before", "dim"),
        (found.moved, "moved, and the labels went along", "cyan"),
        (len(found.changed), "changed on the disk", "yellow"),
        (len(found.missing), "gone; what was said is kept", "yellow"),
        (len(found.quarantined), "in quarantine: not usable as it is", "red"),
        (others, f"other file: {_suffixes(found)}" if others == 1 else f"other files: {_suffixes(found)}", "dim"),
    ]
    shown = [row for row in rows if row[0]] or [(0, "images", "dim")]
    grid = Table.grid(padding=(0, 1))
    grid.add_column(justify="right", min_width=7)
    grid.add_column()
    for count, what, style in shown:
        grid.add_row(f"[bold {style}]{count:,}[/]", f"[{style}]{plain(what)}[/]")
    console.print(grid)
    listed(console, "changed", found.changed)
    listed(console, "gone", found.missing)
    reasons_listed(console, "in quarantine", found.quarantined)


def _suffixes(found: Indexed) -> str:
    kinds = sorted(found.passed_over, key=lambda one: -one[1])
    more = ", …" if len(kinds) > 5 else ""
    return ", ".join(suffix or "no ending" for suffix, _ in kinds[:5]) + more


def listed(console: Console, title: str, paths: Sequence[str]) -> None:
    """The first of some paths."""
    if paths:
        reasons_listed(console, title, [(path, "") for path in paths])


def reasons_listed(console: Console, title: str, pairs: Sequence[tuple[str, str]]) -> None:
    """The first of some paths, each with its reason."""
    if not pairs:
        return
    table = frameless()
    table.add_column(title, overflow="fold", max_width=44)
    table.add_column("why" if any(reason for _, reason in pairs) else "", overflow="fold")
    for path, reason in pairs[:MOST_LISTED]:
        table.add_row(plain(path), f"[dim]{plain(reason)}[/]")
    console.print()
    console.print(Padding(table, (0, 0, 0, 8)))
    if len(pairs) > MOST_LISTED:
        console.print(f"        [dim]… and {len(pairs) - MOST_LISTED:,} more; --json lists all[/]")


def _after_init(status: Status, folder: Path) -> list[tuple[str, str]]:
    if status.round is not None:
        return next_steps(status, folder)
    start = "choose the first images" if not status.labelled else "train on the labels and choose what to label next"
    return [(command("next", folder), start), (command("label", folder), "open the page and label them")]


def show_proposal(made: Proposal, names: Mapping[int, str], folder: Path) -> None:
    """What was chosen, why, and how good the choice is."""
    console = Console(highlight=False)
    title = f"Round {made.round.id}" if made.round is not None else "A dry run, no round was opened"
    start = ", a cold start" if made.cold_start else ""
    console.print(f"[bold]{title}: {len(made.picks):,} of {many(made.candidates, 'image')}[/]{start}")
    for line in _reasons(made):
        console.print(line)
    if made.expected_counts is not None:
        console.print()
        console.print(count_table(made, names))
        _show_balance(console, made)
    for line in [*_unreachable(made, names), *(f"[yellow]note:[/] {plain(note)}" for note in made.notes)]:
        console.print(line)
    if made.round is not None:
        _hint(console, [(command("label", folder), "open the page and label them")])


def _reasons(made: Proposal) -> Iterable[str]:
    if not made.cold_start:
        how = how_chosen(made.strategy, made.status, made.balance, made.lam)
        is_number = made.balance.replace(".", "", 1).replace("e-", "", 1).isdigit()
        rule = f" ({made.balance})" if "λ" in how and not is_number else ""
        yield f"{plain(how + rule)}, learnt from {many(made.labels, 'label')}"
        yield f"[green]{certificate(made.status, made.gap)}[/]"
    stages = ", ".join(f"{name} {seconds:.1f}" for name, seconds in made.seconds.items() if seconds >= 0.05)
    yield f"[dim]{sum(made.seconds.values()):.1f} s ({stages or 'all cached'}), {plain(made.backbone)} features[/]"


def count_table(made: Proposal, names: Mapping[int, str]) -> Table:
    """Labelled so far, target and expected counts of the round, with a bar; of many classes the farthest off."""
    target, expected = np.array(made.target), np.array(made.expected_counts)
    table = frameless()
    table.add_column("class", overflow="ellipsis", max_width=24, no_wrap=True)
    for name in ("labelled", "target", "expected"):
        table.add_column(name, justify="right")
    table.add_column("expected █  target │", no_wrap=True)
    longest = float(max(target.max(initial=0.0), expected.max(initial=0.0)))
    farthest = np.argsort(-np.abs(target - expected), kind="stable")[:MOST_CLASSES]
    for at in sorted(farthest.tolist()):
        drawn = bar(float(expected[at]), float(target[at]) if target[at] > 0 else None, longest)
        labelled = f"{made.why['counts'][at]:,}"
        table.add_row(
            plain(names[made.class_ids[at]]), labelled, f"{target[at]:.1f}", f"{expected[at]:.1f}", drawn
        )  # fmt: skip
    return table


def _show_balance(console: Console, made: Proposal) -> None:
    console.print()
    if len(made.class_ids) > MOST_CLASSES:
        console.print(f"[dim]The {MOST_CLASSES} of {len(made.class_ids):,} classes farthest from their target.[/]")
    if reason := why_counts_differ(made.strategy, made.status):
        console.print(f"[dim]{reason}[/]")
    counts = np.array(made.why["counts"], dtype=np.float64)
    if len(counts) > 1:
        after = l1_score(counts + np.array(made.expected_counts))
        console.print(f"L1 score of the labelled set: {l1_score(counts):.3f} → {after:.3f} (0 = uniform)")


def _unreachable(made: Proposal, names: Mapping[int, str]) -> Iterable[str]:
    for number, wanted, reachable in made.unreachable[:MOST_NOTES]:
        name = plain(names[number])
        yield f"[yellow]note:[/] {name} can reach at most {reachable:.1f} of the {wanted:.1f} wanted"
    more = len(made.unreachable) - MOST_NOTES
    if more > 0:
        yield f"[yellow]note:[/] … and {more} more classes out of reach"


def show_serving(serving: Serving, name: str, status: Status, *, host: str) -> None:
    """The link, and what is waiting behind it."""
    console = Console(highlight=False)
    console.print(f"[bold]{plain(name)}[/] is open for labelling: {round_line(status)}")
    console.print()
    console.print(f"  [bold cyan]{serving.link}[/]", soft_wrap=True)
    console.print()
    if serving.annotator_link is not None:
        console.print("That is the owner's link. People who only label get this one: it cannot train or settle.")
        console.print(f"  [cyan]{serving.annotator_link}[/]", soft_wrap=True)
        console.print()
    if serving.token is None:
        console.print("[yellow]Without a token: everybody on this machine can label.[/]")
    elif host in ("127.0.0.1", "localhost", "::1"):
        console.print(
            "[dim]The links open it on this machine; `tailwise label --host 0.0.0.0` lets others in the network in.[/]"
        )
    else:
        console.print("[dim]Anyone with a link can label; --new-token ends all links given out before.[/]")
    console.print("[dim]Every answer is kept the moment it is given. Ctrl-C stops the page.[/]")
    console.file.flush()


def show_serving_dry(name: str, status: Status, host: str, port: int | None, changes: Sequence[str]) -> None:
    """Where the page would be, and what would be changed."""
    console = Console(highlight=False)
    console.print("[yellow]A dry run: nothing was changed, and nothing is served.[/]")
    where = "8765 or the next that is free" if port is None else "any that is free" if port == 0 else f"{port}"
    console.print(f"[bold]{plain(name)}[/] would be open for labelling at {plain(host)}, port {where}")
    console.print(f"[dim]{round_line(status)}[/]")
    for change in changes:
        console.print(f"[green]·[/] {plain(change)}")


def show_stopped(before: Status, after: Status, folder: Path) -> None:
    """What came while the page was open."""
    console = Console(highlight=False)
    given = sum(after.annotators.values()) - sum(before.annotators.values())
    gained = f"{many(given, 'answer')} more than before" if given else "no new answers"
    console.print(f"\nStopped; {gained}. {many(after.labelled, 'image')} labelled, {round_line(after)}.")
    _hint(console, next_steps(after, folder))


def status_line(status: Status) -> str:
    """The whole in one line.

    For instance "160 of 1,790 images labelled; round 2: 61 of 100 answered".
    """
    return f"{status.labelled:,} of {many(status.usable, 'image')} labelled; {round_line(status)}"


def round_line(status: Status) -> str:
    """How far the open round is."""
    if status.progress is None:
        return "no round is open yet"
    found = status.progress
    done = "complete" if found.complete else f"{found.done:,} of {found.images:,} answered"
    return f"round {found.round_id}: {done}"


def show_status(name: str, status: Status, classes: Sequence[ClassRow], agreement: Agreement, folder: Path) -> None:
    """Images, labels per class, the open round, people; and what to do next."""
    console = Console(highlight=False)
    console.print(f"[bold]{plain(name)}[/]")
    console.print(_overview(status))
    console.print()
    console.print(class_table(status.labels, classes))
    _show_people(console, status, agreement)
    _hint(console, next_steps(status, folder))


def _overview(status: Status) -> Table:
    images = [many(status.usable, "image")]
    images += [many(status.duplicates, "copy", "copies")] if status.duplicates else []
    images += [f"[red]{status.quarantined:,} in quarantine[/]"] if status.quarantined else []
    share = f" ({status.labelled / status.usable:.0%})" if status.usable else ""
    labels = [f"{status.labelled:,}{share}"]
    labels += [f"{status.aside:,} more that cannot be used now"] if status.aside else []
    labels += [f"{status.other:,} none of the classes"] if status.other else []
    labels += [f"{status.skipped:,} skipped"] if status.skipped else []
    labels += [f"[yellow]{many(status.conflicts, 'conflict')}[/]"] if status.conflicts else []
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim")
    grid.add_column()
    grid.add_row("images", ", ".join(images))
    grid.add_row("labelled", ", ".join(labels))
    grid.add_row("round", _round_cell(status))
    return grid


def _round_cell(status: Status) -> Text:
    if status.round is None or status.progress is None:
        return Text("none is open yet")
    found, one = status.progress, status.round
    how = how_chosen(one.strategy, one.why.get("status", ""), one.balance, one.why.get("lam"))
    return Text.assemble(
        f"{one.id}  ", gauge(found.done, found.images), f"  {found.done:,} of {found.images:,} answered ({how})"
    )


def gauge(done: int, total: int) -> Text:
    """A thin bar of 24 cells, filled as far as it is done.

    >>> gauge(1, 2).plain
    '━━━━━━━━━━━━────────────'
    """
    filled = BAR * done // total if total else 0
    return Text.assemble(("━" * filled, "green"), ("─" * (BAR - filled), "bright_black"))


def class_table(labels: Mapping[int, int], classes: Sequence[ClassRow]) -> Table:
    """Labels per class with a bar; of many classes those with the fewest."""
    table = frameless()
    table.add_column("class", overflow="ellipsis", max_width=40, no_wrap=True)
    table.add_column("labelled", justify="right")
    table.add_column("", no_wrap=True)
    longest = float(max(labels.values(), default=0))
    rarest = sorted(classes, key=lambda one: labels[one.id])[:MOST_CLASSES]
    for one in sorted(rarest, key=lambda one: one.position):
        name = f"{plain(one.name)} [dim](retired)[/]" if one.retired else plain(one.name)
        table.add_row(name, f"{labels[one.id]:,}", bar(labels[one.id], None, longest))
    if len(classes) > MOST_CLASSES:
        table.caption = f"The {MOST_CLASSES} of {len(classes):,} classes with the fewest labels."
    return table


def _show_people(console: Console, status: Status, agreement: Agreement) -> None:
    if not status.annotators:
        return
    table = frameless()
    table.add_column("annotator", overflow="ellipsis", max_width=40, no_wrap=True)
    table.add_column("answers", justify="right")
    for person, count in sorted(status.annotators.items(), key=lambda one: -one[1])[:MOST_CLASSES]:
        table.add_row(plain(person), f"{count:,}")
    console.print()
    console.print(table)
    if agreement.value is not None:
        shared = f"over {many(agreement.images, 'image')} that two or more people answered"
        console.print(f"\nAgreement (Krippendorff's α): {agreement.value:.2f} {shared}")


def next_steps(status: Status, folder: Path) -> list[tuple[str, str]]:
    """The commands that make sense now, each with what it does."""
    page = []
    if status.progress is not None and not status.progress.complete:
        page.append(f"label the {many(status.progress.remaining, 'image')} left in round {status.progress.round_id}")
    if status.conflicts:
        page.append(f"settle {many(status.conflicts, 'conflict')}")
    steps = [(command("label", folder), " and ".join(page))] if page else []
    if status.progress is not None and not status.progress.complete:
        return steps
    if status.labelled:
        steps.append((command("advise", folder), "is another round worth it?"))
    steps.append((command("next", folder), "choose what to label next"))
    again = f"the same, also from the {many(status.skipped, 'image that was', 'images that were')} skipped"
    return [*steps, *([(command("next", folder, "--skipped"), again)] if status.skipped else [])]


def show_advice(advice: Advice, folder: Path) -> None:
    """The answer first, then what speaks for and against."""
    console = Console(highlight=False)
    colour = WORTH[advice.worth_it]
    console.print(f"Is another round worth it? [bold {colour}]{advice.worth_it}[/]. {plain(advice.because)}")
    console.print()
    grid = Table.grid(padding=(0, 1))
    for one in advice.evidence:
        sign, style = LEANS[one.leans]
        grid.add_row(f"[{style}]{sign}[/]", plain(one.text))
    console.print(grid)
    if advice.evidence:
        console.print("\n[dim]▲ speaks for another round, ▼ against it, · neither[/]")
    if any(one.what == "pending" for one in advice.evidence):
        _hint(console, [(command("label", folder), "finish the open round first")])
    elif advice.worth_it != "no":
        _hint(console, [(command("next", folder), "choose what to label next")])


def command(verb: str, folder: Path, *rest: str) -> str:
    """A command line that can be pasted.

    >>> command("label", Path("birds"))
    'tailwise label birds'
    """
    return shell_line("tailwise", verb, str(folder), *rest)


def nearer(path: Path) -> str:
    """A path as seen from the working directory, where it lies below it."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _hint(console: Console, steps: Sequence[tuple[str, str]]) -> None:
    """What to do next: commands with what they do. A command is never broken, so that it can be pasted."""
    width = max((len(line) for line, _ in steps), default=0)
    fits = all(width + len(what) + 4 <= console.width for _, what in steps)
    console.print()
    console.print("Next:")
    for line, what in steps:
        between = " " * (width - len(line) + 2) if fits else "\n    "
        console.print(f"  [bold cyan]{plain(line)}[/]{between}[dim]{what}[/]", soft_wrap=True)
