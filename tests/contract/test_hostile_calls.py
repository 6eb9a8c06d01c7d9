"""Every public function, called with values that nobody should give: a valid result or an error of ours, never more.

One argument at a time is replaced by each value of a zoo; the others are good. Warnings are errors.
"""

from __future__ import annotations

import datetime
import decimal
import fractions
import json
import warnings
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import tailwise
from tailwise import softmax
from tailwise.cli import select as numbers
from tailwise.cli.output import WrongUsage, run
from tailwise.errors import BadFile, TailwiseError
from tailwise.experiments.experiment import parse_experiment, read_experiment
from tailwise.pools.features import read_arrays
from tailwise.strategies import STRATEGIES, cold_start, make
from tailwise.targets import Target, l1_score

torch = pytest.importorskip("torch")

SIZE, CLASSES, BUDGET = 12, 3, 4
LONGEST_MESSAGE = 700
RNG = np.random.default_rng(0)
PROBA = RNG.dirichlet([2.0, 1.0, 0.5], size=SIZE)
PREDICTIONS = tailwise.Predictions(
    proba=PROBA,
    embeddings=RNG.normal(size=(SIZE, 2)),
    labelled_embeddings=RNG.normal(size=(2, 2)),
    mc_proba=RNG.dirichlet(np.ones(CLASSES), size=(2, SIZE)),
    labelledness=RNG.random(SIZE),
    labelled_proba=RNG.dirichlet(np.ones(CLASSES), size=4),
    labelled_labels=np.arange(4) % CLASSES,
)
LABELS = np.arange(SIZE) % CLASSES
Call = Callable[[Any], object]


class Stubborn:
    """An object on which everything fails."""

    def __repr__(self) -> str:
        raise RuntimeError("no")

    def __array__(self, *_: object, **__: object) -> np.ndarray:
        raise KeyError("never")


def nested(depth: int) -> list[Any]:
    made: list[Any] = [1.0]
    for _ in range(depth):
        made = [made]
    return made


def zoo() -> dict[str, Any]:
    """Values of every kind, made anew, since some of them can be read only once."""
    return {
        "None": None,
        "true": True,
        "false": False,
        "zero": 0,
        "one": 1,
        "minus one": -1,
        "three": 3,
        "half": 0.5,
        "huge int": 10**400,
        "huger int": 10**5000,
        "minus huge int": -(10**400),
        "2^63": 2**63,
        "2^64": 2**64,
        "nan": np.nan,
        "inf": np.inf,
        "minus inf": -np.inf,
        "1e308": 1e308,
        "-1e308": -1e308,
        "tiny": 5e-324,
        "complex": 1j,
        "decimal": decimal.Decimal(1),
        "fraction": fractions.Fraction(1, 3),
        "date": datetime.date.min,
        "text": "a",
        "empty text": "",
        "number in text": "1",
        "nul": "a\0b.npy",
        "long name": "a" * 5_000 + ".npy",
        "nobody": "~nobody-here/p.npy",
        "folder": ".",
        "absent": "absent.npy",
        "bad url": "s3:///",
        "half url": "file://x",
        "path": Path("absent.npy"),
        "path to nul": Path("a\0"),
        "bytes": b"abc",
        "bytearray": bytearray(12),
        "object": object(),
        "stubborn": Stubborn(),
        "type": str,
        "function": len,
        "lambda": lambda *_: None,
        "set": {1, 2, 3},
        "generator": (x for x in range(SIZE)),
        "iterator": iter([1.0] * SIZE),
        "range": range(SIZE),
        "dict": {},
        "text keys": {"a": 1},
        "bad keys": {(): 1, None: 2},
        "large key": {10**400: 1},
        "minus key": {-1: 1},
        "dict of text": {0: "a"},
        "dict of None": {0: None},
        "dict of lists": {0: [1, 2]},
        "true key": {True: 1},
        "empty list": [],
        "list of None": [None] * SIZE,
        "list of text": ["a"] * SIZE,
        "huge list": [10**400] * SIZE,
        "ragged": [[1.0], [1.0, 2.0]],
        "ragged 3": [[[1.0]], [1.0]],
        "mixed": [1, "a", None],
        "list of lists": [[]],
        "nested 100": nested(100),
        "nested 5000": nested(5_000),
        "list of sets": [{1}, {2}],
        "0-d": np.array(1.0),
        "0-d int": np.array(3),
        "1-d": np.ones(SIZE),
        "3-d": np.ones((2, SIZE, CLASSES)),
        "no rows": np.empty((0, CLASSES)),
        "no columns": np.empty((SIZE, 0)),
        "one column": np.ones((SIZE, 1)),
        "empty": np.empty(0),
        "negative": -np.ones(CLASSES),
        "negative rows": -np.ones(SIZE),
        "wrong size": np.ones(7),
        "ints": np.ones(CLASSES, dtype=np.int64),
        "int matrix": np.eye(SIZE, CLASSES, dtype=np.int8),
        "large ints": np.full(CLASSES, 2**64 - 1, dtype=np.uint64),
        "bools": np.ones(SIZE, dtype=bool),
        "nan array": np.full(CLASSES, np.nan),
        "nan rows": np.full(SIZE, np.nan),
        "inf array": np.full(CLASSES, np.inf),
        "1e308 rows": np.full(SIZE, 1e308),
        "±1e308 rows": np.array([-1e308, 1e308] * (SIZE // 2)),
        "1e308s": [1e308] * CLASSES,
        "1e100 rows": np.linspace(-1e100, 1e100, SIZE),
        "tiny rows": np.linspace(0, 5e-324, SIZE),
        "nan matrix": np.full((SIZE, CLASSES), np.nan),
        "1e308 matrix": np.full((SIZE, CLASSES), 1e308),
        "3e38 matrix": np.full((SIZE, 2), 3e38, dtype=np.float32),
        "1e308 pairs": np.full((SIZE, 2), 1e308),
        "logits": np.log(PROBA),
        "percent": 100 * PROBA,
        "big-endian": PROBA.astype(">f8"),
        "long double": PROBA.astype("g"),
        "float16": PROBA.astype(np.float16),
        "F order": np.asfortranarray(PROBA),
        "backwards": PROBA[::-1, ::-1],
        "objects": PROBA.astype(object),
        "object texts": np.full((SIZE, CLASSES), "a", dtype=object),
        "object array": np.array([object()] * SIZE),
        "text array": np.full(SIZE, "a"),
        "bytes array": np.full(SIZE, b"a"),
        "dates": np.zeros(SIZE, dtype="M8[s]"),
        "spans": np.zeros(CLASSES, dtype="m8[s]"),
        "records": np.zeros(SIZE, dtype=[("a", "f4"), ("b", "f4")]),
        "void": np.zeros(SIZE, dtype="V4"),
        "complex array": np.full(SIZE, 1j),
        "complex matrix": PROBA + 0j,
        "matrix": PROBA.view(np.matrix),
        "masked rows": np.ma.masked_less(PROBA, 0.2),
        "masked": np.ma.masked_array(np.ones(SIZE), mask=True),
        "masked counts": np.ma.masked_array([1, 2, 3], mask=[0, 1, 0]),
        "masked list": [1.0, np.ma.masked, 2.0],
        "unmasked": np.ma.masked_array(PROBA),
        "masked constant": np.ma.masked,
        "tensor": torch.tensor(PROBA),
        "grad": torch.tensor(PROBA, requires_grad=True),
        "meta": torch.empty(3, device="meta"),
        "bfloat16": torch.tensor(PROBA, dtype=torch.bfloat16),
        "bfloat16 row": torch.ones(CLASSES, dtype=torch.bfloat16),
        "float8": torch.ones(CLASSES).to(torch.float8_e4m3fn),
        "sparse": torch.eye(CLASSES).to_sparse(),
        "grad scalar": torch.tensor(1.0, requires_grad=True),
        "list of grads": [torch.ones((), requires_grad=True)] * SIZE,
        "conj": torch.ones(SIZE, dtype=torch.complex64).conj(),
        "tensor ints": torch.arange(CLASSES),
        "frame": pd.DataFrame(PROBA, columns=["a", "b", "c"]),
        "text frame": pd.DataFrame({"a": ["x"] * SIZE}),
        "series": pd.Series([1.0, 2.0, 3.0], index=["a", "b", "c"]),
        "series by number": pd.Series({2: 1.0, 0: 2.0}),
        "twice": pd.Series([1.0, 2.0], index=[0, 0]),
        "missing": pd.Series([1, None, 2], dtype="Int64"),
        "categories": pd.Series(["a"] * SIZE, dtype="category"),
        "times": pd.Series(pd.to_datetime(["2020-01-01"] * 3)),
        "memmap": np.memmap(Path("kept.npy"), PROBA.dtype, "r", 128, PROBA.shape),
    }


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own: "" and "." are folders, too."""
    monkeypatch.chdir(tmp_path)
    np.save("kept.npy", PROBA)
    Path("inner").mkdir()
    tailwise.TopK.of(PROBA, 2).save("inner/sparse")
    return tmp_path


class Faults(list[str]):
    """Calls that gave neither a good result nor an error of ours."""

    def try_(self, call: Call, value: object, name: str) -> None:
        """Call with one value, warnings being errors."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                check(call(value))
        except (TailwiseError, WrongUsage) as error:
            message = str(error)
            if not message or len(message) > LONGEST_MESSAGE or "\0" in message:
                self.append(f"{name}: nobody can read {message[:200]!r} ({len(message)} letters)")
        except Exception as error:  # that is the fault
            self.append(f"{name}: {type(error).__name__}: {str(error)[:200]}")


@pytest.fixture
def faults() -> Iterator[Faults]:
    """Filled by a test, empty at its end."""
    found = Faults()
    yield found
    if found:
        pytest.fail("\n".join([f"{len(found)} faults:", *found]), pytrace=False)


def check(result: object) -> None:
    """What every good result has in common."""
    if isinstance(result, tailwise.Selection):
        rows = result.indices.tolist()
        assert len(set(rows)) == len(rows)
        assert all(0 <= row < SIZE for row in rows)
        numbers_of_it = (result.objective, result.lam, result.informativeness, result.l1, result.hidden)
        assert np.isfinite([*numbers_of_it, *result.expected_counts, *result.target]).all()
        assert result.expected_counts.sum() == pytest.approx(len(rows), rel=5e-3)
        assert result.l1 == pytest.approx(distance(result), rel=1e-9, abs=1e-9)
        if result.method not in (
            "base",
            "boundary",
            "coreset",
            "entropy-l1-pseudo-label",
        ):  # which have objectives of their own
            assert result.objective == pytest.approx(
                result.lam * result.l1 - result.informativeness, rel=1e-9, abs=1e-9
            )
        assert result.bound <= result.objective + result.hidden
        assert result.gap >= 0
        assert result.to_json()
        assert repr(result)
    elif isinstance(result, np.ndarray | float):
        assert np.isfinite(result).all()


def distance(result: tailwise.Selection) -> float:
    """l1 distance of the expected counts from the target."""
    expected = result.expected_counts
    return float(np.maximum(result.target - expected, 0).sum() + np.maximum(expected - result.target_high, 0).sum())


select = partial(tailwise.select, PROBA, BUDGET, balance=1.0)
path = partial(tailwise.balance_path, PROBA, BUDGET, lams=[1.0])
CALLS: dict[str, Call] = {
    "select proba": lambda v: tailwise.select(v, BUDGET, balance=1.0),
    "select proba auto": lambda v: tailwise.select(v, 2, score="margin"),
    "select budget": lambda v: tailwise.select(PROBA, v, balance=1.0),
    **{
        f"select {name}": lambda v, name=name: tailwise.select(PROBA, BUDGET, **{"balance": 1.0, name: v})  # type: ignore[misc]
        for name in (
            "score",
            "counts",
            "target",
            "balance",
            "gap",
            "time_limit",
            "seed",
            "engine",
            "shards",
            "report",
            "strategy",
            "ids",
            "class_names",
            "exclude",
            "mask",
            "include",
            "groups",
            "cost",
            "threads",
        )
    },
    "path proba": lambda v: tailwise.balance_path(v, BUDGET, lams=[1.0]),
    "path budget": lambda v: tailwise.balance_path(PROBA, v, lams=[1.0]),
    **{
        f"path {name}": lambda v, name=name: tailwise.balance_path(PROBA, BUDGET, **{"lams": [1.0], name: v})  # type: ignore[misc]
        for name in ("score", "counts", "target", "lams", "seed", "engine", "shards", "report")
    },
    "make": lambda v: make(v),
    "predictions": lambda v: make("random", balance=0).select(v, BUDGET),
    "target shares": lambda v: select(target=Target.shares(v)),
    "target counts": lambda v: select(target=Target.counts(v)),
    "target low": lambda v: select(target=Target.ranges(low=v)),
    "target high": lambda v: select(target=Target.ranges(high=v)),
    "target kind": lambda v: Target(v),
    "resolve counts": lambda v: Target.uniform().resolve(v, BUDGET).low,
    "resolve budget": lambda v: Target.uniform().resolve([1, 2, 3], v).low,
    "TopK values": lambda v: tailwise.select(
        tailwise.TopK(v, np.argsort(PROBA)[:, ::-1], CLASSES), BUDGET, balance=1.0
    ),
    "TopK classes": lambda v: tailwise.select(tailwise.TopK(PROBA, v, CLASSES), BUDGET, balance=1.0),
    "TopK count": lambda v: tailwise.select(tailwise.TopK(np.sort(PROBA), np.argsort(PROBA), v), BUDGET, balance=1.0),
    "TopK.of proba": lambda v: tailwise.select(tailwise.TopK.of(v, 2), BUDGET, balance=1.0),
    "TopK.of kept": lambda v: tailwise.TopK.of(PROBA, v),
    "TopK.open": lambda v: tailwise.TopK.open(v),
    "with_temperature proba": lambda v: softmax.with_temperature(v, 2.0),
    "with_temperature": lambda v: softmax.with_temperature(PROBA, v),
    "fit_temperature proba": lambda v: softmax.fit_temperature(v, LABELS),
    "fit_temperature labels": lambda v: softmax.fit_temperature(PROBA, v),
    "fit_temperature bounds": lambda v: softmax.fit_temperature(PROBA, LABELS, v),
    "shift_prior proba": lambda v: softmax.shift_prior(v, [1, 1, 1], [1, 2, 3]),
    "shift_prior trained": lambda v: softmax.shift_prior(PROBA, v, [1, 2, 3]),
    "shift_prior wanted": lambda v: softmax.shift_prior(PROBA, [1, 2, 3], v),
    "estimate_prior proba": lambda v: softmax.estimate_prior(v, [1, 1, 1]),
    "estimate_prior trained": lambda v: softmax.estimate_prior(PROBA, v),
    "estimate_prior pseudo_count": lambda v: softmax.estimate_prior(PROBA, [1, 2, 3], pseudo_count=v),
    "estimate_prior most_steps": lambda v: softmax.estimate_prior(PROBA, [1, 2, 3], most_steps=v, tolerance=0.1),
    "estimate_prior tolerance": lambda v: softmax.estimate_prior(PROBA, [1, 2, 3], most_steps=9, tolerance=v),
    "calibration error proba": lambda v: softmax.expected_calibration_error(v, LABELS),
    "calibration error labels": lambda v: softmax.expected_calibration_error(PROBA, v),
    "calibration error bins": lambda v: softmax.expected_calibration_error(PROBA, LABELS, v),
    "l1_score": lambda v: l1_score(v),
    "entropy": lambda v: tailwise.score.entropy(v).shape,
    "margin": lambda v: tailwise.score.margin(v).shape,
    "least_confidence": lambda v: tailwise.score.least_confidence(v).shape,
    "bald": lambda v: tailwise.score.bald(v),
    "oracle": lambda v: make("galaxy", balance=0).select(PREDICTIONS, BUDGET, oracle=v),
    "what an oracle answers": lambda v: make("galaxy", balance=0).select(PREDICTIONS, BUDGET, oracle=lambda _: v),
    "cold_start embeddings": lambda v: cold_start(v, classes=3),
    "cold_start classes": lambda v: cold_start(np.ones((SIZE, 2)), classes=v),
    "read_experiment": lambda v: read_experiment(v),
    "Campaign.open": lambda v: tailwise.Campaign.open(v),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_hostile_argument_gives_a_result_or_an_error_of_ours(name: str, faults: Faults) -> None:
    for kind, value in zoo().items():
        faults.try_(CALLS[name], value, f"{name} = {kind}")


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_hostile_setting_of_a_strategy_is_rejected(name: str, faults: Faults) -> None:
    kind: Any = STRATEGIES[name]
    shared = {"gap", "time_limit", "engine", "shards"} if name != "entropy" else set()  # of all: one will do
    for setting in (field for field in fields(kind) if field.name not in shared):
        for kind, value in zoo().items():
            faults.try_(lambda v, at=setting.name: chosen_with(name, {at: v}), value, f"{name}({setting.name}={kind})")  # type: ignore[misc]


def chosen_with(name: str, settings: dict[str, Any]) -> tailwise.Selection:
    return make(name, **{"balance": 0, **settings}).select(PREDICTIONS, BUDGET, oracle=oracle)


def oracle(rows: np.ndarray) -> np.ndarray:
    return LABELS[rows]


@pytest.mark.parametrize("name", STRATEGIES)
def test_hostile_predictions_are_rejected(name: str, faults: Faults) -> None:
    chosen = make(name, balance=0.0 if name in {"coreset", "direct", "galaxy"} else 1.0)
    for need in chosen.needs:
        for kind, value in zoo().items():
            faults.try_(
                lambda v, need=need: chosen.select(replace(PREDICTIONS, **{need: v}), BUDGET, oracle=oracle),  # type: ignore[misc]
                value, f"{name}: predictions.{need} = {kind}",
            )  # fmt: skip


# -- files ------------------------------------------------------------------------------------------------------------

DEEP = {"json list": "[" * 5_000, "json dict": '{"classes":' * 5_000, "json closed": "[" * 5_000 + "]" * 5_000}
HEADERS = [
    b"{'descr': '<f8', 'fortran_order': False, 'shape': (12, 3",
    b"(" * 9_000,
    b"-" * 9_000 + b"1",
    b"{'descr': '<f8',",
    b"{'descr': '<f8', 'fortran_order': False, 'shape': (-12, 3), }",
    b"'''",
    b"\\",
    b"{'\\d': 1}",
    b"{1if 1else 2}",
    b"{'descr': '<f8', 'fortran_order': False, 'shape': (12L, 3L), }",
    b"{'descr': 'f4,f4', 'shape': (1,)}",
    b"\xff\xfe",
    b"{'descr': '<f8', 'fortran_order': False, 'shape': (" + b"9" * 5_000 + b", 3), }",
    b"{'descr': '<f99'}",
    b"",
    b"{'descr': '<f8', 'fortran_order': 2, 'shape': (12, 3), }",
    b"{'descr': 'O', 'fortran_order': False, 'shape': (1, 1)}",
    b"{'descr': [('a', 'O')], 'fortran_order': False, 'shape': (1, 1)}",
    b"{'descr': '<a8', 'fortran_order': False, 'shape': (1,1)}",
]


def damaged() -> list[bytes]:
    """.npy files with other headers, and good ones with some bytes changed."""
    made = [b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(288) for header in HEADERS]
    good = Path("kept.npy").read_bytes()
    rng = np.random.default_rng(1)
    for _ in range(150):
        content = bytearray(good)
        for place in rng.integers(0, 128, size=rng.integers(1, 4)):
            content[place] = rng.integers(256)
        made.append(bytes(content))
    return [*made, good[:50], good[:-1], b""]


def test_damaged_arrays_are_rejected(faults: Faults) -> None:
    readers: dict[str, Call] = {
        "select": lambda v: tailwise.select(v, BUDGET, balance=1.0),
        "score": lambda v: tailwise.select(PROBA, BUDGET, score=numbers.read_scores(Path(v)), balance=1.0),
        "counts": lambda v: numbers.per_class(v, "--counts", CLASSES),
        "sparse": lambda _: tailwise.TopK.open("inner/sparse"),
        "features": lambda _: read_arrays(Path("inner/features")),
    }
    Path("inner/features").mkdir()
    for at, content in enumerate(damaged()):
        Path("bad.npy").write_bytes(content)
        Path("inner/sparse/values.npy").write_bytes(content)
        Path("inner/features/x_train.npy").write_bytes(content)
        for name, read in readers.items():
            faults.try_(read, "bad.npy", f"{name} of header {at}: {content[:80]!r}")


@pytest.mark.parametrize("kind", DEEP)
def test_deep_json_is_rejected(kind: str) -> None:
    Path("inner/sparse/top_k.json").write_text(DEEP[kind])
    with pytest.raises(BadFile):
        tailwise.TopK.open("inner/sparse")
    Path("counts.json").write_text(DEEP[kind])
    with pytest.raises(BadFile):
        numbers.per_class("counts.json", "--counts", CLASSES)
    Path("manifest.json").write_text(DEEP[kind])
    assert len(tailwise.select(".", BUDGET, balance=1.0)) == BUDGET  # somebody else's manifest


EXPERIMENT: dict[str, Any] = {
    "name": "tried",
    "pool.name": "digits",
    "start.initial": 20,
    "budget": 10,
    "learner.name": "linear",
    "seeds": [0],
    "imbalance.factors": [1.0],
    "imbalance.tail": "last",
    "strategies": [{"name": "entropy", "balance": 0.0}],
    "cycles": 2,
    "strategies.0.name": "kcenter",
    "strategies.0.balance": "auto",
    "pool.path": "",
    "about": "",
    "passes": 2,
    "learner.settings.strength": 1.0,
    "learner.settings.dropout": 0.1,
    "vaal.steps": 3,
    "vaal.channels": [1, 2, 3, 4],
    "strategies.0.settings.parts": 1,
    "strategies.0.settings.gap": 1e-4,
    "strategies.0.settings.time_limit": 1.0,
    "calibration.folds": 2,
    "pool.settings.size": 3,
    "strategies.0.settings.shards": 2,
}
TOML_VALUES = [
    "true",
    "-1",
    "0",
    "10",
    "1.5",
    "nan",
    "inf",
    "-inf",
    "1" + "0" * 400,
    "1e308",
    "9" * 5_000,
    '""',
    '"a"',
    '"a\\u0000"',
    "[]",
    "[[1]]",
    '["a"]',
    "[true, 1]",
    "{}",
    "{a = 1}",
    "[{}]",
    "[{a = 1}]",
    "1979-05-27",
    "07:32:00",
    "[nan]",
    "[-1]",
    "1979-05-27T07:32:00Z",
    "'" + "x" * 9_000 + "'",
]


def toml_with(key: str, text: str) -> str:
    """The good experiment, in which one value is replaced by a text, valid TOML or not."""
    steps: dict[str, str] = {
        "name": '"tried"',
        "budget": "10",
        "seeds": "[0]",
        "pool.name": '"digits"',
        "start.initial": "20",
        "learner.name": '"linear"',
        "strategies.0.name": '"entropy"',
    }
    if key == "strategies":
        steps.pop("strategies.0.name")
    steps[key] = text
    if key.startswith("strategies.0.settings.parts"):
        steps["strategies.0.name"] = '"kcenter"'
    plain = [f"{step} = {value}" for step, value in steps.items() if not step.startswith("strategies.0")]
    listed = [f"{step.removeprefix('strategies.0.')} = {value}" for step, value in steps.items() if "ies.0" in step]
    return "\n".join([*plain, *(["[[strategies]]", *listed] if listed else [])])


def test_the_experiment_that_is_spoiled_is_good() -> None:
    assert parse_experiment(toml_with("budget", "10"), "tried.toml").budget == 10


@pytest.mark.parametrize("key", EXPERIMENT)
def test_hostile_values_in_an_experiment_are_rejected(key: str, faults: Faults) -> None:
    for text in TOML_VALUES:
        faults.try_(lambda v: parse_experiment(v, "tried.toml").to_toml(), toml_with(key, text), f"{key} = {text[:40]}")


@pytest.mark.parametrize("deep", ["a = " + "[" * 5_000, "a = " + "{a=" * 5_000, "[" + "a." * 5_000 + "a]\nb = 1"])
def test_deep_toml_is_rejected(deep: str) -> None:
    with pytest.raises(TailwiseError, match=r"tried\.toml"):
        parse_experiment(deep, "tried.toml")
    Path("tried.toml").write_text(deep)
    with pytest.raises(TailwiseError, match=r"tried\.toml"):
        read_experiment("tried.toml")


# -- campaigns --------------------------------------------------------------------------------------------------------


@pytest.fixture
def campaign() -> Iterator[tailwise.Campaign]:
    """Three images and two classes."""
    Path("photos").mkdir()
    for shade in (0, 100, 200):
        Image.new("L", (8, 8), shade).save(f"photos/{shade}.png")
    with tailwise.Campaign.create("zoo", "photos", ["owl", "kite"]) as made:
        yield made


CAMPAIGN_CALLS: dict[str, Callable[[tailwise.Campaign, Any], object]] = {
    "create folder": lambda _, v: tailwise.Campaign.create(v, "photos", ["owl"]).close(),
    "create images": lambda _, v: tailwise.Campaign.create("other", v, ["owl", "owl"]),
    "create classes": lambda _, v: tailwise.Campaign.create("zoo", "photos", v),
    "label image": lambda made, v: made.label(v, "owl"),
    "label class": lambda made, v: made.label("0.png", v),
    "label annotator": lambda made, v: made.label("0.png", "owl", annotator=v),
    "label key": lambda made, v: made.label("0.png", "owl", key=v),
    "skip": lambda made, v: made.skip(v),
    "undo": lambda made, v: made.undo(v),
    "settle": lambda made, v: made.settle(v, "owl"),
    "index": lambda made, v: made.index(v, dry_run=True),
    "next budget": lambda made, v: made.next(v, strategy="absent"),
    "next strategy": lambda made, v: made.next(strategy=v, balance=-1),
    "next balance": lambda made, v: made.next(strategy="absent", balance=v),
    "next seed": lambda made, v: made.next(seed=v, overlap=0),
    "import": lambda made, v: made.import_labels(v),
    "import format": lambda made, v: made.import_labels("photos", format=v),
    "export": lambda made, v: made.export(v, dry_run=True),
    "export format": lambda made, v: made.export("labels.csv", format=v, dry_run=True),
    "backup": lambda made, v: made.backup(v, dry_run=True),
    "doctor": lambda made, v: made.doctor(v, dry_run=True),
    "add class": lambda made, v: made.add_class(v),
    "rename class": lambda made, v: made.rename_class(v, "kite"),
    "rename class to": lambda made, v: made.rename_class("kite", v),
    "configure budget": lambda made, v: made.configure(budget=v),
}


@pytest.mark.parametrize("name", CAMPAIGN_CALLS)
def test_hostile_arguments_of_a_campaign_are_rejected(name: str, campaign: tailwise.Campaign, faults: Faults) -> None:
    for kind, value in zoo().items():
        faults.try_(partial(CAMPAIGN_CALLS[name], campaign), value, f"{name} = {kind}")
    assert campaign.status().images == 3


def test_classes_may_come_from_an_iterator() -> None:
    Path("photos").mkdir()
    with tailwise.Campaign.create("zoo", "photos", (name for name in ("owl", "kite"))) as made:
        assert [one.name for one in made.classes()] == ["owl", "kite"]


# -- the command line -------------------------------------------------------------------------------------------------

TEXTS = [
    "",
    ",",
    "=",
    "a",
    "1,2",
    "1,2,3",
    "1,a,3",
    "nan,nan,nan",
    "inf,1,1",
    "-1,2,3",
    "1e308,1e308,1e308",
    "9" * 5_000,
    "9" * 5_000 + "=1",
    "0=1,0=2",
    "0=1,7=2",
    "-1=2",
    "0=a",
    "0=" + "9" * 5_000,
    "absent.csv",
    "a\0.csv",
    "b" * 5_000 + ".csv",
    "inner.json",
    ".npy",
    "１,２,３",
    "²=1",
    "bad.csv",
    "bad.json",
    "wide.csv",
    "text.json",
    "named.csv",
    "long.csv",
]


def test_hostile_options_are_rejected(faults: Faults) -> None:
    Path("inner.json").mkdir()
    Path("bad.csv").write_bytes(b"\xff\xfe\x00")
    Path("wide.csv").write_text("1,2,3\n4,5,6\n")
    Path("named.csv").write_text("class,count\n²,3\n")
    Path("long.csv").write_text("class,count\n" + "9" * 5_000 + ",3\n")
    Path("bad.json").write_text("[1, " + "9" * 5_000 + ", 2]")
    Path("text.json").write_text(json.dumps(["a", None, {}]))
    for text in TEXTS:
        for read in (numbers.per_class, partial(numbers.limit_per_class, missing=0.0)):
            faults.try_(lambda v, read=read: select(counts=read(v, "--counts", CLASSES)), text, f"--counts {text[:40]}")  # type: ignore[misc]
        faults.try_(lambda v: path(lams=numbers.comma_list(v, "--lams")), text, f"--lams {text[:40]}")


OPTIONS = {
    "select": (
        "budget",
        "counts",
        "score",
        "target",
        "shares",
        "at-least",
        "at-most",
        "seed",
        "shards",
        "balance",
        "gap",
        "ids",
        "class-names",
        "exclude",
        "include",
        "groups",
        "per-group",
        "cost",
        "threads",
    ),
    "path": ("budget", "counts", "score", "target", "shards", "lams"),
}


@pytest.mark.parametrize("command", OPTIONS)
def test_no_option_ends_a_command_with_an_error_that_is_not_ours(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save("large.npy", np.full(SIZE, 1e308))
    for option in OPTIONS[command]:
        for text in (
            "",
            "a",
            "nan",
            "-1",
            "9" * 5_000,
            "1e308",
            "within 5%",
            "0=",
            "inner",
            "large.npy",
            "kept.npy",
            "1,2,3",
        ):
            budget = [] if option == "budget" else ["--budget", "3"]
            code = run([command, "kept.npy", *budget, f"--{option}={text}", "--json"])
            said = capsys.readouterr().err
            assert code in (0, 2, 3, 4), f"{command} --{option}={text[:40]}: {code}, {said}"
            assert len(said) < LONGEST_MESSAGE, f"{command} --{option}={text[:40]}: {len(said)} letters"
