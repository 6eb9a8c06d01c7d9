"""What users give: arrays, numbers and names in; checked numpy arrays, plain numbers and registered things out.

Every public function reads its arguments here, so that all of them accept and reject the same things. Nothing but numpy
is imported: tensors, tables and series are known by what they can do.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import suppress
from numbers import Real
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from .errors import BadInput, UnknownName
from .types import BoolArray, Float64Array, IntArray

LARGEST_SCORE = 1e100  # scores, λ and features: their squares, and sums of a billion, stay far from infinity
LARGEST_COUNT = 1e15  # images of a class: up to here float64 counts exactly
MOST_CLASSES = 1 << 24  # a block of 64 rows of so many takes 8 GB
MOST_PROBABLE = 1.02  # a probability of 1, rounded in bfloat16 and then some
SHOWN_LETTERS = 80
MASKABLE = (np.ma.MaskedArray, list, tuple)
OTHER_KINDS = {"U": "text", "T": "text", "S": "bytes", "M": "dates", "m": "time spans", "V": "records"}


# -- numbers ----------------------------------------------------------------------------------------------------------


def whole_number(value: object, name: str, least: int = 0, but: str = "", most: float = np.inf) -> int:
    """An int from `least` to `most`; `but` names what else may be given.

    >>> whole_number(2.5, "budget")
    Traceback (most recent call last):
    tailwise.errors.BadInput: budget is 2.5; it must be a whole number ≥ 0
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise BadInput(f"{name} is {shown(value)}; it must be a whole number ≥ {least}{but}")
    if value > most:
        raise BadInput(f"{name} is {shown(value)}; it must be at most {most:g}")
    return int(value)


def real_number(value: object, name: str, wanted: str = "a number ≥ 0", most: float = LARGEST_SCORE) -> float:
    """A float between 0 and `most`, both included.

    >>> real_number("a", "gap")
    Traceback (most recent call last):
    tailwise.errors.BadInput: gap is 'a'; it must be a number ≥ 0
    """
    try:
        number = float(value) if isinstance(value, Real) and not isinstance(value, bool) else np.nan
    except OverflowError:  # an int of more than 308 digits
        number = np.inf if value > 0 else -np.inf  # type: ignore[operator] # an int
    if not number >= 0:  # NaN is not
        raise BadInput(f"{name} is {shown(value)}; it must be {wanted}")
    if number > most:
        raise BadInput(f"{name} is {shown(value)}; it must be {wanted}, and at most {most:g}")
    return number


def listed(values: object, name: str, wanted: str) -> list[Any]:
    """A list from anything that can be gone through, but for text.

    >>> listed("owl", "classes", "a list of names")
    Traceback (most recent call last):
    tailwise.errors.BadInput: classes is 'owl'; give a list of names
    """
    with suppress(Exception):  # an array without dimensions, a tensor without data
        plain = values.tolist() if hasattr(values, "tolist") else values
        if isinstance(plain, Iterable) and not isinstance(plain, str | bytes | bytearray):
            return list(plain)
    raise BadInput(f"{name} is {shown(values)}; give {wanted}")


def shown(value: object) -> str:
    """A value in an error message: its repr, cut where it is long, or its type where it has none.

    >>> shown("abc"), shown(10**5000)
    ("'abc'", 'an int that is too long to show')
    """
    try:
        text = " ".join(repr(value).split())
    except Exception:  # a number with too many digits, or an object whose own repr fails
        kind = type(value).__name__
        return f"a{'n' if kind[0] in 'aeiou' else ''} {kind} that is too long to show"
    return text if len(text) <= SHOWN_LETTERS else f"{text[:SHOWN_LETTERS]}…"


# -- arrays -----------------------------------------------------------------------------------------------------------


def real_array(values: object, name: str) -> NDArray[Any]:
    """An array of booleans, integers or floats, without a copy where there is one already.

    Tensors are detached and moved to memory; bfloat16 becomes float32. A masked array is accepted if nothing is masked.

    >>> real_array([1 + 2j], "score")
    Traceback (most recent call last):
    tailwise.errors.BadInput: score must be real numbers, but holds complex128; give its real part or absolute value
    """
    array = _as_numpy(values, name)
    if array.dtype.kind == "O":
        array = _from_objects(array, values, name)
    if array.dtype.kind == "c":
        raise BadInput(f"{name} must be real numbers, but holds {array.dtype}; give its real part or absolute value")
    if array.dtype.kind not in "biuf":
        raise BadInput(f"{name} must be numbers, but holds {OTHER_KINDS.get(array.dtype.kind, array.dtype.name)}")
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def per_row(values: object, name: str, size: int) -> Float64Array:
    """One number for each image, (size,), none of them too large to be added up."""
    array = real_array(values, name)
    if array.shape != (size,):
        raise BadInput(f"{name} must have {size} entries, one per image, but has shape {array.shape}")
    numbers = array.astype(np.float64, copy=False)
    _check_entries(numbers, np.isfinite(numbers), f"{name} must be finite")
    _check_entries(numbers, np.abs(numbers) <= LARGEST_SCORE, f"{name} must lie between ±{LARGEST_SCORE:g}")
    return numbers


def softmax_rows(values: object, name: str) -> NDArray[Any]:
    """Probabilities (…, C) as floats: finite, not below 0, and not a row of zeros."""
    array = real_array(values, name)
    array = array if array.dtype.kind == "f" else array.astype(np.float64)
    if array.ndim < 1 or array.shape[-1] == 0:
        raise BadInput(f"{name} must have a column for each class, but has shape {array.shape}")
    if array.size and not (array.min() >= 0 and array.max() <= MOST_PROBABLE):  # NaN is neither
        raise BadInput(f"{name} must hold probabilities, from 0 to 1; if these are logits, apply softmax first")
    if not array.any(axis=-1).all():
        raise BadInput(f"{name} holds a row of zeros; each row must sum to 1")
    return array


def class_labels(
    values: object, name: str, size: int, classes: int, names: tuple[Hashable, ...] | None = None
) -> IntArray:
    """The class of each row, (size,), from 0 to `classes` − 1; with `names`, by these too.

    >>> class_labels(["owl", "kite"], "labels", 2, 2, ("kite", "owl")).tolist()
    [1, 0]
    """
    if names is not None:
        values = _numbered(values, name, names)
    array = real_array(values, name)
    if array.shape != (size,) or (array.dtype.kind not in "iu" and size):
        raise BadInput(f"{name} must be {size} whole numbers, but is {array.dtype} of shape {array.shape}")
    _check_entries(array, (array >= 0) & (array < classes), f"{name} must be classes from 0 to {classes - 1}")
    return array.astype(np.int64, copy=False)


def _numbered(values: object, name: str, names: tuple[Hashable, ...]) -> object:
    """Class names as class numbers; anything that is not a list of names is left as it is."""
    places = {one: number for number, one in enumerate(names)}
    given = listed(values, name, "a list of classes")
    if not all(isinstance(one, Hashable) and one in places for one in given):
        unknown = next((one for one in given if isinstance(one, str) and one not in places), None)
        if unknown is not None:
            raise BadInput(f"{name} names class {shown(unknown)}, but {_known(names, len(names))}")
        return values
    return np.array([places[one] for one in given], dtype=np.int64)


def is_bfloat16(values: object) -> bool:
    """Whether a tensor or an array holds bfloat16, which numpy itself does not know."""
    return str(getattr(values, "dtype", "")).endswith("bfloat16")


def _check_entries(array: NDArray[Any], good: BoolArray, rule: str) -> None:
    if not good.all():
        bad = int(np.flatnonzero(~good)[0])
        raise BadInput(f"{rule}, but entry {bad} is {array[bad]}")


def _as_numpy(values: object, name: str) -> NDArray[Any]:
    """An array of any dtype, from whatever can be made one; nothing that is masked gets through."""
    if isinstance(values, str | bytes | bytearray | memoryview):
        raise BadInput(f"{name} must be numbers, but is {shown(values)}")
    if _holds_masked(values):
        raise BadInput(f"{name} holds masked entries; leave these rows out, or put numbers there with .filled(…)")
    try:
        return np.asarray(_plain(values))
    except MemoryError:
        raise
    except Exception as error:  # a foreign object's own conversion may raise anything
        raise BadInput(f"{name} cannot be read as an array of numbers: {error}") from error


def _plain(values: Any) -> Any:  # noqa: ANN401 - tensors of any library
    """Tensors as numpy arrays, also those in a list."""
    if isinstance(values, list | tuple) and any(_is_tensor(one) for one in values):
        return [_plain(one) for one in values]
    if is_bfloat16(values):
        values = values.float() if _is_tensor(values) else values.astype(np.float32)
    return values.numpy(force=True) if _is_tensor(values) else values


def _is_tensor(values: object) -> bool:
    return callable(getattr(values, "detach", None)) and callable(getattr(values, "numpy", None))


def _holds_masked(values: object, levels: int = 3) -> bool:
    """Whether something is masked in an array, or in a list of such; nothing is read from lists of more levels."""
    if isinstance(values, np.ma.MaskedArray):
        return bool(np.ma.is_masked(values))
    return (
        levels > 0
        and isinstance(values, list | tuple)
        and any(isinstance(one, MASKABLE) and _holds_masked(one, levels - 1) for one in values)
    )


def _from_objects(array: NDArray[Any], given: object, name: str) -> NDArray[Any]:
    """An array of Python objects as floats, where all of them are real numbers, or lists of them."""
    if array.ndim == 0:
        raise BadInput(f"{name} must be an array of numbers, but is {shown(given)}")
    if array.size and all(isinstance(one, list | tuple | np.ndarray) for one in array.flat):
        try:  # a column of lists, as pandas, polars and pyarrow hold a matrix
            return real_array(np.stack([np.asarray(one) for one in array.flat]), name)
        except ValueError as error:
            raise BadInput(f"{name} holds lists of different lengths; each image needs one number per class") from error
    for one in array.flat:
        if not isinstance(one, Real):
            column = "; give one column of the data set, such as dataset['proba']" if isinstance(one, dict) else ""
            raise BadInput(f"{name} must be numbers, but holds {shown(one)}{column}")
    try:
        return array.astype(np.float64)
    except (OverflowError, TypeError, ValueError) as error:
        raise BadInput(f"{name} holds a number that float64 cannot hold: {error}") from error


# -- names ------------------------------------------------------------------------------------------------------------


def class_names(proba: object) -> tuple[Hashable, ...] | None:
    """The column names of a table (pandas, polars, pyarrow); None without names, or with just 0, 1, 2 and so on."""
    columns = getattr(proba, "column_names", getattr(proba, "columns", None))
    if not isinstance(columns, Iterable):
        return None
    names = tuple(columns)
    return None if names == tuple(range(len(names))) else names


def checked_names(names: object, proba: object, classes: int) -> tuple[Hashable, ...] | None:
    """The names of the classes: those that are given, or the columns of a table; each once."""
    if names is None:
        columns = class_names(proba)
        return columns if columns is not None and len(columns) == classes else None  # one column may hold lists
    given = tuple(listed(names, "class_names", "a list of names"))
    if len(given) != classes:
        raise BadInput(f"class_names has {len(given)} entries, but there are {classes} classes")
    _check_unique(given, "class_names")
    return given


def row_ids(ids: object, proba: object, size: int) -> tuple[Hashable, ...] | None:
    """What the images are called: the ids that are given, or the index of a pandas table; None without any."""
    if ids is None:
        index = _row_labels(proba)
        return tuple(index) if index is not None and index.is_unique else None
    given = tuple(listed(ids, "ids", "a list of ids"))
    if len(given) != size:
        raise BadInput(f"ids has {len(given)} entries, but the pool has {size} images")
    _check_unique(given, "ids")
    return given


def _check_unique(values: tuple[Hashable, ...], name: str) -> None:
    seen: set[Hashable] = set()
    for value in values:
        if not isinstance(value, Hashable):
            raise BadInput(f"{name} holds {shown(value)}, which cannot be an id; give text or numbers")
        if value in seen:
            raise BadInput(f"{name} holds {shown(value)} twice; each must be there once")
        seen.add(value)


def in_row_order(values: object, proba: object, name: str) -> object:
    """A Series with the index of a DataFrame of probabilities, brought into its order; anything else as it is."""
    given, rows = _row_labels(values), _row_labels(proba)
    if given is None or rows is None or given.equals(rows):
        return values
    if len(given) == len(rows) and given.is_unique and rows.is_unique and given.isin(rows).all():
        series: Any = values
        return series.reindex(rows)
    raise BadInput(
        f"{name} and the probabilities have an index each, and they name different rows; "
        f"give {name} the index of the probabilities, or give .to_numpy() of it to go by position"
    )


def per_class(
    values: object, name: str, classes: int, names: tuple[Hashable, ...] | None = None, *,
    missing: float = 0.0, single: bool = False, infinite: bool = False,
) -> Float64Array:  # fmt: skip
    """A number ≥ 0 for each class, (C,): an array, a dict or a Series, the latter two by class name or number.

    Classes that a dict or a Series leaves out get `missing`; with `single`, one number may stand for all classes.

    >>> per_class({"owl": 5}, "counts", 2, ("kite", "owl")).tolist()
    [0.0, 5.0]
    """
    labels = _row_labels(values)
    if isinstance(values, Mapping):
        numbers = _placed(list(values), list(values.values()), name, classes, names, missing)
    elif labels is not None:
        numbers = _placed(list(labels), values, name, classes, names, missing)
    else:
        numbers = real_array(values, name).astype(np.float64)
        if single and numbers.ndim == 0:
            numbers = np.full(classes, float(numbers))
    if numbers.shape != (classes,):
        raise BadInput(f"{name} must have {classes} entries, for {classes} classes, but has shape {numbers.shape}")
    # NaN fails every comparison. An infinite number is left as "no limit" where that makes sense.
    good = (numbers >= 0) & ((numbers <= LARGEST_COUNT) | (infinite & (numbers == np.inf)))
    if not good.all():
        bad = int(np.flatnonzero(~good)[0])
        most = f" and at most {LARGEST_COUNT:g}" if numbers[bad] > 0 else ""
        raise BadInput(f"{name} of class {bad} is {numbers[bad]:g}; it must be a number ≥ 0{most}")
    return numbers


def _row_labels(values: Any) -> Any:  # noqa: ANN401 - a pandas.Index, which is never imported
    """The index of a pandas Series or DataFrame; None without one, and for the numbers that pandas gives by itself."""
    index: Any = getattr(values, "index", None)
    if not hasattr(index, "is_unique"):  # a list has a method of that name
        return None
    plain = type(index).__name__ == "RangeIndex" and (index.start, index.step) == (0, 1)
    return None if plain else index


def _placed(
    keys: list[Hashable], values: object, name: str, classes: int, names: tuple[Hashable, ...] | None, missing: float
) -> Float64Array:
    """Numbers by class name or class number → (C,)."""
    numbers = real_array(values, name)
    if numbers.shape != (len(keys),):
        raise BadInput(f"{name} must have one number for each class, but has shape {numbers.shape}")
    places = dict(zip(names or range(classes), range(classes), strict=True))
    if len(places) < classes:
        raise BadInput(f"{name} goes by class names, but two columns of the probabilities have the same name")
    if names and not any(isinstance(one, int | np.integer) for one in names):
        places |= {number: number for number in range(classes)}
    result, seen = np.full(classes, missing), set[int]()
    for key, number in zip(keys, numbers, strict=True):
        at = None if isinstance(key, bool | np.bool_) else places.get(key)
        if at is None:
            raise BadInput(f"{name} names class {shown(key)}, but {_known(names, classes)}")
        if at in seen:
            raise BadInput(f"{name} names class {shown(key)} twice; give each class one number")
        seen.add(at)
        result[at] = number
    return result


def _known(names: tuple[Hashable, ...] | None, classes: int) -> str:
    if names:
        listed = ", ".join(map(shown, names[:5])) + (", …" if classes > 5 else "")
        return f"the columns of the probabilities are {listed}"
    return (
        f"classes run from 0 to {classes - 1}: the probabilities have no class names; "
        "give them as a DataFrame, or an array in the order of their columns"
    )


# -- registered names ------------------------------------------------------------------------------------------------

Item = TypeVar("Item")


class Registry(dict[str, Item]):
    """Names → items, in the order of registration; other packages add theirs as entry points of the `group`.

    >>> colours: Registry[int] = Registry("colour")
    >>> _ = colours.register("red")(1)
    >>> colours["red"]
    1
    >>> colours["rad"]
    Traceback (most recent call last):
    tailwise.errors.UnknownName: no colour is called 'rad'; did you mean 'red'? Known: red
    """

    def __init__(self, kind: str, group: str = "") -> None:
        super().__init__()
        self.kind, self.group = kind, group

    def register(self, name: str) -> Callable[[Item], Item]:
        """A decorator that registers a function or a class under a name."""

        def keep(item: Item) -> Item:
            if dict.__contains__(self, name):
                raise ValueError(f"a {self.kind} called {name!r} is registered already; choose another name")
            self[name] = item
            return item

        return keep

    def load_plugins(self) -> None:
        """Import the modules that other packages name, once; one that cannot be imported gives a warning."""
        from importlib.metadata import entry_points

        for point in entry_points(group=self.group) if self.group else ():
            try:
                point.load()
            except (Exception, SystemExit) as error:  # whatever it is, all that does not need the plugin goes on
                owner = f"the plugin {point.value!r} of the package {point.dist.name if point.dist else '?'!r}"
                warnings.warn(f"{owner} cannot be imported: {type(error).__name__}: {error}", stacklevel=2)
        self.group = ""

    def __contains__(self, name: object) -> bool:
        if not dict.__contains__(self, name):  # only then: the search for plugins takes milliseconds
            self.load_plugins()
        return dict.__contains__(self, name)

    def __getitem__(self, name: str) -> Item:
        if not isinstance(name, str):
            raise UnknownName(f"{shown(name)} is not the name of a {self.kind}. Known: {', '.join(self)}")
        if name in self:
            return super().__getitem__(name)
        near = difflib.get_close_matches(name, self, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        raise UnknownName(f"no {self.kind} is called {shown(name)}{hint} Known: {', '.join(self)}")


def check_settings(owner: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Reject a setting that its owner does not have, and list those that it has.

    >>> check_settings("pool 'digits'", ["size"], [])
    Traceback (most recent call last):
    tailwise.errors.BadInput: pool 'digits' has no setting 'size'; it takes no settings
    """
    names = list(known)
    if unknown := sorted(set(given) - set(names)):
        hint = f"its settings are {', '.join(names)}" if names else "it takes no settings"
        raise BadInput(f"{owner} has no setting {shown(unknown[0])}; {hint}")


def many(count: int, one: str, more: str = "") -> str:
    """A number of things; the verb may come along where it changes too.

    >>> many(1, "image"), many(2000, "image"), many(0, "class", "classes"), many(1, "file was", "files were")
    ('1 image', '2,000 images', '0 classes', '1 file was')
    """
    return f"{count:,} {one if count == 1 else more or f'{one}s'}"
