"""Where files may be: this machine's disks, or a store that pyarrow can reach (s3://, gs://, …).

A place in, the files found there out; a store is pickled as its address and connects again where it is needed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from ..errors import BadFile, BadInput, MissingExtra
from ..files import no_file, shown_path, with_home

URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
HALF_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/[^/]")  # what pathlib makes of a URL
SUFFIXES = (".npy", ".parquet")
ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")  # the first that is set holds
REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")


def reject_url(place: object, what: str) -> None:
    """Say that an address of an object store cannot be used here, before a folder of its name is made."""
    if isinstance(place, str | os.PathLike) and (URL.match(str(place)) or HALF_URL.match(str(place))):
        raise BadInput(f"the {what} are at {place}, but must be in a folder of this machine; mount or copy them")


@dataclass(frozen=True, slots=True)
class Found:
    """A file of a store."""

    path: str  # by which the store opens it
    name: str  # below the folder that was asked for
    size: int  # bytes


Store: TypeAlias = "Disk | Remote"
"""A place that was asked for, and the files in it."""


def store_at(where: str | os.PathLike[str]) -> Store:
    """The store of a path or URL; nothing is read yet."""
    text = os.fspath(where)
    if not URL.match(text):
        return Disk(text)
    if not text.lower().startswith("file://"):
        return Remote(text)
    parts = urlsplit(text)
    if parts.netloc not in ("", "localhost"):
        raise BadFile(
            f"{text} names the machine {parts.netloc!r}; a file URL has three slashes, as in file:///data/p.npy"
        )
    return Disk(unquote(parts.path))


class Disk:
    """Files of this machine."""

    def __init__(self, given: str) -> None:
        self.given = given
        self.location = str(with_home(given).absolute())

    def find(self) -> Found | list[Found]:
        """The file at the path; or the .npy and .parquet files below it, unsorted, hidden ones left out."""
        path, failed = Path(self.location), list[OSError]()
        try:
            if path.is_dir():
                found = []
                for root, folders, names in os.walk(path, onerror=failed.append):
                    folders[:] = [name for name in folders if not name.startswith((".", "_"))]
                    found += [Path(root, name) for name in names if holds_numbers(name)]
                if failed:
                    raise failed[0]
                return [Found(str(one), one.relative_to(path).as_posix(), one.stat().st_size) for one in found]
            return Found(self.location, path.name, path.stat().st_size)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise BadFile(_missing(self.given)) from error
        except (OSError, ValueError) as error:  # ValueError: a path with a NUL in it
            raise BadFile(
                f"{shown_path(self.given)} cannot be read: {getattr(error, 'strerror', None) or error}"
            ) from error

    def open(self, path: str) -> Any:  # noqa: ANN401 - a pyarrow.NativeFile, which has no types
        """A file for reading at random."""
        return need_pyarrow("reading .parquet").OSFile(path)

    def shown(self, path: str) -> str:
        """A file's address, fit to be shown: the path itself."""
        return path


@dataclass(eq=False)
class Remote:
    """Files of an object store."""

    location: str

    def __reduce__(self) -> tuple[type[Remote], tuple[str]]:
        return Remote, (with_settings(self.location, os.environ),)  # the server; never a key

    @cached_property
    def _connected(self) -> tuple[Any, str]:
        """The filesystem, and the path within it."""
        arrow = need_pyarrow(f"reading {urlsplit(self.location).scheme}://")
        from pyarrow.fs import FileSystem

        shown = shown_place(self.location)
        with reaching(self):
            try:
                connected: tuple[Any, str] = FileSystem.from_uri(with_settings(_quoted(self.location), os.environ))
            except arrow.ArrowInvalid as error:
                raise BadFile(f"{shown} is not a valid address, such as s3://bucket/folder: {error}") from error
        if not connected[1].strip("/"):
            raise BadFile(f"{shown} names no bucket; an address looks like s3://bucket/folder")
        return connected

    def find(self) -> Found | list[Found]:
        """The same from the store, where all keys below a key are a folder."""
        need_pyarrow("reading from an object store")
        from pyarrow.fs import FileSelector, FileType

        filesystem, root = self._connected
        with reaching(self):
            info = filesystem.get_file_info(root)
            if info.type == FileType.NotFound:
                raise BadFile(f"nothing at {shown_place(self.location)}; check the address")
            if info.type == FileType.File:
                return Found(root, info.base_name, info.size)
            below = filesystem.get_file_info(FileSelector(root, recursive=True))
        start = len(root.rstrip("/")) + 1
        files = [Found(one.path, one.path[start:], one.size) for one in below if one.type == FileType.File]
        return [one for one in files if holds_numbers(one.name)]

    def open(self, path: str) -> Any:  # noqa: ANN401 - see Disk
        """A file for reading at random."""
        return self._connected[0].open_input_file(path)

    def shown(self, path: str) -> str:
        """A file's address, fit to be shown: without credentials."""
        return f"{urlsplit(self.location).scheme}://{path}"


def need_pyarrow(purpose: str) -> Any:  # noqa: ANN401 - the module, which has no types
    """The pyarrow module, or an error that names the extra."""
    try:
        import pyarrow
    except ImportError as error:
        raise MissingExtra.named(purpose, "pyarrow", "tables") from error
    return pyarrow


@contextmanager
def reaching(store: Remote) -> Iterator[None]:
    """Turn errors of a store that cannot be reached into ours."""
    try:
        yield
    except OSError as error:
        message = _without_credentials(str(error), store.location)
        hint = ""
        if store.location.lower().startswith("s3:"):
            hint = "; check the address, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_ENDPOINT_URL"
        raise BadFile(f"{shown_place(store.location)} cannot be reached: {message}{hint}") from error


def with_settings(url: str, environment: Mapping[str, str]) -> str:
    """An s3:// URL with the server and the region that the environment names, unless it names them itself.

    >>> with_settings("s3://bucket/key", {"AWS_ENDPOINT_URL": "http://localhost:9000", "AWS_REGION": "eu-west-1"})
    's3://bucket/key?endpoint_override=localhost%3A9000&scheme=http&region=eu-west-1'
    """
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    if parts.scheme.lower() != "s3":
        return url
    endpoint, region = (next(filter(None, map(environment.get, names)), None) for names in (ENDPOINTS, REGIONS))
    if endpoint and "endpoint_override" not in query:
        server = urlsplit(endpoint if "://" in endpoint else f"https://{endpoint}")
        query |= {"endpoint_override": f"{server.netloc}{server.path.rstrip('/')}", "scheme": server.scheme}
    if region:
        query.setdefault("region", region)
    return urlunsplit(parts._replace(query=urlencode(query)))


def shown_place(location: str) -> str:
    """A path, or a URL without credentials and settings.

    >>> shown_place("s3://me:secret@bucket/key?region=eu-west-1"), shown_place("/data/what?.npy")
    ('s3://bucket/key', '/data/what?.npy')
    """
    if not URL.match(location):
        return location
    parts = urlsplit(location)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _quoted(url: str) -> str:
    """A URL whose path may have been typed with blanks and letters of any language."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=quote(parts.path, safe="/%:@!$&'()*+,;=~")))


def _without_credentials(text: str, url: str) -> str:
    secret = urlsplit(url).netloc.rpartition("@")[0]
    for part in (url, secret, *secret.split(":")):
        text = text.replace(part, "…") if part else text
    return text


def holds_numbers(name: str) -> bool:
    """True of .npy and .parquet files below a folder, but for hidden ones and marks such as _SUCCESS.

    >>> [holds_numbers(name) for name in ("part-0.npy", "a/b.parquet", ".part-1.npy", "_tmp/b.parquet", "notes.txt")]
    [True, True, False, False, False]
    """
    path = PurePosixPath(name)
    return path.suffix.lower() in SUFFIXES and not any(part.startswith((".", "_")) for part in path.parts)


def _missing(given: str) -> str:
    half = HALF_URL.match(given)
    return f"no file at {given}; give a URL as a string, not as a Path" if half else no_file(given)
