"""Rules for source that runs on every system: POSIX calls behind a question, texts in UTF-8."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PACKAGE = HERE.parents[1] / "src" / "tailwise"
PROGRAMS = {"run", "Popen", "call", "check_call", "check_output"}  # of subprocess; other calls have texts of their own


def posix_names() -> dict[str, set[str]]:
    """What the file that hides it hides: read, not imported, as importing it changes this process."""
    tree = ast.parse((HERE / "no_posix" / "sitecustomize.py").read_text(encoding="utf-8"))
    lists = {
        target.id: set(ast.literal_eval(node.value))
        for node in tree.body if isinstance(node, ast.Assign)
        for target in node.targets if isinstance(target, ast.Name) and target.id.startswith("NO_")
    }  # fmt: skip
    return {"os": lists["NO_FUNCTIONS"], "signal": lists["NO_SIGNALS"], "": lists["NO_MODULES"]}


def asked_for(tree: ast.AST) -> set[str]:
    """Names for which `hasattr(os, name)` or `getattr(os, name, default)` asks."""
    return {
        str(call.args[1].value)
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in ("hasattr", "getattr")
        and len(call.args) > 1 and isinstance(call.args[1], ast.Constant)
    }  # fmt: skip


def posix_uses(tree: ast.Module) -> Iterator[str]:
    names, asked = posix_names(), asked_for(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.attr in names.get(node.value.id, ()) and node.attr not in asked:
                yield f"{node.lineno}: {node.value.id}.{node.attr}"
        elif isinstance(node, ast.Import):
            yield from (f"{node.lineno}: import {one.name}" for one in node.names if one.name in names[""])
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            if node.module in names[""]:
                yield f"{node.lineno}: from {node.module} import"
            yield from (
                f"{node.lineno}: {one.name}" for one in node.names if one.name in names.get(node.module or "", ())
            )


def texts_without_encoding(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or any(word.arg in ("encoding", None) for word in node.keywords):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        method = isinstance(node.func, ast.Attribute)
        if (method and name in ("read_text", "write_text")) or (name in ("open", "fdopen") and _opens_text(node)):
            yield f"{node.lineno}: {name} without encoding="
        elif name in PROGRAMS and any(word.arg in ("text", "universal_newlines") for word in node.keywords):
            yield f"{node.lineno}: {name} with text= and without encoding="


def _opens_text(call: ast.Call) -> bool:
    """The mode, first for a path's `open` and second for Python's own, has no b; without one it may be any `open`."""
    at = 0 if isinstance(call.func, ast.Attribute) and call.func.attr == "open" else 1
    modes = [*call.args[at : at + 1], *(word.value for word in call.keywords if word.arg == "mode")]
    return any(isinstance(mode, ast.Constant) and str(mode.value).strip("+t") in {"r", "w", "a", "x"} for mode in modes)


def files() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", files(), ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_source_runs_on_every_system(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert [*posix_uses(tree), *texts_without_encoding(tree)] == []


@pytest.mark.parametrize(
    "code",
    [
        "import os\nos.fork()", "import fcntl", "from fcntl import flock", "from os import getuid",
        "import signal\nsignal.SIGKILL", "import os\nos.open('x', os.O_NONBLOCK)",
    ],
)  # fmt: skip
def test_the_rule_finds_posix_calls(code: str) -> None:
    assert list(posix_uses(ast.parse(code)))


def test_a_posix_call_behind_a_question_is_fine() -> None:
    assert not list(posix_uses(ast.parse("import os\nif hasattr(os, 'nice'):\n    os.nice(5)")))


@pytest.mark.parametrize("code", ["p.read_text()", "p.write_text('a')", "open('x', 'w')", "run(['x'], text=True)"])
def test_the_rule_finds_texts_without_encoding(code: str) -> None:
    assert list(texts_without_encoding(ast.parse(code)))
