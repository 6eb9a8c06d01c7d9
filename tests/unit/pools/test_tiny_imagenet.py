from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tailwise.errors import BadFile
from tailwise.pools.pool import load_pool

IDS = ["n03", "n01", "n02"]  # not sorted, as in the official wnids.txt
WORDS = (
    "n00\tentity\nn01\tgoldfish, Carassius auratus\nn02\tEuropean fire salamander\nn03\tbullfrog, Rana catesbeiana\n"
)
SHADE = {"n01": 40, "n02": 120, "n03": 200}


def save(path: Path, shade: int, mode: str = "RGB") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, (64, 64), shade if mode == "L" else (shade, 0, 0)).save(path, "JPEG", quality=95)


@pytest.fixture
def official(tmp_path: Path) -> Path:
    root = tmp_path / "tiny-imagenet-200"
    for wnid in IDS:
        for number in range(4):
            save(root / "train" / wnid / "images" / f"{wnid}_{number}.JPEG", SHADE[wnid], "L" if number else "RGB")
        (root / "train" / wnid / f"{wnid}_boxes.txt").write_text("x\t0\t0\t1\t1\n", encoding="ascii")
    lines = []
    for number, wnid in enumerate(["n02", "n02", "n03", "n01", "n03"]):
        save(root / "val" / "images" / f"val_{number}.JPEG", SHADE[wnid], "L")
        lines.append(f"val_{number}.JPEG\t{wnid}\t0\t32\t44\t62\n")
    (root / "val" / "val_annotations.txt").write_text("".join(lines), encoding="ascii")
    (root / "wnids.txt").write_text("\n".join(IDS) + "\n", encoding="ascii")
    (root / "words.txt").write_text(WORDS, encoding="utf-8")
    save(root / "test" / "images" / "test_0.JPEG", 9)
    return root


def zipped(root: Path) -> Path:
    archive = root.with_suffix(".zip")
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("__MACOSX/wnids.txt", "junk")
        for path in sorted(root.rglob("*")):
            file.write(path, f"{root.name}/{path.relative_to(root).as_posix()}")
    return archive


@pytest.mark.parametrize("kind", ["folder", "parent", "zip", "zip in its folder"])
def test_classes_are_in_the_order_of_their_ids_and_the_test_set_is_the_validation_set(
    official: Path, kind: str
) -> None:
    place = official
    if kind.startswith("zip"):
        place = zipped(official)
        for path in sorted(official.rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
        official.rmdir()
    pool = load_pool("tiny-imagenet", place.parent if kind in ("parent", "zip in its folder") else place)
    assert pool.train.class_names == ("goldfish", "European fire salamander", "bullfrog")
    assert pool.train.labels.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert pool.test.labels.tolist() == [1, 1, 2, 0, 2]
    assert pool.train.inputs.shape == (12, 64, 64, 3)
    reds = pool.train.inputs[np.arange(12)][:, 32, 32, 0].astype(int)
    assert np.abs(reds - np.repeat([40, 120, 200], 4)).max() <= 3
    greys = pool.test.inputs[np.arange(5)][:, 32, 32].astype(int)  # (5, 3): grey files come as RGB
    assert np.abs(greys - np.array([120, 120, 200, 40, 200])[:, None]).max() <= 3


def test_images_that_did_not_arrive_are_noticed(official: Path) -> None:
    (official / "train" / "n02" / "images" / "n02_1.JPEG").unlink()
    with pytest.raises(BadFile, match=r"has 3 training images of n02, but 4 of n0[13]; unpack it again"):
        load_pool("tiny-imagenet", official)


def test_a_missing_test_image_is_named(official: Path) -> None:
    (official / "val" / "images" / "val_3.JPEG").unlink()
    with pytest.raises(BadFile, match=r"val_3\.JPEG is missing"):
        load_pool("tiny-imagenet", official)


def test_an_unknown_class_is_named(official: Path) -> None:
    table = official / "val" / "val_annotations.txt"
    table.write_text(table.read_text(encoding="ascii").replace("n01", "n09"), encoding="ascii")
    with pytest.raises(BadFile, match=r"images of n09, which its wnids\.txt does not name"):
        load_pool("tiny-imagenet", official)


def test_what_is_missing_is_told_with_the_way_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(BadFile, match=rf"no Tiny ImageNet at {tmp_path}/tailwise: .*get it from http"):
        load_pool("tiny-imagenet")
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as file:
        file.writestr("readme", "nothing")
    with pytest.raises(BadFile, match=r"x\.zip holds no wnids\.txt"):
        load_pool("tiny-imagenet", tmp_path / "x.zip")
