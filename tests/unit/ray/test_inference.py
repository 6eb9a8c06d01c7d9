"""Probabilities of a pool, in this process: right, resumable shard by shard, the same bits for any workers."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from tailwise.errors import BadFile, BadInput
from tailwise.inference.pipeline import Predicted, plan_pool, predict_pool
from tailwise.inference.storage import names_of, read_manifest
from tailwise.learners import make_learner
from tailwise.learners.features import simple_features
from tailwise.matrix.blocks import SUM_TOLERANCE
from tailwise.pools.decode import read_pixels

from .conftest import BAD, CLASSES, encoded, picture


def predict(images: Path, learner: Path, out: Path, *, workers: int = 1, **choices: Any) -> Predicted:  # noqa: ANN401
    return predict_pool(plan_pool(images, learner, out, **choices), workers=workers)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder but the lock."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def whole(folder: Path, part: str = "") -> np.ndarray:
    return np.concatenate([np.load(path) for path in sorted((folder / part).glob("part-*.npy"))])


@pytest.fixture(scope="session")
def finished(photos: Path, head: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pool in shards of 70, embeddings too; never changed."""
    out = tmp_path_factory.mktemp("finished")
    predict(photos, head, out, shard_size=70, embeddings=True)
    return out


def test_every_row_is_what_the_learner_says_of_that_image_alone(photos: Path, head: Path, tmp_path: Path) -> None:
    predict(photos, head, tmp_path, shard_size=70, dtype="float32", embeddings=True)
    model = make_learner("linear").load(head)
    names = names_of(tmp_path, range(150))
    assert len(set(names)) == 150
    proba, embeddings = whole(tmp_path), whole(tmp_path, "embeddings")
    assert proba.dtype == np.float32
    for row in range(0, 150, 7):
        pixels = read_pixels(io.BytesIO((photos / names[row]).read_bytes()), 64, names[row])
        features = simple_features(pixels[None])
        np.testing.assert_allclose(proba[row], model.predict_proba(features)[0], atol=1e-5)
        np.testing.assert_allclose(embeddings[row], model.embed(features)[0], atol=1e-4)


def test_half_precision_keeps_rows_that_sum_to_one(photos: Path, head: Path, finished: Path, tmp_path: Path) -> None:
    predict(photos, head, tmp_path, dtype="float32")
    half = whole(finished)
    assert half.dtype == np.float16
    np.testing.assert_allclose(half, whole(tmp_path), rtol=1e-3, atol=1e-4)
    assert np.abs(half.sum(axis=1, dtype=np.float64) - 1).max() < SUM_TOLERANCE[np.dtype(np.float16)]


def test_bad_images_have_no_row_and_are_listed_with_reasons(finished: Path) -> None:
    pages = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(finished.glob("part-*.json"))]
    bad = {image["path"]: image["reason"] for page in pages for image in page["bad"]}
    assert set(bad) == BAD
    assert all(bad.values())
    assert not BAD & {name for page in pages for name in page["names"]}
    assert [len(page["names"]) for page in pages] == [np.load(p).shape[0] for p in sorted(finished.glob("part-*.npy"))]


def test_the_manifest_says_what_is_there(photos: Path, head: Path, finished: Path) -> None:
    manifest = read_manifest(finished)
    assert manifest.complete
    assert (manifest.rows, manifest.classes, manifest.class_names, manifest.dtype) == (150, CLASSES, (), "float16")
    assert manifest.inputs == {"kind": "folder", "path": str(photos)}
    assert manifest.learner["path"] == str(head)
    assert [shard.rows + shard.bad for shard in manifest.shards] == [70, 70, 13]
    for shard in manifest.shards:
        assert hashlib.sha256((finished / shard.file).read_bytes()).hexdigest() == shard.sha256
        kept = (finished / "embeddings" / shard.file).read_bytes()
        assert hashlib.sha256(kept).hexdigest() == shard.embeddings_sha256


def learner_named(name: str, folder: Path) -> Path:
    rng, labels = np.random.default_rng(5), np.arange(24) % 3
    images = rng.integers(0, 256, (24, 16, 16, 3)).astype(np.uint8)
    settings: dict[str, Any] = {
        "frozen": {"backbone": "torch.nn:Flatten", "size": 16, "head": "mlp"},
        "resnet10": {"epochs": 1, "milestones": (), "width": 8, "batch": 16, "device": "cpu"},
        "mlp": {"width": 32, "least_steps": 20},
    }
    make_learner(name, **settings[name]).fit(images, labels, classes=3, seed=0).save(folder)
    return folder


@pytest.mark.parametrize(("name", "size"), [("mlp", None), ("frozen", None), ("resnet10", 24)])
def test_the_bits_do_not_depend_on_the_number_of_workers(
    name: str, size: int | None, photos: Path, tmp_path: Path
) -> None:
    if name != "mlp":
        pytest.importorskip("torch")
    learner = learner_named(name, tmp_path / "learner")
    for workers in (1, 3):
        out = tmp_path / str(workers)
        predict(photos, learner, out, workers=workers, size=size, shard_size=90, dtype="float32", embeddings=True)
    assert contents(tmp_path / "1") == contents(tmp_path / "3")
    assert whole(tmp_path / "1").shape == (150, 3)


def test_what_is_done_is_not_done_again(photos: Path, head: Path, finished: Path) -> None:
    times = {path: path.stat().st_mtime_ns for path in finished.glob("part-*")}
    again = predict(photos, head, finished, shard_size=70, embeddings=True)
    assert again.computed == 0
    assert {path: path.stat().st_mtime_ns for path in finished.glob("part-*")} == times
    fewer = predict(photos, head, finished, shard_size=70)  # the embeddings that are there do no harm
    assert fewer.computed == 0
    assert read_manifest(finished).shards[0].embeddings_sha256 is not None


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    import shutil

    return Path(shutil.copytree(finished, tmp_path / "copy"))


@pytest.mark.parametrize(
    "damage",
    [
        lambda out: (out / "part-00001.npy").write_bytes((out / "part-00001.npy").read_bytes()[:-1]),
        lambda out: (out / "part-00001.npy").unlink(),
        lambda out: (out / "part-00001.json").unlink(),
        lambda out: (out / "part-00001.json").write_text("{"),
        lambda out: (out / "part-00001.json").write_bytes((out / "part-00000.json").read_bytes()),
        lambda out: (out / "part-00001.json").write_text('{"format": 1, "names": 3}'),
        lambda out: (out / "embeddings" / "part-00001.npy").write_bytes(b"x"),
        lambda out: (out / "embeddings" / "part-00001.npy").unlink(),
    ],
)
def test_a_damaged_shard_alone_is_computed_again(damage: Any, photos: Path, head: Path, copied: Path) -> None:  # noqa: ANN401
    before = contents(copied)
    damage(copied)
    assert predict(photos, head, copied, shard_size=70, embeddings=True).computed == 1
    assert contents(copied) == before


def test_embeddings_that_are_asked_for_later_are_computed(photos: Path, head: Path, tmp_path: Path) -> None:
    predict(photos, head, tmp_path, shard_size=70)
    assert not (tmp_path / "embeddings").exists()
    assert predict(photos, head, tmp_path, shard_size=70, embeddings=True).computed == 3
    assert whole(tmp_path, "embeddings").shape == (150, 928)


def test_another_learner_or_dtype_makes_all_shards_anew(photos: Path, head: Path, copied: Path, tmp_path: Path) -> None:
    assert predict(photos, head, copied, shard_size=70, dtype="float32").computed == 3
    assert predict(photos, learner_named("mlp", tmp_path / "mlp"), copied, shard_size=70).computed == 3
    assert whole(copied).shape == (150, 3)


def test_a_job_with_fewer_shards_leaves_none_of_the_old_ones(photos: Path, head: Path, copied: Path) -> None:
    (copied / "part-00007.npy").write_bytes(b"somebody else's")
    predict(photos, head, copied, shard_size=100)
    assert sorted(path.name for path in copied.glob("part-*.npy")) == [
        "part-00000.npy", "part-00001.npy", "part-00007.npy",
    ]  # fmt: skip
    assert not (copied / "embeddings" / "part-00002.npy").exists()
    assert len(read_manifest(copied).shards) == 2


def test_a_new_image_makes_the_shards_from_there_on_anew(head: Path, tmp_path: Path) -> None:
    rng, images, out = np.random.default_rng(0), tmp_path / "images", tmp_path / "out"
    images.mkdir()
    for number in range(6):
        picture(number, rng).save(images / f"{number}.png")
    assert predict(images, head, out, shard_size=2).computed == 3
    picture(9, rng).save(images / "3b.png")
    assert predict(images, head, out, shard_size=2).computed == 2  # the second run ends as before, with 3.png
    assert names_of(out, [4]) == ["3b.png"]


def test_a_run_that_stops_leaves_whole_shards_and_an_open_manifest(photos: Path, head: Path, tmp_path: Path) -> None:
    class Stopped(Exception):
        pass

    def stop(done: float, _what: str) -> None:
        if done > 0.9:
            raise Stopped

    plan = plan_pool(photos, head, tmp_path, shard_size=70, embeddings=True)
    with pytest.raises(Stopped):
        predict_pool(plan, workers=1, report=stop)
    assert not read_manifest(tmp_path).complete
    again = plan_pool(photos, head, tmp_path, shard_size=70, embeddings=True)
    assert len(again.todo) == 1
    assert predict_pool(again).computed == 1
    assert read_manifest(tmp_path).complete


def table(path: Path, rows: list[bytes | None], **settings: int) -> None:
    parquet.write_table(pyarrow.table({"image": pyarrow.array(rows, pyarrow.binary())}), path, **settings)


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """Three tables: 40 images with two bad ones, none, 5 bad ones alone."""
    folder, rng = tmp_path / "tables", np.random.default_rng(0)
    folder.mkdir()
    good = [encoded(picture(number, rng)) for number in range(38)]
    table(folder / "0.parquet", [*good[:20], b"bad", *good[20:], None], row_group_size=15)
    table(folder / "1.parquet", [])
    table(folder / "2.parquet", [b"bad"] * 5)
    return folder


def test_a_table_is_a_shard_even_without_a_usable_image(tables: Path, head: Path, tmp_path: Path) -> None:
    done = predict(tables, head, tmp_path / "out", embeddings=True)
    assert [(shard.rows, len(shard.bad)) for shard in done.shards] == [(38, 2), (0, 0), (0, 5)]
    shapes = [np.load(path).shape for path in sorted((tmp_path / "out").glob("part-*.npy"))]
    assert shapes == [(38, CLASSES), (0, CLASSES), (0, CLASSES)]
    assert whole(tmp_path / "out", "embeddings").shape == (38, 928)
    assert names_of(tmp_path / "out", [19, 20]) == ["0.parquet#19", "0.parquet#21"]
    assert done.shards[0].bad[1].reason == "the row has no image"


def test_a_table_that_breaks_half_way_does_not_stop_the_others(tables: Path, head: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [encoded(picture(number, rng)) for number in range(60)]
    table(tables / "1.parquet", rows, row_group_size=20)  # type: ignore[arg-type]
    plan = plan_pool(tables, head, tmp_path / "out")
    content = bytearray((tables / "1.parquet").read_bytes())
    content[200 : len(content) // 2] = bytes(len(content) // 2 - 200)
    (tables / "1.parquet").write_bytes(content)
    with pytest.raises(BadFile, match=r"1 of 3 shards could not be read; 1\.parquet: .*; fix it and run"):
        predict_pool(plan)
    manifest = read_manifest(tmp_path / "out")
    assert not manifest.complete
    assert [shard.file for shard in manifest.shards] == ["part-00000.npy", "part-00002.npy"]


def test_rows_of_the_pool_have_names(finished: Path) -> None:
    pages = [json.loads(path.read_text(encoding="utf-8"))["names"] for path in sorted(finished.glob("part-*.json"))]
    flat = [name for page in pages for name in page]
    rows = [149, 0, 68, 67, 69, 138, 0]
    assert names_of(finished, rows) == [flat[row] for row in rows]
    assert names_of(finished, []) == []
    with pytest.raises(BadInput, match="has 150 rows, numbered from 0, but rows -1 to 150 were asked for"):
        names_of(finished, [150, -1])


def test_a_folder_without_a_manifest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="make shards with: tailwise predict"):
        read_manifest(tmp_path)
    for content in ("{", "[]", '{"format": 1}'):
        (tmp_path / "manifest.json").write_text(content)
        with pytest.raises(BadFile, match="is not a manifest of shards"):
            read_manifest(tmp_path)
    (tmp_path / "manifest.json").write_text('{"format": 99}')
    with pytest.raises(BadFile, match="is not of format 1"):
        read_manifest(tmp_path)


def test_two_runs_do_not_share_a_folder(photos: Path, head: Path, tmp_path: Path) -> None:
    plan = plan_pool(photos, head, tmp_path)

    def meanwhile(_done: float, _what: str) -> None:
        with pytest.raises(BadFile, match="another run is at work in"):
            predict_pool(plan)

    predict_pool(plan, report=meanwhile)
    assert read_manifest(tmp_path).complete


def test_wrong_wishes_are_refused(photos: Path, head: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="dtype is 'float64'; it must be float16 or float32"):
        plan_pool(photos, head, tmp_path, dtype="float64")
    (tmp_path / "nothing").mkdir()
    with pytest.raises(BadInput, match="holds no images; there is nothing to predict"):
        plan_pool(tmp_path / "nothing", head, tmp_path / "out")
    plan = plan_pool(photos, head, tmp_path / "out")
    with pytest.raises(BadInput, match="workers is 0; it must be at least 1"):
        predict_pool(plan, workers=0)
    with pytest.raises(BadInput, match="the engine is 'spark'"):
        predict_pool(plan, engine="spark")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(BadFile, match="cannot make the folder"):
        predict_pool(plan_pool(photos, head, tmp_path / "file" / "out"))
    assert not (tmp_path / "out").exists()  # a plan writes nothing
