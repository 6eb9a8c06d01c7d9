"""Archives, unpacked without trust: a .tar.gz or .zip in, plain files and folders below one new folder out.

Absolute names, "..", links, devices, names that come twice, and more bytes or members than allowed are refused.
"""

from __future__ import annotations

import io
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from ..errors import BadFile
from ..files import open_regular

if TYPE_CHECKING:
    from tarfile import TarFile, TarInfo
    from zipfile import ZipFile, ZipInfo

BLOCK = 1 << 20
ENCRYPTED = 0x1


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
        return "which is no plain name"
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

    def content() -> IO[bytes]:
        return tar.extractfile(info) or io.BytesIO()

    return Member(info.name.removeprefix("./").rstrip("/") or ".", info.isdir(), content)


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

    def content() -> IO[bytes]:
        return file.open(info)

    return Member(info.filename.removeprefix("./").rstrip("/") or ".", info.is_dir(), content)


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
