"""VAAL: labelled and unlabelled inputs in, for each unlabelled one the probability that it is labelled out.

A variational autoencoder and a discriminator are trained against each other. This module loads without torch.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import BadInput
from ..pools.pool import Inputs
from ..types import Float64Array, Progress, no_progress
from .learner import in_memory, need_torch


@dataclass(frozen=True, slots=True)
class VaalSettings:
    """Shapes and training of the two nets; the defaults are those of the paper, but for `steps`, which is ours.

    Attributes
    ----------
    steps: rounds of `vae_steps` steps of the autoencoder and one of the discriminator. 100 passes over 5,000 labelled
        images, as VAAL's authors trained, are 3,900 rounds; on features a tenth of that is enough.
    batch: labelled and as many unlabelled inputs in each step; a smaller set is gone through again.
    beta, adversary: weights of the KL term and of the fooling term.
    channels: of the four convolutions for images.
    hidden: widths of the two layers for features.
    critic: width of the discriminator's two layers.
    device: "auto" is the graphics card where there is one.
    """

    steps: int = 400
    batch: int = 128
    latent: int = 32
    lr: float = 5e-4
    beta: float = 1.0
    adversary: float = 1.0
    vae_steps: int = 2
    channels: tuple[int, ...] = (128, 256, 512, 1024)
    hidden: tuple[int, ...] = (512, 256)
    critic: int = 512
    device: str = "auto"

    def __post_init__(self) -> None:
        if min(self.steps, self.latent, self.vae_steps, self.critic, *self.channels, *self.hidden) < 1:
            raise BadInput(f"VAAL needs at least one step and positive widths, but has {self}")
        if self.batch < 2 or self.lr <= 0:
            raise BadInput(f"VAAL needs batch ≥ 2 (for batch norm) and lr > 0, but has {self.batch} and {self.lr}")


def labelledness(
    labelled: Inputs, pool: Inputs, settings: VaalSettings | None = None, *, seed: int, report: Progress = no_progress
) -> Float64Array:
    """D(μ(x)) of every input of the pool, (N,), in eval mode; the same seed gives the same numbers."""
    _check(labelled, pool)
    need_torch("VAAL")
    from .vaal_training import train_and_score

    return train_and_score(in_memory(labelled), in_memory(pool), settings or VaalSettings(), seed=seed, report=report)


def _check(labelled: Inputs, pool: Inputs) -> None:
    if not len(labelled):
        raise BadInput("VAAL compares labelled with unlabelled images, but none is labelled; label a first batch")
    if not len(pool):
        raise BadInput("VAAL was asked about an empty pool")
    if labelled.shape[1:] != pool.shape[1:] or len(pool.shape) not in (2, 4):
        raise BadInput(
            f"labelled {labelled.shape} and pool {pool.shape} must both be features (n, d) of one length, "
            "or images (n, height, width, 3) of one size"
        )
