from __future__ import annotations

import hashlib
import io
import tarfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tailwise.errors import BadFile, BadInput
from tailwise.pools.download import Limits, Source, cache_folder, download, fetch, file_checksum

if TYPE_CHECKING:
    from conftest import Site

CONTENT = bytes(range(256)) * 10_000  # 2.56 MB: three blocks
MD5 = f"md5:{hashlib.md5(CONTENT).hexdigest()}"
SHA256 = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"


@pytest.mark.parametrize("checksum", [MD5, SHA256])
def test_a_download_is_verified_and_named_and_its_progress_is_told(site: Site, tmp_path: Path, checksum: str) -> None:
    site.pages["data.bin"] = CONTENT
    told: list[tuple[float, str]] = []
    download(site.url("data.bin"), tmp_path / "data.bin", checksum, report=lambda *at: told.append(at))
    assert (tmp_path / "data.bin").read_bytes() == CONTENT
    shares = [share for share, _ in told]
    assert shares == sorted(shares)
    assert (shares[0], shares[-1], told[-1][1]) == (0.0, 1.0, "data.bin: 2.6 of 2.6 MB")
    assert [file.name for file in tmp_path.iterdir()] == ["data.bin"]


def test_a_wrong_checksum_leaves_nothing(site: Site, tmp_path: Path) -> None:
    site.pages["data.bin"] = CONTENT[:-1] + b"!"
    with pytest.raises(BadFile, match=r"should have the checksum md5:.* but has md5:"):
        download(site.url("data.bin"), tmp_path / "data.bin", MD5)
    assert list(tmp_path.iterdir()) == []


def test_a_download_that_broke_off_goes_on_where_it_was(site: Site, tmp_path: Path) -> None:
    site.pages["data.bin"] = CONTENT
    site.breaks_after = 2_000_000
    with pytest.raises(BadFile, match=r"ended after 2,000,000 of 2,560,000 bytes; .*part is kept: run again"):
        download(site.url("data.bin"), tmp_path / "data.bin", MD5)
    assert not (tmp_path / "data.bin").exists()
    site.breaks_after = None
    download(site.url("data.bin"), tmp_path / "data.bin", MD5)
    assert site.asked[-1] == ("/data.bin", "bytes=2000000-")
    assert (tmp_path / "data.bin").read_bytes() == CONTENT


def test_a_server_that_knows_no_ranges_is_asked_for_everything_again(site: Site, tmp_path: Path) -> None:
    site.pages["data.bin"] = CONTENT
    site.sends_ranges = False
    (tmp_path / "data.bin.part").write_bytes(CONTENT[:1000])
    download(site.url("data.bin"), tmp_path / "data.bin", MD5)
    assert (tmp_path / "data.bin").read_bytes() == CONTENT


def test_a_part_that_is_complete_needs_no_more_bytes(site: Site, tmp_path: Path) -> None:
    site.pages["data.bin"] = CONTENT
    (tmp_path / "data.bin.part").write_bytes(CONTENT)
    download(site.url("data.bin"), tmp_path / "data.bin", MD5)
    assert (tmp_path / "data.bin").read_bytes() == CONTENT


def test_a_part_of_something_else_is_found_out_and_dropped(site: Site, tmp_path: Path) -> None:
    site.pages["data.bin"] = CONTENT
    (tmp_path / "data.bin.part").write_bytes(b"?" * 5000)
    with pytest.raises(BadFile, match="it was deleted"):
        download(site.url("data.bin"), tmp_path / "data.bin", MD5)
    download(site.url("data.bin"), tmp_path / "data.bin", MD5)
    assert (tmp_path / "data.bin").read_bytes() == CONTENT


@pytest.mark.parametrize("sends_lengths", [True, False])
def test_more_bytes_than_allowed_are_refused(site: Site, tmp_path: Path, sends_lengths: bool) -> None:
    site.pages["data.bin"] = CONTENT
    site.sends_lengths = sends_lengths
    with pytest.raises(BadFile, match="1,000,000"):
        download(site.url("data.bin"), tmp_path / "data.bin", MD5, most_bytes=1_000_000)
    assert not (tmp_path / "data.bin").exists()


def test_a_page_without_a_length_is_fetched_too(site: Site, tmp_path: Path) -> None:
    site.pages["data.bin"] = CONTENT
    site.sends_lengths = False
    download(site.url("data.bin"), tmp_path / "data.bin", MD5)
    assert file_checksum(tmp_path / "data.bin", "sha256") == SHA256


def test_a_missing_page_and_a_silent_port_are_told_with_the_address(site: Site, tmp_path: Path) -> None:
    with pytest.raises(BadFile, match=r"cannot fetch http://127.0.0.1:\d+/no.bin to .*404"):
        download(site.url("no.bin"), tmp_path / "no.bin", MD5)
    with pytest.raises(BadFile, match=r"cannot fetch http://127.0.0.1:1/no.bin"):
        download("http://127.0.0.1:1/no.bin", tmp_path / "no.bin", MD5)
    assert list(tmp_path.iterdir()) == []


def test_only_web_addresses_and_known_checksums_are_taken(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is not a web address"):
        download("file:///etc/passwd", tmp_path / "x", MD5)
    with pytest.raises(BadInput, match="is not a checksum"):
        download("https://example.org/x", tmp_path / "x", "crc32:0")


def packed(names: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in names.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def source_of(site: Site, archive: bytes, limits: Limits | None = None) -> Source:
    site.pages["pets.tar.gz"] = archive
    checksum = f"sha256:{hashlib.sha256(archive).hexdigest()}"
    return Source(site.url("pets.tar.gz"), checksum, "pets", limits or Limits())


def test_fetching_unpacks_once_and_leaves_nothing_else(site: Site, tmp_path: Path) -> None:
    source = source_of(site, packed({"pets/cat.bin": b"miaow", "pets/in/dog.bin": b"woof"}))
    for _ in range(2):
        folder = fetch(source, tmp_path / "cache")
        assert folder == tmp_path / "cache" / "pets"
        assert (folder / "in" / "dog.bin").read_bytes() == b"woof"
    assert len(site.asked) == 1
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["pets"]


def test_an_archive_without_the_folder_leaves_no_folder(site: Site, tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="holds no folder pets"):
        fetch(source_of(site, packed({"birds/a": b"tweet"})), tmp_path)
    assert not list(tmp_path.glob("*.part"))
    assert not (tmp_path / "pets").exists()


def test_an_unpacking_that_failed_is_tried_again_without_a_second_download(site: Site, tmp_path: Path) -> None:
    archive = packed({"pets/a": b"x" * 50_000})
    with pytest.raises(BadFile, match="more bytes than allowed"):
        fetch(source_of(site, archive, Limits(bytes=49_999)), tmp_path)
    assert (fetch(source_of(site, archive), tmp_path) / "a").stat().st_size == 50_000
    assert len(site.asked) == 1


def test_two_who_fetch_at_once_fetch_once(site: Site, tmp_path: Path) -> None:
    source = source_of(site, packed({"pets/a": CONTENT}))
    folders: list[Path] = []
    threads = [threading.Thread(target=lambda: folders.append(fetch(source, tmp_path))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert folders == [tmp_path / "pets"] * 4
    assert len(site.asked) == 1


def test_the_cache_follows_the_standard() -> None:
    assert cache_folder({}) == Path.home() / ".cache" / "tailwise"
    assert cache_folder({"XDG_CACHE_HOME": "relative"}) == Path.home() / ".cache" / "tailwise"
