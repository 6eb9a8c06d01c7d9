"""What a learner is: labelled inputs in, a model out, which says everything a strategy may ask for.

A `Learner` is settings and one method; a `Model` is what it has learnt and never changes: asking it leaves no trace.

Models on the disk: settings and tensors in, model.json and one safetensors file out, and back; never a pickle.

The tensors are named by a checksum and model.json, written last, names it: a crash leaves the old model or the new.

Says what to install where torch is missing: a purpose in, nothing or `MissingExtra` out.

Answers that do not depend on how many cores there are: BLAS and torch on one thread each for a while.

Inputs batch by batch: what fits is held in memory, what does not is read when its turn comes.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np

from ..errors import BadFile, BadInput, MissingExtra
from ..files import write_whole
from ..inputs import Registry, check_settings
from ..pools.pool import InputArray, Inputs, read_all
from ..processes import one_blas_thread
from ..types import FloatArray, IntArray, Progress, unheard


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

    name: ClassVar[str]

    def fit(
        self, inputs: Inputs, labels: IntArray, *, classes: int, seed: int,
        report: Progress = unheard, checkpoint: Path | None = None,
    ) -> Model:  # fmt: skip
        """Learn from scratch; any class may be missing. With a `checkpoint` folder, long work goes on where it was."""
        ...

    def load(self, folder: Path) -> Model:
        """A model that was saved."""
        ...


LEARNERS: Registry[type[Learner]] = Registry("learner")
Kind = TypeVar("Kind", bound="type[Any]")


def learner(cls: Kind) -> Kind:
    """Register a learner under its name."""
    LEARNERS.register(cls.name)(cls)
    return cls


def make_learner(name: str, **settings: Any) -> Learner:  # noqa: ANN401 - each learner names and types its own settings
    """Make a learner by name."""
    kind: Any = LEARNERS[name]
    check_settings(f"learner {name!r}", settings, (field.name for field in fields(kind)))
    made: Learner = kind(**settings)
    return made


def check_labels(inputs: Inputs, labels: IntArray, classes: int) -> None:
    """Refuse a labelled set that nothing can be learnt from."""
    if labels.shape != (len(inputs),):
        raise BadInput(f"inputs {inputs.shape} and labels {labels.shape} do not belong together")
    if not len(labels):
        raise BadInput("nothing to learn from: the labelled set is empty; label a first batch")
    if labels.min() < 0 or labels.max() >= classes:
        raise BadInput(f"labels run from {labels.min()} to {labels.max()}, but there are {classes} classes")


FORMAT = 1
SETTINGS_FILE = "model.json"


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
    write_whole(_tensor_file(folder, checksum), content)
    write_whole(folder / SETTINGS_FILE, (json.dumps(page, indent=2, allow_nan=False) + "\n").encode())
    for other in folder.glob("tensors-*.safetensors"):
        if other != _tensor_file(folder, checksum):
            other.unlink(missing_ok=True)


def load_model(folder: Path, kind: str) -> StoredModel:
    """Read a model of this kind; settings and tensors are checked against their checksum."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    page = _read_page(folder, kind)
    path = _tensor_file(folder, page["sha256"])
    content = _read(path)
    if _checksum(content, page["settings"]) != page["sha256"]:
        raise damaged(folder, "the checksum is not the one that was written")
    try:
        return StoredModel(kind, page["settings"], load(content))
    except SafetensorError as error:
        raise damaged(folder, f"{path.name} is no safetensors file ({error})") from error


def damaged(folder: Path, what: str) -> BadFile:
    """The error for a model whose parts do not fit together."""
    return BadFile(f"the model in {folder} is damaged: {what}; train it again")


def _checksum(content: bytes, settings: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode() + b"\0" + content).hexdigest()


def _tensor_file(folder: Path, checksum: str) -> Path:
    return folder / f"tensors-{checksum[:16]}.safetensors"


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
        raise BadFile(f"{path} is no JSON: {error}") from error
    if not isinstance(page, dict) or page.get("format") != FORMAT:
        raise BadFile(f"{path} is not a model of format {FORMAT}, which is the one that this version reads")
    if page.get("kind") != kind:
        raise BadFile(f"{path} holds a {page.get('kind')!r} model, but a {kind!r} model was asked for")
    checksum = page.get("sha256")
    if not isinstance(checksum, str) or len(checksum) != 64 or not set(checksum) <= set("0123456789abcdef"):
        raise damaged(folder, f"{SETTINGS_FILE} names no checksum")
    if not isinstance(page.get("settings"), dict):
        raise damaged(folder, f"{SETTINGS_FILE} has no settings")
    return page


def need_torch(purpose: str) -> None:
    """Refuse in plain words where torch is not installed."""
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


MOST_BYTES = 2 << 30  # above this a labelled set stays where it is


def chunks(count: int, size: int) -> Iterator[IntArray]:
    """Indices 0..count-1 in order, `size` at a time.

    >>> [chunk.tolist() for chunk in chunks(5, 2)]
    [[0, 1], [2, 3], [4]]
    """
    for start in range(0, count, size):
        yield np.arange(start, min(start + size, count))


def held(inputs: Inputs, most_bytes: int = MOST_BYTES) -> Inputs:
    """The inputs in memory where they fit there, so that decoding is done once and not once per epoch."""
    bytes_each = 1 if is_images(inputs) else 4
    return read_all(inputs) if np.prod(inputs.shape, dtype=np.float64) * bytes_each <= most_bytes else inputs


def is_images(inputs: Inputs) -> bool:
    """Pixels, rather than features."""
    return len(inputs.shape) == 4


def check_images(inputs: Inputs, who: str) -> None:
    """Refuse anything but images (n, height, width, 3)."""
    if not is_images(inputs) or inputs.shape[3] != 3:
        raise BadInput(f"{who} looks at images (n, height, width, 3), but the inputs are {inputs.shape}")


def read_images(inputs: Inputs, indices: IntArray) -> InputArray:
    """Some images as uint8 (n, height, width, 3), contiguous and writable, as torch wants them."""
    images = inputs[indices]
    if images.dtype != np.uint8:
        raise BadInput(f"images must be uint8, 0 to 255, but are {images.dtype}")
    return np.require(images, requirements=["C", "W"])
