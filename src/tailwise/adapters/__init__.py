"""Your own model and tools, to and from ours; each module loads its library when it is imported or used.

tailwise.adapters.torch         a PyTorch model and a loader → Predictions
tailwise.adapters.sklearn       a scikit-learn or skorch estimator → Predictions; scikit-activeml, both ways
tailwise.adapters.huggingface   transformers and datasets → Predictions, picks as a column
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def with_progress(items: Iterable[Item], what: str, *, total: int | None, show: bool | None) -> Iterator[Item]:
    """The items, with a progress bar on standard error; without `show`, only on a terminal and in a notebook.

    >>> list(with_progress([1, 2], "predicting", total=2, show=False))
    [1, 2]
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not (console.is_terminal or console.is_jupyter if show is None else show):
        yield from items
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as bar:
        yield from bar.track(items, total=total, description=what)
