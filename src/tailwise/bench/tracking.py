"""The rows of an experiment in TensorBoard or MLflow: small watchers, each with its extra."""

from __future__ import annotations

import math

from ..errors import MissingExtra
from .results import Row
from .trials import Trial

MEASURES = (
    "accuracy", "adjusted_accuracy", "balanced_accuracy", "adjusted_balanced_accuracy", "tail_accuracy", "l1_score",
    "lam", "gap", "informativeness", "l1",
)  # fmt: skip


class Quiet:
    """A watcher that hears nothing; others say what they want to hear."""

    def line(self, trial: Trial, done: float, what: str) -> None:
        """Nothing."""

    def finished(self, trial: Trial, rows: list[Row]) -> None:
        """Nothing."""

    def retried(self, trial: Trial, why: str) -> None:
        """Nothing."""

    def failed(self, trial: Trial, why: str) -> None:
        """Nothing."""


class TensorBoard(Quiet):
    """One run per trial in a log folder, one point per cycle."""

    def __init__(self, folder: str) -> None:
        try:
            from tensorboard.summary import Writer
        except ImportError as error:  # now, and not after hours of training
            raise MissingExtra.named("--tensorboard", "tensorboard", "tracking") from error
        self.folder, self._writer = folder, Writer

    def finished(self, trial: Trial, rows: list[Row]) -> None:
        """Write the curves of a trial."""
        writer = self._writer(f"{self.folder}/{trial.folder}")
        for row in rows:
            for name, value in _numbers(row):
                writer.add_scalar(name, value, row.labelled)
        writer.close()


class Mlflow(Quiet):
    """One MLflow run per trial, in the experiment's name."""

    def __init__(self, uri: str) -> None:
        try:
            from mlflow import MlflowClient
        except ImportError as error:
            raise MissingExtra.named("--mlflow", "mlflow", "tracking") from error
        self._client = MlflowClient(tracking_uri=uri)

    def finished(self, trial: Trial, rows: list[Row]) -> None:
        """Log the parameters and curves of a trial."""
        client = self._client
        experiment = client.get_experiment_by_name(trial.experiment.name)
        home = experiment.experiment_id if experiment else client.create_experiment(trial.experiment.name)
        run = client.create_run(home, run_name=trial.title, tags={"fingerprint": trial.fingerprint})
        for name in ("pool", "setting", "learner", "strategy", "balance", "seed"):
            client.log_param(run.info.run_id, name, getattr(rows[0], name))
        for row in rows:
            for name, value in _numbers(row):
                client.log_metric(run.info.run_id, name, value, step=row.labelled)
        client.set_terminated(run.info.run_id)


def _numbers(row: Row) -> list[tuple[str, float]]:
    values = ((name, float(getattr(row, name))) for name in MEASURES)
    return [(name, value) for name, value in values if math.isfinite(value)]
