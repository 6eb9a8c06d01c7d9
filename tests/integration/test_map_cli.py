"""`tailwise map`: what it prints and writes is what the campaign knows."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import tailwise
from tailwise.campaign.models import predict

from .conftest import NAMES, answer_round, complaint, json_of, ran, shown


def table(path: str) -> list[dict[str, str]]:
    with Path(path).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_a_table_has_every_image_with_its_place_class_and_guess(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        json_of(capsys, "next", "zoo", "--budget", "6")
        answer_round(zoo)
    found = json_of(capsys, "map", "zoo", "--method", "pca", "--out", "map.csv")
    rows = table("map.csv")
    with tailwise.Campaign.open(zoo, read_only=True) as campaign:
        projection = campaign.map("pca")
        labels = campaign.labels()
        predicted = predict(campaign, projection.images)
        guesses = dict(zip(predicted.images.tolist(), predicted.best()[0].tolist(), strict=True))
        names = {one.id: one.name for one in campaign.classes()}
        paths = dict(campaign.ledger.read("SELECT id, path FROM image"))  # type: ignore[arg-type]
    assert (found["images"], found["new"], found["method"]) == (len(rows), len(rows), "pca")
    assert found["backbone"] == "simple"
    assert [row["path"] for row in rows] == [paths[number] for number in projection.images.tolist()]
    assert {row["path"]: row["class"] for row in rows if row["class"]} == labels
    assert [row["guess"] for row in rows] == [names[guesses[one]] for one in projection.images.tolist()]
    assert {row["guess"] for row in rows} <= set(NAMES)
    places = np.array([(float(row["x"]), float(row["y"])) for row in rows])
    assert np.allclose(places, projection.xy, atol=1e-6)


def test_a_figure_is_written_and_the_map_is_kept(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "was drawn (PCA of features by simple)" in shown(capsys, "map", "zoo", "--method", "pca", "--out", "map.png")
    with Image.open("map.png") as picture:
        assert picture.format == "PNG"
        assert min(picture.size) > 500
    assert (zoo / "maps").is_dir()
    assert "is up to date" in shown(capsys, "map", "zoo", "--method", "pca")
    assert json_of(capsys, "map", "zoo", "--method", "pca", "--redo")["new"] == json_of(capsys, "map", "zoo")["images"]


def test_without_a_model_the_guesses_are_empty(zoo: Path) -> None:
    assert zoo.is_dir()
    assert ran("map", "zoo", "--method", "pca", "--out", "map.csv", "-q") == 0
    assert {(row["class"], row["guess"]) for row in table("map.csv")} == {("", "")}


def test_what_cannot_be_done_is_said_before_anything_is_drawn(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "cannot write a map to map.txt" in complaint(capsys, "map", "zoo", "--out", "map.txt", code=3)
    assert "no map is drawn by 'tsne'" in complaint(capsys, "map", "zoo", "--method", "tsne", code=3)
    assert not (zoo / "maps").exists()


def test_while_another_process_writes_the_map_is_read(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ran("map", "zoo", "--method", "pca", "-q") == 0
    with tailwise.Campaign.open(zoo, purpose="`tailwise label`"):
        assert json_of(capsys, "map", "zoo", "--method", "pca", "--out", "map.csv")["new"] == 0
    assert len(table("map.csv")) == 27
