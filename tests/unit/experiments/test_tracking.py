"""TensorBoard and MLflow get the numbers of the rows."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tailwise.errors import MissingExtra
from tailwise.experiments.experiment import parse_experiment
from tailwise.experiments.runner import Mlflow, TensorBoard, run_experiment
from tailwise.experiments.store import Store, read_rows

EXPERIMENT = parse_experiment(
    'name = "mine"\nbudget = 10\ncycles = 1\nseeds = [0]\npool = { name = "digits" }\n'
    "imbalance = { factors = [0.2] }\nstart = { initial = 20 }\n"
    'strategies = [{ name = "random" }, { name = "entropy", balance = [0.5] }]',
    "test",
)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the libraries themselves
def test_tensorboard_holds_one_curve_per_trial(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run_experiment(EXPERIMENT, Store(tmp_path / "run"), processes=1, watchers=(TensorBoard(str(tmp_path / "board")),))
    rows = read_rows(tmp_path / "run" / "results.csv")
    folders = sorted((tmp_path / "board").iterdir())
    assert len(folders) == 2
    for folder in folders:
        log = EventAccumulator(str(folder))
        log.Reload()
        own = [row for row in rows if row.strategy in folder.name]
        points = [(event.step, event.tensor_proto.float_val[0]) for event in log.Tensors("accuracy")]
        assert points == [(row.labelled, pytest.approx(row.accuracy, abs=1e-6)) for row in own]


@pytest.mark.filterwarnings("ignore")  # of the libraries themselves
def test_mlflow_holds_one_run_per_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # the light client has no other store without a server
    from mlflow import MlflowClient

    uri = (tmp_path / "mlflow").as_uri()
    run_experiment(EXPERIMENT, Store(tmp_path / "run"), processes=1, watchers=(Mlflow(uri),))
    rows = read_rows(tmp_path / "run" / "results.csv")
    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("mine")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    assert {run.data.params["strategy"] for run in runs} == {"random", "entropy"}
    for run in runs:
        history = client.get_metric_history(run.info.run_id, "accuracy")
        own = [row for row in rows if row.strategy == run.data.params["strategy"]]
        assert [(point.step, point.value) for point in history] == [(row.labelled, row.accuracy) for row in own]


@pytest.mark.parametrize(("module", "watcher"), [("tensorboard.summary", TensorBoard), ("mlflow", Mlflow)])
def test_a_missing_library_is_named_before_anything_runs(
    module: str, watcher: type[TensorBoard | Mlflow], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=r"pip install 'tailwise\[tracking\]'"):
        watcher("somewhere")
