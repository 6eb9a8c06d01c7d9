"""Files of a release: those of the container and of GitHub, links of the README, versions, the size of the archive."""

from __future__ import annotations

import io
import json
import re
import shlex
import subprocess
import sys
import tarfile
import tomllib
import urllib.request
from fnmatch import fnmatch
from pathlib import Path

import numpy as np
import pytest
import typer
import yaml
from PIL import Image

import tailwise
from tailwise.cli import main
from tailwise.cli.app import app

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
REPOSITORY = PROJECT["project"]["urls"]["Source"]
COMPOSE = (ROOT / "compose.yaml").read_text(encoding="utf-8")
SERVICE = yaml.safe_load(COMPOSE)["services"]["tailwise"]


def instructions(dockerfile: str) -> list[tuple[str, str]]:
    """Instruction and arguments of each step; a backslash at the end of a line goes on in the next."""
    lines = [line for line in dockerfile.splitlines() if line.strip() and not line.startswith("#")]
    steps = "\n".join(lines).replace("\\\n", " ").splitlines()
    return [(word, rest.strip()) for word, _, rest in (step.partition(" ") for step in steps)]


DOCKERFILE = instructions((ROOT / "Dockerfile").read_text(encoding="utf-8"))
ONCE = dict(DOCKERFILE)  # the last of each kind


def setup_commands() -> list[list[str]]:
    """The commands in the comments of compose.yaml, without Docker."""
    found = re.findall(r"^# +docker compose run --rm tailwise (.+)$", COMPOSE, re.MULTILINE)
    return [shlex.split(command) for command in found]


# The container


def test_the_image_has_a_slim_base_of_a_python_that_is_supported() -> None:
    assert DOCKERFILE[0][0] == "FROM"
    base = re.fullmatch(r"python:(\d\.\d+)-slim", DOCKERFILE[0][1])
    assert base is not None
    assert f"Programming Language :: Python :: {base[1]}" in PROJECT["project"]["classifiers"]


def test_the_image_knows_only_instructions_of_docker_and_copies_no_secret() -> None:
    known = {"FROM", "COPY", "RUN", "USER", "WORKDIR", "VOLUME", "EXPOSE", "STOPSIGNAL", "ENTRYPOINT", "CMD"}
    assert {word for word, _ in DOCKERFILE} <= known
    first, *allowed = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    assert first == "*"
    for one in allowed:
        assert one.startswith("**/") or (ROOT / one.removeprefix("!")).exists()


def test_the_program_does_not_run_as_root() -> None:
    words = [word for word, _ in DOCKERFILE]
    user = re.search(r"useradd --uid (\d+) --create-home (\w+)", ONCE["RUN"])
    assert user is not None
    assert ONCE["USER"] == user[1] != "0"  # a number: Kubernetes' runAsNonRoot cannot check a name
    assert words.index("USER") < words.index("ENTRYPOINT")
    assert words.index("USER") > max(at for at, word in enumerate(words) if word == "RUN")
    assert f"install -d -o {user[2]} {ONCE['WORKDIR']}" in ONCE["RUN"]


def test_the_image_installs_extras_that_exist() -> None:
    extras = re.search(r"\[([\w,]+)\]", ONCE["RUN"])
    assert extras is not None
    assert set(extras[1].split(",")) <= set(PROJECT["project"]["optional-dependencies"])


def test_the_page_is_published_on_loopback_and_at_the_port_of_the_command() -> None:
    (port,) = SERVICE["ports"]
    assert port == f"127.0.0.1:{ONCE['EXPOSE']}:{ONCE['EXPOSE']}"
    assert shlex.split(SERVICE["command"]) == json.loads(ONCE["CMD"])
    assert f"--port {ONCE['EXPOSE']}" in SERVICE["command"]


def test_images_are_read_only_and_the_campaign_is_in_a_volume() -> None:
    assert SERVICE["volumes"] == ["./images:/images:ro", f"data:{ONCE['WORKDIR']}"]
    assert "data" in yaml.safe_load(COMPOSE)["volumes"]


def test_the_container_has_no_capabilities_and_gains_no_privileges() -> None:
    assert SERVICE["cap_drop"] == ["ALL"]
    assert SERVICE["security_opt"] == ["no-new-privileges:true"]


def test_the_commands_of_the_container_exist() -> None:
    known = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for name, *arguments in [*setup_commands(), json.loads(ONCE["CMD"])]:
        options = {
            option for parameter in known[name].params for option in (*parameter.opts, *parameter.secondary_opts)
        }
        assert {one for one in arguments if one.startswith("--")} <= options
    assert json.loads(ONCE["ENTRYPOINT"]) == list(PROJECT["project"]["scripts"])


def test_the_commands_of_the_container_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "images").mkdir()
    rng = np.random.default_rng(0)
    for number in range(24):
        Image.fromarray(rng.integers(256, size=(16, 16, 3), dtype=np.uint8)).save(tmp_path / f"images/{number}.png")
    for command in setup_commands():
        monkeypatch.setattr(sys, "argv", ["tailwise", *(one.replace("/images", "images") for one in command)])
        assert main() == 0
    label = ["0" if one == ONCE["EXPOSE"] else one for one in json.loads(ONCE["CMD"])]  # any free port
    program = [sys.executable, "-c", "from tailwise.cli import main; main()"]
    with subprocess.Popen([*program, *label, "--json"], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            served = json.loads(child.stdout.readline())
            token = {"X-Tailwise-Token": served["link"].partition("token=")[2]}
            asked = urllib.request.Request(f"http://127.0.0.1:{served['port']}/", headers=token)
            with urllib.request.urlopen(asked, timeout=300) as page:
                assert b"<title>" in page.read()
        finally:
            child.terminate()


# What the package index shows


def readme_links() -> list[str]:
    return re.findall(r"\]\(([^)\s]+)\)", (ROOT / "README.md").read_text(encoding="utf-8"))


def test_links_of_the_readme_are_absolute_and_lead_to_files_that_exist() -> None:
    raw = REPOSITORY.replace("github.com", "raw.githubusercontent.com")
    links = readme_links()
    assert [link for link in links if not link.startswith("https://")] == []
    own = [link for link in links if link.startswith((REPOSITORY, raw))]
    assert own
    for link in own:
        path = link.partition("#")[0].removeprefix(f"{REPOSITORY}/blob/main/").removeprefix(f"{raw}/main/")
        assert (ROOT / path).exists() or (path.endswith(".png") and not (ROOT / ".git").exists()), link


def test_every_file_names_the_same_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == tailwise.__version__
    assert citation["repository-code"] == REPOSITORY
    assert f"Version {tailwise.__version__}" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_project_has_its_links_and_every_python_that_ci_runs() -> None:
    assert {"Homepage", "Documentation", "Source", "Issues", "Changelog"} <= set(PROJECT["project"]["urls"])
    ci = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
    versions = ci["jobs"]["systems"]["strategy"]["matrix"]["python"]
    stated = {one.rpartition(" ")[2] for one in PROJECT["project"]["classifiers"] if ":: Python :: 3." in one}
    assert stated == set(versions)
    assert "3.14" in stated


def test_the_source_archive_stays_below_two_megabytes() -> None:
    settings = PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("needs a git checkout")
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for name in listed.stdout.splitlines():
            included = any(f"/{name}" == one or f"/{name}".startswith(f"{one}/") for one in settings["include"])
            excluded = any(fnmatch(f"/{name}", one.replace("**/", "*")) for one in settings["exclude"])
            if included and not excluded and (ROOT / name).exists():
                tar.add(ROOT / name, name)
    assert 500_000 < archive.tell() < 2_000_000


# What GitHub reads


@pytest.mark.parametrize("path", sorted((ROOT / ".github").rglob("*.yml")), ids=lambda path: path.name)
def test_the_files_for_github_are_valid_yaml_of_the_right_kind(path: Path) -> None:
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    if path.parent.name == "workflows":
        assert {"name", True, "permissions", "jobs"} <= set(content)  # YAML reads the key `on` as true
        assert all(job["runs-on"] for job in content["jobs"].values())
        assert content["permissions"] == {"contents": "read"}
    elif path.name != "config.yml":
        assert {"name", "description", "body"} <= set(content)
        fields = [part["id"] for part in content["body"]]
        assert len(fields) == len(set(fields))


def test_only_the_job_that_publishes_can_get_an_identity() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/publish.yml").read_text(encoding="utf-8"))["jobs"]
    assert [name for name, job in jobs.items() if "permissions" in job] == ["publish"]
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert not any("password" in str(step) for step in jobs["publish"]["steps"])


def test_hooks_before_a_commit_use_the_tools_of_the_environment() -> None:
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    assert local["repo"] == "local"
    for hook in local["hooks"]:
        assert hook["language"] == "system"
        for word in hook["entry"].split():
            assert not word.startswith("tests/") or (ROOT / word).exists()
