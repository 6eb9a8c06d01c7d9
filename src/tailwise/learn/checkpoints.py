"""Training that can be killed: the state after an epoch, on the disk and back, with a fingerprint of its training.

A checkpoint that is damaged, or of other settings, data or seed, is passed over with a line of report, never an error.
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import BadFile
from ..pool.images import Inputs
from ..types import IntArray, Progress
from .batches import chunks
from .store import SETTINGS_FILE, StoredModel, load_model, save_model

KIND = "training"


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """What a training changes from step to step."""

    net: nn.Module
    optimiser: torch.optim.Optimizer
    average: dict[str, Tensor]  # of the weights, by parameter; empty where the recipe keeps none


@dataclass(slots=True)
class Checkpoints:
    """Writes and finds the checkpoints of one training; a folder of None keeps nothing."""

    folder: Path | None
    fingerprint: str
    every: float  # seconds; the state after an epoch is only written when these have passed
    report: Progress
    written: float = field(default_factory=time.monotonic)

    def keep(self, state: State, epochs: int, done: float) -> None:
        """Write the state after so many epochs, if it is time; a full disk must not end hours of training."""
        if self.folder is None or time.monotonic() - self.written < self.every:
            return
        try:
            tensors = _arrays(state) | {"epochs": np.array([epochs])}  # a tensor, as the checksum covers those
            save_model(self.folder, StoredModel(KIND, {"fingerprint": self.fingerprint}, tensors))
        except BadFile as error:
            self.report(done, f"no checkpoint: {error}")
        self.written = time.monotonic()

    def restore(self, state: State) -> int:
        """Put everything back as it was; gives the number of epochs behind it, 0 without a checkpoint."""
        if self.folder is None or not (self.folder / SETTINGS_FILE).exists():
            return 0
        try:
            stored = load_model(self.folder, KIND)
            if stored.settings.get("fingerprint") != self.fingerprint:
                raise BadFile(f"the checkpoint in {self.folder} is of other settings, data or another seed")
            _put_back(stored.tensors, state)
        except BadFile as error:
            self.report(0.0, f"starting anew: {error}")
            return 0
        epochs = int(stored.tensors["epochs"][0])
        self.report(0.0, f"going on after epoch {epochs}")
        return epochs

    def remove(self) -> None:
        """The training is done: its files go, and the folder too if nothing else is in it."""
        if self.folder is None or not self.folder.is_dir():
            return
        for path in (self.folder / SETTINGS_FILE, *self.folder.glob("tensors-*.safetensors")):
            path.unlink(missing_ok=True)
        if not any(self.folder.iterdir()):
            self.folder.rmdir()


def fingerprint(settings: dict[str, Any], net: nn.Module, inputs: Inputs, labels: IntArray) -> str:
    """One digest of the settings, of the net as it starts, of every input and of every label."""
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    for name, tensor in net.state_dict().items():
        digest.update(name.encode() + np.array(_array(tensor), order="C").tobytes())
    digest.update(np.ascontiguousarray(labels, dtype=np.int64).tobytes())
    for indices in chunks(len(inputs), 1024):
        digest.update(np.ascontiguousarray(inputs[indices]).data)
    return digest.hexdigest()


def _arrays(state: State) -> dict[str, Any]:
    arrays = {f"net.{name}": _array(tensor) for name, tensor in state.net.state_dict().items()}
    for name, parameter in state.net.named_parameters():
        arrays[f"momentum.{name}"] = _array(state.optimiser.state[parameter]["momentum_buffer"])
    return arrays | {f"average.{name}": _array(tensor) for name, tensor in state.average.items()}


@torch.no_grad()
def _put_back(arrays: dict[str, Any], state: State) -> None:
    for name, tensor in state.net.state_dict().items():
        tensor.copy_(_tensor(arrays[f"net.{name}"], tensor))
    for name, parameter in state.net.named_parameters():
        # In the parameter's own order in memory, as it was: another order may round the last bit differently.
        momentum = _tensor(arrays[f"momentum.{name}"], parameter)
        state.optimiser.state[parameter]["momentum_buffer"] = torch.empty_like(parameter).copy_(momentum)
    for name, tensor in state.average.items():
        tensor.copy_(_tensor(arrays[f"average.{name}"], tensor))


def _tensor(array: Any, like: Tensor) -> Tensor:  # noqa: ANN401 - an array of the tensor's dtype
    return torch.from_numpy(array.copy()).reshape(like.shape)


def _array(tensor: Tensor) -> Any:  # noqa: ANN401 - an array of the tensor's dtype
    return tensor.detach().cpu().numpy()
