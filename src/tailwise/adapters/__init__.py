"""Your own model and tools, to and from ours; each module loads its library when it is imported or used.

tailwise.adapters.torch         a PyTorch model and a loader → Predictions
tailwise.adapters.sklearn       a scikit-learn or skorch estimator → Predictions; scikit-activeml, both ways
tailwise.adapters.huggingface   transformers and datasets → Predictions, picks as a column
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from ..types import ProgressBar

Item = TypeVar("Item")


def with_progress(items: Iterable[Item], what: str, *, total: int | None, show: bool | None) -> Iterator[Item]:
    """The items, with a progress bar on standard error; without `show`, only on a terminal and in a notebook.

    >>> list(with_progress([1, 2], "predicting", total=2, show=False))
    [1, 2]
    """
    bar = ProgressBar()
    if not (bar.interactive if show is None else show):
        yield from items
        return
    for number, item in enumerate(items, start=1):
        yield item
        if total:
            bar(number / total, f"{what} {number:,}/{total:,}")
        else:
            bar(f"{what} {number:,}")
