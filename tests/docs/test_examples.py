"""The examples in README.md, CONTRIBUTING.md and docs/*.md run.

The ```python blocks of a page are one program, its `$ tailwise …` lines are run in order.

A block after `<!-- not run: reason -->` is left out; without a reason that is a fault.
"""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tailwise.formats import FORMATS
from tailwise.learners import LEARNERS
from tailwise.pools import POOLS
from tailwise.strategies import STRATEGIES

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]

FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,})(?P<language>[\w-]*)")
NOT_RUN = re.compile(r"^\s*<!--\s*not run:(?P<reason>.*?)-->\s*$")
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
RUN_ONCE = "demo"  # a command that takes long, and whose files no other one reads: once for all pages
SHELL_SYNTAX = {"|", ">", ">>", "<", "&&", "||", ";", "&"}


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block of a page."""

    language: str
    text: str
    line: int  # of its first line of content, from 1
    reason: str | None  # why it is not run; None where it is


def blocks(page: str) -> list[Block]:
    """Every fenced block of a page, in order."""
    found = []
    lines = page.splitlines()
    at = 0
    while at < len(lines):
        fence = FENCE.match(lines[at])
        if fence is None:
            at += 1
            continue
        end = closing_fence(lines, at, fence["ticks"])
        content = [line.removeprefix(fence["indent"]) for line in lines[at + 1 : end]]
        found.append(Block(fence["language"], "\n".join(content), at + 2, reason_before(lines, at)))
        at = end + 1
    return found


def closing_fence(lines: list[str], start: int, ticks: str) -> int:
    for at in range(start + 1, len(lines)):
        if lines[at].strip() == ticks:
            return at
    raise AssertionError(f"the block that opens in line {start + 1} is never closed")


def reason_before(lines: list[str], fence: int) -> str | None:
    before = next((line for line in reversed(lines[:fence]) if line.strip()), "")
    mark = NOT_RUN.match(before)
    return mark["reason"].strip() if mark else None


def commands(block: Block) -> Iterator[list[str]]:
    """The arguments of each `$ tailwise …` line; a backslash at the end of a line goes on in the next."""
    for line in block.text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True) if line.startswith("$ tailwise") else []
        if words[:2] == ["$", "tailwise"]:
            assert not SHELL_SYNTAX & set(words), f"shell syntax is not run by this test: {line}"
            yield words[2:]


def to_run(page: Path, language: str) -> list[Block]:
    return [b for b in blocks(page.read_text(encoding="utf-8")) if b.language == language and b.reason is None]


def run_python(page: Path) -> None:
    """Execute the page's blocks in one namespace; a traceback shows the page and the line in it."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in to_run(page, "python"):
        padded = "\n" * (block.line - 1) + block.text
        exec(compile(padded, str(page), "exec"), namespace)


def run_tailwise(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """Exit code of the installed command, run in this process."""
    from tailwise.cli import main

    monkeypatch.setattr(sys, "argv", ["tailwise", *arguments])
    with pytest.raises(SystemExit) as stop:
        sys.exit(main())  # as the installed script does
    code = stop.value.code
    return code if isinstance(code, int) else int(code is not None)


@pytest.fixture(scope="session")
def scans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures of digits, the last five rare, and what somebody has said of some of them."""
    from sklearn.datasets import load_digits

    folder, digits = tmp_path_factory.mktemp("digits"), load_digits()
    (folder / "scans").mkdir()
    said = ["path,label"]
    for number, (digit, grey) in enumerate(zip(digits.target[:300], digits.images[:300], strict=True)):
        if digit < 5 or number < 100:
            Image.fromarray((255 - 15 * grey).astype(np.uint8)).save(folder / f"scans/{number:04d}.png")
            said += [f"{number:04d}.png,{WORDS[digit]}"] if number % 7 == 0 else []
    (folder / "scans/broken.png").write_bytes(b"half an imag")
    (folder / "carl.csv").write_text("\n".join([*said, "absent.png,zero\n"]), encoding="utf-8")
    return folder


@pytest.fixture
def workdir(tmp_path: Path, scans: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory but for the small files that the examples speak of."""
    shutil.copytree(scans, tmp_path, dirs_exist_ok=True)
    rng = np.random.default_rng(0)
    np.save(tmp_path / "proba.npy", rng.dirichlet([4.0, 2.0, 1.0, 0.5, 0.25], size=200))
    (tmp_path / "counts.csv").write_text("class,count\n0,20\n1,12\n2,6\n3,2\n4,0\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def own_registries() -> Iterator[None]:
    """What an example registers is gone after it."""
    before = [(registry, set(registry)) for registry in (STRATEGIES, LEARNERS, POOLS, FORMATS)]
    yield
    for registry, known in before:
        for name in set(registry) - known:
            del registry[name]


@pytest.fixture(scope="session")
def ran() -> list[list[str]]:
    """The commands that were run so far."""
    return []


def page_id(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.usefixtures("workdir", "own_registries")
@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_the_python_examples_of_a_page_run(page: Path) -> None:
    run_python(page)


@pytest.mark.usefixtures("workdir", "quick_figures", "quick_sweeps")
@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_the_commands_of_a_page_succeed(page: Path, monkeypatch: pytest.MonkeyPatch, ran: list[list[str]]) -> None:
    for block in to_run(page, "console"):
        for arguments in commands(block):
            if arguments[0] == RUN_ONCE and arguments in ran:
                continue
            ran.append(arguments)
            assert run_tailwise(arguments, monkeypatch) == 0, f"{page_id(page)}: tailwise {shlex.join(arguments)}"


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_a_block_that_is_not_run_says_why(page: Path) -> None:
    silent = [block.line for block in blocks(page.read_text(encoding="utf-8")) if block.reason == ""]
    assert silent == []


def test_the_readme_has_examples_of_both_kinds() -> None:
    assert to_run(ROOT / "README.md", "python")
    assert [arguments for block in to_run(ROOT / "README.md", "console") for arguments in commands(block)]


# The finder itself: it must see the blocks, the marks and the commands, and a wrong example must fail.

PAGE = """\
# Title
```python
x = 1
```
<!-- not run: needs a GPU -->

```python
boom()
```
<!-- not run: -->
```console
$ tailwise demo
```
  ```console
  $ tailwise select proba.npy \\
      --balance "within 5%"  # a wish
  output, not a command
  $ make test
  ```
"""


def test_blocks_are_found_with_language_line_and_reason() -> None:
    assert [(b.language, b.line, b.reason) for b in blocks(PAGE)] == [
        ("python", 3, None),
        ("python", 8, "needs a GPU"),
        ("console", 12, ""),
        ("console", 15, None),
    ]


def test_commands_are_joined_and_split_like_a_shell() -> None:
    assert list(commands(blocks(PAGE)[3])) == [["select", "proba.npy", "--balance", "within 5%"]]


def test_shell_syntax_is_refused() -> None:
    with pytest.raises(AssertionError, match="shell syntax"):
        list(commands(Block("console", "$ tailwise select proba.npy > picks.txt", 1, None)))


def test_an_open_block_is_refused() -> None:
    with pytest.raises(AssertionError, match="opens in line 2 is never closed"):
        blocks("text\n```python\nx = 1\n")


def test_blocks_of_a_page_share_a_namespace_and_a_wrong_one_fails(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nx = 1\n```\n\n```python\nassert x == 1\nassert x == 2\n```\n", encoding="utf-8")
    with pytest.raises(AssertionError) as failure:
        run_python(page)
    assert failure.traceback[-1].lineno + 1 == 7


@pytest.mark.usefixtures("workdir")
def test_a_wrong_command_has_a_nonzero_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_tailwise(["no-such-command"], monkeypatch) != 0
