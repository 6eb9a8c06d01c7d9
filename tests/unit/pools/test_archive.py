from __future__ import annotations

import gzip
import io
import stat
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tailwise.errors import BadFile
from tailwise.pools.download import Limits, open_members, unpack


def tar(path: Path, *members: tarfile.TarInfo | tuple[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as file:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                file.addfile(member)
                continue
            info = tarfile.TarInfo(member[0])
            info.size = len(member[1])
            file.addfile(info, io.BytesIO(member[1]))
    return path


def special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def zipped(path: Path, *members: tuple[str | zipfile.ZipInfo, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members:
            file.writestr(name, content)
    return path


def zip_link(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return info


def tree(folder: Path) -> dict[str, bytes]:
    return {f.relative_to(folder).as_posix(): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


def test_good_archives_unpack_to_the_same_files(tmp_path: Path) -> None:
    members = (("a/one.txt", b"1"), ("./a/b/two.txt", b"22"), ("three", b""))
    tar(tmp_path / "x.tar.gz", special("a", tarfile.DIRTYPE), *members)
    zipped(tmp_path / "x.zip", ("a/", b""), *members)
    for number, name in enumerate(("x.tar.gz", "x.zip")):
        unpack(tmp_path / name, tmp_path / str(number))
        assert tree(tmp_path / str(number)) == {"a/one.txt": b"1", "a/b/two.txt": b"22", "three": b""}


def test_modes_of_the_archive_are_not_taken_over(tmp_path: Path) -> None:
    info = special("run", tarfile.REGTYPE)
    info.mode = 0o6777
    unpack(tar(tmp_path / "x.tar.gz", info), tmp_path / "out")
    assert (tmp_path / "out" / "run").stat().st_mode & 0o7111 == 0


BAD_NAMES = ["/etc/passwd", "../out.txt", "a/../../out.txt", "a\\..\\out.txt", "C:/out.txt"]


@pytest.mark.parametrize("name", BAD_NAMES)
@pytest.mark.parametrize("pack", [tar, zipped])
def test_names_that_lead_out_of_the_folder_are_refused(tmp_path: Path, name: str, pack: object) -> None:
    archive = tmp_path / ("x.zip" if pack is zipped else "x.tar.gz")
    pack(archive, ("good.txt", b"1"), (name, b"evil"))  # type: ignore[operator]
    with pytest.raises(BadFile, match="nothing of it is used"):
        unpack(archive, tmp_path / "deep" / "out")
    assert {path.name for path in tmp_path.rglob("*")} == {archive.name, "deep"}


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_links_and_devices_in_a_tar_are_refused(tmp_path: Path, kind: bytes) -> None:
    archive = tar(tmp_path / "x.tar.gz", special("link", kind, "/etc"), ("link/evil", b"x"))
    with pytest.raises(BadFile, match="'link', a link or a device"):
        unpack(archive, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_links_in_a_zip_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="'link', a link or a device"):
        unpack(zipped(tmp_path / "x.zip", (zip_link("link"), b"/etc/passwd")), tmp_path / "out")


def test_bombs_are_stopped_by_what_they_unpack_to(tmp_path: Path) -> None:
    zeros = ("zeros", bytes(3_000_000))
    for archive in (tar(tmp_path / "x.tar.gz", zeros), zipped(tmp_path / "x.zip", zeros)):
        assert archive.stat().st_size < 10_000
        with pytest.raises(BadFile, match="more bytes than allowed"):
            unpack(archive, tmp_path / "out", Limits(bytes=2_999_999))
        assert not (tmp_path / "out").exists()
        unpack(archive, tmp_path / f"{archive.name}.out", Limits(bytes=3_000_000))


def test_the_limit_is_on_the_sum_of_all_members(tmp_path: Path) -> None:
    members = [(f"{number}", bytes(1000)) for number in range(10)]
    for archive in (tar(tmp_path / "x.tar.gz", *members), zipped(tmp_path / "x.zip", *members)):
        with pytest.raises(BadFile, match="more bytes than allowed"):
            unpack(archive, tmp_path / "out", Limits(bytes=9_999))


def test_members_that_are_skipped_count_against_a_tar_bomb(tmp_path: Path) -> None:
    archive = tar(tmp_path / "x.tar.gz", ("zeros", bytes(5_000_000)), ("small", b"1"))
    with pytest.raises(BadFile, match="bomb"), open_members(archive, Limits(bytes=1_000_000, members=10)) as members:
        list(members)


def test_too_many_members_are_refused(tmp_path: Path) -> None:
    members = [(f"{number}", b"") for number in range(11)]
    for archive in (tar(tmp_path / "x.tar.gz", *members), zipped(tmp_path / "x.zip", *members)):
        with pytest.raises(BadFile, match="more than the 10 members"):
            unpack(archive, tmp_path / "out", Limits(members=10))


def test_a_name_that_comes_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="'a' twice"):
        unpack(tar(tmp_path / "x.tar.gz", ("a", b"1"), ("a", b"2")), tmp_path / "out")
    with pytest.raises(BadFile, match="cannot read or unpack"):
        unpack(tar(tmp_path / "x.tar.gz", ("a", b"1"), ("a/b", b"2")), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["x.tar.gz", "x.zip"])
@pytest.mark.parametrize("kept", [0, 10, 0.5, 0.98])
def test_a_cut_archive_is_damaged_and_leaves_nothing(tmp_path: Path, name: str, kept: float) -> None:
    noise = np.random.default_rng(0).bytes(20_000)
    archive = (zipped if name == "x.zip" else tar)(tmp_path / name, ("a", noise), ("b", noise))
    content = archive.read_bytes()
    archive.write_bytes(content[: int(kept * len(content)) if isinstance(kept, float) else kept])
    with pytest.raises(BadFile, match=r"damaged|cannot read"):
        unpack(archive, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_is_no_archive_is_refused_and_an_existing_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "x.tar.gz").write_bytes(gzip.compress(b"no tar" * 1000))
    with pytest.raises(BadFile, match="damaged or no archive"):
        unpack(tmp_path / "x.tar.gz", tmp_path / "out")
    with pytest.raises(BadFile, match=r"neither .tar.gz nor .zip"):
        unpack(tmp_path / "x.rar", tmp_path / "out")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "keep").touch()
    with pytest.raises(BadFile, match="which exists"):
        unpack(zipped(tmp_path / "x.zip", ("a", b"")), tmp_path / "mine")
    assert (tmp_path / "mine" / "keep").exists()
