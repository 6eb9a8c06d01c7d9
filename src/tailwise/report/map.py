"""The map of a campaign as a figure, and the colours of classes on it, which the page uses too.

The colours keep as far apart as possible in OKLab, also for people with protanopia, deuteranopia or tritanopia; each
has a contrast of 3 or more against its ground. The first ten differ for everyone, all 48 for people who see
all colours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..types import IntArray

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..campaign.projection import Projection

LIGHT_GROUND = (
    "#0084cc", "#fc0000", "#5c7f1e", "#cc54fc", "#6b1d1d", "#0018b4", "#fc009c", "#783ccc", "#b40060", "#600078",
    "#00606c", "#9c6c78", "#243cfc", "#9c3c00", "#cc8454", "#3c489c", "#9090c0", "#30a86c", "#844884", "#b460b4",
    "#cc5448", "#900090", "#fc00e4", "#840054", "#f06090", "#5400d8", "#60603c", "#0c483c", "#6084fc", "#6060b4",
    "#cc249c", "#6c4854", "#609090", "#603c00", "#18846c", "#9c0024", "#48009c", "#906ce4", "#9c00e4", "#3c3c6c",
    "#a84854", "#54789c", "#847848", "#b46000", "#a83cb4", "#fc603c", "#9048fc", "#d83ccc",
)  # fmt: skip
DARK_GROUND = (
    "#30c0f0", "#fc0000", "#c0a800", "#9f85ff", "#00a878", "#cc0084", "#e3e6ff", "#fc78a8", "#0078a8", "#9c00fc",
    "#00fc00", "#84e4a8", "#9c6c48", "#fc00d8", "#fce484", "#fca878", "#b4a8cc", "#e47848", "#008400", "#a8789c",
    "#fc90fc", "#48cc60", "#5490d8", "#c018cc", "#fcb4d8", "#786084", "#a84860", "#b4c09c", "#6ca8a8", "#b454fc",
    "#a854b4", "#3ce4f0", "#c0cc00", "#f0546c", "#a8fcd8", "#0c78e4", "#cc5424", "#c09090", "#609078", "#e460fc",
    "#e454c0", "#78fc6c", "#fcccc0", "#789c3c", "#6c48e4", "#9ca86c", "#ccd884", "#d80024",
)  # fmt: skip

WITHOUT = "#c3cad3"  # of images without a class
SIDE = 5.2  # inches of the map
LONGEST_NAME = 24


def class_colours(count: int, *, dark: bool = False) -> list[str]:
    """Colours of so many classes; after 48 they begin again.

    >>> class_colours(2)
    ['#0084cc', '#fc0000']
    """
    known = DARK_GROUND if dark else LIGHT_GROUND
    return [known[place % len(known)] for place in range(count)]


def map_figure(projection: Projection, classes: IntArray, names: Sequence[str], title: str) -> Figure:
    """Every image as a point in the colour of its class; `classes` (n,) are places in `names`, -1 without one."""
    import matplotlib as mpl
    from matplotlib.lines import Line2D

    from .figures import STYLE, drawable_names, legend_below, new_figure

    with mpl.rc_context(STYLE):
        figure = new_figure(SIDE, SIDE + 0.5)
        axes = figure.subplots()
        size = float(np.clip(6000 / max(len(projection), 1), 1.5, 14))
        labels = drawable_names(names, LONGEST_NAME) or [f"class {place + 1}" for place in range(len(names))]
        shown: list[Any] = []
        for place, colour in [(-1, WITHOUT), *enumerate(class_colours(len(names)))]:
            here = classes == place
            if not here.any():
                continue
            name = "without a class" if place < 0 else labels[place]
            x, y = projection.xy[here].T
            axes.scatter(x, y, s=size, color=colour, linewidths=0, rasterized=True)
            shown.append(Line2D([], [], marker="o", linestyle="", color=colour, label=f"{name} ({here.sum():,})"))
        axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal", xticks=[], yticks=[], title=title)
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)
        legend_below(figure, shown)
    return figure
