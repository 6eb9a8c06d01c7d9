"""What `tailwise predict` does: plan, compute, print in the form that was asked for."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from ..errors import BadInput
from ..inference.pipeline import DTYPES, LOCAL, Plan, Predicted, plan_pool, predict_pool
from ..pools.pool import BadImage
from ..ray.cluster import address_of, ray_module
from .output import WrongUsage
from .select import Form
from .select_output import plain, progress_shown, shell_line

MOST_BAD = 5  # images that are named in the summary; all are in the shards' JSON
USUAL_BUDGET = 1000


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked for."""

    images: Path
    learner: Path
    out: Path
    engine: str
    workers: int | None
    choices: dict[str, Any]  # of plan_pool
    dry_run: bool


def run_predict(asked: Asked, form: Form) -> None:
    """`tailwise predict`."""
    _check(asked)
    with progress_shown(quiet=form is not Form.SUMMARY) as report:
        report(0.0, f"looking at {asked.images}")
        plan = plan_pool(asked.images, asked.learner, asked.out, **asked.choices)
        done = None if asked.dry_run else predict_pool(plan, engine=asked.engine, workers=asked.workers, report=report)
    if done is None:
        _tell_plan(plan, form)
    elif form is Form.JSON:
        print(json.dumps(_facts(done)))
    elif form is Form.SUMMARY:
        _show_done(done, asked)


def _check(asked: Asked) -> None:
    if asked.choices["dtype"] not in DTYPES:
        raise WrongUsage(f"--dtype is {asked.choices['dtype']!r}; give {' or '.join(DTYPES)}")
    if asked.engine == LOCAL:
        return
    try:
        address_of(asked.engine)
    except BadInput as error:
        raise WrongUsage(f"--engine: {error}, or {LOCAL!r}") from error
    ray_module()  # a missing extra is told at once


def _tell_plan(plan: Plan, form: Form) -> None:
    facts = {
        "images": plan.images, "shards": len(plan.shards), "done": len(plan.kept), "classes": plan.job.learner.classes,
        "bytes": plan.bytes, "out": str(plan.store.folder), "dry_run": True,
    }  # fmt: skip
    if form is Form.JSON:
        print(json.dumps(facts))
    elif form is Form.SUMMARY:
        console = Console(highlight=False)
        shards = f"{_counted(len(plan.shards), 'shard')}, {len(plan.kept):,} of them done"
        room = f"about {plan.bytes / 1e6:,.1f} MB in {plain(str(plan.store.folder))}"
        classes = _counted(plan.job.learner.classes, "class", "es")
        console.print(f"[bold]{plan.images:,} images[/] in {shards}; {classes}, {room}", soft_wrap=True)
        console.print("Nothing was written: this was a dry run.")


def _facts(done: Predicted) -> dict[str, object]:
    return {
        "out": str(done.folder), "rows": done.manifest.rows, "classes": done.manifest.classes,
        "shards": len(done.shards), "computed": done.computed, "dtype": done.manifest.dtype,
        "bad": [{"name": image.path, "reason": image.reason} for image in _bad(done)], "seconds": done.seconds,
    }  # fmt: skip


def _bad(done: Predicted) -> list[BadImage]:
    return [image for shard in done.shards for image in shard.bad]


def _show_done(done: Predicted, asked: Asked) -> None:
    console, rows = Console(highlight=False), done.manifest.rows
    there = len(done.shards) - done.computed
    shards = f"{_counted(len(done.shards), 'shard')}{f', {there:,} of them done before' if there else ''}"
    console.print(f"[bold]{rows:,} images × {done.manifest.classes:,} classes[/] in {shards}; {done.seconds:,.1f} s")
    _show_bad(_bad(done), console)
    out, budget = shell_line(str(asked.out)), min(USUAL_BUDGET, max(1, rows // 10))
    console.print(f"Next: tailwise select {plain(out)} --budget {budget}", soft_wrap=True)


def _show_bad(bad: list[BadImage], console: Console) -> None:
    if not bad:
        return
    console.print(f"[yellow]{_counted(len(bad), 'image')} could not be used[/], and got no row:")
    for image in bad[:MOST_BAD]:
        console.print(f"  {plain(image.path)}: {plain(image.reason)}", soft_wrap=True)
    if len(bad) > MOST_BAD:
        console.print(f"  … and {len(bad) - MOST_BAD:,} more, in the shards' .json")


def _counted(number: int, what: str, plural: str = "s") -> str:
    """A number with its noun.

    >>> _counted(1, "shard"), _counted(1200, "shard"), _counted(2, "class", "es")
    ('1 shard', '1,200 shards', '2 classes')
    """
    return f"{number:,} {what}{'' if number == 1 else plural}"
