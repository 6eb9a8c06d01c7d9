"""A place where a child process can train and choose: a folder in the campaign's, with a copy of the ledger.

The child writes to the copy; the server, which alone writes to the ledger, takes over what came of it.

A child process that says how far it is: a task in, progress on the way, its result or why it failed out.

Training and choosing in the background, one job at a time: a child process computes, the server's writer writes.

So those who label never wait for a fit, and a job that runs out of memory takes nothing with it.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from ..campaign.choosing import candidate_images, pending_answers
from ..campaign.images import quarantine
from ..campaign.ledger import LEDGER_FILE, Ledger
from ..campaign.locks import make_folder
from ..campaign.models import model_folder
from ..campaign.rounds import ModelRow, Pick, Round, find_model, find_round, open_round, round_picks
from ..campaign.state import check_strategy, read_settings
from ..errors import BadInput, PoolExhausted, TailwiseError, UnknownName
from ..types import Progress
from . import schemas
from .choosing_child import GUESSES
from .errors import get_log
from .predictions import Guessed, Guesses
from .writer import Writer

PREFIX = ".job-"


@contextmanager
def workshop(ledger: Ledger) -> Iterator[Path]:
    """A folder that is a campaign of its own, removed at the end."""
    folder = ledger.folder / f"{PREFIX}{secrets.token_hex(8)}"
    make_folder(folder)
    try:
        ledger.back_up("job").replace(folder / LEDGER_FILE)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_left_over(ledger: Ledger) -> int:
    """Clear away what servers that were killed have left; gives how many places there were."""
    left = list(ledger.folder.glob(f"{PREFIX}*"))
    for folder in left:
        shutil.rmtree(folder, ignore_errors=True)
    return len(left)


MODULE = "tailwise.web.choosing_child"
LAST_WORDS = 300  # of what a child wrote before it died


class JobFailed(TailwiseError, RuntimeError):
    """Training or choosing in the background failed."""


class Child:
    """One process; `stop` may be called from another thread."""

    def __init__(self) -> None:
        # A file: a pipe that nobody reads would stop the child when it is full.
        self._errors = TemporaryFile()  # noqa: SIM115 — closed with the process, by `do`
        # One thread of BLAS: the other core is for those who label.
        calm = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        self._process = subprocess.Popen(
            [sys.executable, "-m", MODULE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
            text=True, encoding="utf-8", env={**os.environ, **calm},
        )  # fmt: skip

    def do(self, task: Mapping[str, Any], report: Progress) -> Mapping[str, Any]:
        """Give the task, pass the progress on, and wait for the result."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        with process, self._errors:
            try:
                process.stdin.write(json.dumps(task) + "\n")
                process.stdin.flush()
            except OSError:  # it died at once, which Windows calls an invalid argument; below is said why
                with suppress(OSError):
                    process.stdin.close()  # or its end would try to write the rest, and fail for that reason
            for line in process.stdout:
                said = json.loads(line)
                if "result" in said:
                    result: Mapping[str, Any] = said["result"]
                    return result
                if "error" in said:
                    raise JobFailed(str(said["error"]))
                report(float(said["share"]), str(said["what"]))
            raise JobFailed(self._last_words())

    def stop(self) -> None:
        """End it now, whatever it is doing."""
        self._process.kill()

    def _last_words(self) -> str:
        code = self._process.wait()
        self._errors.seek(0)
        said = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        why = f"it was ended by signal {-code}; is there enough memory?" if code < 0 else f"it ended with code {code}"
        return f"the background process failed: {why} {said[-1][:LAST_WORDS] if said else ''}".strip()


log = get_log(__name__)

BROKEN = "something failed inside the server; its log says what"


class AlreadyRunning(TailwiseError, RuntimeError):
    """A second job was asked for."""


class Unfinished(TailwiseError, ValueError):
    """The open round still waits for answers."""


class Jobs:
    """The background of one server; a restart forgets a job that was running, and nothing of it is left."""

    def __init__(self, ledger: Ledger, writer: Writer, public: Callable[[str], str] = str) -> None:
        remove_left_over(ledger)
        self.guesses = Guesses(self._guess_soon)
        self._ledger = ledger
        self._writer = writer
        self._public = public  # what people are shown of a message
        self._state = schemas.Job(state="idle")
        self._turn = threading.Lock()
        self._closed = False
        self._child: Child | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tailwise-job")

    def now(self) -> schemas.Job:
        """How far the job is, or how the last one ended."""
        return self._state

    def start(self, asked: schemas.Next) -> schemas.Job:
        """Begin to choose the next round."""
        with self._turn:
            if self._closed or self._state.state == "running":
                raise AlreadyRunning("the next round is being chosen already; wait for it")
            self._state = schemas.Job(state="running", what="starting")
            self._thread.submit(self._choose, asked)
            return self._state

    def close(self) -> None:
        """Stop the job, if there is one; nothing of it is kept."""
        with self._turn:
            self._closed = True
            if self._child is not None:
                self._child.stop()
        self._thread.shutdown(cancel_futures=True)

    def _choose(self, asked: schemas.Next) -> None:
        try:
            opened = self._chosen(asked)
            self._state = schemas.Job(state="done", share=1.0, what=f"round {opened.id} is open", round=opened.id)
        except (TailwiseError, OSError) as error:  # a full disk is no secret either
            log.warning("choosing the next round failed: %s", error)
            self._state = schemas.Job(state="failed", what=self._state.what, error=self._public(str(error)))
        except Exception:
            log.exception("choosing the next round failed")
            self._state = schemas.Job(state="failed", what=self._state.what, error=BROKEN)

    def _chosen(self, asked: schemas.Next) -> Round:
        wishes = asked.model_dump(exclude_none=True)
        with workshop(self._ledger) as folder:
            result = self._run({"folder": str(folder), "choose": wishes}, self._report)
            with Ledger.open(folder, read_only=True) as copy:
                found = Found.read(copy, int(result["round"]))
            opened = self._writer.submit(lambda: take_over(self._ledger, found, asked)).result()
            self._learn(folder, result["version"])
        return opened

    def _guess_soon(self, version: str) -> None:
        with self._turn:
            if not self._closed:
                self._thread.submit(self._guess, version)

    def _guess(self, version: str) -> None:
        """For a round that another program has opened, or that was open when the server started."""
        try:
            with workshop(self._ledger) as folder:
                self._run({"folder": str(folder), "choose": None, "version": version}, lambda *_: None)
                self._learn(folder, version)
        except Exception:  # people label without the second and third guess
            self.guesses.give_up(version)
            log.warning("could not ask the model %s about all images", version, exc_info=True)

    def _run(self, task: Mapping[str, Any], report: Progress) -> Mapping[str, Any]:
        with self._turn:
            if self._closed:
                raise JobFailed("the server is stopping")
            self._child = child = Child()
        try:
            return child.do(task, report)
        finally:
            self._child = None

    def _report(self, share: float, what: str) -> None:
        self._state = schemas.Job(state="running", share=share, what=what)

    def _learn(self, folder: Path, version: str | None) -> None:
        if version is not None:
            self.guesses.keep(Guessed.read(folder / GUESSES, version))


@dataclass(frozen=True, slots=True)
class Found:
    """What a child has written to its copy of the ledger."""

    round: Round
    picks: tuple[Pick, ...]
    model: ModelRow | None
    troubles: tuple[tuple[int, str], ...]  # all images in quarantine, with the reason

    @classmethod
    def read(cls, copy: Ledger, number: int) -> Found:
        """The round with this number, and all that belongs to it."""
        chosen = find_round(copy, number)
        model = None if chosen.model_version is None else find_model(copy, chosen.model_version)
        rows = copy.read("SELECT id, trouble FROM image WHERE trouble IS NOT NULL")
        return cls(chosen, tuple(round_picks(copy, number)), model, tuple((row[0], row[1]) for row in rows))


def take_over(ledger: Ledger, found: Found, asked: schemas.Next) -> Round:
    """Open the round that a child has chosen; what people have said meanwhile comes first."""
    try:
        with ledger.writing():
            check_finished(ledger, allow_unfinished=asked.allow_unfinished)
            _quarantine_new(ledger, found.troubles)
            among = candidate_images(ledger, with_open_round=asked.allow_unfinished, skipped=asked.skipped)
            left = set(among.tolist())
            picks = [pick for pick in found.picks if pick.image in left]
            if not picks:
                raise PoolExhausted("all images chosen were answered while they were being chosen; choose again")
            one = found.round
            return open_round(
                ledger, picks, budget=one.budget, strategy=one.strategy, balance=one.balance, seed=one.seed,
                model=found.model, why=one.why,
            )  # fmt: skip
    except TailwiseError:
        if found.model is not None:  # its row is in no ledger
            shutil.rmtree(model_folder(ledger, found.model.version), ignore_errors=True)
        raise


def check_wishes(ledger: Ledger, asked: schemas.Next) -> None:
    """Refuse at once what the child would refuse after a while."""
    if asked.strategy is not None or asked.balance is not None:
        usual = read_settings(ledger)
        balance = usual.balance if asked.balance is None else asked.balance
        try:
            check_strategy(asked.strategy or usual.strategy, balance)
        except UnknownName as error:
            raise BadInput(str(error)) from error
    check_finished(ledger, allow_unfinished=asked.allow_unfinished)


def check_training(ledger: Ledger) -> None:
    """Refuse to train where nothing can come of it."""
    check_finished(ledger, allow_unfinished=False)
    if not ledger.read("SELECT 1 FROM current_label LIMIT 1"):
        raise BadInput("no image has a label yet; label some first")
    if not len(candidate_images(ledger)):
        raise PoolExhausted("no image is left to choose from; add images first")


def check_finished(ledger: Ledger, *, allow_unfinished: bool) -> None:
    """A round is opened when the one before is answered, unless it is said that this does not matter."""
    pending = pending_answers(ledger)
    if pending is not None and pending.images and not allow_unfinished:
        raise Unfinished(f"{pending}; answer them first, or ask with allow_unfinished")


def _quarantine_new(ledger: Ledger, troubles: Sequence[tuple[int, str]]) -> None:
    known = {row[0] for row in ledger.read("SELECT id FROM image WHERE trouble IS NOT NULL")}
    fresh = [(number, why) for number, why in troubles if number not in known]
    if fresh:
        quarantine(ledger, fresh)
