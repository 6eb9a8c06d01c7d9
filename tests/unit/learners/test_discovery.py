"""One file with the decorator is a learner: the package imports its modules by itself, and none that loads torch."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import tailwise.learners
from tailwise.learners import LEARNERS, TORCH_MODULES

FOLDER = Path(tailwise.learners.__file__).parent
PROBE = """
import json, sys, tailwise.learners
print(json.dumps([name for name in ("torch", "sklearn", "scipy", "safetensors") if name in sys.modules]))
"""


def imports_torch_at_the_top(path: Path) -> bool:
    tops = ast.parse(path.read_text(encoding="utf-8")).body
    names = [alias.name for node in tops if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in tops if isinstance(node, ast.ImportFrom) and not node.level]
    return any(name.split(".")[0] == "torch" for name in names)


def test_the_modules_that_need_torch_are_those_that_are_left_out() -> None:
    assert {path.stem for path in FOLDER.glob("*.py") if imports_torch_at_the_top(path)} == TORCH_MODULES


def test_discovery_loads_no_heavy_library() -> None:
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


def test_every_decorated_learner_is_registered() -> None:
    found = set()
    for path in FOLDER.glob("*.py"):
        classes = [node for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.ClassDef)]
        for node in classes:
            if any(isinstance(one, ast.Name) and one.id == "learner" for one in node.decorator_list):
                found.add(node.name)
    assert {LEARNERS[name].__name__ for name in LEARNERS} >= found
    assert len(found) >= 7
