"""Processes that are ready to work at once: a verb in, a process out that can be listened to and killed.

One process has loaded everything and does nothing but fork: a kill then falls on the work, not on the imports.
"""

from __future__ import annotations

import gc
import json
import os
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).parents[2]
MARK = "TAILWISE_FAULTS"  # in the environment of every process that comes from here
PATIENCE = 120.0


class Silent(Exception):
    """A process ended, or took too long, before it said what it was to say."""


@dataclass(slots=True)
class Victim:
    """A process at work."""

    pid: int
    started: float  # by time.monotonic
    _ear: int  # descriptor
    _heard: bytes = b""
    ended: bool = False
    words: list[Any] = field(default_factory=list)  # all that it said
    times: list[float] = field(default_factory=list)  # when that was heard

    def hear(self, patience: float = PATIENCE) -> Any:  # noqa: ANN401 - whatever it says
        """What it says next."""
        end = time.monotonic() + patience
        while b"\n" not in self._heard:
            ready, _, _ = select.select([self._ear], [], [], max(0.0, end - time.monotonic()))
            more = os.read(self._ear, 65536) if ready else b""
            if not more:
                self.ended = bool(ready)
                raise Silent(f"process {self.pid} {'ended' if ready else 'said nothing'}; before: {self.words[-1:]}")
            self._heard += more
        line, self._heard = self._heard.split(b"\n", 1)
        self.words.append(json.loads(line))
        self.times.append(time.monotonic())
        return self.words[-1]

    def hear_out(self, patience: float = PATIENCE) -> list[Any]:
        """All that it says until it ends."""
        with suppress(Silent):
            while True:
                self.hear(patience)
        if not self.ended:
            raise Silent(f"process {self.pid} did not end within {patience:g} s; last words: {self.words[-1:]}")
        return self.words

    def let_go(self) -> None:
        """For one that was started to wait: it may begin."""
        while "T" not in Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rpartition(")")[2][:2]:
            time.sleep(0.001)
        os.kill(self.pid, signal.SIGCONT)

    def hear_until(self, what: str) -> None:
        """Listen until it says that it does this, or ends."""
        with suppress(Silent):
            while self.hear().get("what") != what:
                pass

    def kill_at(self, moment: float) -> bool:
        """Kill -9 so many seconds after it started; True where that hit it at work."""
        time.sleep(max(0.0, self.started + moment - time.monotonic()))
        return self.end(signal.SIGKILL)

    def end(self, number: signal.Signals = signal.SIGTERM) -> bool:
        """Send a signal and wait for the end; False where it had come to its own end before."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)
        words = self.hear_out()
        return not (words and isinstance(words[-1], dict) and {"done", "error"} & words[-1].keys())

    def close(self) -> None:
        """Whatever it does, it ends here."""
        if not self.ended:
            self.end(signal.SIGKILL)
        os.close(self._ear)


@dataclass(slots=True)
class Nursery:
    """Makes victims; one at a time or several."""

    process: subprocess.Popen[str]
    place: Path
    mark: str

    def _tell(self, **order: Any) -> int:  # noqa: ANN401 - JSON
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    @contextmanager
    def start(self, verb: str, *, held: bool = False, **arguments: Any) -> Iterator[Victim]:  # noqa: ANN401 - of the verb
        """A process at work, or one that waits until it is let go; it ends with the block at the latest."""
        pipe = self.place / secrets.token_hex(6)
        os.mkfifo(pipe)
        ear = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # before anybody writes: then nobody waits for a reader
        started = time.monotonic()
        victim = Victim(self._tell(verb=verb, pipe=str(pipe), held=held, arguments=arguments), started, ear)
        try:
            yield victim
        finally:
            victim.close()
            self._tell(bury=victim.pid)
            pipe.unlink()

    def run(self, verb: str, **arguments: Any) -> Any:  # noqa: ANN401 - of the verb
        """Let it come to its own end; gives its last word."""
        with self.start(verb, **arguments) as victim:
            words = victim.hear_out()
        if not words:
            raise Silent(f"{verb} ended without a word; its errors are above")
        return words[-1]

    def orphans(self, patience: float = 15.0) -> int:
        """How many processes of our making are left when there was time to end; the nursery itself is none."""
        end = time.monotonic() + patience
        while (left := self._alive()) and time.monotonic() < end:
            time.sleep(0.05)
        return len(left)

    def _alive(self) -> list[int]:
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                marked = f"{MARK}={self.mark}".encode() in (entry / "environ").read_bytes()
                if marked and int(entry.name) != self.process.pid:
                    found.append(int(entry.name))
        return found


@contextmanager
def nursery() -> Iterator[Nursery]:
    """A nursery while the block runs."""
    mark = secrets.token_hex(8)
    with (
        tempfile.TemporaryDirectory(prefix="tailwise-nursery-") as place,
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.faults.nursery"], cwd=ROOT, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True, env={**os.environ, MARK: mark, "OMP_NUM_THREADS": "1"},
        ) as process,
    ):  # fmt: skip
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise Silent("the nursery did not start; its errors are above")
        yield Nursery(process, Path(place), mark)
        assert process.stdin is not None
        process.stdin.close()


def main() -> None:
    """Be the nursery: fork for every line of the input."""
    import benchmarks.faults.victims  # noqa: F401 - loaded here, once

    gc.freeze()  # what is there now stays there: no child looks through it, and copies it by looking
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        asked = json.loads(line)
        if "bury" in asked:  # not before: until then its number is no other process's, and may be sent a signal
            os.waitpid(asked["bury"], 0)
            _answer(asked["bury"])
            continue
        mouth = os.open(asked["pipe"], os.O_WRONLY)  # before the fork: a child that dies at once is heard to end
        child = os.fork()
        if child == 0:
            os.close(0)
            os.open(os.devnull, os.O_RDONLY)
            if asked["held"]:
                os.kill(os.getpid(), signal.SIGSTOP)
            _live(asked["verb"], mouth, asked["arguments"])
        os.close(mouth)
        _answer(child)


def _answer(number: int) -> None:
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


def _live(verb: str, mouth: int, arguments: Mapping[str, Any]) -> NoReturn:
    """Do the work; then end at once, without taking all that was loaded apart again."""
    from benchmarks.faults.victims import act

    try:
        act(verb, partial(_say, mouth), arguments)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _say(mouth: int, word: object) -> None:
    """In one write, so that half a word is never heard."""
    os.write(mouth, json.dumps(word).encode() + b"\n")


if __name__ == "__main__":
    main()
