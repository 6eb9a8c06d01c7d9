"""The paper's presets, one cycle each: all as published but for the sizes, on archives in the official layouts."""

from __future__ import annotations

import io
import math
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tailwise.cli.output import run
from tailwise.experiments.experiment import Experiment, Row, balance_name, parse_experiment, read_experiment
from tailwise.experiments.store import read_rows
from tailwise.learners.nets import ResNet
from tailwise.learners.resnet import ResNet101
from tailwise.pools import datasets
from tailwise.pools.datasets import Layout

WIDTH = 8  # of the first stage; 64 in the paper
SMALL_VAAL = {"steps": 2, "batch": 4, "channels": [4, 8, 8, 8], "critic": 16}
NAN_BY_RIGHT = {"gap": ("kcenter", "random"), "tail_accuracy": ("balanced",)}  # no bound; no tail


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def pixels(labels: np.ndarray, side: int, seed: int) -> np.ndarray:
    """Noise whose colour is the class: (n, side, side, 3)."""
    rng = np.random.default_rng(seed)
    colour = np.stack([labels * 37 % 151, labels * 59 % 151, labels * 83 % 151], axis=1)
    return (rng.integers(0, 100, (len(labels), side, side, 3)) + colour[:, None, None]).astype(np.uint8)


def pack_cifar(archive: Path, layout: Layout) -> None:
    """A .tar.gz of records in the official layout, every class as often as any other."""
    with tarfile.open(archive, "w:gz") as tar:
        for number, file in enumerate((*layout.train, layout.test)):
            count = layout.test_records if file == layout.test else layout.train_records
            labels = np.arange(count) % layout.labels[-1]
            planes = pixels(labels, datasets.SIDE, number).transpose(0, 3, 1, 2).reshape(count, -1)
            heads = [labels % values for values in layout.labels]
            add(tar, f"{layout.source.folder}/{file}", np.column_stack([*heads, planes]).astype(np.uint8).tobytes())
        names = "\n".join(f"kind-{number}" for number in range(layout.labels[-1]))
        add(tar, f"{layout.source.folder}/{layout.names}", names.encode())


def add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))


def pack_tiny_imagenet(archive: Path, classes: int, each: int, side: int) -> None:
    """The official .zip: train/WNID/images, val/images with a table, wnids.txt and words.txt."""
    ids = [f"n{number:08d}" for number in range(classes)]
    with zipfile.ZipFile(archive, "w") as file:
        top = "tiny-imagenet-200"
        for number, image in enumerate(pixels(np.repeat(np.arange(classes), each), side, 0)):
            wnid = ids[number // each]
            file.writestr(f"{top}/train/{wnid}/images/{wnid}_{number % each}.JPEG", jpeg(image))
        lines = []
        for number, image in enumerate(pixels(np.arange(2 * classes) % classes, side, 1)):
            file.writestr(f"{top}/val/images/val_{number}.JPEG", jpeg(image))
            lines.append(f"val_{number}.JPEG\t{ids[number % classes]}\t0\t0\t{side}\t{side}\n")
        file.writestr(f"{top}/val/val_annotations.txt", "".join(lines))
        file.writestr(f"{top}/wnids.txt", "\n".join(ids))
        file.writestr(f"{top}/words.txt", "".join(f"{wnid}\tkind-{at}, other\n" for at, wnid in enumerate(ids)))


def jpeg(image: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "JPEG", quality=95)
    return buffer.getvalue()


def reduced(name: str, data: Path, *, initial: int, budget: int, factors: list[float], batch: int) -> Experiment:
    """A preset with smaller sizes and nothing else changed; the schedule keeps its shape in five or six epochs."""
    content: dict[str, Any] = read_experiment(name).model_dump(mode="json")
    settings = content["learner"]["settings"]
    scale = 20 if settings["epochs"] == 100 else 5
    settings |= {
        "epochs": settings["epochs"] // scale, "milestones": [mark // scale for mark in settings["milestones"]],
        "batch": batch, "width": WIDTH, "device": "cpu",
    }  # fmt: skip
    content["pool"]["path"] = str(data)
    content["imbalance"]["factors"] = factors
    content["start"]["initial"] = initial
    content |= {"budget": budget, "cycles": 1, "seeds": [0], "vaal": SMALL_VAAL}
    return parse_experiment(Experiment.model_validate(content).to_toml(), name)


def results(experiment: Experiment, folder: Path) -> list[Row]:
    """Run it as a user does, report included."""
    file = folder / "small.toml"
    file.write_text(experiment.to_toml(), encoding="utf-8")
    out = folder / "out"
    assert run(["bench", "run", str(file), "--out", str(out), "--processes", "1", "--quiet"]) == 0
    page = (out / "report.html").read_text(encoding="utf-8")
    assert page.lower().startswith("<!doctype html>")
    assert len(list((out / "figures").glob("*.png"))) >= 3
    assert list((out / "tables").glob("*.csv"))
    drawn = [figure.read_text(encoding="utf-8") for figure in (out / "figures").glob("*.svg")]
    assert any("kind-3" in figure for figure in drawn) == (experiment.pool.name != "cifar100")  # too many to be named
    assert tomllib.loads((out / "experiment.toml").read_text(encoding="utf-8"))["name"] == experiment.name
    return read_rows(out / "results.csv")


def check(experiment: Experiment, rows: list[Row], classes: int, preset: str) -> None:
    """Every strategy and balance of the preset has its two rows, and every number in them is one."""
    parts = read_experiment(preset).strategies
    wanted = {(part.name, balance_name(balance)) for part in parts for balance in part.balance}
    for factor in experiment.imbalance.factors:
        assert {(row.strategy, row.balance) for row in rows if row.imbalance == factor} == wanted
    assert len(rows) == 2 * len(wanted) * len(experiment.imbalance.factors)
    for row in rows:
        assert row.labelled == sum(row.counts) == experiment.start.initial + row.cycle * experiment.budget
        assert len(row.counts) == len(row.recalls) == classes
        assert row.picks == (experiment.budget if row.cycle == 0 else 0)
        assert sum(row.expected) == pytest.approx(row.picks, abs=1e-3)
        for field in fields(Row):
            value = getattr(row, field.name)
            numbers = value if isinstance(value, tuple) else (value,)
            if row.cycle == 0 and not excused(row, field.name):
                assert all(isinstance(one, str) or math.isfinite(one) for one in numbers), (
                    row.strategy,
                    row.balance,
                    field.name,
                )
    chosen = [row for row in rows if row.cycle == 0]
    assert all((row.lam > 0) == (row.balance != "0") for row in chosen)
    for strategy in {part.name for part in parts if len(part.balance) > 1}:
        for factor in experiment.imbalance.factors:
            plain, balanced = (row for row in chosen if (row.strategy, row.imbalance) == (strategy, factor))
            assert balanced.l1 <= plain.l1


def excused(row: Row, name: str) -> bool:
    return any(word in (row.strategy, row.setting) for word in NAN_BY_RIGHT.get(name, ()))


@pytest.mark.slow
@pytest.mark.usefixtures("quick_figures")
def test_the_cifar10_of_the_paper_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = replace(datasets.CIFAR10, train_records=30, test_records=20)
    monkeypatch.setattr(datasets, "CIFAR10", layout)
    pack_cifar(tmp_path / layout.source.url.rpartition("/")[2], layout)
    small = reduced("paper-cifar10", tmp_path, initial=20, budget=10, factors=[0.1], batch=8)
    assert small.learner.settings | {"width": 64, "device": "auto"} == {
        "epochs": 5, "milestones": [3, 4], "lr": 0.02, "batch": 8, "weight_decay": 0.0005, "padding": 4,
        "width": 64, "device": "auto",
    }  # fmt: skip
    check(small, results(small, tmp_path), 10, "paper-cifar10")


@pytest.mark.long
@pytest.mark.usefixtures("quick_figures")
def test_the_cifar100_of_the_paper_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = replace(datasets.CIFAR100, train_records=300, test_records=100)
    monkeypatch.setattr(datasets, "CIFAR100", layout)
    pack_cifar(tmp_path / layout.source.url.rpartition("/")[2], layout)
    small = reduced("paper-cifar100", tmp_path, initial=50, budget=10, factors=[0.3], batch=16)
    check(small, results(small, tmp_path), 100, "paper-cifar100")


@pytest.mark.long
@pytest.mark.usefixtures("quick_figures")
def test_the_tiny_imagenet_of_the_paper_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pack_tiny_imagenet(tmp_path / "tiny-imagenet-200.zip", classes=6, each=8, side=16)
    official = tmp_path / "home" / "hub" / "checkpoints" / "resnet101-63fe2227.pth"
    official.parent.mkdir(parents=True)
    torch.manual_seed(0)
    torch.save(ResNet(ResNet101(width=WIDTH).config(1000)).state_dict(), official)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))  # as if it had been fetched: pretrained like the preset
    small = reduced("paper-tinyimagenet", tmp_path, initial=8, budget=4, factors=[1.0], batch=8)
    assert (small.learner.settings["epochs"], small.learner.settings["milestones"]) == (6, [2, 3, 4, 5])
    check(small, results(small, tmp_path), 6, "paper-tinyimagenet")
