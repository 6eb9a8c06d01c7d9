"""`tailwise select` and `tailwise path`: read the options and the files, call the library, print the result.

Numbers per class are a comma list, pairs such as "7=41,8=3", or a .csv, .npy or .json file; the library checks the
values.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import BadFile, BadInput
from ..files import is_file, no_file, read_npy, shown_path
from ..inputs import real_array, shown
from ..types import Float64Array
from .output import Form, WrongUsage, progress

if TYPE_CHECKING:
    from ..matrix.open import Matrix
    from ..strategies.select import BalancePath

FILES = (".csv", ".npy", ".json")
CLASS_DIGITS = 9  # of a class number
PAIR = re.compile(rf"^\s*(\d{{1,{CLASS_DIGITS}}})\s*=\s*(\S+?)\s*$")
PAPER = "paper"  # as a target


@dataclass(frozen=True, slots=True)
class Request:
    """The options that `select` and `path` share, as typed by the user."""

    proba: str  # a path or a URL, which a Path would mangle
    budget: float
    counts: str | None
    score: str | None
    target: str | None
    shares: str | None
    at_least: str | None
    at_most: str | None
    seed: int
    engine: str
    shards: int | None
    strategy: str | None = None
    embeddings: str | None = None
    labelled_embeddings: str | None = None
    logits: bool = False
    ids: str | None = None
    class_names: str | None = None
    exclude: str | None = None
    include: str | None = None
    groups: str | None = None
    per_group: int = 1
    cost: str | None = None
    threads: int | None = None

    @property
    def uniform(self) -> bool:
        """True where every class is wanted equally often."""
        return self.target in {None, PAPER} and (self.shares, self.at_least, self.at_most) == (None,) * 3

    def check(self) -> None:
        """Reject options that contradict each other, before anything is read."""
        kinds = {"--target": self.target, "--shares": self.shares}
        kinds["--at-least/--at-most"] = self.at_least or self.at_most
        given = [option for option, value in kinds.items() if value is not None]
        if len(given) > 1:
            raise WrongUsage(f"{' and '.join(given)} say the same thing in different ways; give one of them")
        if self.strategy is not None:
            from ..strategies import STRATEGIES

            STRATEGIES[self.strategy]  # an unknown name lists the known ones
            if self.score is not None:
                raise WrongUsage("--strategy and --score exclude each other; give one of them")
        if self.score is not None and not _is_npy(self.score):
            from ..strategies.select import named_score

            named_score(self.score)


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """The files of a request, read."""

    proba: Matrix  # (N, C)
    counts: Float64Array | None  # (C,)
    arguments: dict[str, Any]  # what select and balance_path take in addition to proba and budget


def read(request: Request) -> Inputs:
    """Open the probabilities, then read what is given per class."""
    from ..matrix.open import open_proba

    proba = open_proba(request.proba)
    classes, score = proba.shape[1], request.score
    counts = None if request.counts is None else per_class(request.counts, "--counts", classes)
    arguments = {
        "score": read_scores(Path(score)) if score is not None and _is_npy(score) else score,
        "counts": counts,
        "target": _target(request, classes),
        "seed": request.seed,
        "engine": request.engine,
        "shards": request.shards,
    }
    return Inputs(proba, counts, arguments)


def choices(request: Request) -> dict[str, Any]:
    """What `select` takes in addition to what it shares with `balance_path`."""
    ids = None if request.ids is None else lines_of(request.ids, "--ids")
    return {
        "strategy": request.strategy, "embeddings": request.embeddings,
        "labelled_embeddings": request.labelled_embeddings, "logits": request.logits, "ids": ids,
        "class_names": None if request.class_names is None else lines_of(request.class_names, "--class-names"),
        "exclude": _images(request.exclude, "--exclude", ids), "include": _images(request.include, "--include", ids),
        "groups": None if request.groups is None else _values(request.groups, "--groups"),
        "per_group": request.per_group, "threads": request.threads,
        "cost": None if request.cost is None else _numbers(_values(request.cost, "--cost"), "--cost"),
    }  # fmt: skip


def lines_of(text: str, option: str) -> list[str]:
    """The lines of a text file, or what commas separate."""
    if not is_file(Path(text)):
        if "," not in text and Path(text).suffix.lower() in (".txt", ".csv", ".npy"):
            raise BadFile(no_file(Path(text)))
        return [part.strip() for part in text.split(",")]
    try:
        lines = Path(text).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadFile(f"{option}: {shown_path(Path(text))} cannot be read as text: {error}") from error
    return [line.strip() for line in lines if line.strip()]


def _values(text: str, option: str) -> Any:  # noqa: ANN401 - an array, or a list of text
    if not _is_npy(text):
        return lines_of(text, option)
    try:
        return read_npy(Path(text))
    except (OSError, ValueError) as error:
        raise BadFile(f"{option}: {shown_path(Path(text))} cannot be read: {error}") from error


def _numbers(values: Any, option: str) -> Any:  # noqa: ANN401 - as above
    try:
        return np.asarray(values, dtype=np.float64)
    except ValueError as error:
        raise BadFile(f"{option} must hold numbers: {error}") from error


def _images(text: str | None, option: str, ids: list[str] | None) -> object:
    """Ids, or row numbers where there are no ids; an .npy holds rows or booleans."""
    if text is None:
        return None
    values = _values(text, option)
    if ids is not None or not isinstance(values, list):
        return values
    try:
        return [int(value) for value in values]
    except ValueError as error:
        raise WrongUsage(
            f"{option} names {shown(values[0])}; without --ids give row numbers, or name the images"
        ) from error


def _is_npy(score: str) -> bool:
    return Path(score).suffix.lower() == ".npy"


def _target(request: Request, classes: int) -> object:
    from ..targets import Target

    if request.target == PAPER:
        return Target.paper()
    if request.target is not None:
        return Target.counts(per_class(request.target, "--target", classes))
    if request.shares is not None:
        return Target.shares(per_class(request.shares, "--shares", classes))
    if request.at_least is None and request.at_most is None:
        return None
    low, high = request.at_least, request.at_most
    return Target.ranges(
        None if low is None else limit_per_class(low, "--at-least", classes, missing=0.0),
        None if high is None else limit_per_class(high, "--at-most", classes, missing=np.inf),
    )


def select(request: Request, solving: dict[str, Any], out: Path | None, form: Form) -> None:
    """`tailwise select`; `solving` holds balance, gap and time_limit."""
    from ..inference.storage import knows_names, names_of
    from ..report.tables import PICK_SUFFIXES, check_writable, write_picks
    from ..solver.path import parse_balance
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
        batch = choose(inputs.proba, _budget(request), report=report, **solving, **inputs.arguments, **choices(request))
    names = names_of(request.proba, batch.indices) if named else None if batch.ids is None else list(map(str, batch))
    if out is not None:
        write_picks(batch, out, names)
    if form is Form.JSON:
        print(json.dumps(batch.to_dict() | ({"names": names} if names else {}), allow_nan=False))
    elif form is Form.SUMMARY:
        from .select_output import show_selection

        show_selection(batch, inputs, request, solving["balance"], out, names)
    elif out is None:
        print("\n".join(names or map(str, batch.indices.tolist())))


def _budget(request: Request) -> float:
    """A whole number of images, or with --cost any number."""
    if request.cost is not None:
        return request.budget
    if not request.budget.is_integer() or request.budget < 1:
        raise WrongUsage(
            f"--budget is {request.budget:g}; without --cost it must be a whole number of images, at least 1"
        )
    return int(request.budget)


def path(request: Request, lams: str | None, out: Path | None, form: Form) -> None:
    """`tailwise path`."""
    from ..report.tables import PATH_SUFFIXES, check_writable
    from ..strategies.select import balance_path

    request.check()
    values = None if lams is None else comma_list(lams, "--lams")
    if out is not None:
        check_writable(out, PATH_SUFFIXES)
    with progress(quiet=form is Form.QUIET) as report:
        inputs = read(request)
        swept = balance_path(inputs.proba, int(request.budget), lams=values, report=report, **inputs.arguments)
    if out is not None:
        _write_path(swept, out)
    if form is Form.JSON:
        print(json.dumps(swept.to_dict(), allow_nan=False))
    elif form is Form.SUMMARY:
        from .select_output import show_path

        show_path(swept, out)


def _write_path(swept: BalancePath, out: Path) -> None:
    from ..report.tables import write_sweep

    if out.suffix.lower() == ".csv":
        write_sweep(swept, out)
        return
    from ..report.figures import path_figure, write_figure

    write_figure(path_figure(swept), out)


# Numbers per class.


def per_class(text: str, option: str, classes: int, *, missing: float = 0.0) -> Float64Array:
    """One number per class; classes that pairs or a table leave out get `missing`.

    >>> per_class("5,3,0", "--counts", 3).tolist()
    [5.0, 3.0, 0.0]
    >>> per_class("1=4", "--at-least", 3).tolist()
    [0.0, 4.0, 0.0]
    """
    path = Path(text)
    if path.suffix.lower() in FILES:
        numbers = read_file(path, option, classes, missing)
    elif "=" in text:
        numbers = spread((_pair(part, option) for part in text.split(",")), option, classes, missing)
    else:
        numbers = np.array(comma_list(text, option))
    if numbers.shape != (classes,):
        held = f"{len(numbers)} numbers" if numbers.ndim == 1 else f"an array of shape {numbers.shape}"
        fault = BadFile if path.suffix.lower() in FILES else WrongUsage
        raise fault(f"{option} {shown_path(text)} gives {held}, but the probabilities have {classes} classes")
    return numbers


def limit_per_class(text: str, option: str, classes: int, *, missing: float) -> Float64Array:
    """The same, but a single number is used for all classes.

    >>> limit_per_class("30", "--at-most", 3, missing=np.inf).tolist()
    [30.0, 30.0, 30.0]
    """
    if Path(text).suffix.lower() not in FILES and "=" not in text and "," not in text:
        return np.full(classes, comma_list(text, option)[0])
    return per_class(text, option, classes, missing=missing)


def comma_list(text: str, option: str) -> list[float]:
    """Numbers between commas."""
    return [_number(part, option) for part in text.split(",")]


def read_file(path: Path, option: str, classes: int, missing: float) -> Float64Array:
    """Numbers per class from a file, by its suffix."""
    if not is_file(path):
        raise BadFile(f"{option}: {no_file(path)}")
    suffix = path.suffix.lower()
    try:
        if suffix == ".npy":
            return real_array(read_npy(path), str(path)).astype(np.float64)
        text = path.read_text(encoding="utf-8-sig")
        if suffix == ".json":
            return _json_list(text, path)
        return _csv_table(list(csv.reader(text.splitlines())), path, option, classes, missing)
    except BadFile:
        raise
    except WrongUsage as error:  # what would be wrong usage in a list is a bad line in a file
        raise BadFile(f"{error} (in {path})") from error
    except (OSError, ValueError, OverflowError, RecursionError, csv.Error) as error:
        raise BadFile(f"{option}: {path} cannot be read: {error}") from error


def read_scores(path: Path) -> np.ndarray:
    """One score per image from a .npy file; memory-mapped."""
    if not is_file(path):
        raise BadFile(f"--score: {no_file(path)}")
    try:
        return read_npy(path, mapped=True)
    except (OSError, ValueError) as error:
        raise BadFile(f"--score: {path} cannot be read as a plain .npy array: {error}") from error


def spread(pairs: Iterable[tuple[int, float]], option: str, classes: int, missing: float) -> Float64Array:
    """(class, number) pairs in any order → (C,)."""
    given: dict[int, float] = {}
    for cls, number in pairs:
        if not 0 <= cls < classes:
            raise WrongUsage(f"{option} names class {cls}, but classes run from 0 to {classes - 1}")
        if cls in given:
            raise WrongUsage(f"{option} names class {cls} twice")
        given[cls] = number
    return np.array([given.get(cls, missing) for cls in range(classes)])


def _csv_table(lines: list[list[str]], path: Path, option: str, classes: int, missing: float) -> Float64Array:
    """One number per line, or two columns, class and number, under a header."""
    rows = [(at, [cell.strip() for cell in row]) for at, row in enumerate(lines, 1) if any(map(str.strip, row))]
    if not rows:
        raise BadFile(f"{option}: {path} is empty; write one number per line, or columns class,count")
    width = len(rows[0][1])
    headed = not all(map(is_number, rows[0][1]))
    if width > 2 or (width == 2 and not headed):
        raise BadFile(f"{option}: {path} must hold one number per line, or columns class,count under that header")
    for at, row in rows[headed:]:
        if len(row) != width or not all(map(is_number, row)):
            raise BadFile(
                f"{option}: line {at} of {path} reads {shown(','.join(row))}; {width} number(s) were expected"
            )
    if width == 1:
        return np.array([float(row[0]) for _, row in rows[headed:]])
    return spread(((_class(row[0], at, path, option), float(row[1])) for at, row in rows[1:]), option, classes, missing)


def _class(text: str, line: int, path: Path, option: str) -> int:
    if not text.isdecimal() or len(text) > CLASS_DIGITS:
        raise BadFile(f"{option}: line {line} of {path} names class {shown(text)}; classes are numbered 0, 1, 2, …")
    return int(text)


def _json_list(text: str, path: Path) -> Float64Array:
    values = json.loads(text)
    plain = isinstance(values, list) and all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    if not plain:
        raise BadFile(f"{path} must hold a JSON list of numbers, one per class")
    return np.array(values, dtype=np.float64)


def _pair(text: str, option: str) -> tuple[int, float]:
    found = PAIR.match(text)
    if found is None:
        raise WrongUsage(f"{option}: {shown(text.strip())} is not of the form class=number, such as 7=41")
    return int(found[1]), _number(found[2], option)


def _number(text: str, option: str) -> float:
    if not is_number(text):
        wanted = "give a list such as 5,3,0, or a .csv, .npy or .json file"
        raise WrongUsage(f"{option}: {shown(text.strip())} is neither a number nor such a file; {wanted}")
    return float(text)


def is_number(text: str) -> bool:
    """Whether Python reads it as a number; "nan" and "inf" are numbers."""
    try:
        float(text)
    except ValueError:
        return False
    return True
