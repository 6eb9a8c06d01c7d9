"""PyTorch: `predict(model, loader)` gives `Predictions`: probabilities, embeddings of a layer, dropout passes.

Your model is left as it was: the mode of every layer, its device and the state of the random generators.
"""

from __future__ import annotations

import difflib
import inspect
import io
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import BadFile, BadInput, MissingExtra
from ..files import usable
from ..inputs import shown, whole_number
from ..types import IntArray, Predictions
from . import with_progress

try:
    import torch
except ImportError as error:
    raise MissingExtra.named("tailwise.adapters.torch", "torch", "torch") from error
from torch import Tensor, nn
from torch.utils import data

from ..learners.nets import DROPOUT, global_seed

LABEL_KEYS = ("labels", "label", "target", "targets", "y")  # of a batch that is a dict; never given to the model
DROPOUT_LAYERS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)
RANDOM_ORDER = (data.RandomSampler, data.SubsetRandomSampler, data.WeightedRandomSampler)
LAST = "last"
SUM_ERROR = 1e-2  # of a row of probabilities, in bfloat16 too
SURE = 4  # rows that sum to 1: fewer may do so by chance
HEADER = 128  # bytes before the first row of a .npy file

Rows = NDArray[np.floating[Any]]


def predict(
    model: nn.Module,
    loader: Iterable[Any],
    *,
    layer: str | None = None,
    passes: int = 0,
    labelled: Iterable[Any] | None = None,
    output: Literal["logits", "proba"] = "logits",
    inputs: Callable[[Any], Any] | None = None,
    device: str | torch.device | None = None,
    amp: bool | torch.dtype = False,
    dtype: Literal["float32", "float16"] = "float32",
    out: str | Path | None = None,
    seed: int = 0,
    progress: bool | None = None,
) -> Predictions:
    """Run a model over a loader, without gradients and in eval mode; row i belongs to the i-th item of the loader.

    Parameters
    ----------
    model: gives logits (B, C) as a tensor, as `.logits`, or as the first of a tuple; (B,) and (B, 1) mean two classes.
    loader: batches that are tensors, (x, y) tuples or dicts; labels in them are ignored. It must not shuffle.
    layer: whose output becomes the embeddings, such as "avgpool" or "encoder.norm"; "last": what goes into the last
        linear layer. Maps and tokens are averaged to (N, d).
    passes: T dropout passes, for BALD; only the dropout layers are switched on.
    labelled: a loader of labelled images; fills `labelled_proba`, `labelled_labels` and `labelled_embeddings`.
    output: "proba" where the model ends with a softmax.
    inputs: what the model gets of a batch: a tensor, a tuple or a dict of arguments, such as `lambda batch: batch[1]`.
    device: where to run; the model returns to its own device.
    amp: mixed precision: float16 on a graphics card, else bfloat16; or a dtype.
    dtype: of the result; "float16" halves it.
    out: a folder for proba.npy, embeddings.npy and mc_proba.npy, for pools larger than memory.
    seed: of the dropout.
    progress: show a bar; None: on a terminal and in notebooks.

    Examples
    --------
    >>> import tailwise
    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> predictions = predict(net, [torch.zeros(5, 4), torch.ones(2, 4)], layer="last")
    >>> predictions.proba.shape, predictions.embeddings.shape
    ((7, 3), (7, 8))
    """
    if output not in ("logits", "proba") or dtype not in ("float32", "float16"):
        raise BadInput(
            f"output is {shown(output)} and dtype {shown(dtype)}; output must be 'logits' or 'proba', "
            "and dtype 'float32' or 'float16'"
        )
    expected = _checked_order(loader)
    whole_number(passes, "passes")
    with _prepared(model, device) as (net, place):
        run = _Run(net, place, layer, passes, output, inputs, _amp_type(amp, place), seed)
        folder = None if out is None else usable(out)
        batches = run.batches(loader, "predicting the pool", progress)
        proba, embeddings, mc_proba = _collect(batches, np.dtype(dtype), folder, expected)
        found = Predictions(proba, embeddings, mc_proba=mc_proba)
        if labelled is None:
            return found
        run = replace(run, passes=0, labels=[])
        proba, embeddings, _ = _collect(run.batches(labelled, "predicting the labelled", progress), np.dtype(dtype))
        classes = np.concatenate(run.labels) if run.labels else None
        return replace(found, labelled_embeddings=embeddings, labelled_proba=proba, labelled_labels=classes)


@dataclass(frozen=True, slots=True, eq=False)
class _Run:
    """A model that is ready, and how it is asked."""

    model: nn.Module
    device: torch.device
    layer: str | None
    passes: int
    output: str
    inputs: Callable[[Any], Any] | None
    amp: torch.dtype | None
    seed: int
    labels: list[IntArray] | None = None  # where those of the batches are gathered, if they are wanted

    @torch.no_grad()  # not inference_mode: what a model keeps from it could not be trained with afterwards
    def batches(self, loader: Iterable[Any], what: str, show: bool | None) -> Iterator[tuple[Tensor, ...]]:
        """Probabilities (B, C), embeddings (B, d) or nothing (0,), and T times probabilities of a dropout pass."""
        dropout = self._dropout_layers() if self.passes else ()
        try:
            total = len(loader)  # type: ignore[arg-type] # one of an iterable data set has none
        except TypeError:
            total = None
        with _Tap(self.model, self.layer) as tap:
            for number, batch in enumerate(with_progress(loader, what, total=total, show=show)):
                if self.labels is not None:
                    self.labels.append(_labels_of(batch))
                args, named = _arguments(self.model, batch, self.inputs)
                args, named = _placed(args, self.device), _placed(named, self.device)
                proba = self._proba(args, named, number)
                features = tap.rows(len(proba)) if self.layer else proba.new_empty(0)
                yield proba, features, *self._dropout_passes(args, named, number, dropout)

    def _proba(self, args: Sequence[Any], named: Mapping[str, Any], number: int) -> Tensor:
        with torch.autocast(self.device.type, dtype=self.amp, enabled=self.amp is not None):
            given = _logits(self.model(*args, **named))
        given = given.float()
        bad = (~torch.isfinite(given)).reshape(len(given), -1).any(dim=1).nonzero().flatten().tolist()
        if bad:
            raise BadInput(f"the model gives NaN or infinity for item {bad[0]} of batch {number}; check its weights")
        if given.ndim == 1 or given.shape[1] == 1:  # one number for two classes
            yes = given.reshape(-1, 1)
            given = torch.cat([torch.zeros_like(yes) if self.output == "logits" else 1 - yes, yes], dim=1)
        sums_to_one = bool((given >= 0).all() and ((given.sum(dim=1) - 1).abs() <= SUM_ERROR).all())
        if self.output == "proba" and not sums_to_one:
            raise BadInput(f"batch {number} has rows that are not probabilities; leave out output='proba' for logits")
        if self.output == "proba":
            return given
        if sums_to_one and len(given) >= SURE:
            raise BadInput("the model gives probabilities, not logits, and needs no softmax; say output='proba'")
        return torch.softmax(given, dim=1)

    def _dropout_layers(self) -> Sequence[nn.Module]:
        modules: Iterator[nn.Module] = self.model.modules()
        found = [one for one in modules if isinstance(one, DROPOUT_LAYERS) and one.p > 0]
        if not found:
            raise BadInput("passes needs dropout, but the model has no dropout layer with p above 0; set passes=0")
        return found

    def _dropout_passes(
        self, args: Sequence[Any], named: Mapping[str, Any], number: int, dropout: Sequence[nn.Module]
    ) -> Iterator[Tensor]:
        for one in dropout:
            one.training = True
        place = self.device if self.device.type == "cuda" else torch.device("cpu")  # whose generator is restored
        for t in range(self.passes):  # its own seed for each, so that the first passes do not depend on how many follow
            with global_seed(self.seed, DROPOUT, t, number, device=place):
                yield self._proba(args, named, number)
        for one in dropout:
            one.training = False


class _Tap:
    """Reads what a layer gives, or what goes into the last linear layer, while the model runs."""

    def __init__(self, model: nn.Module, layer: str | None) -> None:
        self.layer, self.handles = layer, ExitStack()
        self.value: Any = None
        if layer is None:
            return
        if layer == LAST:
            for one in model.modules():
                if isinstance(one, nn.Linear):
                    self.handles.callback(one.register_forward_pre_hook(self._keep_input).remove)
            return
        known = dict(model.named_modules())
        if not layer or layer not in known:
            near = difflib.get_close_matches(layer, known, n=1) or [name for name in known if name][-5:]
            raise BadInput(f"the model has no layer {layer!r}; did you mean {', '.join(map(repr, near))}, or 'last'?")
        self.handles.callback(known[layer].register_forward_hook(self._keep_output).remove)

    def _keep_input(self, _module: nn.Module, args: tuple[Any, ...]) -> None:
        self.value = args[0] if args else None

    def _keep_output(self, _module: nn.Module, _args: tuple[Any, ...], output: Any) -> None:  # noqa: ANN401 - of any layer
        self.value = output

    def rows(self, size: int) -> Tensor:
        """What was read in the last run, as (B, d)."""
        value, self.value = self.value, None
        found = _first_tensor(value)
        if found is None:
            raise BadInput(f"layer {self.layer!r} was not used, or gave no tensor; name another layer of the model")
        if found.ndim == 4:
            found = found.mean(dim=(2, 3))  # maps (B, d, h, w)
        elif found.ndim == 3:
            found = found.mean(dim=1)  # tokens (B, t, d)
        if found.ndim != 2 or len(found) != size:
            raise BadInput(f"layer {self.layer!r} gives {tuple(found.shape)} for {size} items; it must give (B, d)")
        return found

    def __enter__(self) -> _Tap:
        return self

    def __exit__(self, *_: object) -> None:
        self.handles.close()


def _collect(
    batches: Iterator[tuple[Tensor, ...]], dtype: np.dtype[Any], folder: Path | None = None, expected: int | None = None
) -> tuple[Rows, Rows | None, Rows | None]:
    """Probabilities (N, C), embeddings (N, d) or None, dropout passes (T, N, C) or None; in memory or in a folder."""
    try:
        with ExitStack() as stack:
            arrays: list[_Rows] = []
            for tensors in batches:
                if not arrays:
                    names = ["proba", "embeddings", "mc_proba", *(f"mc_proba-{t}" for t in range(1, len(tensors) - 2))]
                    arrays = [stack.enter_context(_Rows(folder, name, dtype)) for name in names[: len(tensors)]]
                for array, tensor in zip(arrays, tensors, strict=True):
                    array.add(tensor.to("cpu", torch.float32).numpy())
            if not arrays:
                raise BadInput("the loader gave no batch; is its data set empty?")
            proba, embeddings, *passes = arrays
            if expected not in (None, proba.count):
                raise BadInput(
                    f"the loader gave {proba.count:,} of {expected:,} items, so rows do not show which item they are; "
                    "make it with drop_last=False, and let collate_fn keep every item"
                )
            mc_proba = passes[0].finished(passes[1:], stacked=True) if passes else None
            return proba.finished(), embeddings.finished() if embeddings.width else None, mc_proba
    except OSError as error:
        raise BadFile(f"cannot write predictions into {folder}: {error.strerror or error}") from error


class _Rows:
    """Rows of one array, appended in memory or to a .npy file, which has its name only when it is complete."""

    def __init__(self, folder: Path | None, name: str, dtype: np.dtype[Any]) -> None:
        self.dtype, self.count, self.width = dtype, 0, 0
        self.path = None if folder is None else folder / f"{name}.npy"
        if self.path is None:
            self.file: io.BytesIO | BinaryIO = io.BytesIO()
        else:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.part = self.path.with_name(f"{name}.npy.part")
            self.file = self.part.open("wb+")

    def __enter__(self) -> _Rows:
        return self

    def __exit__(self, *_: object) -> None:
        if self.path is not None:
            self.file.close()
            self.part.unlink(missing_ok=True)

    def add(self, rows: Rows) -> None:
        """Add (B, k), always of the same width."""
        width = rows.shape[1] if rows.ndim == 2 else 0
        if not self.count:
            self.width = width
            self._write_header((0, width))
        if width != self.width:
            raise BadInput(f"a batch has {width} columns, and those before it {self.width}; all must have the same")
        self.file.write(np.ascontiguousarray(rows, self.dtype).data)
        self.count += len(rows)

    def finished(self, others: Sequence[_Rows] = (), *, stacked: bool = False) -> Rows:
        """The array (N, k), of a file mapped; `stacked` with others of the same shape, (T, N, k)."""
        for other in others:
            other.file.seek(HEADER)
            shutil.copyfileobj(other.file, self.file, 1 << 24)
        shape = (1 + len(others), self.count, self.width) if stacked else (self.count, self.width)
        if isinstance(self.file, io.BytesIO):
            rows: Rows = np.frombuffer(self.file.getbuffer(), self.dtype, offset=HEADER).reshape(shape)
            return rows
        assert self.path is not None
        self.file.seek(0)
        self._write_header(shape)
        self.file.close()
        self.part.replace(self.path)
        mapped: Rows = np.load(self.path, mmap_mode="r")
        return mapped

    def _write_header(self, shape: tuple[int, ...]) -> None:
        """Of one length, whatever the number of rows is, so that it can be written again at the end."""
        facts = {"descr": np.lib.format.dtype_to_descr(self.dtype), "fortran_order": False, "shape": shape}
        start = np.lib.format.magic(1, 0) + (HEADER - 10).to_bytes(2, "little")
        self.file.write(start + repr(facts).encode("latin1").ljust(HEADER - 11) + b"\n")


@contextmanager
def _prepared(model: nn.Module, device: str | torch.device | None) -> Iterator[tuple[nn.Module, torch.device]]:
    """The model in eval mode on a device; mode and device of all its parts are restored."""
    if not isinstance(model, nn.Module):
        raise BadInput(f"model is {shown(model)}; give a torch.nn.Module")
    net = getattr(model, "_orig_mod", model)  # of torch.compile, which does not see hooks
    net = net.module if isinstance(net, nn.DataParallel) else net
    home = next((one.device for one in (*net.parameters(), *net.buffers())), torch.device("cpu"))
    modes = [(one, one.training) for one in net.modules()]
    try:
        place = home if device is None else torch.device(device)
        if place != home:
            net.to(place)
    except (RuntimeError, AssertionError) as error:  # torch raises either for a device that it does not have
        raise BadInput(f"cannot run on the device {str(device)!r}: {error}") from error
    try:
        with torch.random.fork_rng([]):  # a loader draws a seed from the generator
            yield net.eval(), place
    finally:
        if place != home:
            net.to(home)
        for one, training in modes:
            one.training = training


def _checked_order(loader: Iterable[Any]) -> int | None:
    """How many items a loader is to give, if it says; one that shuffles is rejected."""
    sampler = getattr(loader, "sampler", None)
    if isinstance(sampler, RANDOM_ORDER) or getattr(sampler, "shuffle", False):
        raise BadInput("the loader shuffles, so rows do not show which item they are; make it with shuffle=False")
    known = isinstance(loader, data.DataLoader) and not isinstance(loader.dataset, data.IterableDataset)
    return len(sampler) if known and sampler is not None and hasattr(sampler, "__len__") else None


def _amp_type(amp: bool | torch.dtype, device: torch.device) -> torch.dtype | None:
    if isinstance(amp, torch.dtype):
        return amp
    return (torch.float16 if device.type == "cuda" else torch.bfloat16) if amp else None


def _arguments(
    model: nn.Module, batch: Any, inputs: Callable[[Any], Any] | None  # noqa: ANN401 - whatever a loader gives
) -> tuple[tuple[Any, ...], dict[str, Any]]:  # fmt: skip
    """What a model is called with."""
    if inputs is not None:
        given = inputs(batch)
        if isinstance(given, Mapping):
            return (), dict(given)
        return (tuple(given), {}) if isinstance(given, tuple) else ((given,), {})
    given = batch[0] if isinstance(batch, tuple | list) and batch else batch
    if isinstance(given, Tensor):
        return (given,), {}
    if not isinstance(given, Mapping):
        raise BadInput(
            f"a batch is {shown(type(batch).__name__)}; it must be a tensor, a tuple or a dict, or give inputs=, a "
            "function from a batch to what the model gets"
        )
    named = {str(key): value for key, value in given.items() if key not in LABEL_KEYS}
    parameters = inspect.signature(model.forward).parameters
    if set(named) <= set(parameters) or any(one.kind == one.VAR_KEYWORD for one in parameters.values()):
        return (), named
    tensors = [value for value in named.values() if isinstance(value, Tensor)]
    if len(tensors) != 1:
        raise BadInput(
            f"a batch has {', '.join(named)}, and the model takes {', '.join(parameters)}; give inputs=, for instance "
            f"inputs=lambda batch: batch[{next(iter(named), '')!r}]"
        )
    return (tensors[0],), {}


def _placed(value: Any, device: torch.device) -> Any:  # noqa: ANN401 - nested tuples, lists and dicts of anything
    if isinstance(value, Tensor):
        return value.to(device, non_blocking=True)
    if isinstance(value, Mapping):
        return {key: _placed(one, device) for key, one in value.items()}
    return type(value)(_placed(one, device) for one in value) if type(value) in (tuple, list) else value


def _labels_of(batch: Any) -> IntArray:  # noqa: ANN401 - whatever a loader gives
    found = batch[1] if isinstance(batch, tuple | list) and len(batch) > 1 else None
    if isinstance(batch, Mapping):
        found = next((batch[key] for key in LABEL_KEYS if key in batch), None)
    if found is None:
        raise BadInput("a batch of the labelled loader has no labels; give (x, y) tuples, or dicts with 'labels'")
    labels: IntArray = torch.as_tensor(found).cpu().numpy().astype(np.int64).ravel()
    return labels


def _logits(output: Any) -> Tensor:  # noqa: ANN401 - whatever a model gives
    given = getattr(output, "logits", None)
    if given is None and isinstance(output, Mapping):
        given = output.get("logits")
    found = given if isinstance(given, Tensor) else _first_tensor(output)
    if found is None or found.ndim not in (1, 2):
        what = type(output).__name__ if found is None else f"shape {tuple(found.shape)}"
        raise BadInput(f"the model gives {what}; it must give logits (B, C), as a tensor or as .logits")
    return found


def _first_tensor(value: object) -> Tensor | None:
    if isinstance(value, Tensor):
        return value
    for name in ("pooler_output", "last_hidden_state"):
        if isinstance(found := getattr(value, name, None), Tensor):
            return found
    if isinstance(value, tuple | list) and value and isinstance(value[0], Tensor):
        return value[0]
    return None
