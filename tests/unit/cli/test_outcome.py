from __future__ import annotations

import json
import sys

import pytest

from tailwise import errors
from tailwise.cli import output
from tailwise.cli.app import app


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.BadInput("x"), 3),
        (errors.BadFile("x"), 3),
        (errors.BadProbabilities("x"), 3),
        (errors.PoolExhausted("x"), 4),
        (errors.TargetUnreachable("x"), 4),
        (errors.UnknownName("x"), 2),
        (errors.MissingExtra("x"), 5),
        (errors.SolverFailed("x"), 1),
        (output.WrongUsage("x"), 2),
        (ZeroDivisionError("x"), 1),
        (MemoryError(), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_every_error_has_its_exit_code_and_one_line(
    error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr("tailwise.cli.select_output.show_strategies", fail)
    assert output.run(["strategies"]) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    shown = [line for line in printed.err.splitlines() if line]
    assert len(shown) == 1
    assert shown[0].startswith("tailwise: ")


def test_the_traceback_is_shown_on_request(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TAILWISE_DEBUG", "1")
    assert output.run(["select", "absent.npy", "-b", "1"]) == 3
    assert "Traceback" in capsys.readouterr().err


def test_with_json_an_error_is_an_object_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    assert output.run(["select", "absent.npy", "-b", "1", "--json"]) == 3
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {"error": {"kind": "BadFile", "message": "no file at absent.npy; check the path"}}
    assert printed.err == "tailwise: no file at absent.npy; check the path\n"


def test_wrong_usage_points_to_the_help_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert output.run(["select", "proba.npy"]) == 2
    assert capsys.readouterr().err == "tailwise: missing option '--budget' / '-b'\nHelp: tailwise select --help\n"


def test_without_arguments_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert output.run([]) == 2
    printed = capsys.readouterr()
    assert "Exit codes" in printed.out + printed.err
    assert "tailwise: " not in printed.err


def test_lone_surrogates_in_a_name_can_be_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert output.run(["select", "a\udcff.npy", "-b", "1"]) == 3
    assert "a\\udcff.npy" in capsys.readouterr().err


def test_loading_the_commands_loads_nothing_heavy() -> None:
    import subprocess

    probe = "import sys, tailwise.cli.app; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert loaded & {"numpy", "scipy", "matplotlib", "pandas", "sklearn", "pyarrow"} == set()
    assert app is not None
