"""Files that are whole or absent, and errors that say what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailwise.errors import BadFile
from tailwise.files import write_whole


def test_a_name_that_is_too_long_is_told_as_such(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="File name too long"):
        write_whole(tmp_path / ("x" * 250), b"content")
    assert list(tmp_path.iterdir()) == []
