"""A strategy is one file with one decorator: the package finds it, and exports its class."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import tailwise
from tailwise import strategies

NEW = '''"""The first images."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .strategy import ScoreStrategy, strategy


@strategy
@dataclass(frozen=True, kw_only=True)
class First(ScoreStrategy):
    """The first images of the pool."""

    name: ClassVar[str] = "first"
    title: ClassVar[str] = "First"

    def scores(self, task, _predictions):
        """Higher for earlier rows."""
        return -np.arange(float(task.rows.size))
'''
USE = """
import numpy as np, tailwise
from tailwise.strategies import First
proba = np.full((5, 2), 0.5)
assert tailwise.select(proba, 2, strategy="first", balance=0).indices.tolist() == [0, 1]
assert tailwise.strategies.make("first") == First()
"""


def test_a_new_file_in_the_folder_is_a_new_strategy(tmp_path: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__", "static")
    shutil.copytree(Path(tailwise.__file__).parent, tmp_path / "tailwise", ignore=ignored)
    (tmp_path / "tailwise" / "strategies" / "first.py").write_text(NEW, encoding="utf-8")
    subprocess.run([sys.executable, "-c", USE], check=True, env={**os.environ, "PYTHONPATH": str(tmp_path)})


def test_every_strategy_of_the_package_is_exported() -> None:
    kinds = [strategies.STRATEGIES[name] for name in strategies.STRATEGIES]
    ours = {kind.__name__ for kind in kinds if kind.__module__.startswith("tailwise.")}
    assert ours <= set(strategies.__all__)
    assert all(hasattr(strategies, name) for name in strategies.__all__)
