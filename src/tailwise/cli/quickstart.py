"""`tailwise quickstart`: draws a small folder of shapes, opens a campaign on it and serves the labelling page."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..campaign.database import LEDGER_FILE
from ..campaign.service import Campaign
from ..errors import BadFile, BadInput
from ..inputs import many
from .campaign_commands import folder_of, run_label
from .output import Form, console_line, plain, progress_shown

if TYPE_CHECKING:
    from PIL.Image import Image

SHAPES = {"circle": 130, "square": 78, "triangle": 48, "star": 28, "cross": 16}  # a long tail
SIDE = 96  # pixels
SMOOTH = 3  # drawn so many times larger, then made smaller
BUDGET = 20  # images of a round: two minutes of labelling
SEED = 0
IMAGES, CAMPAIGN, NOTE = "images", "campaign", "ABOUT.txt"
ABOUT = (
    "Made by `tailwise quickstart`.\n\n"
    "images/    drawings of five shapes, some of them rare; their names do not say which\n"
    "campaign/  the campaign that labels them; docs/campaigns.md describes its files\n\n"
    "Delete the folder when you are done with it.\n"
)


def run_quickstart(folder: Path, options: Mapping[str, Any], form: Form) -> None:
    """`tailwise quickstart`: what an earlier call has made is used again."""
    from ..web import serve  # noqa: F401 - a missing extra is reported before anything is made

    home = folder_of(folder)
    known = claim(home)
    with progress_shown(quiet=form is not Form.SUMMARY) as report:
        draw_shapes(home / IMAGES, report)
        with _campaign(home) as campaign:
            campaign.index(report=report)
            if campaign.status().round is None:
                campaign.next(BUDGET, report=report)
            status = campaign.status()
    if form is Form.SUMMARY:
        shapes = ", ".join(f"{count} × {name}" for name, count in SHAPES.items())
        made = "Found" if known else "Drew"
        console_line(f"{made} {many(sum(SHAPES.values()), 'image')} in {plain(str(folder / IMAGES))}: {shapes}.")
        console_line("Label the images that Tailwise picks: on the page, press the number of the class.\n")
    facts = {
        "folder": str(home), "images": status.usable, "classes": list(SHAPES), "campaign": str(home / CAMPAIGN),
        "round": None if status.round is None else status.round.id,
    }  # fmt: skip
    run_label(folder / CAMPAIGN, options, form, facts)


def claim(home: Path) -> bool:
    """Make the folder, or find that an earlier call did; one that holds anything else is left alone."""
    if (home / NOTE).is_file() and (home / NOTE).read_text(encoding="utf-8", errors="replace") == ABOUT:
        return True
    try:
        home.mkdir(parents=True, exist_ok=True)
        if any(home.iterdir()):
            raise BadInput(
                f"{home} is there already and was not made by `tailwise quickstart`; name another with --folder"
            )
        (home / NOTE).write_text(ABOUT, encoding="utf-8", newline="\n")
    except OSError as error:
        raise BadFile(
            f"cannot make the folder {home}: {error.strerror or error}; name another with --folder"
        ) from error
    return False


def _campaign(home: Path) -> Campaign:
    place, purpose = home / CAMPAIGN, "`tailwise quickstart`"
    if (place / LEDGER_FILE).exists():
        return Campaign.open(place, purpose=purpose)
    return Campaign.create(
        place, home / IMAGES, list(SHAPES), purpose=purpose, name="Shapes", budget=BUDGET, backbone="simple"
    )


def draw_shapes(folder: Path, report: Callable[[float, str], None]) -> None:
    """The same files each time; one that is there stays as it is."""
    rng = np.random.default_rng(SEED)
    names = rng.permutation(np.repeat(list(SHAPES), list(SHAPES.values())))
    folder.mkdir(exist_ok=True)
    for number, name in enumerate(names.tolist(), start=1):
        image, path = draw_shape(name, rng), folder / f"{number:03}.png"
        if not path.exists():
            part = path.with_suffix(".part")
            image.save(part, "PNG")
            part.replace(path)
        report(0.0, f"drawing {number} of {many(len(names), 'image')}")


def draw_shape(name: str, rng: np.random.Generator) -> Image:
    """A dark shape of varying size, turn, place and colour on a light ground, with noise."""
    from PIL import Image, ImageDraw

    large = SIDE * SMOOTH
    ground, colour = rng.integers(205, 250, 3), rng.integers(20, 110, 3)
    radius, turn = rng.uniform(0.28, 0.4) * large, rng.uniform(-0.35, 0.35)
    centre = large / 2 + rng.uniform(-0.06, 0.06, 2) * large
    image = Image.new("RGB", (large, large), tuple(ground.tolist()))
    corners = centre + radius * outline(name) @ [[math.cos(turn), math.sin(turn)], [-math.sin(turn), math.cos(turn)]]
    ImageDraw.Draw(image).polygon([tuple(one) for one in corners.tolist()], fill=tuple(colour.tolist()))
    pixels = np.asarray(image.resize((SIDE, SIDE)), dtype=np.float64) + rng.normal(0, 8, (SIDE, SIDE, 3))
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def outline(name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The corners (n, 2) of a shape within the unit circle."""
    if name == "cross":  # two bars
        quarter = np.array([[0.95, -0.31], [0.95, 0.31], [0.31, 0.31]])
        turn = np.array([[0.0, 1.0], [-1.0, 0.0]])
        return np.concatenate([quarter @ np.linalg.matrix_power(turn, k) for k in range(4)])
    corners, start = {"circle": (60, 0.0), "square": (4, 0.25), "triangle": (3, -0.5), "star": (10, -0.5)}[name]
    angles = math.pi * (start + 2 * np.arange(corners) / corners)
    lengths = np.where((name == "star") & (np.arange(corners) % 2 == 1), 0.42, 1.0)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1) * lengths[:, None]
