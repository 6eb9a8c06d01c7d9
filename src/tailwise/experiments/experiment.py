"""An experiment: its TOML file as checked, frozen objects, its trials, and the rows of its results.

There is one trial per imbalance, seed, strategy and balance. Two trials have one fingerprint only if they give the same
results: the data counts by its content, λ by its exact value. So a file that gains a seed or a strategy reuses what is
done. There is one row per trial and cycle: the model of the cycle, and the batch that was chosen with it.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import math
import os
import sys
import tomllib
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Literal, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, field_validator

from ..errors import BadFile, BadInput, UnknownName
from ..files import is_file, no_file
from ..inputs import Registry, check_settings, shown
from ..learners import make_learner
from ..learners.learner import describe_learner, learner_class
from ..learners.vaal import VaalSettings
from ..pools import POOLS, Tail
from ..pools.pool import exact_number
from ..solver.path import parse_balance
from ..strategies import make
from ..strategies.strategy import DEFAULT, Strategy
from ..types import IntArray

Scalar = bool | int | float | str
Setting = Scalar | list[Scalar]


class Part(BaseModel):
    """A section of the file: unknown keys are refused, nothing changes once it is read."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class PoolPart(Part):
    """Which images."""

    name: str
    path: str = ""
    """Where its files are, relative to where the command runs; empty: where the pool looks by itself."""
    settings: dict[str, Setting] = {}


class ImbalancePart(Part):
    """How the pool is made long-tailed."""

    profile: Literal["step", "exponential"] = "step"
    factors: tuple[float, ...] = (1.0, 0.3, 0.1)
    """Imbalance factors, one setting each; 1 is balanced."""
    tail: Literal["last", "random"] | tuple[int, ...] = "last"


class StartPart(Part):
    """The first labelled set."""

    initial: int = Field(gt=0)
    draw: Literal["uniform", "pool"] = "uniform"
    """uniform: as many of every class (the paper); pool: at random from the long-tailed pool (what really happens)."""


class LearnerPart(Part):
    """What is trained, from scratch, in each cycle."""

    name: str = "linear"
    settings: dict[str, Setting | dict[str, Setting]] = {}


class CalibrationPart(Part):
    """How probabilities are corrected before the batch is balanced by them; the paper's presets say "none"."""

    kind: Literal["none", "temperature", "prior", "both"] = "temperature"
    folds: int = Field(default=5, ge=2)


class StrategyPart(Part):
    """A strategy, once for each balance."""

    name: str
    balance: tuple[float | str, ...] = (0.0,)
    settings: dict[str, Setting] = {}

    @field_validator("balance", mode="before")
    @classmethod
    def _listed(cls, balance: object) -> object:
        return balance if isinstance(balance, list | tuple) else [balance]


USUAL = (
    StrategyPart(name="random"),
    StrategyPart(name="margin"),
    StrategyPart(name="entropy", balance=(0.0, "auto")),
    StrategyPart(name=DEFAULT, balance=("auto",)),
)


class Experiment(Part):
    """All of it."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    about: str = ""
    pool: PoolPart
    imbalance: ImbalancePart = ImbalancePart()
    start: StartPart
    budget: int = Field(gt=0)
    """Labels per cycle."""
    cycles: int = Field(default=4, ge=1)
    """Batches that are chosen; cycle 0 is the model on the first labelled set."""
    seeds: tuple[int, ...] = (0, 1, 2)
    learner: LearnerPart = LearnerPart()
    calibration: CalibrationPart = CalibrationPart()
    lam: Literal["first", "every"] = "first"
    """Where the balance is a rule or a wish: find λ in the first cycle and keep it (the paper), or in every one."""
    target: Literal["uniform", "paper"] = "uniform"
    """What is balanced: all classes equally; "paper" is Eq. 4 as printed, which may ask for more than the budget."""
    passes: int = Field(default=10, ge=1)
    """Dropout passes, for the strategies that need them."""
    strategies: tuple[StrategyPart, ...] = Field(default=USUAL, min_length=1)
    """The default strategy with those that it should beat, unless the file names others."""
    vaal: dict[str, Setting] = {}
    """Settings of VAAL's nets, for the strategies that need them."""
    plugins: tuple[str, ...] = ()
    """Modules that register pools, learners or strategies; in the folder of the file, or installed."""
    _folder: str = ""

    def model_post_init(self, context: Any) -> None:  # noqa: ANN401 - pydantic's
        """Keep the folder of the file, which is given as the context, for every process that imports the plugins."""
        if self.plugins and context:
            self._folder = str(context)

    def with_learner(self, learner: object) -> Experiment:
        """The same experiment with another learner: an estimator, or any object with `fit` and `predict_proba`."""
        return self.model_copy(update={"learner": LearnerPart(**describe_learner(learner))})

    def import_plugins(self) -> None:
        """Have the plugins register what they bring; each process of a run does this once."""
        for name in self.plugins:
            _import_plugin(name, self._folder)

    @property
    def vaal_settings(self) -> VaalSettings:
        """Those of the file, checked."""
        settings: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in self.vaal.items()
        }
        return VaalSettings(**settings)

    def to_toml(self) -> str:
        """The file that gives this experiment, every default written out."""
        import tomlkit

        return tomlkit.dumps(self.model_dump(mode="json"))


def read_experiment(source: str | Path, *, to_run: bool = True) -> Experiment:
    """An experiment from a file, or a preset by its name; see `parse_experiment`."""
    if not isinstance(source, str | os.PathLike):
        raise BadInput(f"an experiment is a file or the name of a preset, but {shown(source)} was given")
    path = Path(source)
    if path.suffix == ".toml" or is_file(path):
        if not is_file(path):
            raise BadFile(no_file(path))
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise BadFile(f"{path} cannot be read: {error.strerror or error}") from error
        return parse_experiment(text, str(path), to_run=to_run, folder=path.resolve().parent)
    try:
        return parse_experiment(_presets()[str(source)], f"preset {source}", to_run=to_run)
    except UnknownName as error:
        raise UnknownName(f"{error}. A file of your own must end in .toml") from error


def presets() -> list[Experiment]:
    """Every preset that comes with Tailwise, by name."""
    return [read_experiment(name) for name in _presets()]


def parse_experiment(text: str, source: str, *, to_run: bool = True, folder: Path | None = None) -> Experiment:
    """An experiment from TOML, its names and settings checked before anything runs.

    Its plugins are imported, from `folder` if they are there. With `to_run=False` they are not, and pools, learners and
    strategies need not be known here: they may have been registered in the program that ran the experiment, and a
    report does not need them.
    """
    try:
        experiment = Experiment.model_validate(tomllib.loads(text), context=folder)
    except ValidationError as error:  # which is a ValueError, too
        raise BadInput(f"{source}: {_first_fault(error)}") from error
    except (ValueError, RecursionError) as error:  # numbers of 5,000 digits, lists of 5,000 levels
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise BadFile(f"{source} is not valid TOML: {reason}") from error
    try:
        _check_values(experiment)
        if to_run:
            experiment.import_plugins()
            _check_names(experiment)
    except (BadInput, UnknownName) as error:
        raise BadInput(f"{source}: {error}") from error
    return experiment


def _import_plugin(name: str, folder: str) -> None:
    """Import a module of this folder, or one that is installed."""
    if folder and folder not in sys.path:
        sys.path.append(folder)  # to stay: a plugin may import its neighbours when it runs
    if name not in sys.modules:
        importlib.invalidate_caches()  # its file may have been written just now
    try:
        module = importlib.import_module(name)
    except (Exception, SystemExit) as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = "" if last.filename.startswith("<") else f" ({Path(last.filename).name}, line {last.lineno})"
        raise BadInput(
            f"cannot import the plugin {name!r}: {type(error).__name__}: {error}{where}. A plugin must be installed "
            f"or lie {f'in {folder}' if folder else 'next to the experiment file'}; on a cluster, on every machine"
        ) from error
    own = Path(folder, *name.split(".")).with_suffix(".py")
    if folder and own.is_file() and not own.samefile(module.__file__ or folder):
        raise BadInput(f"the plugin {name!r} is {module.__file__}, not {own}: two modules have this name; rename yours")


def _check_names(experiment: Experiment) -> None:
    """Make everything that has a name, so that a misspelt setting is found now and not after hours."""
    _ = POOLS[experiment.pool.name]
    learner = learner_class(experiment.learner.name)
    if is_dataclass(learner):
        _check_types(f"learner {experiment.learner.name!r}", learner, experiment.learner.settings)
    make_learner(experiment.learner.name, **experiment.learner.settings)
    check_settings("vaal", experiment.vaal, (field.name for field in fields(VaalSettings)))
    _check_types("vaal", VaalSettings, experiment.vaal)
    _ = experiment.vaal_settings
    made: list[Strategy] = []
    for part in experiment.strategies:
        for balance in part.balance:
            strategy = make(part.name, balance=parse_balance(balance), **part.settings)
            if strategy in made:
                raise BadInput(
                    f"strategies holds {part.name!r} with balance {balance!r} twice, with the same settings; remove one"
                )
            made.append(strategy)


def _check_values(experiment: Experiment) -> None:
    if len(set(experiment.seeds)) < len(experiment.seeds):
        raise BadInput("seeds holds something twice")
    if not experiment.seeds or min(experiment.seeds) < 0:
        raise BadInput("seeds must be a list of whole numbers ≥ 0")
    for name in experiment.plugins:
        if name.endswith(".py") or not all(part.isidentifier() for part in name.split(".")):
            raise BadInput(f"plugins holds {shown(name)}; give the name of a module, such as 'my_module'")
    if not experiment.imbalance.factors:
        raise BadInput("imbalance.factors is empty; [1.0] is a balanced pool")
    if len(set(experiment.imbalance.factors)) < len(experiment.imbalance.factors):
        raise BadInput("imbalance.factors holds a number twice; remove one")


def _check_types(owner: str, kind: type[Any], settings: Mapping[str, Any]) -> None:
    """Check settings against the types that a dataclass declares; names that it does not have are left to others."""
    declared = get_type_hints(kind)
    for name, value in settings.items():
        if name not in declared:
            continue
        try:
            TypeAdapter(declared[name]).validate_python(tuple(value) if isinstance(value, list) else value, strict=True)
        except ValidationError as error:
            raise BadInput(f"{owner}: {name} is {shown(value)}; {error.errors()[0]['msg']}") from error


def _first_fault(error: ValidationError) -> str:
    faults = error.errors()
    where = ".".join(str(step) for step in faults[0]["loc"]) or "the file"
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return f"{where}: {faults[0]['msg']}{more}"


def _presets() -> Registry[str]:
    """The text of every preset."""
    found: Registry[str] = Registry("preset")
    folder = resources.files(__package__) / "presets"
    for file in sorted(folder.iterdir(), key=lambda item: item.name):
        if file.name.endswith(".toml"):
            found.register(file.name.removesuffix(".toml"))(file.read_text(encoding="utf-8"))
    return found


# What may be changed in a file without changing what a trial gives.
NOT_CONTENT = {"name", "about", "seeds", "strategies", "cycles", "vaal", "passes", "lam", "plugins"}


@dataclass(frozen=True, slots=True)
class Trial:
    """One run of Algorithm 1."""

    experiment: Experiment
    factor: float
    seed: int
    part: StrategyPart
    balance: float | str
    content: str = ""
    """Identity of the pool; empty where it is not known, as for results of versions that did not record it."""

    @property
    def setting(self) -> str:
        """The imbalance, as people say it."""
        return str(self.tail)

    @property
    def tail(self) -> Tail:
        """Which classes are rare."""
        return Tail(self.experiment.imbalance.profile, self.factor, self.experiment.imbalance.tail)

    @property
    def method(self) -> str:
        """Strategy, balance and settings, as people say it."""
        settings = f" ({self.settings})" if self.settings else ""
        return f"{self.part.name} λ={balance_name(self.balance)}{settings}"

    @property
    def settings(self) -> str:
        """The strategy's own settings as text; empty where all are the defaults."""
        return ", ".join(f"{name}={_setting_text(value)}" for name, value in sorted(self.part.settings.items()))

    @property
    def title(self) -> str:
        """A line for people."""
        return f"{self.setting}, seed {self.seed}, {self.method}"

    @property
    def fingerprint(self) -> str:
        """Equal for equal results, different otherwise."""
        return _digest({
            **self._shared_content(),
            "strategy": {"name": self.part.name, "balance": balance_name(self.balance), **self.part.settings},
            "lam": self.experiment.lam, "passes": self.experiment.passes, "vaal": self.experiment.vaal,
        })  # fmt: skip

    @property
    def folder(self) -> str:
        """A name that sorts well and cannot collide."""
        words = (self.setting, f"seed-{self.seed}", self.part.name, balance_name(self.balance))
        safe = ("".join(letter if letter.isalnum() or letter in ".-" else "-" for letter in word) for word in words)
        return f"{'_'.join(word.strip('-') for word in safe)}_{self.fingerprint[:12]}"

    def model_key(self, labelled: IntArray) -> str:
        """Names the model that is trained on these images: shared by all trials that begin with them."""
        shared = self._shared_content()
        wanted = {name: shared[name] for name in ("pool", "learner", "seed")}
        return f"model_{_digest(wanted | {'labelled': hashlib.sha256(labelled.tobytes()).hexdigest()})[:24]}"

    def _shared_content(self) -> dict[str, Any]:
        """All that the result depends on, without the strategy."""
        content = self.experiment.model_dump(mode="json")
        content["imbalance"].pop("factors")
        if content["target"] == "paper":  # the only one that version 0.1.0 had
            content.pop("target")
        path = content["pool"].pop("path")  # a data set that was moved is the same
        content["pool"] |= {"content": self.content} if self.content else {"path": Path(path).name}
        kept = {name: value for name, value in content.items() if name not in NOT_CONTENT}
        return {**kept, "factor": self.factor, "seed": self.seed}


def trials_of(experiment: Experiment, content: str = "") -> Iterator[Trial]:
    """Every trial on data of this content, seed by seed, so that a run that is stopped early has whole seeds."""
    for seed in experiment.seeds:
        for factor in experiment.imbalance.factors:
            for part in experiment.strategies:
                for balance in part.balance:
                    yield Trial(experiment, factor, seed, part, balance, content)


def balance_name(balance: float | str) -> str:
    """A balance setting as text: exact, and the same for 0, 0.0 and "0".

    >>> balance_name(0.0), balance_name("auto"), balance_name(0.1234567)
    ('0', 'auto', '0.1234567')
    """
    try:
        return exact_number(float(balance))
    except ValueError:
        return str(balance).strip()


def _setting_text(value: Setting) -> str:
    if isinstance(value, list):
        return " ".join(map(_setting_text, value))
    if isinstance(value, float):
        return exact_number(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Row:
    """One cycle of one trial. Cycle 0 is the model on the initial set, shared by all strategies of a seed."""

    experiment: str
    pool: str
    setting: str  # such as "step 0.1", "exponential 0.01", "balanced"
    imbalance: float
    learner: str
    strategy: str  # such as "entropy"
    balance: str  # "0", "auto", "paper", "0.6", "within 5%"
    seed: int
    cycle: int
    labelled: int  # M
    share: float  # M over the size of the original training set
    accuracy: float  # on the test set, 0 to 1
    adjusted_accuracy: float  # the same after dividing the softmax by the classes' shares among all images
    balanced_accuracy: float
    tail_accuracy: float  # on the classes of the tail; NaN where there is no tail
    l1_score: float  # of the labelled set
    recalls: tuple[float, ...]  # (C,)
    counts: tuple[int, ...]  # (C,) labelled so far
    pool_counts: tuple[int, ...]  # (C,) true classes of what is not labelled yet
    # the batch chosen with this model; empty and NaN in the last cycle
    picks: int
    lam: float
    gap: float
    informativeness: float
    l1: float  # distance of the expected counts from the target
    batch_l1_score: float  # L1 score of the batch, by true classes
    expected: tuple[float, ...]  # (C,) expected counts of the batch
    realised: tuple[int, ...]  # (C,) true counts of the batch
    temperature: float  # 1 where not calibrated
    seconds_fit: float
    seconds_predict: float  # what the strategy asks about the pool: softmax, embeddings, passes, VAAL's nets
    seconds_select: float  # from there to the batch
    version: str
    status: str = ""  # of the batch's certificate; only after "time limit" do the picks depend on the machine's speed
    settings: str = ""  # of the strategy, such as "parts=4"; empty where all are the defaults
    seconds_calibrate: float = math.nan  # fitting the calibration on folds of the labelled set
    seconds_test: float = math.nan  # scoring the test set
    adjusted_balanced_accuracy: float = math.nan  # mean recall of the adjusted decisions; NaN in older results
