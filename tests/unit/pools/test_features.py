from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from tailwise.errors import BadFile, BadInput
from tailwise.pools.features import common_scale
from tailwise.pools.pool import load_pool

RNG = np.random.default_rng(0)
GOOD: dict[str, np.ndarray] = {
    "x_train": RNG.normal(3.0, 2.5, (40, 6)).astype(np.float16),
    "y_train": np.arange(40, dtype=np.int16) % 4,
    "x_test": RNG.normal(3.0, 2.5, (12, 6)).astype(np.float16),
    "y_test": np.arange(12, dtype=np.int16) % 4,
}


def save_npz(path: Path, **changes: object) -> Path:
    np.savez(path, **{name: value for name, value in (GOOD | changes).items() if value is not None})  # type: ignore[arg-type]
    return path


def save_npy(path: Path, **changes: object) -> Path:
    path.mkdir()
    for name, value in (GOOD | changes).items():
        np.save(path / f"{name}.npy", value)  # type: ignore[arg-type]
    return path


def save_parquet(path: Path, *, lists: bool = False, labels: object = None, extra: object = None) -> Path:
    pa = pytest.importorskip("pyarrow", reason="pyarrow (the extra 'tables') is not installed")
    parquet = pytest.importorskip("pyarrow.parquet")
    values = np.vstack([GOOD["x_test"], GOOD["x_train"]]).astype(np.float32)
    columns = {f"f{at}": values[:, at] for at in reversed(range(6))} if not lists else {"embedding": list(values)}
    columns["label"] = np.concatenate([GOOD["y_test"], GOOD["y_train"]]) if labels is None else labels
    columns["split"] = ["test"] * 12 + ["train"] * 40
    columns.update(extra or {})  # type: ignore[arg-type]
    parquet.write_table(pa.table({name: c for name, c in columns.items() if c is not None}), path)
    return path


@pytest.mark.parametrize("kind", ["npz", "npy", "parquet", "lists"])
def test_every_form_gives_the_same_scaled_features(tmp_path: Path, kind: str) -> None:
    saved = {
        "npz": lambda: save_npz(tmp_path / "x.npz"),
        "npy": lambda: save_npy(tmp_path / "x"),
        "parquet": lambda: save_parquet(tmp_path / "x.parquet"),
        "lists": lambda: save_parquet(tmp_path / "x.parquet", lists=True),
    }[kind]()
    pool = load_pool("features", saved)
    scale = GOOD["x_train"].astype(np.float64).std(0).mean()
    assert pool.name == "x"
    for half, part in ((pool.train, "train"), (pool.test, "test")):
        assert half.inputs.dtype == np.float32  # type: ignore[attr-defined]
        np.testing.assert_allclose(half.inputs, GOOD[f"x_{part}"].astype(np.float64) / scale, rtol=1e-6)
        assert half.labels.tolist() == GOOD[f"y_{part}"].tolist()
        assert half.labels.dtype == np.int64
    assert pool.train.class_names == ("0", "1", "2", "3")


def test_the_scale_is_one_number_for_all_columns_and_may_be_left_out(tmp_path: Path) -> None:
    path = save_npz(tmp_path / "x.npz")
    scaled, raw = (load_pool("features", path, scale=scale).train.inputs for scale in (True, False))
    assert np.array_equal(raw, GOOD["x_train"].astype(np.float32))  # type: ignore[arg-type]
    assert scaled.std(0).mean() == pytest.approx(1, abs=1e-6)  # type: ignore[attr-defined]
    assert np.ptp(raw / scaled) < 1e-5  # type: ignore[operator]


def test_features_that_do_not_vary_are_not_divided() -> None:
    assert common_scale(np.full((3, 2), 7, np.float32)) == 1.0
    assert common_scale(np.empty((0, 2), np.float32)) == 1.0


def test_the_first_classes_alone_are_kept_and_scaled_by_themselves(tmp_path: Path) -> None:
    names = np.array(["ant", "bee", "cat", "dog"])
    pool = load_pool("features", save_npz(tmp_path / "zoo.npz", class_names=names), classes=2)
    kept = GOOD["y_train"] < 2
    values = GOOD["x_train"][kept].astype(np.float64)
    np.testing.assert_allclose(pool.train.inputs, values / values.std(0).mean(), rtol=1e-6)
    assert pool.train.labels.tolist() == GOOD["y_train"][kept].tolist()
    assert pool.test.counts().tolist() == [3, 3]
    assert pool.train.class_names == ("ant", "bee")
    assert pool.name == "zoo (first 2)"


def test_texts_as_labels_become_classes_in_their_order(tmp_path: Path) -> None:
    labels = np.array(["dog", "ant", "cat", "bee"])[np.arange(52) % 4]
    pool = load_pool("features", save_parquet(tmp_path / "x.parquet", labels=labels))
    assert pool.train.class_names == ("ant", "bee", "cat", "dog")
    assert pool.test.labels.tolist() == [3, 0, 2, 1] * 3


def with_nan(at: int) -> np.ndarray:
    values = GOOD["x_train"].copy()
    values[at, 2] = np.nan
    return values


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"x_test": None}, "has no x_test; it must hold x_train, y_train, x_test, y_test"),
        ({"x_train": np.zeros(40)}, r"x_train must be numbers \(images × features\), but is float64 \(40,\)"),
        ({"x_train": np.full((40, 6), "a")}, "x_train must be numbers"),
        ({"x_train": np.full((40, 6), None)}, "cannot be read as plain numpy arrays"),
        ({"x_train": with_nan(7)}, "x_train has 1 rows with NaN or infinite numbers, the first is row 7"),
        ({"x_train": np.full((40, 6), 1e300)}, "the first is row 0"),
        ({"x_test": np.zeros((12, 5))}, "x_train has 6 columns, but x_test 5"),
        ({"y_train": np.zeros(39, np.int64)}, "y_train must be 40 whole numbers"),
        ({"y_train": np.zeros(40)}, "y_train must be 40 whole numbers"),
        ({"y_test": np.full(12, -1)}, "y_test holds -1; classes are numbered from 0"),
        ({"class_names": np.array(["a", "b"])}, "class_names must be 4 texts or more"),
        ({"class_names": np.arange(4)}, "class_names must be 4 texts or more"),
    ],
)
def test_arrays_that_do_not_fit_are_named(tmp_path: Path, changes: dict[str, object], says: str) -> None:
    with pytest.raises(BadFile, match=says):
        load_pool("features", save_npz(tmp_path / "x.npz", **changes))


def test_large_numbers_whose_sum_overflows_are_good(tmp_path: Path) -> None:
    values = np.full((40, 6), 3e38, np.float32)
    with np.errstate(over="ignore"):
        pool = load_pool("features", save_npz(tmp_path / "x.npz", x_train=values), scale=False)
    assert pool.train.inputs[np.array([0])][0, 0] == np.float32(3e38)


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        ({"label": None}, "has no column 'label'"),
        ({"split": ["dev"] * 52}, "the column 'split' holds 'dev'"),
        ({"f1": None}, "feature columns must be f0 … f4, but 5 is the last"),
        ({"f1": [None] + [0.5] * 51}, "'f1' has 1 missing values"),
        ({f"f{at}": None for at in range(6)}, "or one column of lists, but has 0"),
        ({f"f{at}": None for at in range(6)} | {"v": [[1.0]] * 51 + [[1.0, 2.0]]}, "have from 1 to 2 numbers"),
    ],
)
def test_a_parquet_file_that_does_not_fit_is_named(tmp_path: Path, extra: object, says: str) -> None:
    path = save_parquet(tmp_path / "x.parquet", extra=extra)
    with pytest.raises(BadFile, match=says):
        load_pool("features", path)


@pytest.mark.parametrize("name", ["x.npz", "x.parquet"])
@pytest.mark.parametrize("kept", [0.0, 0.5, 0.95])
def test_a_cut_file_is_named(tmp_path: Path, name: str, kept: float) -> None:
    path = (save_npz if name == "x.npz" else save_parquet)(tmp_path / name)
    path.write_bytes(path.read_bytes()[: int(kept * path.stat().st_size)])
    with pytest.raises(BadFile, match=name.replace(".", r"\.")):
        load_pool("features", path)


def test_what_is_no_file_of_features_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="needs a path"):
        load_pool("features")
    with pytest.raises(BadFile, match="no features at"):
        load_pool("features", tmp_path / "none.npz")
    (tmp_path / "x.csv").touch()
    with pytest.raises(BadFile, match=r"neither \.npz nor \.parquet nor a folder"):
        load_pool("features", tmp_path / "x.csv")
    with (tmp_path / "one.npz").open("wb") as file:
        np.save(file, GOOD["x_train"])
    with pytest.raises(BadFile, match="has no x_train"):
        load_pool("features", tmp_path / "one.npz")
    with pytest.raises(BadInput, match=r"the first 5 classes of .*but it has 4"):
        load_pool("features", save_npz(tmp_path / "x.npz"), classes=5)


@pytest.mark.parametrize(
    ("name", "classes", "train", "test", "settings"),
    [
        ("cifar10_features", 10, 5000, 1000, {}),
        ("tinyimagenet_features", 100, 500, 50, {"classes": 100}),
    ],
)
def test_real_features_have_their_counts_and_scale(
    name: str, classes: int, train: int, test: int, settings: dict[str, int]
) -> None:
    path = Path(os.environ.get("TAILWISE_DATA", "")) / f"{name}.npz"
    if not path.is_file():
        pytest.skip(f"TAILWISE_DATA names no folder with {name}.npz")
    pool = load_pool("features", path, **settings)
    assert pool.train.counts().tolist() == [train] * classes
    assert pool.test.counts().tolist() == [test] * classes
    assert common_scale(np.asarray(pool.train.inputs)) == pytest.approx(1, abs=1e-4)
