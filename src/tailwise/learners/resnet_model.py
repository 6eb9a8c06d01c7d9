"""A trained net: clean images in; softmax, features and dropout passes out. Asking it changes nothing in it.

Answers do not depend on how the images are batched beyond the last bits of float32 (about 1e-6).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import BadInput
from ..pools.pool import Inputs
from ..types import IntArray, Progress
from .learner import StoredModel, check_images, chunks, damaged, load_model, read_images, save_model
from .nets import (
    DROPOUT,
    START,
    Net,
    derived,
    device_named,
    global_seed,
    load_pretrained,
    make_net,
    placed,
    read_config,
)
from .training import Channels, Lesson, Recipe, measure_channels, normalise, train

if TYPE_CHECKING:
    from .resnet import NetLearner


BATCH = 256


@dataclass(frozen=True, slots=True, eq=False)
class ResNetModel:
    """A net that was trained, always in eval mode, and the normalisation that it was trained with."""

    learner: str
    net: Net
    channels: Channels
    batch: int = BATCH

    @property
    def classes(self) -> int:
        """C."""
        return self.net.config.classes

    @torch.inference_mode()
    def predict_proba(self, inputs: Inputs) -> NDArray[np.float32]:
        """Softmax of clean images, dropout off, (n, C)."""
        proba = np.empty((len(inputs), self.classes), np.float32)
        for rows, features in self._features(inputs):
            proba[rows] = torch.softmax(self.net.fc(features), dim=1).cpu().numpy()
        return self._finite(proba, "probabilities")

    @torch.inference_mode()
    def embed(self, inputs: Inputs) -> NDArray[np.float32]:
        """What goes into the last layer, (n, d)."""
        embeddings = np.empty((len(inputs), self.net.config.features), np.float32)
        for rows, features in self._features(inputs):
            embeddings[rows] = features.cpu().numpy()
        return self._finite(embeddings, "embeddings")

    @torch.inference_mode()
    def mc_proba(self, inputs: Inputs, passes: int, seed: int) -> NDArray[np.float32]:
        """Softmax of `passes` dropout passes, (T, n, C).

        Dropout stands before the last layer only, so the rest of the net is run once for all passes.
        """
        keep = 1 - self.net.config.dropout
        if keep == 1:
            raise BadInput(f"BALD needs dropout, but this {self.learner} was trained without; set dropout=0.5")
        draws = [np.random.default_rng(derived(seed, DROPOUT, t)) for t in range(passes)]
        proba = np.empty((passes, len(inputs), self.classes), np.float32)
        for rows, features in self._features(inputs):
            for t, rng in enumerate(draws):
                kept = torch.from_numpy(rng.random(features.shape, np.float32) < keep).to(features.device)
                proba[t, rows] = torch.softmax(self.net.fc(features * kept / keep), dim=1).cpu().numpy()
        return self._finite(proba, "probabilities")

    def save(self, folder: Path) -> None:
        """Write the net's tensors, then model.json."""
        tensors = {name: tensor.cpu().numpy() for name, tensor in self.net.state_dict().items()}
        settings = {"config": asdict(self.net.config), "channels": asdict(self.channels)}
        save_model(folder, StoredModel(self.learner, settings, tensors))

    def _finite(self, answers: NDArray[np.float32], what: str) -> NDArray[np.float32]:
        """The answers (…, n, k), or an error in place of NaN and infinity, which no strategy can use."""
        bad = ~np.isfinite(answers).all(axis=-1)  # (n,), or (passes, n)
        if bad.any():
            count, images = int(np.atleast_2d(bad).any(axis=0).sum()), answers.shape[-2]
            raise BadInput(
                f"this {self.learner} gives {what} that are no numbers for {count:,} of {images:,} images: its "
                "training was too short or diverged; lower lr, train for more epochs, or label more images"
            )
        return answers

    def _features(self, inputs: Inputs) -> Iterator[tuple[IntArray, Tensor]]:
        """Rows and their features (B, d), batch by batch."""
        check_images(inputs, self.learner)
        device = next(self.net.parameters()).device
        for rows in chunks(len(inputs), self.batch):
            images = torch.from_numpy(read_images(inputs, rows)).to(device)
            yield rows, self.net.features(normalise(images, self.channels))


def fit_resnet(
    learner: NetLearner, inputs: Inputs, labels: IntArray, *, classes: int, seed: int, report: Progress,
    checkpoint: Path | None,
) -> ResNetModel:  # fmt: skip
    """Make the net, train it."""
    settings: dict[str, Any] = learner.recipe_settings()
    recipe, device = Recipe(**settings), device_named(learner.device)
    with global_seed(seed, START, device=torch.device("cpu")):
        net = make_net(learner.config(classes))
    if learner.weights:
        load_pretrained(net, learner.weights, learner.name)
    placed(net, device)
    lesson = Lesson(inputs, labels, measure_channels(inputs), classes)
    train(net, lesson, recipe, seed=seed, report=report, checkpoint=checkpoint)
    return ResNetModel(learner.name, net, lesson.channels)


def load_resnet(folder: Path, name: str, device: str) -> ResNetModel:
    """A model as it was saved."""
    stored = load_model(folder, name)
    try:
        channels = Channels(**stored.settings["channels"])
        net = make_net(read_config(stored.settings["config"]))
        net.load_state_dict({key: torch.from_numpy(value.copy()) for key, value in stored.tensors.items()})
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise damaged(folder, f"it does not make a {name}: {error}") from error
    placed(net, device_named(device))
    net.eval()
    return ResNetModel(name, net, channels)
