"""One label typed on the page passes through few files on its way from HTTP to the ledger."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import tailwise

from .api_client import serving_api

PACKAGE = Path(tailwise.__file__).parent
MOST_FILES = 10


@contextmanager
def files_entered() -> Iterator[set[str]]:
    """The source files of the package in which a function is called by threads that start within the block."""
    found: set[str] = set()

    def profile(frame: FrameType, _event: str, _argument: object) -> None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(PACKAGE):
            found.add(path.relative_to(PACKAGE).as_posix())

    threading.setprofile(profile)
    try:
        yield found
    finally:
        threading.setprofile(None)  # type: ignore[arg-type]  # None ends it


def test_one_label_passes_through_at_most_ten_files(tmp_path: Path) -> None:
    with files_entered() as files, serving_api(tmp_path) as api:
        image = api.post("/api/lease", annotator="ada", count=1)["images"][0]
        files.clear()  # what starting and leasing entered
        saved = api.answer(image["key"], seal=image["seal"], seconds=1.5)  # as the page sends it
        entered = sorted(files)
    assert saved["saved"]
    assert {"campaign/ledger.py", "web/routes.py"} <= set(entered)  # the server's threads are seen
    assert len(entered) <= MOST_FILES, entered
