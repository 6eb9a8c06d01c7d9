"""What every learner shares: its interface and registry, how it reads inputs, how models are saved and calibrated.

A learner is settings and one method, `fit`; a model never changes once it is fitted. Learners from elsewhere need only
`fit` and `predict_proba`: `tailwise.adapters.sklearn.as_learner` fills in the rest. Models are stored as JSON and
safetensors, never as a pickle. Calibration fits a temperature on stratified folds of the labelled set.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from ..calibration import USUAL_SPREAD, Calibration, measure_trust, unseen_weight
from ..errors import BadFile, BadInput, MissingExtra
from ..files import write_whole
from ..inputs import Registry, check_settings
from ..pools.pool import InputArray, Inputs, Subset, read_all
from ..processes import one_blas_thread
from ..softmax import fit_temperature, shift_prior
from ..types import Float64Array, FloatArray, IntArray, Progress, no_progress

MOST_BYTES = 2 << 30  # above this a labelled set stays where it is
FORMAT = 1
SETTINGS_FILE, TENSORS_FILE = "model.json", "tensors-{}.safetensors"
KINDS = ("none", "temperature", "prior", "both")
FOLDS = 5


class Model(Protocol):
    """A fitted classifier over a fixed number of classes: a class without labels has a column all the same."""

    @property
    def classes(self) -> int:
        """C."""
        ...

    def predict_proba(self, inputs: Inputs) -> FloatArray:
        """Softmax of clean inputs, dropout off, (n, C); rows sum to 1."""
        ...

    def embed(self, inputs: Inputs) -> FloatArray:
        """What goes into the last layer, (n, d)."""
        ...

    def mc_proba(self, inputs: Inputs, passes: int, seed: int) -> FloatArray:
        """Softmax of `passes` passes with dropout on, everything else as in `predict_proba`, (T, n, C)."""
        ...

    def save(self, folder: Path) -> None:
        """Write safetensors and JSON into a folder, whole or not at all."""
        ...


class Learner(Protocol):
    """Settings of a way to learn."""

    @property
    def name(self) -> str:
        """What it is called in files and results."""
        ...

    def fit(
        self, inputs: Inputs, labels: IntArray, *, classes: int, seed: int,
        report: Progress = no_progress, checkpoint: Path | None = None,
    ) -> Model:  # fmt: skip
        """Learn from scratch; any class may be missing. With a `checkpoint` folder, long work goes on where it was."""
        ...

    def load(self, folder: Path) -> Model:
        """A model that was saved."""
        ...


LEARNERS: Registry[type[Learner]] = Registry("learner", "tailwise.learners")
Kind = TypeVar("Kind", bound="type[Any]")


def learner(cls: Kind) -> Kind:
    """Register a learner under its name."""
    LEARNERS.register(cls.name)(cls)
    return cls


def make_learner(name: str, **settings: Any) -> Learner:  # noqa: ANN401 - each learner names and types its own settings
    """Make a learner by name, or by "package.module:Class", which is imported: "sklearn.svm:SVC"."""
    kind: Any = learner_class(name)
    if is_dataclass(kind):
        check_settings(f"learner {name!r}", settings, (field.name for field in fields(kind)))
    try:
        made: Learner = kind(**settings)
    except TypeError as error:
        raise BadInput(f"cannot make the learner {name!r}: {error}") from error
    return made


def learner_class(name: str) -> type[Any]:
    """The class of a registered learner, or of one that is named by its module."""
    module, colon, kind = str(name).partition(":")
    if name in LEARNERS or not colon:
        return LEARNERS[name]
    try:
        found: Any = getattr(importlib.import_module(module), kind)
    except (ImportError, AttributeError, ValueError) as error:
        raise BadInput(f"cannot import the learner {name!r}: {error}; give 'package.module:Class'") from error
    if not isinstance(found, type) or not callable(getattr(found, "fit", None)):
        raise BadInput(f"{name!r} is not a learner; it must be a class with fit and predict_proba")
    imported: type[Any] = found
    return imported


def describe_learner(learner: object) -> dict[str, Any]:
    """The `name` and the `settings` with which `make_learner` makes the same learner; experiments keep no objects."""
    kind = type(learner)
    registered = next((name for name, one in LEARNERS.items() if one is kind), None)
    name = registered or f"{kind.__module__}:{kind.__qualname__}"
    what = f"the learner {kind.__name__} cannot be written down:"
    hint = "give the experiment the name of a class that makes it, or register one with @learner"
    try:
        same_kind = learner_class(name) is kind
    except BadInput as error:
        raise BadInput(f"{what} {error}; {hint}") from error
    if not same_kind or not callable(getattr(kind, "predict_proba" if ":" in name else "fit", None)):
        raise BadInput(f"{what} {name!r} is not a class with fit and predict_proba; {hint}")
    settings = _settings_of(learner)
    usual = {key: one.default for key, one in inspect.signature(kind).parameters.items()}
    changed = {key: value for key, value in settings.items() if key not in usual or not _same(usual[key], value)}
    plain = {key: value.item() if isinstance(value, np.generic) else value for key, value in changed.items()}
    for key, value in plain.items():
        if not all(
            isinstance(one, bool | int | float | str) for one in (value if isinstance(value, list) else [value])
        ):
            raise BadInput(f"{what} its setting {key!r} is of type {type(value).__name__}; {hint}")
    return {"name": name, "settings": plain}


def _same(one: object, other: object) -> bool:
    return one is other or repr(one) == repr(other)  # nan, and arrays, which == does not compare to one truth


def _settings_of(learner: object) -> dict[str, Any]:
    """The settings of an estimator, of a dataclass, or what a plain object holds."""
    if callable(getattr(learner, "get_params", None)):
        found: dict[str, Any] = learner.get_params(deep=False)  # type: ignore[attr-defined]
        return found
    if is_dataclass(learner):
        return {field.name: getattr(learner, field.name) for field in fields(learner) if field.init}
    return dict(vars(learner)) if hasattr(learner, "__dict__") else {}


# -- inputs -----------------------------------------------------------------------------------------------------------


def check_labels(inputs: Inputs, labels: IntArray, classes: int) -> None:
    """Reject a labelled set that cannot be fitted."""
    if labels.shape != (len(inputs),):
        raise BadInput(f"inputs {inputs.shape} and labels {labels.shape} differ in length; give one label per input")
    if not len(labels):
        raise BadInput("the labelled set is empty; label a first batch")
    if labels.min() < 0 or labels.max() >= classes:
        raise BadInput(f"labels run from {labels.min()} to {labels.max()}, but there are {classes} classes")


def fill_classes(proba: object, places: IntArray, classes: int) -> FloatArray:
    """Probabilities of the classes that were seen (n, S), in the columns of all classes (n, C), 0 in the others.

    >>> fill_classes(np.array([[0.25, 0.75]]), np.array([0, 2]), 3).tolist()
    [[0.25, 0.0, 0.75]]
    """
    given = proba if isinstance(proba, np.ndarray) else np.asarray(proba)
    if given.ndim != 2 or given.shape[1] != len(places):
        raise BadInput(
            f"predict_proba gives {given.shape} for {len(places)} classes; it must give one column for each of them"
        )
    full: FloatArray = np.zeros((len(given), classes), given.dtype if given.dtype.kind == "f" else np.float64)
    full[:, places] = given
    return full


def chunks(count: int, size: int) -> Iterator[IntArray]:
    """Indices 0..count-1 in order, `size` at a time.

    >>> [chunk.tolist() for chunk in chunks(5, 2)]
    [[0, 1], [2, 3], [4]]
    """
    for start in range(0, count, size):
        yield np.arange(start, min(start + size, count))


def in_memory(inputs: Inputs, most_bytes: int = MOST_BYTES) -> Inputs:
    """The inputs in memory where they fit there, so that decoding is done once and not once per epoch."""
    bytes_each = 1 if len(inputs.shape) == 4 else 4  # pixels, or features
    return read_all(inputs) if np.prod(inputs.shape, dtype=np.float64) * bytes_each <= most_bytes else inputs


def check_images(inputs: Inputs, who: str) -> None:
    """Reject anything but images (n, height, width, 3)."""
    if len(inputs.shape) != 4 or inputs.shape[3] != 3:
        raise BadInput(f"{who} needs images (n, height, width, 3), but the inputs have the shape {inputs.shape}")


def read_images(inputs: Inputs, indices: IntArray) -> InputArray:
    """Some images as uint8 (n, height, width, 3), contiguous and writable, as torch wants them."""
    images = inputs[indices]
    if images.dtype != np.uint8:
        raise BadInput(f"images must be uint8, 0 to 255, but are {images.dtype}")
    return np.require(images, requirements=["C", "W"])


# -- torch ------------------------------------------------------------------------------------------------------------


def need_torch(purpose: str) -> None:
    """Raise MissingExtra where torch is not installed."""
    try:
        import torch  # noqa: F401 - the question is whether it is there
    except ImportError as error:
        raise MissingExtra.named(purpose, "torch", "torch") from error


@contextmanager
def one_core() -> Iterator[None]:
    """Compute on one thread, whichever thread of Python asks: sums are added in the same order on every machine."""
    torch = sys.modules.get("torch")  # where it is not loaded no net is asked, and loading it takes seconds
    before = torch.get_num_threads() if torch else 1
    with one_blas_thread():
        try:
            if torch:
                torch.set_num_threads(1)
            yield
        finally:
            if torch:
                torch.set_num_threads(before)


# -- models on disk ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class StoredModel:
    """What is saved of a model; settings are plain JSON values."""

    kind: str
    settings: dict[str, Any]
    tensors: dict[str, np.ndarray]


def save_model(folder: Path, stored: StoredModel) -> None:
    """Write into a folder, which is made if need be; a model that was there is replaced."""
    from safetensors.numpy import save

    content = save({name: np.array(tensor, order="C") for name, tensor in stored.tensors.items()})
    checksum = _checksum(content, stored.settings)
    page = {"format": FORMAT, "kind": stored.kind, "settings": stored.settings, "sha256": checksum}
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadFile(f"cannot make the folder {folder}: {error.strerror or error}") from error
    path = folder / TENSORS_FILE.format(checksum[:16])
    write_whole(path, content)
    write_whole(folder / SETTINGS_FILE, (json.dumps(page, indent=2, allow_nan=False) + "\n").encode())
    for other in folder.glob(TENSORS_FILE.format("*")):
        if other != path:
            other.unlink(missing_ok=True)


def load_model(folder: Path, kind: str) -> StoredModel:
    """Read a model of this kind; settings and tensors are checked against their checksum."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    page = _read_page(folder, kind)
    path = folder / TENSORS_FILE.format(page["sha256"][:16])
    content = _read(path)
    if _checksum(content, page["settings"]) != page["sha256"]:
        raise damaged(folder, "the checksum is not the one that was written")
    try:
        return StoredModel(kind, page["settings"], load(content))
    except SafetensorError as error:
        raise damaged(folder, f"{path.name} is not a safetensors file ({error})") from error


def damaged(folder: Path, what: str) -> BadFile:
    """The error for a model whose parts do not fit together."""
    return BadFile(f"the model in {folder} is damaged: {what}; train it again")


def _checksum(content: bytes, settings: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode() + b"\0" + content).hexdigest()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadFile(f"cannot read {path}: {error.strerror or error}") from error


def _read_page(folder: Path, kind: str) -> dict[str, Any]:
    path = folder / SETTINGS_FILE
    content = _read(path)
    try:
        page = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise BadFile(f"{path} is not valid JSON: {error}") from error
    if not isinstance(page, dict) or page.get("format") != FORMAT:
        raise BadFile(f"{path} is not a model of format {FORMAT}, which is the one that this version reads")
    if page.get("kind") != kind:
        raise BadFile(f"{path} holds a {page.get('kind')!r} model, but a {kind!r} model was asked for")
    checksum = page.get("sha256")
    if not isinstance(checksum, str) or len(checksum) != 64 or not set(checksum) <= set("0123456789abcdef"):
        raise damaged(folder, f"{SETTINGS_FILE} has no valid checksum")
    if not isinstance(page.get("settings"), dict):
        raise damaged(folder, f"{SETTINGS_FILE} has no settings")
    return page


# -- calibration ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class OutOfFold:
    """Softmax of labelled images by models that have not learnt from them."""

    rows: IntArray  # (m,) of the labelled set, ascending; an image that is alone in its class is not among them
    proba: FloatArray  # (m, C)
    folds: IntArray  # (m,) the fold that each was held out in


def fit_calibrated(
    learner: Learner, inputs: Inputs, labels: IntArray, *, classes: int, kind: str = "both", folds: int = FOLDS,
    seed: int = 0, report: Progress = no_progress, drawn: IntArray | None = None,
) -> Calibration:  # fmt: skip
    """Fit the calibration of a learner on its labelled set.

    A temperature costs `folds` fits on nearly the whole set; the prior costs none. Where labels are too few to
    hold any out, the temperature is 1. With a temperature, classes without labels get a share of the probabilities,
    estimated from `drawn`, the counts (C,) without labels that were found by looking for their class; None: all.
    """
    if kind not in KINDS:
        raise BadInput(f"calibration is {kind!r}; it must be one of {', '.join(KINDS)}")
    check_labels(inputs, labels, classes)
    if kind == "none":
        return Calibration()
    trained = trained_shares(learner, labels, classes)
    if kind == "prior":
        return Calibration(kind, trained=trained)
    held = out_of_fold(learner, inputs, labels, classes=classes, folds=folds, seed=seed, report=report)
    proba, truth = as_of_the_whole_set(held, learner, labels, trained), labels[held.rows]
    temperature = fit_temperature(proba, truth, shares=trained, spread=USUAL_SPREAD)
    plain = Calibration("temperature", temperature, trained)
    counts, checked = np.bincount(labels, minlength=classes), plain.apply(proba)
    weight = unseen_weight(counts, checked, drawn)
    shown = unseen_weight(counts, checked, drawn, most=float(np.mean(counts == 0)))
    trust = measure_trust(replace(plain, unseen=weight).apply(proba), truth)
    return Calibration(kind, temperature, trained, unseen=weight, shown_unseen=shown, trust=trust)


def as_of_the_whole_set(held: OutOfFold, learner: Learner, labels: IntArray, trained: Float64Array) -> FloatArray:
    """What held-out rows would get from a model with the class shares of the whole set, (m, C).

    A fold takes an image from the very class that it is then asked about: of two labels of a class one is left, and the
    model expects the class half as often. Without this, two labels per class look like a model that is always wrong.
    Where labels were drawn at random, though, a class that has two may well be rarer than that: the shift is made whole
    where all classes have equally many labels, and half where counts vary as much as random ones (variance ≥ mean).
    """
    counts = np.bincount(labels, minlength=len(trained))
    whole = 1 - min(float(counts.var() / counts.mean()), 1.0) / 2
    proba = held.proba.copy()
    for fold in np.unique(held.folds):
        mine = held.folds == fold
        rest = trained_shares(learner, np.delete(labels, held.rows[mine]), len(trained))
        proba[mine] = shift_prior(proba[mine], rest, trained**whole * rest ** (1 - whole))
    return proba


def out_of_fold(
    learner: Learner, inputs: Inputs, labels: IntArray, *, classes: int, folds: int = FOLDS, seed: int = 0,
    report: Progress = no_progress,
) -> OutOfFold:  # fmt: skip
    """Predict each fold by a model that is fitted on the others."""
    check_labels(inputs, labels, classes)
    places = stratified_folds(labels, folds, np.random.default_rng(seed))
    used = np.unique(places[places >= 0])
    proba = np.zeros((len(labels), classes), np.float32)
    for number, fold in enumerate(used):

        def fold_report(done: float, what: str, number: int = number) -> None:
            report((number + done) / len(used), f"calibrating, fold {number + 1} of {len(used)}: {what}")

        rest, held = np.flatnonzero(places != fold), np.flatnonzero(places == fold)
        learnt, asked = (
            inputs[rows] if isinstance(inputs, np.ndarray) else Subset(inputs, rows) for rows in (rest, held)
        )
        model = learner.fit(learnt, labels[rest], classes=classes, seed=seed, report=fold_report)
        proba[held] = model.predict_proba(asked)
    rows = np.flatnonzero(places >= 0).astype(np.int64)
    return OutOfFold(rows, proba[rows], places[rows])


def stratified_folds(labels: IntArray, folds: int, rng: np.random.Generator) -> IntArray:
    """The fold of each image, (n,): every class spread as evenly as possible, and folds of nearly equal size.

    A class never loses its last image to a fold: one with fewer images than folds is spread over so many folds, and an
    image that is alone in its class is in none (−1).

    >>> sorted(stratified_folds(np.array([0, 0, 0, 0, 1]), 2, np.random.default_rng(0)).tolist())
    [-1, 0, 0, 1, 1]
    """
    if folds < 2:
        raise BadInput(f"folds is {folds}; it must be a whole number above 1")
    places = np.full(len(labels), -1, dtype=np.int64)
    placed = 0
    for cls in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == cls))
        if len(members) > 1:
            places[members] = (placed + np.arange(len(members))) % folds  # goes on where the last class ended
            placed += len(members)
    return places


def trained_shares(learner: Learner, labels: IntArray, classes: int) -> Float64Array:
    """The class shares that a model learns under, (C,): those of its labels, or equal ones where the loss is balanced.

    A class without a label has the share 0.
    """
    counts = np.bincount(labels, minlength=classes).astype(np.float64)
    own = getattr(learner, "class_weight", None) or getattr(learner, "head_settings", {}).get("class_weight")
    weighed = (counts > 0).astype(np.float64) if own == "balanced" else counts
    shares: Float64Array = weighed / weighed.sum()
    return shares
