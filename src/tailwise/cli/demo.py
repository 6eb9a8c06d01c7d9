"""`tailwise demo`: the whole loop on long-tailed digits, from an embedded preset to a report."""

from __future__ import annotations

from pathlib import Path

from .bench_commands import Tracking, asked, run_bench
from .show import console_line

PRESET = "demo-digits"


def run_demo(folder: Path, seeds: str | None, *, quiet: bool) -> None:
    """Run the preset, or go on with it."""
    wanted = asked(PRESET, folder, None, seeds)
    if not quiet:
        console_line(
            "[bold]Which digits should be labelled next?[/] A long-tailed pool of handwritten digits: half of the "
            "classes are ten times rarer.\nA linear model starts with 30 labels and asks for 30 more, five times; "
            f"{len(wanted.experiment.seeds)} seeds. About a minute …\n"
            "CB: balanced by class. Boundary-CB is what campaigns use. The test images are equally many of each digit; "
            "adjusted: decisions that make up for the rarity of classes; tail: the rare half."
        )
    run_bench(wanted, None, Tracking(), report=True, as_json=False, quiet=quiet, adopt=True)
