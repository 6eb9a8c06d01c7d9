"""Worker processes that are killed: what they were doing is done again, the others go on, and the cause is named."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = '''
import json, os, signal
from dataclasses import asdict, dataclass
from pathlib import Path

from tailwise.experiments.experiment import parse_experiment
from tailwise.experiments.runner import collect, run_experiment, status_of
from tailwise.experiments.store import NOT_REPEATABLE, Store
from tailwise.experiments.runner import Watcher
from tailwise.strategies.strategy import strategy
from tailwise.strategies.uncertainty import Random

FILE = """
name = "tiny"
budget = 20
cycles = 2
seeds = [0]
pool = { name = "digits" }
imbalance = { factors = [0.2] }
start = { initial = 30 }
learner = { settings = { strength = 0.05 } }
strategies = [{ name = "random" }, { name = "fatal" }, { name = "entropy", balance = ["auto"] }]
"""

@strategy
@dataclass(frozen=True, kw_only=True)
class Fatal(Random):
    """Kills its process, as often as it should; in the second cycle of a trial."""
    name = "fatal"

    def select(self, predictions, budget, *, counts, **settings):
        deaths = Path("deaths").read_text() if Path("deaths").exists() else ""
        if sum(counts) > 30 and len(deaths) < TIMES:
            Path("deaths").write_text(deaths + "x")
            if hasattr(signal, "SIGKILL"):
                os.kill(os.getpid(), signal.SIGKILL)
            os._exit(3)
        return super().select(predictions, budget, counts=counts, **settings)

class Listener(Watcher):
    def __init__(self):
        self.lines = []

    def retried(self, trial, why):
        self.lines.append(why)

def rows(folder, listener, **how):
    experiment, store = parse_experiment(FILE, "script"), Store(Path(folder))
    failed = run_experiment(experiment, store, watchers=(listener,), **how)
    found = [{k: repr(v) for k, v in asdict(r).items() if k not in NOT_REPEATABLE} for r in collect(experiment, store)]
    return {"failed": failed, "complete": status_of(experiment, store).complete, "rows": found}

GUARD
    listener = Listener()
    killed = rows("out", listener, processes=2)
    whole = None if killed["failed"] else rows("whole", Listener(), processes=1)["rows"]
    print(json.dumps({**killed, "lines": listener.lines, "whole": whole}))
'''
KILLED = "was killed (signal 9; often out of memory)" if sys.platform != "win32" else "ended unexpectedly (exit code 3)"


def script(folder: Path, *, times: int, guard: str = 'if __name__ == "__main__":') -> subprocess.CompletedProcess[str]:
    """Run an experiment whose strategy kills its worker so many times."""
    path = folder / "study.py"
    path.write_text(f"TIMES = {times}\n" + SCRIPT.replace("GUARD", guard), encoding="utf-8")
    command = [sys.executable, str(path)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)


def outcome(folder: Path, *, times: int) -> dict[str, Any]:
    done = script(folder, times=times)
    assert done.returncode == 0, done.stderr
    assert (folder / "deaths").read_text() == "x" * times
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.long
def test_the_trial_of_a_killed_worker_is_begun_again_and_gives_the_same_rows(tmp_path: Path) -> None:
    found = outcome(tmp_path, times=2)
    assert found["failed"] == {}
    assert found["complete"] == 3
    assert found["rows"] == found["whole"]
    cause = f"a worker process {KILLED} while running the trial step 0.2, seed 0, fatal λ=0"
    assert found["lines"] == [f"{cause}; beginning again, attempt {attempt} of 3" for attempt in (2, 3)]


def test_a_trial_whose_workers_are_killed_each_time_fails_with_the_cause_and_the_others_go_on(tmp_path: Path) -> None:
    found = outcome(tmp_path, times=3)
    ((title, why),) = found["failed"].items()
    assert title == "trial: step 0.2, seed 0, fatal λ=0"
    assert why.startswith(f"a worker process {KILLED} while running the trial step 0.2, seed 0, fatal λ=0, 3 times")
    assert found["complete"] == 2


def test_a_script_without_a_main_guard_is_told_what_to_do(tmp_path: Path) -> None:
    done = script(tmp_path, times=3, guard="if True:")
    assert done.returncode != 0
    assert "worker processes cannot start" in done.stderr.splitlines()[-1]
    assert '__name__ == "__main__"' in done.stderr.splitlines()[-1]
    assert not (tmp_path / "deaths").exists()


ORPHAN = """
import os, time
from tailwise.experiments.workers import Workers

def job(task, report):
    if task == "bad":
        if os.fork() == 0:  # such as a process that loads images: it holds the pipe of its parent open
            time.sleep(60)
            os._exit(0)
        os.kill(os.getpid(), 9)
    return task

if __name__ == "__main__":
    said = []
    Workers(
        2, job, line=lambda *words: None, ended=lambda task, result: said.append(result) or (),
        failed=lambda task, why: (), retried=lambda task, why: None,
        lost=lambda task, why: said.append("lost"), named=str,
    ).run(["a", "bad", "c"])
    print(*sorted(said))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
def test_the_death_of_a_worker_is_noticed_while_a_process_of_its_own_lives_on(tmp_path: Path) -> None:
    (tmp_path / "orphan.py").write_text(ORPHAN, encoding="utf-8")
    command = [sys.executable, str(tmp_path / "orphan.py")]
    with (tmp_path / "said").open("w") as out:  # not a pipe, which the orphans would hold open
        subprocess.run(command, check=True, stdout=out, timeout=100)
    assert (tmp_path / "said").read_text() == "a c lost\n"
