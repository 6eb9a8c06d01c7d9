"""Opening and writing files safely.

Files are written under a temporary name, synced and renamed: a crash leaves the old file or the new one, never half of
one. Files of users are opened only where they are regular files, without ever waiting for a pipe.
"""

from __future__ import annotations

import csv
import difflib
import errno
import io
import os
import re
import secrets
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from math import prod
from pathlib import Path
from typing import Any, Literal

import numpy as np

from .errors import BadFile, BadInput, OutOfFiles
from .inputs import shown

NPY_MAGIC = b"\x93NUMPY"
NPY_START = 12 << 10  # bytes that hold any header: numpy itself reads none above 10,000
NPY_KEY = r"""['"]%s['"]\s*:\s*"""
NPY_VALUES = (
    ("descr", r"""('[<>|=]?[?biufcmMOSUV]\d*(?:\[\w+\])?'|\[.*\])"""),
    ("fortran_order", "(True|False)"),
    ("shape", r"\(([\d\s,]*)\)"),
)
NPY_RECORD = re.compile(r"\(\s*'([^']*)'")  # the name of a field
_CAN_OPEN_FOLDERS = hasattr(os, "O_DIRECTORY")
LONGEST_NAME, LONGEST_PATH = 255, 400  # letters: of a file name on every system, and of a path that is shown
NAMES_LOOKED_AT = 1_000  # of a folder: one of a million images would take a minute to go through


def write_whole(path: Path, content: bytes) -> None:
    """Write a temporary file next to it, flush to the disk, then rename over it; a link is followed, not replaced."""
    final = path.resolve()
    temporary = final.with_name(f".{final.name}.{secrets.token_hex(4)}.part")
    try:
        # os.open rather than tempfile: the file gets the permissions that any new file of the user gets.
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(final)
        sync(final.parent)
    except OSError as error:
        raise BadFile(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        with suppress(OSError):  # a name that is too long cannot be removed either: the first error is reported
            temporary.unlink(missing_ok=True)


def is_file(path: str | Path) -> bool:
    """Whether there is such a file; False too where no file can have that name, as it is too long or holds a NUL."""
    try:
        return Path(path).is_file()
    except (OSError, ValueError):
        return False


def with_home(path: str | os.PathLike[str]) -> Path:
    """A path whose ~ is the user's folder; an unknown ~name stays unchanged, and is missing later."""
    given: object = path
    if not isinstance(given, str | os.PathLike):
        raise BadInput(f"{shown(given)} is not a path; give a str or a pathlib.Path")
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def open_regular(path: str | Path) -> io.BufferedReader:
    """Open a regular file for reading; a folder, pipe, socket or device raises an OSError at once.

    A plain `open` of a pipe waits for a writer, perhaps for ever. Links are followed. Where too many files are open,
    OutOfFiles is raised, which is not an OSError: the file is not at fault.
    """
    # The flags exist on some systems only. Nothing but a pipe or a device heeds O_NONBLOCK.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(path, flags)
    except PermissionError:
        if Path(path).is_dir():  # Windows says "permission denied" of a folder
            raise IsADirectoryError(errno.EISDIR, "it is a folder, not a file", str(path)) from None
        raise
    except OSError as error:
        check_open_files(error)
        if error.errno in (errno.ENXIO, errno.EOPNOTSUPP):  # Linux and macOS of a socket
            raise OSError(errno.EINVAL, "it is a socket, not a regular file", str(path)) from error
        raise
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, "it is a folder, not a file", str(path))
        if not stat.S_ISREG(mode):
            kind = "a named pipe" if stat.S_ISFIFO(mode) else "a device"
            raise OSError(errno.EINVAL, f"it is {kind}, not a regular file", str(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(path: str | Path) -> bytes:
    """The bytes of a regular file; see `open_regular`."""
    with open_regular(path) as file:
        return file.read()


def check_open_files(error: OSError) -> None:
    """Raise OutOfFiles for an error that says that too many files are open."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        raise OutOfFiles(
            "too many files are open, so that none can be read now; close other programs, or raise the limit "
            "(ulimit -n), and try again"
        ) from error


def usable(path: str | os.PathLike[str]) -> Path:
    """A path with its ~ replaced; BadFile where no file or folder can have that name."""
    whole = with_home(path)
    try:
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            whole.stat()
    except (OSError, RuntimeError, ValueError) as error:  # too long, links in a circle, a NUL
        reason = getattr(error, "strerror", None) or error
        raise BadFile(f"{shown_path(whole)} cannot be used as a path: {reason}") from error
    return whole


def shown_path(path: str | Path) -> str:
    """A path in an error message: itself, unless it is far too long or holds what no screen can show."""
    text = str(path)
    return text if text.isprintable() and len(text) <= LONGEST_PATH else shown(text)


def no_file(path: str | Path) -> str:
    """Says that a file is missing, and what the reader may have meant.

    >>> no_file("/no-such-folder/p.npy")
    'no file at /no-such-folder/p.npy: there is no folder /no-such-folder; check the path'
    """
    asked = with_home(path)
    if shown_path(path) != str(path) or len(asked.name) > LONGEST_NAME:
        return f"no file at {shown_path(path)}: no file can have that name; check the path"
    if asked.is_dir():
        return f"no file at {path}: it is a folder; name a file in it"
    if not asked.parent.is_dir():
        return f"no file at {path}: there is no folder {asked.parent}; check the path"
    names: list[str] = []
    with suppress(OSError):  # a folder that may not be listed
        names = [
            one.name for one in islice(asked.parent.iterdir(), NAMES_LOOKED_AT)
            if one.name != asked.name and (asked.suffix in ("", one.suffix) or asked.stem == one.stem)
        ]  # fmt: skip
    near = difflib.get_close_matches(asked.name, names, n=1)
    return f"no file at {path}; " + (f"did you mean {asked.with_name(near[0])}?" if near else "check the path")


def csv_bytes(header: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
    r"""A table as UTF-8 CSV with plain line ends.

    >>> csv_bytes(("rank", "index"), [(1, 7)])
    b'rank,index\n1,7\n'
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue().encode()


def npy_bytes(array: np.ndarray) -> bytes:
    """An array in the .npy format, never pickled."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


@dataclass(frozen=True, slots=True)
class NpyHeader:
    """What the first bytes of a .npy file say."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool  # column by column
    offset: int  # where the numbers begin


def npy_header(start: bytes) -> NpyHeader:
    r"""Read the header of a .npy file from its first bytes; ValueError with the reason where it is damaged.

    Not by numpy, which evaluates it as Python: a damaged header may then raise anything, or warn about its syntax.

    >>> header = npy_header(npy_bytes(np.zeros((3, 2), np.float32)))
    >>> header.shape, header.dtype.name, header.fortran
    ((3, 2), 'float32', False)
    """
    if start[:6] != NPY_MAGIC:
        raise ValueError("it does not begin as one")
    version = tuple(start[6:8])
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"version {'.'.join(map(str, version))} of the format is for records")
    begin = 10 if version == (1, 0) else 12
    offset = begin + int.from_bytes(start[8:begin], "little")
    text = start[begin:offset].decode("latin-1")
    found = [re.search(NPY_KEY % key + value, text, re.DOTALL) for key, value in NPY_VALUES]
    if offset > len(start) or not all(found):
        raise ValueError(f"its header is damaged: {text[:60]!r}")
    kind, fortran, sizes = (str(one[1]) for one in found if one)
    try:
        shape = tuple(int(size) for size in sizes.split(",") if size.strip())
        dtype = np.dtype([(name, "V1") for name in NPY_RECORD.findall(kind)] if kind[0] == "[" else kind[1:-1])
    except Exception as error:  # numpy has many ways to reject a dtype
        raise ValueError(f"its header is damaged: {error}") from error
    return NpyHeader(shape, dtype, fortran == "True", offset)


def read_npy(path: str | Path, *, mapped: bool = False) -> np.ndarray:
    """A plain array from a .npy file, mapped or in memory; ValueError or OSError with the reason otherwise."""
    with open_regular(path) as file:
        header = npy_header(file.read(NPY_START))
        if header.dtype.hasobject or header.dtype.names is not None:
            raise ValueError(f"it holds objects or records, not numbers: {header.dtype}")
        size, there = prod(header.shape) * header.dtype.itemsize, os.fstat(file.fileno()).st_size - header.offset
        if size > there:
            raise ValueError(f"it is cut short: {there} of {size} bytes are there")
        order: Literal["C", "F"] = "F" if header.fortran else "C"
        if mapped and size:
            return np.memmap(file, header.dtype, "r", header.offset, header.shape, order)
        file.seek(header.offset)
        return np.fromfile(file, header.dtype, prod(header.shape)).reshape(header.shape, order=order)


def sync(path: Path) -> None:
    """Have the disk hold a file, or the names in a folder, which makes a rename durable.

    Windows has no such call for folders, and syncs only files that are open for writing.
    """
    if path.is_dir() and not _CAN_OPEN_FOLDERS:
        return
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
