"""What is installed: lower bounds that are tried, torch as a range, a workflow that names files that exist."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WORKFLOW = ROOT / ".github" / "workflows" / "ci.yml"
NAME = re.compile(r"([A-Za-z0-9_.-]+)(?:\[[^]]*\])?(.*)")


def requirements(*extras: str) -> dict[str, str]:
    """Package → what is asked of its version."""
    texts = [*PROJECT["dependencies"], *(text for one in extras for text in PROJECT["optional-dependencies"][one])]
    found = (NAME.fullmatch(text) for text in texts)
    return {match[1].lower(): match[2] for match in found if match is not None}


def pins(file: str) -> dict[str, str]:
    lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
    pairs = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {name.lower(): version for name, version in pairs}


def padded(version: str) -> list[int]:
    numbers = [int(part) for part in version.split(".")]
    return numbers + [0] * (3 - len(numbers))


@pytest.mark.parametrize("extra", ["torch", "dev"])
def test_torch_is_a_range_so_that_no_build_of_the_user_is_replaced(extra: str) -> None:
    assert re.fullmatch(r">=\d+\.\d+", requirements(extra)["torch"])
    assert pins("constraints.txt")["torch"] == "2.13.0"  # what is tested, and without CUDA where we test


def test_every_dependency_has_an_exact_version_in_the_constraints() -> None:
    exact = pins("constraints.txt")
    assert set(requirements(*PROJECT["optional-dependencies"])) - set(exact) == set()


def test_the_oldest_versions_are_the_lower_bounds() -> None:
    tried = requirements("fast", "tables", "web")
    oldest = pins("constraints-oldest.txt")
    bounds = {name: bound.removeprefix(">=") for name, bound in {**requirements("dev"), **tried}.items()}
    assert set(tried) <= set(oldest)
    assert {name: padded(version) for name, version in oldest.items()} == {
        name: padded(bounds[name]) for name in oldest
    }


def test_the_workflow_runs_what_is_there_on_every_system_and_python() -> None:
    yaml = pytest.importorskip("yaml")
    jobs = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))["jobs"]
    matrix = jobs["systems"]["strategy"]["matrix"]
    assert matrix["os"] == ["ubuntu-latest", "macos-latest", "windows-latest"]
    listed = [text.rpartition(" ")[2] for text in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", text)]
    assert matrix["python"] == listed
    assert {(one["os"], one["dependencies"]) for one in matrix["include"]} == {(one, "oldest") for one in matrix["os"]}
    lines = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    named = {word for line in lines for word in line.split() if word.startswith(("tests/", "constraints", "src"))}
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []
    extras = {extra for line in lines for found in re.findall(r"\[([a-z,]+)\]", line) for extra in found.split(",")}
    assert extras <= set(PROJECT["optional-dependencies"])
    assert not any(line.startswith("make") for line in lines)


def test_the_workflow_and_make_run_the_same_commands() -> None:
    workflow = WORKFLOW.read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8").replace("$(SOURCES)", "src tests benchmarks")
    for command in (
        "ruff check src tests benchmarks", "ruff format --check src tests benchmarks", "mypy --strict",
        "pytest -n 3 --dist loadfile --no-loadscope-reorder",
    ):  # fmt: skip
        assert command in workflow
        assert command in makefile
    assert "[dev,fast,ray,torch,tracking]" in workflow
    assert "[dev,fast,ray,torch,tracking]" in makefile
