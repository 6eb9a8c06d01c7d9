"""What `select` and `path` do: check, read, call the library, print in the form that was asked for."""

from __future__ import annotations

import json
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import BadInput
from .outcome import WrongUsage
from .progress import progress
from .request import Request, choices, read

if TYPE_CHECKING:
    from ..strategies.path import BalancePath


class Form(Enum):
    """How to print the answer."""

    SUMMARY = "summary"
    JSON = "json"
    QUIET = "quiet"

    @classmethod
    def of(cls, *, as_json: bool, quiet: bool) -> Form:
        """JSON is meant for a program even where it is to be quiet besides."""
        return cls.JSON if as_json else cls.QUIET if quiet else cls.SUMMARY


def select(request: Request, solving: dict[str, Any], out: Path | None, form: Form) -> None:
    """`tailwise select`; `solving` holds balance, gap and time_limit."""
    from ..report.files import PICK_SUFFIXES, check_writable, write_picks
    from ..scale.shard_store import knows_names, names_of
    from ..solve.path import parse_balance
    from ..strategies.select import select as choose

    request.check()
    try:
        parse_balance(solving["balance"])
    except BadInput as error:
        raise WrongUsage(f"--balance: {error}") from error
    if out is not None:
        check_writable(out, PICK_SUFFIXES)
    with progress(quiet=form is Form.QUIET) as report:
        inputs = read(request)
        named = knows_names(request.proba)
        batch = choose(inputs.proba, request.budget, report=report, **solving, **inputs.arguments, **choices(request))
    names = names_of(request.proba, batch.indices) if named else None
    if out is not None:
        write_picks(batch, out, names)
    if form is Form.JSON:
        print(json.dumps(batch.to_dict() | ({"names": names} if named else {}), allow_nan=False))
    elif form is Form.SUMMARY:
        from .show import show_selection

        show_selection(batch, inputs, request, solving["balance"], out, names)
    elif out is None:
        print("\n".join(names or map(str, batch.indices.tolist())))


def path(request: Request, lams: str | None, out: Path | None, form: Form) -> None:
    """`tailwise path`."""
    from ..report.files import PATH_SUFFIXES, check_writable
    from ..strategies.path import balance_path
    from .numbers import comma_list

    request.check()
    values = None if lams is None else comma_list(lams, "--lams")
    if out is not None:
        check_writable(out, PATH_SUFFIXES)
    with progress(quiet=form is Form.QUIET) as report:
        inputs = read(request)
        swept = balance_path(inputs.proba, request.budget, lams=values, report=report, **inputs.arguments)
    if out is not None:
        _write_path(swept, out)
    if form is Form.JSON:
        print(json.dumps(swept.to_dict(), allow_nan=False))
    elif form is Form.SUMMARY:
        from .show import show_path

        show_path(swept, out)


def _write_path(swept: BalancePath, out: Path) -> None:
    from ..report.files import write_sweep

    if out.suffix.lower() == ".csv":
        write_sweep(swept, out)
        return
    from ..report.figures import path_figure, write_figure

    write_figure(path_figure(swept), out)
