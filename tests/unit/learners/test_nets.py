from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

from tailwise.errors import BadFile, BadInput
from tailwise.learners.learner import LEARNERS, load_model, make_learner, save_model
from tailwise.learners.nets import PooledConfig, PooledNet, ResNet, ResNetConfig, load_pretrained, placed, read_weights
from tailwise.learners.resnet import ResNet8, ResNet10, ResNet18, ResNet101, ResNetLearner
from tailwise.learners.torch_models import ResNetModel
from tailwise.learners.training import normalise

TINY = {"epochs": 1, "batch": 8, "width": 2, "padding": 1, "device": "cpu"}


def images(count: int, side: int = 8, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, side, side, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def model() -> ResNetModel:
    return ResNet10(**TINY).fit(images(20), np.arange(20) % 3, classes=4, seed=1)


@pytest.fixture(scope="module")
def dropless() -> ResNetModel:
    return ResNet10(**TINY, dropout=0.0).fit(images(8), np.arange(8) % 2, classes=2, seed=1)


def parameters(net: nn.Module) -> int:
    return sum(parameter.numel() for parameter in net.parameters())


def test_resnet18_in_the_cifar_form_has_the_published_number_of_parameters() -> None:
    assert parameters(ResNet(ResNet18().config(10))) == 11_173_962


def test_resnet101_in_the_imagenet_form_has_the_published_number_of_parameters() -> None:
    with torch.device("meta"):
        assert parameters(ResNet(ResNet101(stem="7x7-pool").config(1000))) == 44_549_160


@pytest.mark.parametrize(
    ("learner", "side", "maps"),
    [(ResNet18(), 32, 4), (ResNet10(), 32, 4), (ResNet101(), 64, 4), (ResNet101(stem="7x7-pool"), 64, 2)],
)
def test_the_stem_decides_how_many_places_are_left_at_the_end(learner: ResNetLearner, side: int, maps: int) -> None:
    seen = []
    with torch.device("meta"):
        net = ResNet(learner.config(10))
        net.layer4.register_forward_hook(lambda _module, _entering, leaving: seen.append(leaving.shape))
        assert net(torch.zeros(2, 3, side, side)).shape == (2, 10)
    assert seen == [(2, net.config.features, maps, maps)]


def test_the_net_computes_what_a_literal_transcription_computes() -> None:
    torch.manual_seed(0)
    net = ResNet(ResNetConfig(3, (1, 1, 1, 1), 2)).eval()
    x = torch.randn(2, 3, 8, 8)
    state = net.state_dict()

    def conv_bn(x: torch.Tensor, conv: str, bn: str, stride: int, padding: int) -> torch.Tensor:
        out = nn.functional.conv2d(x, state[f"{conv}.weight"], None, stride, padding)
        mean, var = state[f"{bn}.running_mean"], state[f"{bn}.running_var"]
        return nn.functional.batch_norm(out, mean, var, state[f"{bn}.weight"], state[f"{bn}.bias"], eps=1e-5)

    h = conv_bn(x, "conv1", "bn1", 1, 1).relu()
    for stage in (1, 2, 3, 4):
        name, stride = f"layer{stage}.0", 1 if stage == 1 else 2
        short = h if stage == 1 else conv_bn(h, f"{name}.downsample.0", f"{name}.downsample.1", stride, 0)
        inner = conv_bn(h, f"{name}.conv1", f"{name}.bn1", stride, 1).relu()
        h = (conv_bn(inner, f"{name}.conv2", f"{name}.bn2", 1, 1) + short).relu()
    logits = h.mean(dim=(2, 3)) @ state["fc.weight"].T + state["fc.bias"]
    torch.testing.assert_close(net(x), logits)


@pytest.mark.parametrize("side", [32, 9, 3])  # 3: the last stages have one pixel, which is not halved
def test_the_net_for_processors_computes_what_a_literal_transcription_computes(side: int) -> None:
    torch.manual_seed(0)
    net = PooledNet(PooledConfig(3, width=4)).eval()
    x, state, functional = torch.randn(2, 3, side, side), net.state_dict(), nn.functional
    for name, tensor in state.items():
        if "running" in name:
            tensor.uniform_(0.5, 1.5)

    def norm(maps: torch.Tensor, name: str) -> torch.Tensor:
        mean, var, scale, shift = (
            state[f"{name}.{part}"][:, None, None] for part in ("running_mean", "running_var", "weight", "bias")
        )
        return (maps - mean) / (var + 1e-5).sqrt() * scale + shift

    h = functional.conv2d(x, state["stem.weight"], state["stem.bias"]).relu()  # no padding
    for stage in ("stages.0", "stages.1", "stages.2"):
        wide = functional.conv2d(h, state[f"{stage}.conv1.weight"], padding=1)
        half = norm(functional.max_pool2d(wide, 2) if wide.shape[2] > 1 else wide, f"{stage}.bn1").relu()
        h = (norm(functional.conv2d(half, state[f"{stage}.conv2.weight"], padding=1), f"{stage}.bn2") + half).relu()
    logits = h.flatten(2).max(dim=2).values @ state["fc.weight"].T + state["fc.bias"]
    torch.testing.assert_close(net(x), logits)


def test_the_net_for_processors_has_few_weights_and_no_stem_to_choose() -> None:
    assert parameters(PooledNet(ResNet8().config(10))) == 292_698
    with pytest.raises(BadInput, match="no setting 'stem'"):
        make_learner("resnet8", stem="3x3")
    with pytest.raises(BadInput, match="width is 1; it must be at least 2"):
        ResNet8(**TINY | {"width": 1}).fit(images(4), np.array([0, 1, 0, 1]), classes=2, seed=0)


def test_gradients_stay_in_channels_last_order_on_their_way_back() -> None:
    net, orders = ResNet(ResNetConfig(3, (1, 1, 1, 1), 8)), []

    def look(_module: nn.Module, _entering: object, leaving: torch.Tensor) -> None:
        leaving.register_hook(lambda gradient: orders.append(gradient.stride()))

    placed(net, torch.device("cpu"))
    for stage in (net.layer1, net.layer2, net.layer3):
        stage.register_forward_hook(look)
    net(torch.randn(4, 3, 16, 16).contiguous(memory_format=torch.channels_last)).square().sum().backward()
    assert orders == [(512, 1, 128, 32), (1024, 1, 128, 16), (2048, 1, 128, 8)]  # last stage first


def test_names_of_weights_are_those_of_torchvision() -> None:
    with torch.device("meta"):
        names = set(ResNet(ResNet101(stem="7x7-pool").config(1000)).state_dict())
    assert {"conv1.weight", "bn1.running_mean", "layer1.0.downsample.0.weight", "layer3.22.conv3.weight"} <= names
    assert {"layer4.2.bn3.bias", "layer1.0.downsample.1.num_batches_tracked", "fc.weight", "fc.bias"} <= names
    assert len(names) == 626


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_pretrained_weights_fill_everything_but_the_last_layer(tmp_path: Path, suffix: str) -> None:
    giver, taker = ResNet(ResNetConfig(1000, (1, 1, 1, 1), 2)), ResNet(ResNetConfig(3, (1, 1, 1, 1), 2))
    state = {name: tensor for name, tensor in giver.state_dict().items() if not name.endswith("num_batches_tracked")}
    path = tmp_path / f"weights{suffix}"
    if suffix == ".pth":
        torch.save(state, path)
    else:
        safetensors.torch.save_file(state, path)
    before = taker.fc.weight.clone()
    load_pretrained(taker, str(path), "resnet10")
    assert torch.equal(taker.layer4[0].conv2.weight, giver.layer4[0].conv2.weight)
    assert torch.equal(taker.fc.weight, before)


def test_a_learner_starts_from_the_weights_it_is_given(tmp_path: Path) -> None:
    learner = ResNet10(**TINY, weights=str(tmp_path / "w.safetensors"), lr=1e-30)
    giver = ResNet(learner.config(7))
    safetensors.torch.save_file(giver.state_dict(), tmp_path / "w.safetensors")
    net = learner.fit(images(4), np.array([0, 1, 0, 1]), classes=2, seed=0).net
    assert torch.equal(net.layer3[0].conv1.weight, giver.layer3[0].conv1.weight)
    assert net.fc.weight.shape == (2, 16)


def test_weights_of_another_shape_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "wide.safetensors"
    safetensors.torch.save_file(ResNet(ResNetConfig(3, (1, 1, 1, 1), 4)).state_dict(), path)
    with pytest.raises(BadFile, match=r"do not fit resnet10: .* such as 'bn1.bias'"):
        load_pretrained(ResNet(ResNetConfig(3, (1, 1, 1, 1), 2)), str(path), "resnet10")


class Ambush:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return eval, ("1 / 0",)


def test_a_file_that_would_run_code_is_refused(tmp_path: Path) -> None:
    torch.save({"conv1.weight": Ambush()}, tmp_path / "ambush.pth")
    with pytest.raises(BadFile, match="cannot read weights"):
        read_weights(tmp_path / "ambush.pth")


def test_a_missing_file_and_a_table_of_something_else_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="cannot read weights"):
        read_weights(tmp_path / "none.safetensors")
    torch.save({"epoch": 3}, tmp_path / "other.pth")
    with pytest.raises(BadFile, match="not a table of tensors"):
        read_weights(tmp_path / "other.pth")


def test_without_a_network_the_error_says_what_to_download(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr("tailwise.learners.nets.IMAGENET", {"resnet10": "http://127.0.0.1:9/resnet10-00000000.pth"})
    net = ResNet(ResNetConfig(3, (1, 1, 1, 1), 2))
    with pytest.raises(BadFile, match=r"cannot fetch ImageNet weights .* download http.* weights='the/file.pth'"):
        load_pretrained(net, "imagenet", "resnet10")
    with pytest.raises(BadInput, match="no official ImageNet weights for resnet7"):
        load_pretrained(net, "imagenet", "resnet7")


def test_the_three_learners_are_registered_with_the_settings_of_the_paper() -> None:
    assert {"resnet18", "resnet10", "resnet101"} <= set(LEARNERS)
    cifar, tiny = make_learner("resnet18"), make_learner("resnet101")
    assert isinstance(cifar, ResNet18)
    assert (cifar.epochs, cifar.lr, cifar.milestones, cifar.batch, cifar.padding) == (100, 0.02, (60, 80), 256, 4)
    assert isinstance(tiny, ResNet101)
    assert (tiny.epochs, tiny.lr, tiny.milestones, tiny.padding) == (30, 0.01, (10, 15, 20, 25), 8)


def test_answers_are_distributions_and_the_embedding_explains_them(model: ResNetModel) -> None:
    proba, embeddings = model.predict_proba(images(9)), model.embed(images(9))
    assert proba.shape == (9, 4)
    np.testing.assert_allclose(proba.sum(axis=1), 1, atol=1e-6)
    logits = embeddings @ model.net.fc.weight.detach().numpy().T + model.net.fc.bias.detach().numpy()
    expected = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(proba, expected, atol=1e-6)


def test_known_embeddings_give_the_same_answers_without_the_images(model: ResNetModel) -> None:
    np.testing.assert_array_equal(model.proba_of(model.embed(images(9))), model.predict_proba(images(9)))
    assert model.proba_of(model.embed(images(9))[:0]).shape == (0, 4)


def test_answers_do_not_depend_on_the_batch(model: ResNetModel) -> None:
    small = ResNetModel(model.learner, model.net, model.channels, batch=3)
    np.testing.assert_allclose(small.predict_proba(images(10)), model.predict_proba(images(10)), atol=1e-6)
    np.testing.assert_allclose(small.embed(images(10)), model.embed(images(10)), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(small.mc_proba(images(10), 3, 5), model.mc_proba(images(10), 3, 5), atol=1e-6)


def test_answers_are_those_of_the_net_about_clean_images_whatever_it_was_trained_on() -> None:
    data, labels = images(20), np.arange(20) % 3
    for augmentation in ({"padding": 4, "flip": True}, {"padding": 0, "flip": False}):
        model = ResNet10(**TINY | augmentation).fit(data, labels, classes=3, seed=1)
        with torch.no_grad():
            features = model.net.features(normalise(torch.from_numpy(data), model.channels))
            proba = torch.softmax(model.net.fc(features), dim=1)
        np.testing.assert_allclose(model.embed(data), features.numpy(), rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(model.predict_proba(data), proba.numpy(), atol=1e-6)


def test_no_images_have_no_answers(model: ResNetModel) -> None:
    assert model.predict_proba(images(0)).shape == (0, 4)
    assert model.embed(images(0)).shape == (0, model.net.config.features)
    assert model.mc_proba(images(0), 3, seed=0).shape == (3, 0, 4)


def test_asking_changes_no_bit_of_the_model_and_no_global_random_state(model: ResNetModel) -> None:
    before = {name: tensor.clone() for name, tensor in model.net.state_dict().items()}
    state = torch.get_rng_state()
    model.predict_proba(images(7))
    model.embed(images(7))
    model.mc_proba(images(7), 4, seed=0)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.net.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    assert not any(module.training for module in model.net.modules())


def test_dropout_passes_are_those_of_a_net_with_only_its_dropout_in_train_mode(model: ResNetModel) -> None:
    passes = model.mc_proba(images(6), 400, seed=3)
    inputs = torch.from_numpy(images(6))
    model.net.dropout.train()
    torch.manual_seed(0)
    with torch.no_grad():
        ready = normalise(inputs, model.channels)
        plain = torch.stack([torch.softmax(model.net(ready), dim=1) for _ in range(400)]).numpy()
    model.net.dropout.eval()
    np.testing.assert_allclose(passes.mean(axis=0), plain.mean(axis=0), atol=0.03)
    np.testing.assert_allclose(passes.std(axis=0), plain.std(axis=0), atol=0.03)
    assert passes.std(axis=0).max() > 1e-3


def test_dropout_passes_follow_from_the_seed(model: ResNetModel) -> None:
    assert np.array_equal(model.mc_proba(images(5), 2, seed=1), model.mc_proba(images(5), 2, seed=1))
    assert not np.array_equal(model.mc_proba(images(5), 2, seed=1), model.mc_proba(images(5), 2, seed=2))


def test_a_net_without_dropout_refuses_dropout_passes(dropless: ResNetModel) -> None:
    with pytest.raises(BadInput, match=r"BALD needs dropout, .* set dropout=0.5"):
        dropless.mc_proba(images(2), 2, seed=0)


def test_a_saved_model_gives_the_same_bits(model: ResNetModel, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    again = ResNet10(device="cpu").load(tmp_path / "model")
    assert np.array_equal(again.predict_proba(images(5)), model.predict_proba(images(5)))
    assert again.classes == 4


def test_a_model_whose_tensors_are_not_those_of_its_settings_is_a_bad_file(model: ResNetModel, tmp_path: Path) -> None:
    model.save(tmp_path)
    stored = load_model(tmp_path, "resnet10")
    stored.settings["config"]["width"] = 3
    save_model(tmp_path, stored)
    with pytest.raises(BadFile, match="does not make a resnet10"):
        ResNet10().load(tmp_path)


def test_a_damaged_or_foreign_model_is_a_bad_file(model: ResNetModel, tmp_path: Path) -> None:
    model.save(tmp_path)
    with pytest.raises(BadFile, match="resnet10"):
        ResNet18().load(tmp_path)
    tensors = next(tmp_path.glob("*.safetensors"))
    content = bytearray(tensors.read_bytes())
    content[-1] ^= 1
    tensors.write_bytes(content)
    with pytest.raises(BadFile, match="damaged"):
        ResNet10().load(tmp_path)
    with pytest.raises(BadFile):
        ResNet10().load(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"stem": "5x5"}, "no stem is called '5x5'"),
        ({"dropout": 1.0}, "dropout is a probability below 1"),
        ({"epochs": 0}, "epochs ≥ 1"),
        ({"device": "tpu"}, "device 'tpu' was asked for, but this machine has"),
        ({"class_weight": "odd"}, "class_weight is 'odd'; it must be one of none, balanced"),
        ({"schedule": "cosine"}, "schedule is 'cosine'; it must be one of steps, one-cycle"),
    ],
)
def test_senseless_settings_are_refused(settings: dict[str, object], complaint: str) -> None:
    with pytest.raises(BadInput, match=complaint):
        ResNet10(**{**TINY, **settings}).fit(images(4), np.array([0, 1, 0, 1]), classes=2, seed=0)


def test_features_and_floats_are_refused_as_images(model: ResNetModel) -> None:
    with pytest.raises(BadInput, match=r"resnet10 needs images .* but the inputs have the shape \(5, 8\)"):
        ResNet10(**TINY).fit(np.zeros((5, 8)), np.zeros(5, np.int64), classes=2, seed=0)
    with pytest.raises(BadInput, match="must be uint8"):
        model.predict_proba(np.zeros((2, 8, 8, 3)))


@pytest.mark.parametrize(("spoilt", "what"), [("fc.weight", "probabilities"), ("bn1.weight", "embeddings")])
def test_answers_that_are_no_numbers_are_an_error_that_says_what_to_do(
    model: ResNetModel, spoilt: str, what: str
) -> None:
    net = ResNet(model.net.config).eval()
    net.load_state_dict(model.net.state_dict())
    torch.nn.init.constant_(net.get_parameter(spoilt), 3e38)
    bad = ResNetModel(model.learner, net, model.channels)
    says = "that are not finite for 6 of 6 images: .* lower lr, train for more epochs, or label more images"
    with pytest.raises(BadInput, match=f"this resnet10 gives probabilities {says}"):
        bad.predict_proba(images(6))
    with pytest.raises(BadInput, match=f"this resnet10 gives probabilities {says}"):
        bad.mc_proba(images(6), 3, seed=0)
    if what == "embeddings":
        with pytest.raises(BadInput, match=f"this resnet10 gives embeddings {says}"):
            bad.embed(images(6))
