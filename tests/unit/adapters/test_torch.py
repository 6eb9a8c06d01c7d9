"""`predict(model, loader)` compared with what a plain loop over the model gives; the model is left as it was."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402 - after the skip
from torch.utils.data import DataLoader, IterableDataset, TensorDataset  # noqa: E402

import tailwise  # noqa: E402
from tailwise.adapters import with_progress  # noqa: E402
from tailwise.adapters.torch import predict  # noqa: E402
from tailwise.errors import BadFile, BadInput  # noqa: E402

N, WIDTH, CLASSES = 23, 6, 4


class Net(nn.Module):
    """Convolution, batch norm, dropout, two linear layers."""

    def __init__(self, dropout: float = 0.5) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, WIDTH, 3)
        self.norm = nn.BatchNorm2d(WIDTH)
        self.drop = nn.Dropout(dropout)
        self.fc = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Any) -> Any:  # noqa: ANN401
        return self.fc(self.drop(self.norm(self.conv(x)).mean(dim=(2, 3))))


@pytest.fixture
def net() -> Net:
    torch.manual_seed(0)
    made = Net()
    made.norm.running_mean.normal_()
    return made


@pytest.fixture(scope="module")
def images() -> torch.Tensor:
    return torch.randn(N, 1, 5, 5, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def truth(net: Net, images: torch.Tensor) -> np.ndarray:
    with torch.no_grad():
        proba = torch.softmax(net.eval()(images), dim=1).numpy()
    net.train()
    return np.asarray(proba)


def loader(*columns: Any, **settings: Any) -> Any:  # noqa: ANN401
    return DataLoader(TensorDataset(*columns), batch_size=4, **settings)


class Dicts:
    """Batches as dicts."""

    def __init__(self, images: torch.Tensor, **names: str) -> None:
        self.images, self.key = images, names.get("key", "x")

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for start in range(0, N, 5):
            part = self.images[start : start + 5]
            yield {self.key: part, "labels": torch.zeros(len(part)), "path": ["a.png"] * len(part)}


def test_tensors_tuples_and_dicts_give_the_same_rows_as_the_model(
    net: Net, images: torch.Tensor, truth: np.ndarray
) -> None:
    labels = torch.zeros(N, dtype=torch.int64)
    forms = [[images[:9], images[9:]], loader(images), loader(images, labels)]
    forms += [[{"x": images, "labels": labels}], [{"image": images, "label": labels}]]
    for form in forms:
        found = predict(net, form)
        np.testing.assert_allclose(np.asarray(found.proba), truth, atol=1e-6)
        assert found.embeddings is None
        assert found.mc_proba is None


def test_inputs_says_what_the_model_gets(net: Net, images: torch.Tensor, truth: np.ndarray) -> None:
    found = predict(net, Dicts(images), inputs=lambda batch: batch["x"])
    np.testing.assert_allclose(np.asarray(found.proba), truth, atol=1e-6)
    found = predict(net, Dicts(images, key="pixels"), inputs=lambda batch: {"x": batch["pixels"]})
    np.testing.assert_allclose(np.asarray(found.proba), truth, atol=1e-6)


def test_a_dict_that_does_not_fit_the_model_says_what_to_give(net: Net, images: torch.Tensor) -> None:
    with pytest.raises(
        BadInput, match=r"the model takes x; give inputs=, for instance inputs=lambda batch: batch\['a'\]"
    ):
        predict(net, [{"a": images, "b": images}])


def test_the_mode_of_every_layer_the_gradients_and_the_generator_are_left_alone(net: Net, images: torch.Tensor) -> None:
    net.train()
    net.norm.eval()  # a frozen batch norm in a model that is being trained
    before, state = {name: value.clone() for name, value in net.state_dict().items()}, torch.random.get_rng_state()
    predict(net, loader(images), layer="norm", passes=2)
    assert net.training
    assert net.drop.training
    assert not net.norm.training
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert not net.fc._forward_pre_hooks
    assert not net.norm._forward_hooks
    net(images).sum().backward()  # nothing that predict left behind is in the way of training
    assert net.fc.weight.grad is not None


def test_a_model_that_fails_is_left_as_it_was(net: Net, images: torch.Tensor) -> None:
    net.train()
    with pytest.raises(RuntimeError):
        predict(net, [images, images[:, :, :, :2]], layer="last", passes=1)
    assert net.drop.training
    assert not net.fc._forward_pre_hooks


def test_embeddings_of_a_named_layer_and_of_the_last_one(net: Net, images: torch.Tensor) -> None:
    with torch.no_grad():
        maps = net.eval().norm(net.conv(images)).mean(dim=(2, 3)).numpy()
    named = np.asarray(predict(net, loader(images), layer="norm").embeddings)
    last = np.asarray(predict(net, loader(images), layer="last").embeddings)
    np.testing.assert_allclose(named, maps, atol=1e-6)
    np.testing.assert_allclose(last, maps, atol=1e-6)  # dropout is off


def test_tokens_are_averaged() -> None:
    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.head = nn.Identity(), nn.Linear(3, 2)

        def forward(self, x: Any) -> Any:  # noqa: ANN401
            return (self.head(self.encoder(x)[:, 0]), None)

    tokens = torch.randn(5, 7, 3)
    found = np.asarray(predict(Tokens(), [tokens], layer="encoder").embeddings)
    np.testing.assert_allclose(found, tokens.mean(dim=1).numpy(), atol=1e-6)


def test_an_unknown_layer_names_the_nearest(net: Net, images: torch.Tensor) -> None:
    with pytest.raises(BadInput, match="the model has no layer 'nrom'; did you mean 'norm', or 'last'"):
        predict(net, [images], layer="nrom")


def test_dropout_passes_vary_are_seeded_and_leave_batch_norm_alone(net: Net, images: torch.Tensor) -> None:
    four, two, other = (
        np.asarray(predict(net, loader(images), passes=passes, seed=seed).mc_proba)
        for passes, seed in ((4, 0), (2, 0), (4, 1))
    )
    assert four.shape == (4, N, CLASSES)
    np.testing.assert_allclose(four.sum(axis=2), 1, atol=1e-5)
    np.testing.assert_array_equal(four[:2], two)
    assert np.abs(four - other).max() > 1e-3
    assert np.abs(four[0] - four[1]).max() > 1e-3
    many = np.asarray(predict(net, [images], passes=400).mc_proba)
    features = np.asarray(predict(net, [images], layer="last").embeddings)
    with torch.no_grad():  # the mean logit of inverted dropout is the logit without it
        logits = net.fc(torch.from_numpy(features)).numpy()
    log = np.log(many).mean(axis=0)
    np.testing.assert_allclose(
        log - log.mean(axis=1, keepdims=True), logits - logits.mean(axis=1, keepdims=True), atol=0.15
    )


def test_passes_without_dropout_are_rejected(images: torch.Tensor) -> None:
    with pytest.raises(BadInput, match="the model has no dropout layer"):
        predict(Net(dropout=0.0), [images], passes=3)


def test_a_labelled_loader_may_shuffle_and_gives_its_classes(net: Net, images: torch.Tensor) -> None:
    labels = torch.arange(N) % CLASSES
    found = predict(net, loader(images), labelled=loader(images, labels, shuffle=True), layer="last")
    assert found.labelled_labels is not None
    assert found.labelled_embeddings is not None
    order = np.argsort(np.asarray(found.labelled_embeddings)[:, 0])
    expected = np.argsort(np.asarray(found.embeddings)[:, 0])
    np.testing.assert_array_equal(found.labelled_labels[order], labels.numpy()[expected])
    np.testing.assert_allclose(np.asarray(found.labelled_proba)[order], np.asarray(found.proba)[expected], atol=1e-6)
    with pytest.raises(BadInput, match="no labels"):
        predict(net, [images], labelled=[images])


def test_a_loader_that_shuffles_or_drops_items_is_rejected(net: Net, images: torch.Tensor) -> None:
    with pytest.raises(BadInput, match="the loader shuffles"):
        predict(net, loader(images, shuffle=True))
    with pytest.raises(BadInput, match="gave 20 of 23 items"):
        predict(net, loader(images, drop_last=True))


def test_models_that_end_with_a_softmax_need_to_say_so(net: Net, images: torch.Tensor, truth: np.ndarray) -> None:
    softmax = nn.Sequential(net, nn.Softmax(dim=1))
    with pytest.raises(BadInput, match="say output='proba'"):
        predict(softmax, [images])
    np.testing.assert_allclose(np.asarray(predict(softmax, [images], output="proba").proba), truth, atol=1e-6)
    with pytest.raises(BadInput, match="not probabilities"):
        predict(net, [images], output="proba")


def test_one_logit_means_two_classes() -> None:
    x = torch.tensor([[0.0], [2.0]])
    column, flat = nn.Identity(), nn.Flatten(0)
    for model in (column, flat):
        np.testing.assert_allclose(np.asarray(predict(model, [x]).proba)[:, 1], [0.5, 1 / (1 + np.exp(-2))], atol=1e-6)
    np.testing.assert_allclose(
        np.asarray(predict(nn.Sigmoid(), [x], output="proba").proba)[:, 1], [0.5, 1 / (1 + np.exp(-2))], atol=1e-6
    )


def test_nan_is_rejected_with_the_item(net: Net, images: torch.Tensor) -> None:
    bad = images.clone()
    bad[6] = torch.nan
    with pytest.raises(BadInput, match="NaN or infinity for item 2 of batch 1"):
        predict(net, loader(bad))


def test_mixed_precision_and_half_floats_are_close_and_small(net: Net, images: torch.Tensor, truth: np.ndarray) -> None:
    found = predict(net, loader(images), amp=True, dtype="float16", layer="conv")
    assert np.asarray(found.proba).dtype == np.float16
    assert np.asarray(found.embeddings).dtype == np.float16
    np.testing.assert_allclose(np.asarray(found.proba, np.float32), truth, atol=0.02)
    assert len(tailwise.select(found.proba, 5, balance=0)) == 5


def test_a_device_that_is_not_there_is_named(net: Net, images: torch.Tensor) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    with pytest.raises(BadInput, match="cannot run on the device 'cuda'"):
        predict(net, [images], device="cuda")
    with pytest.raises(BadInput, match="cannot run on the device 'toaster'"):
        predict(net, [images], device="toaster")


def test_a_model_runs_elsewhere_and_returns_home(net: Net) -> None:
    with pytest.raises(BadInput, match="gives"):  # meta tensors have no values: that it runs there is all that is shown
        predict(nn.Sequential(nn.Flatten(1), nn.Flatten(0), nn.Unflatten(0, (1, 1, -1))), [torch.zeros(4, 2)])
    net.to(torch.float64)
    found = predict(net, [torch.zeros(3, 1, 5, 5, dtype=torch.float64)], device=torch.device("cpu"))
    assert np.asarray(found.proba).dtype == np.float32
    assert next(net.parameters()).device.type == "cpu"


class Endless(IterableDataset):  # type: ignore[type-arg]
    """A stream without a length."""

    def __init__(self, images: torch.Tensor) -> None:
        self.images = images

    def __iter__(self) -> Iterator[Any]:
        return iter(self.images)


def test_files_hold_the_same_as_memory_also_from_a_stream(net: Net, images: torch.Tensor, tmp_path: Path) -> None:
    memory = predict(net, loader(images), layer="last", passes=3)
    for number, source in enumerate((loader(images), DataLoader(Endless(images), batch_size=4))):
        folder = tmp_path / str(number)
        found = predict(net, source, layer="last", passes=3, out=folder)
        assert sorted(path.name for path in folder.iterdir()) == ["embeddings.npy", "mc_proba.npy", "proba.npy"]
        for name in ("proba", "embeddings", "mc_proba"):
            kept = np.load(folder / f"{name}.npy")
            assert isinstance(getattr(found, name), np.memmap)
            np.testing.assert_array_equal(kept, getattr(memory, name))
    batch = tailwise.select(tmp_path / "0/proba.npy", 5, balance=0)
    np.testing.assert_array_equal(batch.indices, tailwise.select(memory.proba, 5, balance=0).indices)


def test_a_run_that_fails_leaves_no_files(net: Net, images: torch.Tensor, tmp_path: Path) -> None:
    bad = images.clone()
    bad[-1] = torch.nan
    with pytest.raises(BadInput, match="NaN"):
        predict(net, loader(bad), out=tmp_path, passes=2)
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").touch()
    with pytest.raises(BadFile, match="cannot write predictions"):
        predict(net, loader(images), out=tmp_path / "file")


def test_an_empty_loader_and_a_wrong_model_are_rejected(net: Net, images: torch.Tensor) -> None:
    with pytest.raises(BadInput, match="the loader gave no batch"):
        predict(net, [])
    with pytest.raises(BadInput, match=r"give a torch\.nn\.Module"):
        predict(lambda x: x, [images])
    with pytest.raises(BadInput, match="a batch is 'str'"):
        predict(net, ["a.png"])
    with pytest.raises(BadInput, match="dtype 'int8'"):
        predict(net, [images], dtype="int8")


def test_a_bar_is_drawn_only_where_somebody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = {}
    for show in (None, True):
        monkeypatch.setattr("sys.stderr", io.StringIO())
        assert list(with_progress([1, 2, 3], "predicting", total=3, show=show)) == [1, 2, 3]
        import sys

        drawn[show] = sys.stderr.getvalue()  # type: ignore[attr-defined] # the StringIO above
    assert drawn[None] == ""
    assert "predicting" in drawn[True]
    assert "3/3" in drawn[True]
