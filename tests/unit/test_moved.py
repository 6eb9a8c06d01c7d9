"""Import paths that the documentation of 0.1.0 showed still work, and warn."""

from __future__ import annotations

import importlib
import subprocess
import sys
import warnings

import pytest

import tailwise

MOVED = tailwise._MOVED

# Every import from a module of Tailwise in the README and the pages of 0.1.0.
SHOWN = {
    "tailwise.balance.calibrate": ["estimate_prior", "fit_temperature", "shift_prior", "with_temperature"],
    "tailwise.bench.config": ["parse_experiment"],
    "tailwise.bench.runner": ["collect", "run_experiment"],
    "tailwise.bench.store": ["Store"],
    "tailwise.campaign.images": ["find_image"],
    "tailwise.cycle": ["class_shares"],
    "tailwise.learn": ["make_learner"],
    "tailwise.learn.base": ["learner"],
    "tailwise.learn.calibrated": ["fit_calibrated"],
    "tailwise.learn.simple_features": ["simple_features"],
    "tailwise.pool": ["LabelledImages", "POOLS", "Pool", "Tail", "load_pool", "pool_content", "split"],
    "tailwise.pool.digits": ["load_digits"],
    "tailwise.pool.longtail": ["initial_set", "keep_counts", "step_profile"],
    "tailwise.pool.tree": ["Files"],
    "tailwise.scale.cluster": ["connect"],
    "tailwise.scale.inference": ["plan_pool", "predict_pool"],
    "tailwise.scale.shard_store": ["names_of"],
}


@pytest.fixture(autouse=True)
def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test imports old names for the first time."""
    for name in [*sys.modules]:
        if name.removeprefix("tailwise.") in MOVED:
            monkeypatch.delitem(sys.modules, name)


@pytest.mark.parametrize("module", SHOWN)
def test_what_the_documentation_showed_can_be_imported(module: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        found = importlib.import_module(module)
    for name in SHOWN[module]:
        assert getattr(found, name) is not None


@pytest.mark.parametrize("old", MOVED)
def test_an_old_name_gives_the_same_objects_and_names_the_new_module(old: str) -> None:
    new = f"tailwise.{MOVED[old]}"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = importlib.import_module(f"tailwise.{old}")
    assert caught[-1].category is DeprecationWarning  # that of its package comes first
    assert str(caught[-1].message).startswith(f"tailwise.{old} is now {new};")
    now = importlib.import_module(new)
    for name in [name for name in vars(now) if not name.startswith("__")]:
        assert getattr(found, name) is getattr(now, name)


def test_the_warning_points_to_the_line_of_the_import() -> None:
    with pytest.warns(DeprecationWarning, match="is now") as caught:
        exec(compile("from tailwise.pool.longtail import keep_counts", "a_script.py", "exec"), {})
    assert {warning.filename for warning in caught} == {"a_script.py"}


def test_other_names_stay_unknown() -> None:
    with (
        pytest.raises(ModuleNotFoundError, match=r"tailwise\.pool\.nothing"),
        pytest.warns(DeprecationWarning, match="pools"),
    ):
        importlib.import_module("tailwise.pool.nothing")
    with pytest.raises(ModuleNotFoundError, match=r"tailwise\.nothing"):
        importlib.import_module("tailwise.nothing")


def test_nothing_is_loaded_until_an_old_name_is_used() -> None:
    loaded = "sorted(name for name in sys.modules if name.startswith('tailwise.'))"
    code = f"import sys, tailwise; assert {loaded} == []; import tailwise.errors"
    code += f"; assert {loaded} == ['tailwise.errors']"
    subprocess.run([sys.executable, "-c", code], check=True)
