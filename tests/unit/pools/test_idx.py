from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from tailwise.errors import BadFile
from tailwise.pools.datasets import CLOTHES, Grey, read_idx
from tailwise.pools.pool import load_pool


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


def write(folder: Path, *, gz: bool = True, dotted: bool = False) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    pixels, labels = rng.integers(0, 256, (12, 28, 28)), rng.integers(0, 10, 12)
    for prefix, part in (("train", slice(0, 8)), ("t10k", slice(8, 12))):
        for kind, array in (("images-idx3-ubyte", pixels[part]), ("labels-idx1-ubyte", labels[part])):
            name = f"{prefix}-{kind}".replace("-idx", ".idx" if dotted else "-idx")
            content = idx(array)
            (folder / (name + ".gz" * gz)).write_bytes(gzip.compress(content) if gz else content)
    return pixels, labels


@pytest.mark.parametrize(("gz", "dotted"), [(True, False), (False, False), (False, True)])
@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_images_and_labels_are_read_with_three_equal_channels(
    tmp_path: Path, name: str, gz: bool, dotted: bool
) -> None:
    pixels, labels = write(tmp_path, gz=gz, dotted=dotted)
    pool = load_pool(name, tmp_path)
    assert pool.train.labels.tolist() == labels[:8].tolist()
    assert pool.test.labels.tolist() == labels[8:].tolist()
    assert pool.train.inputs.shape == (8, 28, 28, 3)
    got = pool.train.inputs[np.array([5, 0])]
    assert got.dtype == np.uint8
    for channel in range(3):
        assert np.array_equal(got[..., channel], pixels[[5, 0]])
    assert got.flags.writeable  # torch warns of arrays that are not
    assert pool.train.class_names[9] == ("9" if name == "mnist" else "ankle boot")
    assert len(CLOTHES) == 10


def test_the_cache_has_a_folder_for_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    write(tmp_path / "tailwise" / "fashion-mnist")
    assert len(load_pool("fashion-mnist").test) == 4
    with pytest.raises(
        BadFile, match=r"no mnist at .*train-images-idx3-ubyte or train-images-idx3-ubyte\.gz is missing"
    ):
        load_pool("mnist")


@pytest.mark.parametrize("gz", [False, True])
@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is not an IDX file of bytes in 3 dimensions"),
        (idx(np.zeros((2, 3, 4)))[:10], "is not an IDX file"),
        (idx(np.zeros((2, 3))), "is not an IDX file"),
        (b"\0\0\x0d\3" + idx(np.zeros((2, 3, 4)))[4:], "is not an IDX file"),
        (idx(np.zeros((2, 3, 4)))[:-1], "should hold 24 bytes after its header, but holds 23"),
        (idx(np.zeros((2, 3, 4))) + b"!", "should hold 24 bytes after its header, but holds more"),
        (struct.pack(">BBBB3I", 0, 0, 8, 3, 2**32 - 1, 2**32 - 1, 1), "more than the 1,073,741,824 bytes allowed"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes, says: str, gz: bool) -> None:
    file = tmp_path / ("x.gz" if gz else "x")
    file.write_bytes(gzip.compress(content) if gz else content)
    with pytest.raises(BadFile, match=says):
        read_idx(file, 3)


def test_a_cut_or_wrong_gzip_is_named(tmp_path: Path) -> None:
    whole = gzip.compress(idx(np.arange(24).reshape(2, 3, 4)))
    for content in (whole[:-12], b"no gzip at all", whole[:20] + b"\xff" * 10 + whole[30:]):
        (tmp_path / "x.gz").write_bytes(content)
        with pytest.raises(BadFile, match=r"x\.gz"):
            read_idx(tmp_path / "x.gz", 3)


def test_labels_must_fit_the_images_and_the_classes(tmp_path: Path) -> None:
    write(tmp_path, gz=False)
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(idx(np.array([1, 2, 3])))
    with pytest.raises(BadFile, match="t10k-labels-idx1-ubyte has 3 labels for 4 images"):
        load_pool("mnist", tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(idx(np.array([1, 2, 3, 10])))
    with pytest.raises(BadFile, match="holds the label 10, but labels end at 9"):
        load_pool("mnist", tmp_path)


def test_grey_pixels_are_kept_once() -> None:
    grey = Grey(np.zeros((5, 4, 3), np.uint8))
    assert (grey.shape, len(grey), grey.pixels.nbytes) == ((5, 4, 3, 3), 5, 60)
