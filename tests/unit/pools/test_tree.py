from __future__ import annotations

import multiprocessing
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tailwise.errors import BadFile
from tailwise.pools.folder import Files, in_threads, names_below, open_below
from tailwise.pools.pool import LabelledImages, read_all


def coloured(folder: Path, number: int) -> tuple[str, ...]:
    """Images whose colour is their number."""
    folder.mkdir(parents=True, exist_ok=True)
    names = tuple(f"{at:04d}.png" for at in range(number))
    for at, name in enumerate(names):
        Image.new("RGB", (5, 5), (at % 256, at // 256, 7)).save(folder / name)
    return names


def zipped(folder: Path) -> Path:
    archive = folder.with_suffix(".zip")
    with zipfile.ZipFile(archive, "w") as file:
        for name in sorted(folder.iterdir()):
            file.write(name, name.name)
    return archive


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tree") / "images"
    coloured(folder, 300)
    return folder, zipped(folder)


@pytest.mark.parametrize("kind", [0, 1], ids=["folder", "zip"])
def test_images_come_in_the_order_of_the_indices_also_from_many_threads(roots: tuple[Path, Path], kind: int) -> None:
    files = Files(roots[kind], tuple(names_below(roots[kind])), 4)
    assert files.shape == (300, 4, 4, 3)
    assert len(files) == 300
    indices = np.random.default_rng(0).permutation(300).repeat(2)
    got = files[indices]
    assert got.dtype == np.uint8
    assert (got[:, 0, 0, 0].astype(int) + 256 * got[:, 0, 0, 1].astype(int)).tolist() == indices.tolist()
    assert files[np.array([], dtype=np.int64)].shape == (0, 4, 4, 3)


def test_a_part_of_the_files_stays_on_the_disk(roots: tuple[Path, Path]) -> None:
    files = Files(roots[0], tuple(names_below(roots[0])), 4)
    some = LabelledImages(files, np.zeros(300, np.int64), ("x",)).take(np.array([9, 2])).take(np.array([1, 0, 0]))
    assert not isinstance(some.inputs, np.ndarray)
    assert read_all(some.inputs)[:, 0, 0, 0].tolist() == [2, 9, 9]


def _sum(files: Files) -> int:
    return int(files[np.arange(100)].sum())


def test_processes_share_a_zip_without_mixing_its_bytes(roots: tuple[Path, Path]) -> None:
    files = Files(roots[1], tuple(names_below(roots[1])), 4)
    expected = _sum(files)  # opened here first, so that a forked process could inherit the position in the file
    with multiprocessing.get_context("fork").Pool(3) as processes:
        assert processes.map(_sum, [files] * 9) == [expected] * 9


def test_an_image_that_went_bad_after_loading_is_named(tmp_path: Path) -> None:
    files = Files(tmp_path, coloured(tmp_path, 3), 4)
    (tmp_path / "0001.png").write_bytes(b"<html>")
    with pytest.raises(BadFile, match=r"cannot use the image .*0001\.png: it is no JPEG"):
        files[np.array([0, 1])]
    (tmp_path / "0002.png").unlink()
    with pytest.raises(BadFile, match=r"cannot read .*0002\.png: No such file.*was it moved"):
        files[np.array([2])]


def test_a_bad_zip_or_member_is_named(tmp_path: Path) -> None:
    coloured(tmp_path / "a", 2)
    archive = zipped(tmp_path / "a")
    with pytest.raises(BadFile, match=r"cannot read .*a\.zip/none\.png"):
        open_below(archive, "none.png")
    damaged = bytearray(archive.read_bytes())
    damaged[60] ^= 0xFF  # in the first member's content
    (tmp_path / "b.zip").write_bytes(damaged)
    with pytest.raises(BadFile, match=r"cannot read .*b\.zip/0000\.png"):
        open_below(tmp_path / "b.zip", "0000.png")
    (tmp_path / "c.zip").write_bytes(b"no zip")
    with pytest.raises(BadFile, match=r"c\.zip cannot be read as a \.zip"):
        names_below(tmp_path / "c.zip")


def test_a_member_that_would_unpack_to_too_much_is_refused(tmp_path: Path) -> None:
    packed = zipfile.ZipFile(tmp_path / "x.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=1)
    with packed as file, file.open("bomb.png", "w") as member:
        for _ in range(257):
            member.write(bytes(1 << 20))
    with pytest.raises(BadFile, match=r"bomb\.png unpacks to 269,484,032 bytes"):
        open_below(tmp_path / "x.zip", "bomb.png")


def test_after_a_fault_no_more_work_is_begun() -> None:
    begun: list[int] = []

    def work(item: int) -> int:
        begun.append(item)
        if item == 0:
            raise BadFile("first")
        time.sleep(1e-4)
        return item

    with pytest.raises(BadFile, match="first"):
        list(in_threads(work, range(20_000)))
    assert len(begun) < 10_000


def test_results_keep_their_order() -> None:
    assert list(in_threads(lambda item: item * 2, range(1000))) == list(range(0, 2000, 2))
