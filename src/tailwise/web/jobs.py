"""Training and choosing in the background, one job at a time, and the model's predictions that come from it.

A child process (`python -m tailwise.web.jobs`) works on a copy of the ledger; the server's writer then opens the round
in the real one. So people who label never wait for a fit, and a job that runs out of memory takes nothing with it.
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
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np

from ..campaign.database import LEDGER_FILE
from ..campaign.images import list_images, quarantine
from ..campaign.ledger import Ledger
from ..campaign.locks import PRIVATE_FOLDER
from ..campaign.models import model_folder, predict
from ..campaign.overview import measure
from ..campaign.predictions import keep_predictions
from ..campaign.rounds import (
    AuditDraw,
    ModelRow,
    Pick,
    Round,
    candidate_images,
    find_draw,
    find_model,
    find_round,
    open_round,
    pending_answers,
    round_picks,
)
from ..campaign.search import make_index
from ..campaign.service import Campaign
from ..campaign.state import check_strategy, read_settings
from ..errors import BadInput, PoolExhausted, TailwiseError, UnknownName
from ..types import Progress, no_progress
from . import schemas
from .predictions import TOP, ModelPredictions, PredictionCache, kept_predictions
from .settings import get_log

log = get_log(__name__)

MODULE = "tailwise.web.jobs"
PREFIX = ".job-"  # of a job's folder in the campaign's
PREDICTIONS_FILE = "predictions.npz"
NICE = 5  # people who label come first
PURPOSE = "a background job"
MOST_OUTPUT = 300  # characters of a failed child's last line
BROKEN = "something failed inside the server; its log says what"

Submit = Callable[[Callable[[], Round]], Future[Round]]  # gives work to the server's writer


class JobFailed(TailwiseError, RuntimeError):
    """Training or choosing in the background failed."""


class AlreadyRunning(TailwiseError, RuntimeError):
    """A job is running already."""


class Unfinished(TailwiseError, ValueError):
    """The open round still waits for answers."""


class Jobs:
    """The background jobs of one server; a restart drops a job that was running without a trace."""

    def __init__(
        self,
        ledger: Ledger,
        submit: Submit,
        public: Callable[[str], str] = str,
        on_open: Callable[[], None] | None = None,
    ) -> None:
        remove_left_over(ledger)
        self.predictions = PredictionCache(self._predict_later)
        self._ledger = ledger
        self._submit = submit
        self._public = public  # removes paths from messages
        self._on_open = on_open  # called when a round was opened
        self.preparing = "no"  # whether features for the search are being made: "no", "running" or "failed"
        self.state = schemas.Job(state="idle")  # progress of the job, or how the last one ended
        self._turn = threading.Lock()
        self._closed = False
        self._child: JobProcess | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tailwise-job")

    def start(self, request: schemas.Next) -> schemas.Job:
        """Start choosing the next round."""
        with self._turn:
            if self._closed or self.state.state == "running":
                raise AlreadyRunning("the next round is already being chosen; wait for it")
            self.state = schemas.Job(state="running", what="starting")
            self._thread.submit(self._choose, request)
            return self.state

    def close(self) -> None:
        """Stop the running job, if any; nothing of it is kept."""
        with self._turn:
            self._closed = True
            if self._child is not None:
                self._child.process.kill()  # whatever it is doing
        self._thread.shutdown(cancel_futures=True)

    def _choose(self, request: schemas.Next) -> None:
        try:
            opened = self._choose_round(request)
            self.state = schemas.Job(state="done", share=1.0, what=f"round {opened.id} is open", round=opened.id)
            if self._on_open is not None:
                self._on_open()
        except (TailwiseError, OSError) as error:  # a full disk can be shown, too
            log.warning("choosing the next round failed: %s", error)
            self.state = schemas.Job(state="failed", what=self.state.what, error=self._public(str(error)))
        except Exception:
            log.exception("choosing the next round failed")
            self.state = schemas.Job(state="failed", what=self.state.what, error=BROKEN)

    def _choose_round(self, request: schemas.Next) -> Round:
        options = request.model_dump(exclude_none=True)
        with job_folder(self._ledger) as folder:
            result = self._run({"folder": str(folder), "choose": options}, self._report)
            with Ledger.open(folder, read_only=True) as copy:
                found = ChosenRound.read(copy, int(result["round"]))
            opened = self._submit(lambda: adopt_round(self._ledger, found, request)).result()
            self._read_predictions(folder, result["version"])
        return opened

    def _predict_later(self, version: str) -> None:
        with self._turn:
            if not self._closed:
                self._thread.submit(self._predict, version)

    def prepare(self) -> None:
        """Make what searches need, in the background, unless that is under way or has failed."""
        with self._turn:
            if not self._closed and self.preparing == "no":
                self.preparing = "running"
                self._thread.submit(self._predict, None)

    def _predict(self, version: str | None) -> None:
        """For a round that was opened by another program, or before the server started; features for the search."""
        try:
            if version is not None and (kept := kept_predictions(self._ledger, version)) is not None:
                self.predictions.kept = kept
                return
            with job_folder(self._ledger) as folder:
                self._run({"folder": str(folder), "choose": None, "version": version}, lambda *_: None)
                self._read_predictions(folder, version)
            self.preparing = "no"
        except Exception:  # people can label without predictions
            self.predictions.failed, self.preparing = version, "failed"
            log.warning("could not predict all images with the model %s", version, exc_info=True)

    def _run(self, task: Mapping[str, Any], report: Progress) -> Mapping[str, Any]:
        with self._turn:
            if self._closed:
                raise JobFailed("the server is stopping")
            self._child = child = JobProcess()
        try:
            return child.run(task, report)
        finally:
            self._child = None

    def _report(self, share: float, what: str) -> None:
        self.state = schemas.Job(state="running", share=share, what=what)

    def _read_predictions(self, folder: Path, version: str | None) -> None:
        if version is not None:
            self.predictions.kept = ModelPredictions.read(folder / PREDICTIONS_FILE, version)


@dataclass(frozen=True, slots=True)
class ChosenRound:
    """The round that a job has written to its copy of the ledger."""

    round: Round
    picks: tuple[Pick, ...]
    model: ModelRow | None
    draw: AuditDraw | None
    troubles: tuple[tuple[int, str], ...]  # all images in quarantine, with the reason

    @classmethod
    def read(cls, copy: Ledger, number: int) -> ChosenRound:
        """The round with this number, its picks and its model."""
        chosen = find_round(copy, number)
        model = None if chosen.model_version is None else find_model(copy, chosen.model_version)
        rows = copy.read("SELECT id, trouble FROM image WHERE trouble IS NOT NULL")
        troubles = tuple((row[0], row[1]) for row in rows)
        return cls(chosen, tuple(round_picks(copy, number)), model, find_draw(copy, number), troubles)


def adopt_round(ledger: Ledger, found: ChosenRound, request: schemas.Next) -> Round:
    """Open the round that a job has chosen, without images that were answered meanwhile."""
    try:
        with ledger.writing():
            check_finished(ledger, allow_unfinished=request.allow_unfinished)
            _quarantine_new(ledger, found.troubles)
            among = candidate_images(ledger, with_open_round=request.allow_unfinished, skipped=request.skipped)
            left = set(among.tolist())
            picks = [pick for pick in found.picks if pick.image in left]
            if not picks:
                raise PoolExhausted("all images chosen were answered while they were being chosen; choose again")
            one = found.round
            return open_round(
                ledger, picks, budget=one.budget, strategy=one.strategy, balance=one.balance, seed=one.seed,
                model=found.model, why=one.why, draw=found.draw,
            )  # fmt: skip
    except TailwiseError:
        if found.model is not None:  # its row is not in the ledger
            shutil.rmtree(model_folder(ledger, found.model.version), ignore_errors=True)
        raise


def check_request(ledger: Ledger, request: schemas.Next) -> None:
    """Reject at once what the job would reject later."""
    if request.strategy is not None or request.balance is not None:
        usual = read_settings(ledger)
        balance = usual.balance if request.balance is None else request.balance
        try:
            check_strategy(request.strategy or usual.strategy, balance)
        except UnknownName as error:
            raise BadInput(str(error)) from error
    check_finished(ledger, allow_unfinished=request.allow_unfinished)
    check_budget(ledger, request)


def check_budget(ledger: Ledger, request: schemas.Next) -> None:
    """Reject a batch that is larger than the pool; without a budget fewer are chosen where fewer are left."""
    among = candidate_images(ledger, with_open_round=request.allow_unfinished, skipped=request.skipped)
    left, wanted = len(among), request.budget
    if not left:
        raise PoolExhausted("no image is left to choose from; add images, or choose from the skipped ones")
    if wanted is not None and wanted > left:
        raise PoolExhausted(
            f"asked for {wanted:,} images, but only {left:,} can be chosen; lower the budget to {left:,}"
        )


def check_training(ledger: Ledger) -> None:
    """Reject training without labels or without images to choose from."""
    check_finished(ledger, allow_unfinished=False)
    if not ledger.read("SELECT 1 FROM current_label LIMIT 1"):
        raise BadInput("no image has a label yet; label some first")
    if not len(candidate_images(ledger)):
        raise PoolExhausted("no image is left to choose from; add images first")


def check_finished(ledger: Ledger, *, allow_unfinished: bool) -> None:
    """A round can be opened when the one before is answered, unless `allow_unfinished`."""
    pending = pending_answers(ledger)
    if pending is not None and pending.images and not allow_unfinished:
        raise Unfinished(f"{pending}; answer them first, or ask with allow_unfinished")


def _quarantine_new(ledger: Ledger, troubles: Sequence[tuple[int, str]]) -> None:
    known = {row[0] for row in ledger.read("SELECT id FROM image WHERE trouble IS NOT NULL")}
    fresh = [(number, why) for number, why in troubles if number not in known]
    if fresh:
        quarantine(ledger, fresh)


# The child process and its folder.


@contextmanager
def job_folder(ledger: Ledger) -> Iterator[Path]:
    """A folder in the campaign's with a copy of the ledger, removed at the end."""
    folder = ledger.folder / f"{PREFIX}{secrets.token_hex(8)}"
    folder.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)
    try:
        ledger.back_up("job").replace(folder / LEDGER_FILE)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_left_over(ledger: Ledger) -> int:
    """Remove the job folders of servers that were killed; returns how many there were."""
    left = list(ledger.folder.glob(f"{PREFIX}*"))
    for folder in left:
        shutil.rmtree(folder, ignore_errors=True)
    return len(left)


class JobProcess:
    """One child process; another thread may kill `process`."""

    def __init__(self) -> None:
        # A file: a pipe that nobody reads would stop the child when it is full.
        self._errors = TemporaryFile()  # noqa: SIM115 — closed with the process, by `run`
        # One thread of BLAS: the other cores are for people who label.
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        self.process = subprocess.Popen(
            [sys.executable, "-m", MODULE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
            text=True, encoding="utf-8", env={**os.environ, **threads},
        )  # fmt: skip

    def run(self, task: Mapping[str, Any], report: Progress) -> Mapping[str, Any]:
        """Send the task, report progress, and wait for the result."""
        process = self.process
        assert process.stdin is not None
        assert process.stdout is not None
        with process, self._errors:
            try:
                process.stdin.write(json.dumps(task) + "\n")
                process.stdin.flush()
            except OSError:  # it died at once (on Windows: invalid argument); the reason is raised below
                with suppress(OSError):
                    process.stdin.close()  # else closing it later would try to write the rest, and fail
            for line in process.stdout:
                message = json.loads(line)
                if "result" in message:
                    result: Mapping[str, Any] = message["result"]
                    return result
                if "error" in message:
                    raise JobFailed(str(message["error"]))
                report(float(message["share"]), str(message["what"]))
            raise JobFailed(self._why_failed())

    def _why_failed(self) -> str:
        code = self.process.wait()
        self._errors.seek(0)
        lines = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        why = f"it was ended by signal {-code}; is there enough memory?" if code < 0 else f"it ended with code {code}"
        return f"the background process failed: {why} {lines[-1][:MOST_OUTPUT] if lines else ''}".strip()


# What runs in the child: a task as one line of JSON in, progress and a result as such lines out.


def main() -> None:
    """Run the task that the parent sends."""
    task = json.loads(sys.stdin.readline())
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    if hasattr(os, "nice"):  # Windows has no such call
        os.nice(NICE)
    try:
        _send({"result": run_task(task)})
    except TailwiseError as error:
        _send({"error": str(error)})


def run_task(task: Mapping[str, Any]) -> dict[str, Any]:
    """Draw the map, or choose a round where one is requested and predict all images.

    The copy of the ledger is in a folder of the campaign, whose features and models it shares.
    """
    folder = Path(task["folder"])
    with Ledger.open(folder, purpose=PURPOSE, files=folder.parent) as ledger:
        if "map" in task:
            return {"images": len(Campaign(ledger).map(**task["map"], report=_progress))}
        if "review" in task:
            return {"found": _REVIEWS[task["review"]](Campaign(ledger))}
        if "measure" in task:
            return {"labels": measure(ledger, report=_progress)["labels"]}
        number = None
        if task["choose"] is not None:
            proposal = Campaign(ledger).next(**task["choose"], report=_progress)
            number = None if proposal.round is None else proposal.round.id
            version = proposal.model_version
        else:
            version = task["version"]
        if version is not None:
            write_predictions(ledger, folder, version)
        make_index(ledger, report=_progress if task["choose"] is None else no_progress)
    return {"round": number, "version": version}


_REVIEWS: Mapping[str, Callable[[Campaign], int]] = {  # what is found is kept among the campaign's files
    "errors": lambda campaign: len(campaign.review(report=_progress)),
    "duplicates": lambda campaign: len(campaign.duplicates(report=_progress)),
}


def write_predictions(ledger: Ledger, folder: Path, version: str) -> None:
    """Write the likeliest classes of every image to a file."""
    _progress(0.99, "asking the model about all images")
    ids = np.array([image.id for image in list_images(ledger, usable=True)], dtype=np.int64)
    found = predict(ledger, ids, version)
    keep_predictions(ledger, found)
    best = np.argsort(-found.proba, axis=1, kind="stable")[:, :TOP]
    classes = np.array(found.class_ids, dtype=np.int64)[best]
    np.savez(
        folder / PREDICTIONS_FILE,
        ids=found.images,
        classes=classes,
        confidence=np.take_along_axis(found.proba, best, 1),
    )


def _send(message: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def _progress(share: float, what: str) -> None:
    _send({"share": min(max(float(share), 0.0), 1.0), "what": what})


def _exit_with_parent() -> None:
    """The parent's end closes our input."""
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    main()
