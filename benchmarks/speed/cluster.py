"""Ray on this machine: what a question to the shards costs, and what a second process brings; 64 shards' traffic."""

from __future__ import annotations

import pickle
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from .apart import Answer, call_apart
from .instances import Instance, write
from .measured import Measured, Row, Run, Sheet
from .out_of_core import PASSES
from .timing import timed

NAME = "ray"
TURNS = 30
SHARDS = (1, 2, 8)
SIMULATED = 64  # shards
BUDGET_SHARE = 100
GATHERED = 1 << 18  # as in tailwise.matrix.shards


def measure(run: Run) -> Iterator[Measured]:
    """One pool, solved here, by one actor with one thread, and by two."""
    seed = run.seeds(1)[0]
    large = Instance(200_000 if run.quick else 2_000_000, 100, seed)
    fresh = Instance(70_000 if run.quick else 700_000, 40, seed + 1)  # not looked at when the model was made
    for instance, steps in ((large, ("scaling", "traffic")), (fresh, ("traffic",))):
        sheet = Sheet(NAME, instance.name + ", float16", instance.seed)
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder) / "proba.npy")
            write(instance, Path(path), "float16")
            found = {step: call_apart(f"cluster:{step}", 1_800, path=path) for step in steps}
        per_question = found.get("scaling", {}).get(f"question {SHARDS[-1]}")
        for step, answer in found.items():
            judge = _judge_scaling if step == "scaling" else _judge_traffic
            yield from judge(sheet, answer) if "error" not in answer else [sheet.failed(step, "", answer["error"])]
        if per_question and "rounds" in found["traffic"]:
            yield _overhead(sheet, found["traffic"], per_question)


def _overhead(sheet: Sheet, answer: Answer, per_question: float) -> Measured:
    """What Ray adds to a dual round: its questions, each as long as one that has nothing to do."""
    questions = answer["questions of duals"] / answer["rounds"]
    name = f"milliseconds of Ray per dual round, {SHARDS[-1]} shards"
    return sheet.tell(name, 1e3 * questions * per_question, f"{questions:.0f} questions")


def scaling(path: str) -> Answer:
    """Questions and passes on one and two actors, and whole solves, beside the local engine on one thread."""
    import tailwise
    from tailwise.matrix.open import open_proba
    from tailwise.matrix.shards import Rows
    from tailwise.ray.cluster import connect
    from tailwise.ray.rows import RayBackend

    answer: Answer = {}
    matrix = open_proba(path)
    budget = matrix.shape[0] // BUDGET_SHARE
    tailwise.select(path, budget, balance=1.0, score="entropy")  # the file is in memory from now on, for both
    here = tailwise.select(path, budget, balance=1.0, score="entropy")
    with connect("ray", cpus=2) as cluster:
        for shards in SHARDS:
            backend = RayBackend(matrix, cluster, shards, threads=1)
            rows = Rows(backend=backend)
            cost, y = rows.hold(np.zeros(rows.size)), np.linspace(-1.0, 1.0, rows.classes)
            rows.priced(cost, y)
            calls = [timed(lambda: rows.call_all("drop", [])) for _ in range(TURNS)]  # noqa: B023 - called at once
            answer[f"question {shards}"] = median(call.seconds for call in calls)
            answer[f"pass {shards}"] = median(timed(lambda: rows.priced(cost, y)).seconds for _ in range(5))  # noqa: B023 - called at once
            backend.close()
        there = tailwise.select(path, budget, balance=1.0, engine="ray", shards=2, score="entropy")
    answer["same"] = bool(np.array_equal(here.indices, there.indices))
    answer |= {"local seconds": here.seconds, "ray seconds": there.seconds}
    return answer


def _judge_scaling(sheet: Sheet, answer: Answer) -> Iterator[Measured]:
    yield sheet.at_least("picks are those of the local engine (1 = yes)", float(answer["same"]), 1.0)
    for shards in SHARDS:
        yield sheet.tell(f"milliseconds of one question to {shards} shard(s)", 1e3 * answer[f"question {shards}"])
    yield sheet.tell("speed of a pass, two processes against one", answer["pass 1"] / answer["pass 2"])
    yield sheet.tell("seconds of select, local, both cores", answer["local seconds"])
    yield sheet.tell("seconds of select, two actors", answer["ray seconds"])


class Counting:
    """Local shards that count the questions, and the bytes that would travel."""

    def __init__(self, backend: Any) -> None:  # noqa: ANN401 - of the library under test
        self.backend = backend
        self.bounds, self.classes = backend.bounds, backend.classes
        self.dtype, self.sparse = backend.dtype, backend.sparse
        self.asked: Counter[str] = Counter()
        self.out: Counter[str] = Counter()
        self.back: Counter[str] = Counter()

    def call(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Count, and pass the question on."""
        answers: list[Any] = self.backend.call(method, arguments)
        self.asked[method] += 1
        self.out[method] += sum(len(pickle.dumps(given, protocol=5)) for given in arguments)
        self.back[method] += sum(len(pickle.dumps(answer, protocol=5)) for answer in answers)
        return answers


def traffic(path: str) -> Answer:
    """Solve with 64 shards in one process: what travelled, beside what the model of docs/scale.md says."""
    from tailwise.matrix.open import open_proba

    matrix = open_proba(path)
    alone, _ = _counted(matrix, 1)
    rounds, counting = _counted(matrix, SIMULATED)
    budget = matrix.shape[0] // BUDGET_SHARE
    return {
        "rounds": len(rounds), "rounds alone": len(alone), "passes": sum(counting.asked[kind] for kind in PASSES),
        "questions": sum(counting.asked.values()), "rows": counting.back["take"],
        "questions of duals": rounds[-1],
        "bytes": sum(counting.out.values()) + sum(counting.back.values()),
        "predicted": predicted_bytes(matrix.shape, budget, SIMULATED, len(rounds)),
    }  # fmt: skip


def _counted(matrix: Any, shards: int) -> tuple[list[int], Counting]:  # noqa: ANN401 - of the library under test
    """How many questions were asked by the end of each dual round of a solve, and all of them."""
    from tailwise.matrix.shards import LocalBackend, Rows, shard_bounds
    from tailwise.score import entropy
    from tailwise.solver.program import Effort, Program
    from tailwise.solver.solver import solve
    from tailwise.targets import Target

    counting = Counting(LocalBackend(matrix, shard_bounds(*matrix.shape, shards)))
    rows = Rows(backend=counting)
    budget = matrix.shape[0] // BUDGET_SHARE
    costs, _ = rows.scan(entropy, 5e-3)
    ranges = Target.uniform().resolve(np.zeros(rows.classes), budget)
    rounds: list[int] = []

    def note(line: str) -> None:
        if line.startswith("dual round"):
            rounds.append(sum(counting.asked.values()))

    solve(Program(rows, costs, budget, 1.0, ranges), Effort(), report=note)
    return rounds, counting


def predicted_bytes(shape: tuple[int, int], budget: int, shards: int, rounds: int) -> float:
    """The model of docs/scale.md: the sample, the survey, the open rows of every round, C sums per shard, the picks."""
    size, classes = shape
    open_rows = min(size, max(min(max(1_000_000, size * classes // 25), 40_000_000) // classes, 10 * classes, 1_000))
    looked_at = min(open_rows, max(10_000_000 // classes, 10 * classes)) + 1_000_000 // classes
    later = min(open_rows, max(4_000, 100 * classes))
    row = 2 * classes + 5 * 8  # half precision, its number there and back, cost, distance, place among those left out
    ranking = 8 * GATHERED / 2  # the numbers among which the one of a rank is found in one place, half of the most
    per_round = shards * (16 * classes + 16 * classes) + 2 * ranking
    gathered = looked_at + open_rows + max(0, rounds - 1) * later
    return gathered * row + rounds * per_round + 4 * ranking + 6 * 8 * budget


def _judge_traffic(sheet: Sheet, answer: Answer) -> Iterator[Measured]:
    yield sheet.at_most("dual rounds with 64 shards", answer["rounds"], answer["rounds alone"], "as with one")
    yield sheet.tell("questions with 64 shards", answer["questions"])
    yield sheet.tell("passes with 64 shards", answer["passes"])
    yield sheet.tell("megabytes that would travel", answer["bytes"] / 1e6, f"of which rows {answer['rows'] / 1e6:.0f}")
    yield sheet.at_most("measured against the model's traffic", answer["bytes"] / answer["predicted"], 1.25)


ROW = Row(NAME, "the picks of the local engine; overhead per question, scaling and traffic are reported", measure)
