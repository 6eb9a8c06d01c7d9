from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
import torch

from tailwise.errors import BadInput, MissingExtra
from tailwise.learners.vaal import VaalSettings, labelledness
from tailwise.learners.vaal_training import (
    Autoencoder,
    Discriminator,
    Reader,
    Stream,
    critic_step,
    feature_autoencoder,
    image_autoencoder,
    make_game,
    make_reader,
    vae_loss,
    vae_step,
)

CPU = torch.device("cpu")
TINY = VaalSettings(
    steps=3, batch=4, latent=3, channels=(2, 3, 4, 5), hidden=(6, 5), critic=7, device="cpu", beta=0.7, adversary=1.3
)


def rows(count: int, width: int = 6, shift: float = 0.0, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).normal(size=(count, width)) + shift).astype(np.float32)


def pixels(count: int, side: int = 16, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, side, side, 3), dtype=np.uint8)


def describe(net: torch.nn.Module) -> list[str]:
    shown = []
    for module in net:  # type: ignore[attr-defined]
        if isinstance(module, torch.nn.Conv2d | torch.nn.ConvTranspose2d):
            kernel, stride = module.kernel_size[0], module.stride[0]
            shown.append(f"{module.in_channels}-{module.out_channels} {kernel}x{kernel}/{stride}")
        elif isinstance(module, torch.nn.Linear):
            shown.append(f"{module.in_features}-{module.out_features}")
    return shown


def test_the_image_nets_have_the_layers_of_the_paper() -> None:
    with torch.device("meta"):
        net = image_autoencoder(32, VaalSettings())
    assert describe(net.encoder) == ["3-128 4x4/2", "128-256 4x4/2", "256-512 4x4/2", "512-1024 4x4/2"]
    assert describe(net.decoder) == [
        "32-4096", "1024-512 4x4/2", "512-256 4x4/2", "256-128 4x4/2", "128-3 4x4/2"
    ]  # fmt: skip
    assert (net.mean.in_features, net.mean.out_features) == (4096, 32)
    assert describe(Discriminator(32, 512).layers) == ["32-512", "512-512", "512-1"]


def test_the_feature_net_narrows_to_the_latent_and_widens_again() -> None:
    net = feature_autoencoder(256, VaalSettings())
    assert describe(net.encoder) == ["256-512", "512-256"]
    assert describe(net.decoder) == ["32-256", "256-512", "512-256"]


@pytest.mark.parametrize("side", [16, 32, 64])
def test_an_image_comes_back_in_its_own_shape(side: int) -> None:
    net = image_autoencoder(side, TINY)
    rebuilt, mean, log_variance = net(torch.zeros(2, 3, side, side), torch.zeros(2, 3))
    assert rebuilt.shape == (2, 3, side, side)
    assert mean.shape == log_variance.shape == (2, 3)


def test_the_loss_is_minus_the_evidence_bound() -> None:
    x, y, mu, logvar = (torch.from_numpy(rows(5, 4, seed=seed)) for seed in range(4))
    total = 0.0
    for i in range(5):
        error = sum((float(x[i, j]) - float(y[i, j])) ** 2 for j in range(4)) / 2
        kl = sum(0.5 * (float(m) ** 2 + math.exp(v) - 1 - float(v)) for m, v in zip(mu[i], logvar[i], strict=True))
        total += error + 0.7 * kl
    assert vae_loss(x, y, mu, logvar, 0.7).item() == pytest.approx(total / 5, rel=1e-5)


def adam_by_hand(
    values: list[torch.Tensor], gradients: tuple[torch.Tensor, ...], lr: float = 5e-4
) -> list[torch.Tensor]:
    """The first step of Adam: the moments, without their bias, are the gradient and its square."""
    return [v - lr * g / ((g * g).sqrt() + 1e-8) for v, g in zip(values, gradients, strict=True)]


def binary(probability: torch.Tensor, truth: float) -> torch.Tensor:
    return -(truth * probability.log() + (1 - truth) * (1 - probability).log()).mean()


@pytest.mark.parametrize("images", [False, True])
def test_one_step_of_each_net_is_that_of_a_literal_transcription(*, images: bool) -> None:
    torch.manual_seed(1)
    shape = (3, 16, 16) if images else (6,)
    game = make_game(shape, TINY, CPU)
    inputs = torch.randn(8, *shape)  # four labelled, four not
    vae, critic = list(game.vae.parameters()), list(game.critic.parameters())
    eps = torch.randn((8, 3), generator=torch.Generator().manual_seed(2))

    code = game.vae.encoder(inputs)
    mu, logvar = game.vae.mean(code), game.vae.log_variance(code)
    rebuilt = game.vae.decoder(mu + eps * (logvar / 2).exp())
    said = torch.sigmoid(game.critic(mu))
    loss = 1.3 * (binary(said[:4], 1.0) + binary(said[4:], 1.0))
    for half in (slice(0, 4), slice(4, 8)):
        error = (rebuilt[half] - inputs[half]).pow(2).flatten(1).sum(1) / 2
        kl = -0.5 * (1 + logvar[half] - mu[half].pow(2) - logvar[half].exp()).sum(1)
        loss = loss + (error + 0.7 * kl).mean()
    expected = adam_by_hand(vae, torch.autograd.grad(loss, vae))
    before = [value.clone() for value in critic]

    assert vae_step(game, inputs, torch.Generator().manual_seed(2)) == pytest.approx(loss.item(), rel=1e-4)
    for ours, literal in zip(vae, expected, strict=True):
        # Where a gradient is nothing but rounding, Adam's first step is the sign of the rounding.
        close = (ours - literal).abs() < 1e-5
        assert close.float().mean() > 0.9
    assert all(torch.equal(value, old) for value, old in zip(critic, before, strict=True))

    said = torch.sigmoid(game.critic(game.vae.encode(inputs)[0].detach()))
    loss = binary(said[:4], 1.0) + binary(said[4:], 0.0)
    expected = adam_by_hand(critic, torch.autograd.grad(loss, critic))
    untouched = [value.clone() for value in vae]
    assert critic_step(game, inputs) == pytest.approx(loss.item(), rel=1e-4)
    for ours, literal in zip(critic, expected, strict=True):
        torch.testing.assert_close(ours, literal, atol=1e-6, rtol=1e-4)
    assert all(torch.equal(value, old) for value, old in zip(vae, untouched, strict=True))


def test_what_looks_labelled_gets_a_higher_labelledness_than_what_is_far_away() -> None:
    near, far = rows(150, 8, seed=1), rows(150, 8, shift=3.0, seed=2)
    settings = VaalSettings(steps=60, batch=32, latent=4, hidden=(16, 8), critic=16, lr=2e-3, device="cpu")
    found = labelledness(rows(100, 8), np.concatenate([near, far]), settings, seed=0)
    assert found.shape == (300,)
    assert found.min() >= 0
    assert found.max() <= 1
    order = (found[:150, None] > found[None, 150:]).mean()  # the area under the curve
    assert order > 0.95


def test_bright_images_are_told_from_dark_ones() -> None:
    dark, bright = pixels(40) // 4, 191 + pixels(40) // 4
    settings = VaalSettings(steps=25, batch=16, latent=4, channels=(4, 4, 8, 8), critic=16, lr=2e-3, device="cpu")
    found = labelledness(dark[:20], np.concatenate([dark[20:], bright]), settings, seed=0)
    assert found[:20].mean() > found[20:].mean() + 0.1


def test_one_seed_gives_the_same_numbers_and_leaves_no_trace() -> None:
    state = torch.get_rng_state()
    first = labelledness(rows(9), rows(11, seed=1), TINY, seed=3)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(99)
    assert np.array_equal(first, labelledness(rows(9), rows(11, seed=1), TINY, seed=3))
    assert not np.array_equal(first, labelledness(rows(9), rows(11, seed=1), TINY, seed=4))


def test_scores_are_those_of_eval_mode_and_do_not_depend_on_the_neighbours() -> None:
    pool = rows(2000, seed=1)  # more than one chunk
    whole = labelledness(rows(9), pool, TINY, seed=3)
    assert len(whole) == 2000
    repeated = labelledness(rows(9), pool[[0] * 30], TINY, seed=3)
    assert np.ptp(repeated) < 1e-6  # batch norm of a batch of one image repeated would blow up noise instead


@pytest.mark.parametrize(("labelled", "pool"), [(1, 1), (1, 9), (9, 1), (3, 2)])
def test_sets_smaller_than_a_batch_are_gone_through_again(labelled: int, pool: int) -> None:
    assert np.isfinite(labelledness(rows(labelled), rows(pool), TINY, seed=0)).all()
    assert np.isfinite(labelledness(pixels(labelled), pixels(pool), TINY, seed=0)).all()


@pytest.mark.parametrize("shape", [(28, 28), (20, 40), (90, 70)])
def test_images_of_other_sizes_are_resized(shape: tuple[int, int]) -> None:
    images = np.zeros((4, *shape, 3), np.uint8)
    assert labelledness(images[:2], images, TINY, seed=0).shape == (4,)


def test_features_are_standardised_and_a_constant_one_is_left_in_peace() -> None:
    labelled, pool = rows(30, shift=5.0), 4 * rows(1500, seed=1)
    labelled[:, 2] = pool[:, 2] = 7.0
    reader = make_reader(labelled, pool, CPU)
    ready = torch.cat([reader.read(labelled, np.arange(30)), reader.read(pool, np.arange(1500))]).numpy()
    everything = np.concatenate([labelled, pool])
    others = [0, 1, 3, 4, 5]
    expected = (everything - everything.mean(axis=0)) / np.where(everything.std(axis=0) > 0, everything.std(axis=0), 1)
    np.testing.assert_allclose(ready[:, others], expected[:, others], atol=1e-4)
    assert (ready[:, 2] == 0).all()


def test_pixels_run_from_minus_1_to_1() -> None:
    image = np.zeros((1, 16, 16, 3), np.uint8)
    image[0, 0] = 255
    ready = Reader((3, 16, 16), CPU).read(image, np.array([0]))
    assert (ready.min().item(), ready.max().item()) == (-1.0, 1.0)


def test_a_stream_shows_everything_before_it_repeats() -> None:
    stream = Stream(5, seed=0)
    shown = np.concatenate([stream.take(3) for _ in range(5)])
    assert [sorted(part.tolist()) for part in np.split(shown, 3)] == [[0, 1, 2, 3, 4]] * 3


def test_progress_is_reported_after_each_round() -> None:
    heard: list[tuple[float, str]] = []
    labelledness(rows(5), rows(5), TINY, seed=0, report=lambda done, what: heard.append((done, what)))
    assert [what.split(",")[0] for _, what in heard] == [f"VAAL step {step} of 3" for step in (1, 2, 3)]
    assert 0 < heard[0][0] < heard[-1][0] <= 1


@pytest.mark.parametrize(
    ("labelled", "pool", "complaint"),
    [
        (rows(0), rows(3), "none is labelled; label a first batch"),
        (rows(3), rows(0), "an empty pool"),
        (rows(3, 5), rows(3, 6), "must both be features"),
        (pixels(2), rows(3), "must both be features"),
    ],
)
def test_sets_that_cannot_be_compared_are_refused(labelled: np.ndarray, pool: np.ndarray, complaint: str) -> None:
    with pytest.raises(BadInput, match=complaint):
        labelledness(labelled, pool, TINY, seed=0)


@pytest.mark.parametrize("settings", [{"steps": 0}, {"batch": 1}, {"lr": 0.0}, {"hidden": (0, 3)}])
def test_senseless_settings_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(BadInput, match="VAAL needs"):
        VaalSettings(**settings)  # type: ignore[arg-type]


def test_without_torch_the_error_names_the_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtra, match=r"VAAL needs torch, .* pip install 'tailwise\[torch\]'"):
        labelledness(rows(2), rows(2), TINY, seed=0)


def test_the_modules_that_name_learners_load_without_torch() -> None:
    names = "tailwise.learners.vaal, tailwise.learners.resnet, tailwise.learners.backbone"
    code = f"import sys; sys.modules['torch'] = None; import {names}"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_autoencoder_samples_around_the_mean() -> None:
    net = Autoencoder(torch.nn.Identity(), torch.nn.Identity(), 2, 2)
    with torch.no_grad():
        inputs, noise = torch.from_numpy(rows(4, 2)), torch.from_numpy(rows(4, 2, seed=1))
        sampled, mean, log_variance = net(inputs, noise)
    torch.testing.assert_close(sampled, mean + noise * log_variance.exp().sqrt())
