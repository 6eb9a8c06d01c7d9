from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from tailwise.errors import BadInput
from tailwise.learners import training
from tailwise.learners.nets import AUGMENT, PooledConfig, PooledNet, ResNet, ResNetConfig, derived
from tailwise.learners.resnet import ResNet8, ResNet10, ResNet101
from tailwise.learners.training import (
    Recipe,
    TrainingSet,
    class_weights,
    crop_and_flip,
    epoch_batches,
    even_batches,
    measure_channels,
    normalise,
    train,
    whiten_stem,
)

RECIPE = Recipe(epochs=4, lr=0.05, milestones=(2,), batch=8, padding=1)
STEADY = replace(RECIPE, schedule="one-cycle", average=0.25)


def training_set(count: int = 21, classes: int = 3, seed: int = 0) -> TrainingSet:
    images = np.random.default_rng(seed).integers(0, 256, (count, 8, 8, 3), dtype=np.uint8)
    return TrainingSet(images, np.arange(count) % classes, measure_channels(images), classes)


def fresh(classes: int = 3, dropout: float = 0.5) -> ResNet:
    torch.manual_seed(0)
    return ResNet(ResNetConfig(classes, (1, 1, 1, 1), 2, dropout=dropout))


def trained(folder: Path | None = None, recipe: Recipe = RECIPE, seed: int = 5, **options: Any) -> ResNet:  # noqa: ANN401
    net = fresh()
    train(net, options.pop("of", training_set()), recipe, seed=seed, checkpoint=folder, every=0.0, **options)
    return net


def same(one: ResNet, other: ResNet) -> bool:
    states = zip(one.state_dict().items(), other.state_dict().items(), strict=True)
    return all(name == other_name and torch.equal(a, b) for (name, a), (other_name, b) in states)


class Stop(Exception):
    pass


def stop_in_epoch(epoch: int) -> Any:  # noqa: ANN401 - a Progress that ends the training
    def report(_done: float, what: str) -> None:
        if what.startswith(f"epoch {epoch} of"):
            raise Stop

    return report


def broken_off(folder: Path, in_epoch: int = 3, recipe: Recipe = RECIPE) -> None:
    with pytest.raises(Stop):
        trained(folder, recipe, report=stop_in_epoch(in_epoch))
    assert (folder / "model.json").exists()


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        ("steps", [0.1, 0.1, 0.1, 0.05, 0.05, 0.05]),
        # At the middles of six steps; the peak of 0.05 is after 0.9 steps.
        ("one-cycle", [0.05 * 0.5 / 0.9, *(0.05 * (6 - middle) / 5.1 for middle in (1.5, 2.5, 3.5, 4.5, 5.5))]),
    ],
)
def test_the_loop_is_sgd_with_nesterov_momentum_as_written_in_a_textbook(
    schedule: str, rates: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "SETTLED", 0)  # the loop alone
    peak = 0.1 if schedule == "steps" else 0.05
    recipe = Recipe(epochs=2, lr=peak, schedule=schedule, milestones=(1,), batch=8, padding=1, weight_decay=0.01)
    data, net, ours = training_set(20), fresh(dropout=0.0), fresh(dropout=0.0)
    train(ours, data, recipe, seed=3)
    velocity = {name: torch.zeros_like(value) for name, value in net.named_parameters()}
    net.train()
    left = iter(rates)
    for epoch in range(2):
        draws = torch.Generator().manual_seed(derived(3, AUGMENT, epoch))
        for indices in epoch_batches(20, 8, 3, epoch):
            rate = next(left)
            images = crop_and_flip(torch.from_numpy(data.inputs[indices]), 1, draws)
            loss = functional.cross_entropy(
                net(normalise(images, data.channels)), torch.from_numpy(data.labels[indices])
            )
            gradients = torch.autograd.grad(loss, list(net.parameters()))
            with torch.no_grad():
                for (name, value), gradient in zip(net.named_parameters(), gradients, strict=True):
                    slope = gradient + 0.01 * value
                    velocity[name] = 0.9 * velocity[name] + slope
                    value -= rate * (slope + 0.9 * velocity[name])
    for name, value in net.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], value, rtol=1e-3, atol=1e-5)


def test_two_runs_with_one_seed_agree_bit_for_bit_and_two_seeds_differ() -> None:
    torch.manual_seed(123)  # whatever the global state is
    first = trained()
    assert same(first, trained())
    assert not same(first, trained(seed=6))


def test_training_leaves_torch_as_it_was() -> None:
    net, state = fresh(), torch.get_rng_state()
    train(net, training_set(), RECIPE, seed=1)
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.parametrize(("in_epoch", "recipe"), [(2, RECIPE), (3, RECIPE), (4, RECIPE), (2, STEADY), (4, STEADY)])
def test_a_training_that_was_broken_off_goes_on_bit_for_bit(tmp_path: Path, in_epoch: int, recipe: Recipe) -> None:
    broken_off(tmp_path / "kept", in_epoch, recipe)
    lines: list[str] = []
    resumed = trained(tmp_path / "kept", recipe, report=lambda _done, what: lines.append(what))
    assert lines[0] == f"going on after epoch {in_epoch - 1}"
    assert lines[1].startswith(f"epoch {in_epoch} of 4")
    assert same(resumed, trained(recipe=recipe))
    assert not (tmp_path / "kept").exists()


CHILD = """
import sys, time
from pathlib import Path
import numpy as np
from tailwise.learners.resnet import ResNet10
import tailwise.learners.training as training

training.train.__kwdefaults__["every"] = 0.0
images = np.random.default_rng(0).integers(0, 256, (24, 8, 8, 3), dtype=np.uint8)
learner = ResNet10(epochs=6, lr=0.05, milestones=(3,), batch=8, width=2, padding=1, device="cpu")

def report(done, what):
    print(what, flush=True)
    if what.startswith("epoch 4 of") and "wait" in sys.argv:
        time.sleep(60)

folder = Path(sys.argv[1])
for name, checkpoint in (("resumed", folder / "kept"), ("plain", None)):
    model = learner.fit(images, np.arange(24) % 3, classes=3, seed=9, report=report, checkpoint=checkpoint)
    model.save(folder / name)
"""


def start(*arguments: str | Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CHILD, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


@pytest.mark.long
def test_a_training_killed_without_warning_goes_on_bit_for_bit(tmp_path: Path) -> None:
    child = start(tmp_path, "wait")
    assert child.stdout is not None
    for line in child.stdout:
        if line.startswith("epoch 4 of"):
            break
    child.send_signal(signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    child.stdout.close()
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    output, _ = start(tmp_path).communicate()
    assert output.splitlines()[0] == "going on after epoch 3"
    resumed, plain = (json.loads((tmp_path / name / "model.json").read_text()) for name in ("resumed", "plain"))
    assert resumed == plain  # the checksum of the tensors included
    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"seed": 6}, "seed"),
        ({"recipe": Recipe(epochs=4, lr=0.04, milestones=(2,), batch=8, padding=1)}, "settings"),
        ({"of": training_set(seed=1)}, "data"),
    ],
)
def test_a_checkpoint_of_something_else_is_passed_over_with_a_line(
    tmp_path: Path, other: dict[str, Any], why: str
) -> None:
    broken_off(tmp_path)
    lines: list[str] = []
    resumed = trained(tmp_path, report=lambda _done, what: lines.append(what), **other)
    assert lines[0].startswith("starting anew: the checkpoint in")
    assert why in lines[0]
    assert same(resumed, trained(**other))


@pytest.mark.parametrize("damage", ["flip", "cut", "gone", "json"])
def test_a_damaged_checkpoint_is_passed_over_with_a_line(tmp_path: Path, damage: str) -> None:
    broken_off(tmp_path)
    tensors = next(tmp_path.glob("*.safetensors"))
    content = bytearray(tensors.read_bytes())
    content[len(content) // 2] ^= 16
    if damage == "flip":
        tensors.write_bytes(content)
    elif damage == "cut":
        tensors.write_bytes(content[:100])
    elif damage == "gone":
        tensors.unlink()
    else:
        (tmp_path / "model.json").write_text("{")
    lines: list[str] = []
    resumed = trained(tmp_path, report=lambda _done, what: lines.append(what))
    assert lines[0].startswith("starting anew: ")
    assert same(resumed, trained())


def test_a_folder_that_cannot_be_written_does_not_end_the_training(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    lines: list[str] = []
    net = trained(tmp_path / "file" / "kept", report=lambda _done, what: lines.append(what))
    assert any(line.startswith("no checkpoint: ") for line in lines)
    assert same(net, trained())


def test_other_files_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    trained(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_progress_grows_to_1_and_names_epoch_and_loss() -> None:
    heard: list[tuple[float, str]] = []
    trained(report=lambda done, what: heard.append((done, what)))
    shares = [done for done, _ in heard]
    assert len(heard) == 4 * 3
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert heard[0][1].startswith("epoch 1 of 4, loss ")


@pytest.mark.parametrize("class_weight", ["none", "balanced"])
def test_a_class_without_labels_is_no_obstacle(class_weight: str) -> None:
    learner = ResNet10(epochs=3, batch=8, width=2, padding=0, class_weight=class_weight, device="cpu")
    data = training_set(20, classes=2)
    proba = learner.fit(data.inputs, data.labels * 2, classes=4, seed=0).predict_proba(data.inputs)
    assert proba.shape == (20, 4)
    assert np.isfinite(proba).all()


@pytest.mark.parametrize("count", [1, 2, 9])
def test_any_number_of_images_can_be_learnt_from(count: int) -> None:
    learner = ResNet10(epochs=1, batch=4, width=2, padding=0, device="cpu")
    data = training_set(count)
    assert learner.fit(data.inputs, data.labels, classes=3, seed=0).classes == 3


def test_it_learns_what_can_be_seen() -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(120) % 3
    images = rng.integers(0, 60, (120, 8, 8, 3), dtype=np.uint8)
    images[np.arange(120), :, :, labels] += 80  # red, green or blue
    learner = ResNet10(epochs=8, batch=16, width=4, padding=1, lr=0.05, milestones=(6,), device="cpu")
    model = learner.fit(images[:60], labels[:60], classes=3, seed=0)
    assert (model.predict_proba(images[60:]).argmax(axis=1) == labels[60:]).mean() > 0.9


@pytest.mark.parametrize(("count", "batch"), [(10, 3), (9, 4), (8, 4), (5, 2), (3, 2), (2, 8), (257, 256), (2500, 32)])
def test_an_epoch_shows_every_image_once_in_batches_of_nearly_one_size(count: int, batch: int) -> None:
    batches = epoch_batches(count, batch, seed=1, epoch=2)
    assert sorted(np.concatenate(batches).tolist()) == list(range(count))
    sizes = [len(indices) for indices in batches]
    assert 2 <= min(sizes) <= max(sizes) <= min(batch + 1, min(sizes) + 1)
    assert len(batches) == max(1, min(math.ceil(count / batch), count // 2))
    other = epoch_batches(count, batch, seed=1, epoch=3)
    assert count < 5 or not np.array_equal(np.concatenate(batches), np.concatenate(other))


def test_balanced_weights_give_every_class_seen_the_same_say() -> None:
    data = TrainingSet(np.zeros((6, 2, 2, 3), np.uint8), np.array([0, 0, 0, 0, 2, 2]), training_set().channels, 4)
    weights = class_weights(data, Recipe(class_weight="balanced"))
    assert weights.tolist() == [0.75, 0.0, 1.5, 0.0]
    assert class_weights(data, Recipe()).tolist() == [1.0] * 4


def test_a_training_that_diverges_says_so() -> None:
    with pytest.raises(BadInput, match=r"the loss became (nan|inf) in epoch .* lower lr \(1e\+30\)"):
        train(fresh(), training_set(), Recipe(epochs=3, lr=1e30, batch=8, padding=0), seed=0)


def test_a_last_step_into_nowhere_is_noticed_though_its_loss_was_finite() -> None:
    with pytest.raises(BadInput, match=r"ended in weights that are not finite; lower lr \(1e\+38\), or label more"):
        train(fresh(), training_set(8), Recipe(epochs=1, lr=1e38, batch=8, padding=0), seed=0)


@pytest.mark.parametrize("share", [0.05, 0.25, 0.9])
def test_averaged_weights_are_the_exponential_average_of_all_steps(share: float) -> None:
    net, steps = fresh(), 12
    passed: list[list[torch.Tensor]] = []  # the weights after each step

    def note(_done: float, _what: str) -> None:
        passed.append([parameter.detach().clone() for parameter in net.parameters()])

    train(net, training_set(), replace(STEADY, average=share), seed=3, report=note)
    assert len(passed) == steps
    expected = [torch.zeros_like(parameter) for parameter in passed[0]]
    for step, weights in enumerate(passed):
        new = min(1.0, max(1 / (step + 1), 1 / (share * steps)))
        expected = [(1 - new) * mean + new * weight for mean, weight in zip(expected, weights, strict=True)]
    for parameter, mean in zip(net.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.detach(), mean, rtol=1e-4, atol=1e-6)


def test_averaging_does_not_change_the_steps_that_it_averages() -> None:
    heard: dict[float, list[str]] = {0.0: [], 0.25: []}
    for share, lines in heard.items():
        trained(recipe=replace(STEADY, average=share), report=lambda _done, what, lines=lines: lines.append(what))
    assert heard[0.0] == heard[0.25]  # the loss of every step


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"schedule": "cosine"}, "schedule is 'cosine'; it must be one of steps, one-cycle"),
        ({"class_weight": "equal"}, "class_weight is 'equal'; it must be one of none, balanced"),
        ({"average": 1.0}, "average is 1.0; it must be a share of the training"),
        ({"average": -0.1}, "average is -0.1; it must be a share of the training"),
    ],
)
def test_settings_that_make_no_sense_are_rejected(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(BadInput, match=complaint):
        Recipe(**settings)


@pytest.mark.parametrize(("recipe", "settled"), [(RECIPE, 200), (STEADY, 200), (STEADY, 0)])
def test_batch_norm_knows_the_clean_images_under_averaged_weights_and_after_few_steps(
    recipe: Recipe, settled: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "SETTLED", settled)
    data, net = training_set(15), fresh(dropout=0.0)  # 15 images make one batch of 8 and more
    train(net, data, recipe, seed=3)
    entered: dict[str, torch.Tensor] = {}
    copy = fresh(dropout=0.0)
    copy.load_state_dict(net.state_dict())
    norms = {name: module for name, module in copy.named_modules() if isinstance(module, torch.nn.BatchNorm2d)}
    for name, module in norms.items():
        module.register_forward_pre_hook(lambda _module, given, name=name: entered.setdefault(name, given[0].clone()))
    copy.train()
    copy(normalise(torch.from_numpy(data.inputs), data.channels))
    for name in norms:
        values = entered[name].transpose(0, 1).flatten(1)  # (channels, images · places)
        trained_norm = net.get_submodule(name)
        torch.testing.assert_close(trained_norm.running_mean, values.mean(dim=1), rtol=1e-3, atol=1e-5)
        torch.testing.assert_close(trained_norm.running_var, values.var(dim=1), rtol=1e-3, atol=1e-5)
        assert trained_norm.momentum == 0.1


def test_after_many_steps_the_running_averages_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    made = {}
    for settled in (0, 12, 13):  # the recipe makes 12 steps
        monkeypatch.setattr(training, "SETTLED", settled)
        made[settled] = trained()
    assert same(made[0], made[12])
    assert not same(made[12], made[13])
    weights = zip(made[12].parameters(), made[13].parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in weights)


@pytest.mark.parametrize(("count", "batch"), [(4, 8), (9, 4), (11, 4), (3, 2), (513, 256)])
def test_norms_are_measured_on_every_image_once_in_batches_of_nearly_one_size(count: int, batch: int) -> None:
    sizes = [len(indices) for indices in even_batches(count, batch, seed=1)]
    assert sorted(np.concatenate(even_batches(count, batch, seed=1)).tolist()) == list(range(count))
    assert max(sizes) - min(sizes) <= 1
    assert min(batch, count) <= min(sizes) <= max(sizes) < 2 * batch


@pytest.mark.parametrize(("count", "epochs"), [(4, 1), (5, 2), (17, 1)])
def test_a_hundred_layers_give_sensible_answers_after_a_step_or_two(count: int, epochs: int) -> None:
    learner = ResNet101(
        epochs=epochs, milestones=(), batch=16, width=8, padding=1, stem="3x3", weights="", device="cpu"
    )
    data, others = training_set(count), training_set(40, seed=1)
    model = learner.fit(data.inputs, data.labels, classes=3, seed=0)
    assert np.abs(model.embed(others.inputs)).max() < 1e6  # 1e18 and more, or NaN, by running averages
    assert np.isfinite(model.predict_proba(others.inputs)).all()


@pytest.mark.parametrize("width", [4, 48, 64])
def test_a_whitened_stem_gives_uncorrelated_answers_of_variance_1_in_both_signs(width: int) -> None:
    images = np.random.default_rng(0).integers(0, 256, (40, 9, 9, 3), dtype=np.uint8)
    images[:, 1:] = images[:, 1:] // 2 + images[:, :-1] // 2  # neighbours that resemble each other
    data = TrainingSet(images, np.arange(40) % 3, measure_channels(images), 3)
    torch.manual_seed(0)
    net = PooledNet(PooledConfig(3, width))
    before = net.stem.weight.detach().clone()
    whiten_stem(net, data)
    made = min(width // 2, 24)  # twelve numbers in a patch
    assert torch.equal(net.stem.weight[made:], before[made:])
    answers = (net.stem(normalise(torch.from_numpy(images), data.channels)) - net.stem.bias[:, None, None]).detach()
    values = answers[:, :made].transpose(0, 1).flatten(1)  # (made, n)
    np.testing.assert_allclose(values[0::2], -values[1::2], atol=1e-4)
    np.testing.assert_allclose(torch.cov(values[0::2].double()), np.eye(made // 2), atol=0.02)


def test_a_net_from_scratch_begins_with_a_whitened_stem_whose_order_is_that_of_the_variances() -> None:
    images = np.full((8, 8, 8, 3), 128, np.uint8)
    images[::2] = 160  # what varies is the brightness of whole patches
    model = ResNet8(epochs=1, lr=1e-9, width=4).fit(images, np.arange(8) % 2, classes=2, seed=0)
    first = model.net.stem.weight[0].flatten()
    assert torch.allclose(first, first.mean().expand(12), atol=1e-3)
