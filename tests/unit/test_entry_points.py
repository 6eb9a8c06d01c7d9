"""Strategies, learners, pools, formats and backbones of other packages: real packages on the path of a new process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tailwise

HOME = Path(tailwise.__file__).parents[1]

BIRDS = '''
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tailwise.formats import Loaded, Record, label_format
from tailwise.learners import BACKBONES
from tailwise.learners.learner import learner
from tailwise.pools import POOLS, LabelledImages, Pool
from tailwise.strategies.strategy import ScoreStrategy, strategy


@strategy
@dataclass(frozen=True, kw_only=True)
class First(ScoreStrategy):
    """The first images."""

    name: ClassVar[str] = "first"
    title: ClassVar[str] = "First"

    def scores(self, task, predictions):
        return -np.arange(task.rows.size, dtype=float)


@learner
class Constant:
    name = "constant"

    def fit(self, inputs, labels, *, classes):
        self.classes = classes
        return self

    def predict_proba(self, inputs):
        return np.full((len(inputs), self.classes), 1 / self.classes)


@POOLS.register("nest")
def nest(path=None, *, size=20):
    images = LabelledImages(np.ones((size, 2)), np.arange(size) % 2, ("owl", "kite"))
    return Pool("nest", images, images)


@label_format
class Lines:
    name, about, suffix, copies, priority = "lines", "lines", ".lines", False, 99

    def recognises(self, sample):
        return sample.suffix == ".lines"

    def read(self, path, classes):
        return Loaded([Record("a.jpg", "owl")])

    def check(self, out): ...

    def write(self, records, out, source, classes): ...


@BACKBONES.register("wing")
def wing():
    import torch

    return torch.nn.Flatten()
'''
GROUPS = ("strategies", "learners", "pools", "formats", "backbones")


def install(site: Path, package: str, code: str, groups: tuple[str, ...] = ("strategies",)) -> None:
    """A package as pip leaves it: a module, and the folder that says what it is and which entry points it has."""
    (site / f"{package}_plugin.py").write_text(code, encoding="utf-8")
    about = site / f"{package}-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n", encoding="utf-8")
    lines = (f"[tailwise.{group}]\n{package} = {package}_plugin\n" for group in groups)
    (about / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")


def run(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python with the packages of a folder, and its exit code."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(site), str(HOME)]), "PYTHONUTF8": "1"}
    return subprocess.run(
        [sys.executable, "-W", "default", *arguments], env=environment, cwd=site, capture_output=True, text=True,
        encoding="utf-8", timeout=300, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One good package, one that needs a library which is not there, one that takes a name of ours."""
    folder = tmp_path_factory.mktemp("site")
    install(folder, "birds", BIRDS, GROUPS)
    install(folder, "broken", "import no_such_library", GROUPS)
    install(folder, "taken", BIRDS.replace('"first"', '"entropy"').split("@learner", maxsplit=1)[0])
    return folder


USUAL = """
import sys
import numpy as np, tailwise
from tailwise.strategies import STRATEGIES, make
proba = np.full((20, 2), 0.5)
tailwise.select(proba, 2)
tailwise.select(proba, 2, strategy="margin")
assert STRATEGIES.group == "tailwise.strategies"
assert not [name for name in sys.modules if name.endswith("_plugin")]
"""


def test_the_names_of_ours_never_look_for_plugins(site: Path) -> None:
    done = run(site, "-c", USUAL)
    assert (done.returncode, done.stderr) == (0, "")


FOREIGN = """
import pathlib
import numpy as np, tailwise
from tailwise.campaign.exporting import format_of
from tailwise.campaign.models import head_named
from tailwise.errors import UnknownName
from tailwise.formats import guess_format
from tailwise.learners import make_learner
from tailwise.learners.backbone import Backbone
from tailwise.pools import load_pool

proba = np.full((20, 2), 0.5)
assert tailwise.select(proba, 2, strategy="first", balance=0).indices.tolist() == [0, 1]
assert make_learner("constant").fit([0], [0], classes=4).predict_proba([1, 2]).shape == (2, 4)
assert head_named("constant").name == "constant"
assert len(load_pool("nest", size=6).train) == 6
pathlib.Path("x.lines").touch()
assert guess_format(pathlib.Path("x.lines")) == format_of(pathlib.Path("x.lines")) == "lines"
assert Backbone("wing").key()
try:
    tailwise.select(proba, 2, strategy="frist")
except UnknownName as error:
    print(error)
"""


def test_all_kinds_of_things_are_found_by_name_and_what_fails_is_a_warning(site: Path) -> None:
    done = run(site, "-c", FOREIGN)
    assert done.returncode == 0, done.stderr
    assert "did you mean 'first'?" in done.stdout
    assert "entropy, " in done.stdout
    reason = "cannot be imported: ModuleNotFoundError: No module named 'no_such_library'"
    assert f"the plugin 'broken_plugin' of the package 'broken' {reason}" in done.stderr
    taken = "ValueError: a strategy called 'entropy' is registered already; choose another name"
    assert done.stderr.count(f"the plugin 'taken_plugin' of the package 'taken' cannot be imported: {taken}") == 1


def test_the_command_lists_plugins_and_the_tables_of_the_docs_do_not(site: Path) -> None:
    done = run(site, "-m", "tailwise", "strategies", "--json")
    assert done.returncode == 0, done.stderr
    reason = "ModuleNotFoundError: No module named 'no_such_library'"
    line = f"warning: the plugin 'broken_plugin' of the package 'broken' cannot be imported: {reason}"
    assert line in done.stderr.splitlines()
    listed = {row["name"]: row["what"] for row in json.loads(done.stdout)["strategies"]}
    assert listed["first"] == "The first images"
    assert len(listed) > 20
    table = "from tailwise.report import tables; print(tables.strategy_markdown(), tables.pool_markdown())"
    done = run(site, "-c", table)
    assert (done.returncode, done.stderr) == (0, "")
    assert "`entropy`" in done.stdout
    assert "`first`" not in done.stdout
    assert "`nest`" not in done.stdout


NET = """
import numpy as np
from tailwise.learners.backbone import Backbone, extract_features
print(extract_features(np.zeros((2, 4, 4, 3), np.uint8), Backbone("wing", size=0)).shape)
"""


def test_a_backbone_of_another_package_gives_features(site: Path) -> None:
    pytest.importorskip("torch")
    done = run(site, "-W", "ignore", "-c", NET)
    assert done.stdout == "(2, 48)\n", done.stderr
