"""Downloads data sets and unpacks archives that are not trusted.

A download grows in a .part file next to its target and is resumed; nothing is used before its checksum is verified.
Archives with absolute names, "..", links, devices, duplicate names, or too many bytes or members are rejected.
"""

from __future__ import annotations

import hashlib
import io
import os
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from ..errors import BadFile, BadInput
from ..files import open_regular
from ..processes import lock_file, unlock_file
from ..types import Progress, no_progress

if TYPE_CHECKING:
    from http.client import HTTPResponse
    from tarfile import TarFile, TarInfo
    from zipfile import ZipFile, ZipInfo


BLOCK = 1 << 20
ENCRYPTED = 0x1
SILENCE_SECONDS = 60.0  # without a byte, after which a download fails
NOTHING_LEFT = 416  # the status of a range that starts at the end of the file
MEGABYTE = 1e6
LOCK_POLL = 0.05  # seconds


@dataclass(frozen=True, slots=True)
class Limits:
    """How much an archive may hold, counted while it is unpacked: what its headers claim proves nothing."""

    bytes: int = 1 << 33
    members: int = 1_000_000


DEFAULT = Limits()


@dataclass(frozen=True, slots=True)
class Member:
    """One file or folder of an archive, its name checked."""

    name: str  # relative, with /
    is_folder: bool
    open: Callable[[], IO[bytes]]


def unpack(archive: Path, folder: Path, limits: Limits = DEFAULT) -> None:
    """Unpack into a folder that does not exist yet; after a fault it does not exist either."""
    if folder.exists():
        raise BadFile(f"cannot unpack {archive} to {folder}, which exists; name a new folder")
    folder.mkdir(parents=True)
    try:
        with open_members(archive, limits) as members:
            left = limits.bytes
            for member in members:
                left -= _place(member, folder / member.name, left)
    except BaseException:
        shutil.rmtree(folder)
        raise


@contextmanager
def open_members(archive: Path, limits: Limits = DEFAULT) -> Iterator[Iterator[Member]]:
    """The members of a .tar.gz or .zip, in its order; read each before asking for the next."""
    import tarfile
    import zipfile
    import zlib

    is_zip = archive.suffix.lower() == ".zip"
    if not is_zip and not archive.name.lower().endswith((".tar.gz", ".tgz")):
        raise BadFile(f"{archive} is neither .tar.gz nor .zip")
    try:
        with (_zip_members if is_zip else _tar_members)(archive, limits) as members:
            yield _checked(members, archive, limits)
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise BadFile(f"{archive} is damaged or no archive: {error}") from error
    except OSError as error:
        raise BadFile(f"cannot read or unpack {archive}: {error}") from error


def _checked(members: Iterator[Member], archive: Path, limits: Limits) -> Iterator[Member]:
    seen: set[str] = set()
    for number, member in enumerate(members):
        if number >= limits.members:
            raise BadFile(f"{archive} has more than the {limits.members:,} members allowed")
        fault = _name_fault(member.name)
        if fault:
            raise BadFile(f"{archive} holds {member.name!r}, {fault}: nothing of it is used")
        if member.name in seen and not member.is_folder:
            raise BadFile(f"{archive} holds {member.name!r} twice: nothing of it is used")
        seen.add(member.name)
        yield member


def _name_fault(name: str) -> str:
    """Why a member's name cannot be trusted; empty where it can."""
    if not name or "\0" in name or "\\" in name or ":" in name.split("/")[0]:
        return "which is not a plain name"
    if name.startswith("/"):
        return "an absolute path"
    return "a path out of the folder" if ".." in name.split("/") else ""


def _place(member: Member, target: Path, left: int) -> int:
    """Write one member; bytes written."""
    if member.is_folder:
        target.mkdir(parents=True, exist_ok=True)
        return 0
    target.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    with member.open() as stream, target.open("xb") as file:
        while block := stream.read(BLOCK):
            written += len(block)
            if written > left:
                raise BadFile(f"{member.name} and what came before unpack to more bytes than allowed; is it a bomb?")
            file.write(block)
    return written


@contextmanager
def _tar_members(archive: Path, limits: Limits) -> Iterator[Iterator[Member]]:
    import gzip
    import tarfile

    # Read as a stream, through a meter: headers and members that are skipped count too.
    allowed = limits.bytes + limits.members * 2 * tarfile.BLOCKSIZE
    with (
        open_regular(archive) as packed,
        gzip.open(packed, "rb") as unzipped,
        tarfile.open(fileobj=_Metered(unzipped.read, allowed, archive), mode="r|") as tar,
    ):
        yield (_tar_member(tar, info, archive) for info in tar)


def _tar_member(tar: TarFile, info: TarInfo, archive: Path) -> Member:
    if not (info.isreg() or info.isdir()):
        raise BadFile(f"{archive} holds {info.name!r}, a link or a device: nothing of it is used")
    name = info.name.removeprefix("./").rstrip("/") or "."
    return Member(name, info.isdir(), lambda: tar.extractfile(info) or io.BytesIO())


@contextmanager
def _zip_members(archive: Path, _limits: Limits) -> Iterator[Iterator[Member]]:
    import zipfile

    with open_regular(archive) as packed, zipfile.ZipFile(packed) as file:
        yield (_zip_member(file, info, archive) for info in file.infolist())


def _zip_member(file: ZipFile, info: ZipInfo, archive: Path) -> Member:
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise BadFile(f"{archive} holds {info.filename!r}, a link or a device: nothing of it is used")
    if info.flag_bits & ENCRYPTED:
        raise BadFile(f"{archive} holds {info.filename!r}, which is encrypted")
    name = info.filename.removeprefix("./").rstrip("/") or "."
    return Member(name, info.is_dir(), lambda: file.open(info))


class _Metered(io.BytesIO):
    """A stream that refuses to give more than was allowed; tarfile asks for nothing but `read`."""

    def __init__(self, more: Callable[[int], bytes], allowed: int, archive: Path) -> None:
        super().__init__()
        self._more, self._left, self._archive = more, allowed, archive

    def read(self, size: int | None = -1, /) -> bytes:
        block = self._more(-1 if size is None else size)
        self._left -= len(block)
        if self._left < 0:
            raise BadFile(f"{self._archive} unpacks to more bytes than allowed; is it a bomb?")
        return block


# Downloads.


@dataclass(frozen=True, slots=True)
class Source:
    """An archive on the web."""

    url: str  # ends in the archive's file name
    checksum: str  # "md5:…" or "sha256:…"
    folder: str  # what it unpacks to
    limits: Limits = DEFAULT  # of what it unpacks to; the archive itself may be no larger either


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Where data sets are kept: $XDG_CACHE_HOME/tailwise, or ~/.cache/tailwise.

    >>> cache_folder({"XDG_CACHE_HOME": "/var/cache"}).as_posix()
    '/var/cache/tailwise'
    """
    base = Path(environment.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".cache") / "tailwise"  # the standard ignores relative paths


def fetch(source: Source, root: Path, report: Progress = no_progress) -> Path:
    """Download and unpack to root/<the source's folder>, unless it is there; whole or absent."""
    name = source.url.rpartition("/")[2]
    final, archive = root / source.folder, root / f".{name}"  # hidden: what the user put there is not ours
    if final.exists():  # a folder that may only be read is enough
        return final
    root.mkdir(parents=True, exist_ok=True)
    with _alone_in(root, report):
        if final.exists():
            return final
        if not archive.exists():  # else it was verified, and the unpacking broke off
            download(source.url, archive, source.checksum, most_bytes=source.limits.bytes, report=report)
        report(1.0, f"unpacking {name}")
        _unpack_whole(archive, final, source.limits)
        archive.unlink()  # verified and unpacked: a second copy serves nobody
    return final


def download(
    url: str, target: Path, checksum: str, *, most_bytes: int = 1 << 33, report: Progress = no_progress
) -> None:
    """Fetch one file by http or https; it appears under its name only when its checksum is right."""
    part = target.with_name(f"{target.name}.part")
    _check_address(url, checksum)
    try:
        _receive(url, part, most_bytes, report)
    except OSError as error:
        kept = f"; {part} is kept: run again to go on where it broke off" if part.exists() else ""
        raise BadFile(f"cannot fetch {url} to {target}: {error}{kept}") from error
    found = file_checksum(part, checksum.partition(":")[0])
    if found != checksum:
        part.unlink()
        raise BadFile(f"{url} should have the checksum {checksum}, but has {found}; it was deleted: fetch it again")
    part.replace(target)


def file_checksum(path: Path, algorithm: str) -> str:
    """The checksum of a file as "algorithm:hexadecimal"."""
    with path.open("rb") as file:
        return f"{algorithm}:{hashlib.file_digest(file, algorithm).hexdigest()}"


def _check_address(url: str, checksum: str) -> None:
    if not url.startswith(("https://", "http://")):
        raise BadInput(f"{url!r} is not a web address; it must start with https:// or http://")
    if checksum.partition(":")[0] not in {"md5", "sha256"}:
        raise BadInput(f"{checksum!r} is not a checksum; write it as md5:… or sha256:…")


def _receive(url: str, part: Path, most_bytes: int, report: Progress) -> None:
    """Append what is missing to the .part file; start over where the server cannot go on."""
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    have = part.stat().st_size if part.exists() else 0
    request = Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        with urlopen(request, timeout=SILENCE_SECONDS) as answer:
            have = have if answer.headers.get("Content-Range", "").startswith(f"bytes {have}-") else 0
            with part.open("ab" if have else "wb") as file:
                file.writelines(_blocks(answer, have, most_bytes, report))
                file.flush()
                os.fsync(file.fileno())
    except HTTPError as error:
        error.close()
        if error.code != NOTHING_LEFT:  # then the checksum shows whether the part is complete
            raise


def _blocks(answer: HTTPResponse, have: int, most_bytes: int, report: Progress) -> Iterator[bytes]:
    """What the server sends, block by block, with progress."""
    length = answer.headers.get("Content-Length", "")
    total = have + int(length) if length.isdecimal() else None
    if max(have, total or 0) > most_bytes:
        raise OSError(f"it has {total or have:,} bytes, more than the {most_bytes:,} allowed")
    name = answer.url.rpartition("/")[2]
    report(*_progress(name, have, total))
    while block := answer.read(BLOCK):
        have += len(block)
        if have > most_bytes:
            raise OSError(f"it has more than the {most_bytes:,} bytes allowed")
        yield block
        report(*_progress(name, have, total))
    if total is not None and have < total:
        raise OSError(f"the connection ended after {have:,} of {total:,} bytes")


def _progress(name: str, have: int, total: int | None) -> tuple[float, str]:
    if total is None:
        return 0.0, f"{name}: {have / MEGABYTE:.1f} MB"
    return have / max(total, 1), f"{name}: {have / MEGABYTE:.1f} of {total / MEGABYTE:.1f} MB"


def _unpack_whole(archive: Path, final: Path, limits: Limits) -> None:
    """Unpack into a temporary folder, then rename the one folder that is wanted."""
    partial = final.with_name(f".{final.name}.{secrets.token_hex(4)}.part")
    try:
        unpack(archive, partial, limits)
        if not (partial / final.name).is_dir():
            raise BadFile(f"{archive} holds no folder {final.name}; is it the right archive?")
        (partial / final.name).rename(final)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def _alone_in(folder: Path, report: Progress) -> Iterator[None]:
    """Wait until no other process fetches into this folder; the system releases the lock of one that dies."""
    path = folder / ".lock"
    try:
        descriptor = lock_file(path)
        if descriptor is None:
            report(0.0, f"another process is fetching into {folder}: waiting for it")
        while descriptor is None:
            time.sleep(LOCK_POLL)
            descriptor = lock_file(path)
    except OSError as error:
        raise BadFile(f"cannot write to {folder}: {error.strerror or error}; give another folder") from error
    try:
        yield
    finally:
        _unlock_and_remove(path, descriptor)


def _unlock_and_remove(path: Path, descriptor: int) -> None:
    """Remove a lock file in the order that leaves no moment in which two processes hold the lock."""
    if os.name == "nt":  # an open file cannot be removed: neither ours before we close it, nor that of the next holder
        unlock_file(descriptor)
        with suppress(OSError):
            path.unlink()
    else:  # removed while it is locked: a process that waits for it finds out, and makes a new one
        with suppress(OSError):
            path.unlink()
        unlock_file(descriptor)
