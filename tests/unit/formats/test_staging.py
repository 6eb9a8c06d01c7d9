"""What killed exports leave behind: removed by the next export, unless it is in use or not ours."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tailwise.errors import BadFile
from tailwise.formats import FORMATS, Record
from tailwise.formats.folders import NOTE

from .conftest import Pictures

FILL = """
import sys, time
from pathlib import Path
from tailwise.formats.folders import fresh_folder
with fresh_folder(Path(sys.argv[1])) as folder:
    (folder / "class").mkdir()
    (folder / "class" / "1.png").write_bytes(b"half of an image")
    print(folder.parent, flush=True)
    time.sleep(600)
"""

# Ends itself at one of the renames that put an export into its place: no test could hit that moment from outside.
REPLACE = """
import os, signal, sys
from pathlib import Path
from tailwise.formats import FORMATS, Record

left = int(sys.argv[4])

def end(event, _):
    global left
    if event == "os.rename" and armed:
        if left == 0:
            os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))
        left -= 1

armed = False
sys.addaudithook(end)

def source(record):
    global armed
    armed = True
    return Path(sys.argv[1]) / record.path

FORMATS["folders"].write([Record(sys.argv[3], "cat")], Path(sys.argv[2]), source, ("cat",))
"""


@contextmanager
def exporting(out: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A process in the middle of an export, and the folder that it fills."""
    command = [sys.executable, "-c", FILL, str(out)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            yield child, Path(child.stdout.readline().strip())
        finally:
            child.kill()


def export(pictures: Pictures, out: Path, path: str) -> None:
    FORMATS["folders"].write([Record(path, "cat")], out, pictures.source, ("cat",))


def killed(out: Path) -> Path:
    with exporting(out) as (child, folder):
        child.kill()
        child.wait()
    assert folder.is_dir()
    assert folder.parent == out.parent
    return folder


@pytest.mark.parametrize("later", ["out", "another"])
def test_what_a_killed_export_left_is_removed_by_the_next_one_there(
    tmp_path: Path, pictures: Pictures, later: str
) -> None:
    pictures.add("1.png", 1)
    left = killed(tmp_path / "out")
    export(pictures, tmp_path / later, "1.png")
    assert not left.exists()
    assert (tmp_path / later / "cat" / "1.png").is_file()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([later, pictures.root.name])


def test_an_export_that_is_at_work_is_left_alone(tmp_path: Path, pictures: Pictures) -> None:
    pictures.add("1.png", 1)
    with exporting(tmp_path / "out") as (child, folder):
        export(pictures, tmp_path / "out", "1.png")
        assert (folder / "new" / "class" / "1.png").read_bytes() == b"half of an image"
        assert child.poll() is None


def test_folders_of_others_are_never_removed(tmp_path: Path, pictures: Pictures) -> None:
    pictures.add("1.png", 1)
    mine = tmp_path / ".out.0123abcd.part"
    for folder, note in ((mine, None), (tmp_path / ".out.11111111.part", b"{}"), (tmp_path / "x.part", b"{}"),
                         (tmp_path / ".out.22222222.part", b"no JSON")):  # fmt: skip
        (folder / "cat").mkdir(parents=True)
        (folder / "cat" / "precious.png").write_bytes(b"precious")
        if note is not None:
            (folder / NOTE).write_bytes(note)
    left = killed(tmp_path / "out")
    (tmp_path / ".out.33333333.part").symlink_to(mine)
    elsewhere = tmp_path / ".out.44444444.part"
    elsewhere.mkdir()
    (elsewhere / NOTE).write_bytes((left / NOTE).read_bytes().replace(b'"machine": "', b'"machine": "another '))
    (left / "new" / "link").symlink_to(mine)
    before = {path for path in tmp_path.rglob("*") if not path.is_relative_to(left)}
    export(pictures, tmp_path / "out", "1.png")
    assert not left.exists()
    assert before <= set(tmp_path.rglob("*"))
    assert len(list(tmp_path.rglob("precious.png"))) == 4


@pytest.mark.parametrize("renames", [0, 1])
def test_an_export_killed_while_it_replaces_an_earlier_one_loses_neither(
    tmp_path: Path, pictures: Pictures, renames: int
) -> None:
    for number in (1, 2, 3):
        pictures.add(f"{number}.png", number)
    export(pictures, tmp_path / "out", "1.png")
    arguments = [str(pictures.root), str(tmp_path / "out"), "2.png", str(renames)]
    done = subprocess.run([sys.executable, "-c", REPLACE, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert done.stderr == ""
    assert (tmp_path / "out").exists() == (renames == 0)  # between the two renames there is nothing
    export(pictures, tmp_path / "else", "3.png")
    assert [path.name for path in (tmp_path / "out" / "cat").iterdir()] == ["1.png"]
    export(pictures, tmp_path / "out", "2.png")
    assert [path.name for path in (tmp_path / "out" / "cat").iterdir()] == ["2.png"]
    assert not list(tmp_path.glob(".*"))


def test_a_failed_export_leaves_the_earlier_one_and_nothing_else(tmp_path: Path, pictures: Pictures) -> None:
    pictures.add("1.png", 1)
    export(pictures, tmp_path / "out", "1.png")
    with pytest.raises(BadFile, match="is gone"):
        export(pictures, tmp_path / "out", "none.png")
    assert (tmp_path / "out" / "cat" / "1.png").is_file()
    assert not list(tmp_path.glob(".*"))
