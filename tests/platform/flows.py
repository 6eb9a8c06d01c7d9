"""The main ways to use Tailwise, each short and whole: `python flows.py NAME` runs one in the working directory."""

from __future__ import annotations

import hashlib
import http.server
import importlib.util
import io
import json
import os
import pkgutil
import sys
import tarfile
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tailwise.campaign.service import Campaign

NAMES = ("aux", "a/b: c?", "Écru")  # a reserved name, forbidden characters, a letter outside ASCII
EXTRAS = ("mlflow", "numba", "ray", "tensorboard", "torch")  # packages that need not be installed
JOB_SECONDS = 300.0
EXPERIMENT = """
name = "tiny"
budget = 20
cycles = 1
seeds = [0, 1]
pool = { name = "digits" }
imbalance = { factors = [0.2] }
start = { initial = 30 }
strategies = [{ name = "random" }, { name = "entropy", balance = [0, "auto"] }]
"""

Flow = Callable[[], None]
FLOWS: dict[str, Flow] = {}


def flow(function: Flow) -> Flow:
    FLOWS[function.__name__] = function
    return function


def probabilities(rows: int = 600, classes: int = 5) -> np.ndarray:
    return np.random.default_rng(0).dirichlet(np.full(classes, 0.3), rows)


def make_photos(folder: Path, each: int = 8) -> dict[str, str]:
    """Pictures in two folders, one named like a device of Windows; gives the class of each, by its stored path."""
    from PIL import Image

    rng, truth = np.random.default_rng(0), {}
    for cls, name in enumerate(NAMES):
        for number in range(each):
            below = folder / ("left" if number % 2 else "right")
            below.mkdir(parents=True, exist_ok=True)
            pixels = rng.normal(60 + 60 * cls, 12, (24, 24, 3)).clip(0, 255).astype(np.uint8)
            path = below / f"{cls}-{number} é.png"
            Image.fromarray(pixels).save(path)
            truth[path.relative_to(folder).as_posix()] = name
    return truth


@flow
def imports() -> None:
    import tailwise

    for module in pkgutil.walk_packages(tailwise.__path__, "tailwise."):
        if module.name.endswith("__main__"):
            continue
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in EXTRAS:
                raise


@flow
def select() -> None:
    import tailwise

    proba = probabilities()
    first = tailwise.select(proba, 50, counts=[90, 40, 10, 5, 0], balance=1.0)
    assert len(first.indices) == 50
    np.save("p.npy", proba.astype(np.float32))
    Path("shards").mkdir()
    for number, part in enumerate(np.array_split(proba, 3)):
        np.save(f"shards/part-{number}.npy", part)
    for place in ("p.npy", "shards"):
        again = tailwise.select(place, 50, counts=[90, 40, 10, 5, 0], balance=1.0)
        assert abs(again.objective - first.objective) <= 1e-4 * abs(first.objective)


@flow
def select_from_parquet() -> None:
    """Decoded once into a temporary file, which is read and mapped."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    import tailwise

    proba = probabilities()
    rows = pa.FixedSizeListArray.from_arrays(pa.array(proba.ravel()), 5)
    pq.write_table(pa.table({"proba": rows}), "p.parquet", row_group_size=100)
    found = tailwise.select("p.parquet", 50, balance=1.0)
    assert found.indices.tolist() == tailwise.select(proba, 50, balance=1.0).indices.tolist()
    Path("p.parquet").unlink()  # nothing keeps it open


@flow
def paths_and_strategies() -> None:
    import tailwise
    from tailwise.strategies import make

    proba = probabilities()
    assert len(tailwise.balance_path(proba, 30).lam) > 2
    points = np.random.default_rng(1).normal(size=(650, 6))
    predictions = tailwise.Predictions(proba=proba, embeddings=points[:600], labelled_embeddings=points[600:])
    for name in ("entropy", "margin", "kcenter", "random"):
        assert len(make(name).select(predictions, 30).indices) == 30


@flow
def campaign() -> None:
    import tailwise
    from tailwise.formats import FORMATS

    truth = make_photos(Path("photos"))
    with tailwise.Campaign.create("zoo", "photos", NAMES, backbone="simple") as one:
        for _ in range(2):
            one.next(6)
            for path in list(one.labels()) or sorted(truth)[::3]:
                one.label(path, truth[path])
            label_round(one, truth)
        assert set(one.labels()) <= set(truth)
        assert one.status().labelled >= 12
        one.backup()
        one.doctor()
        for name in sorted(FORMATS):
            out = one.export(f"out-{name}{FORMATS[name].suffix}", format=name)
            one.export(out, format=name)  # over the first
            assert out.exists()
    with tailwise.Campaign.create("copy", "photos", NAMES, backbone="simple", labels="out-csv.csv") as two:
        assert two.status().labelled >= 12
    with tailwise.Campaign.open("zoo", read_only=True) as again:
        assert set(again.labels()) <= set(truth)
        advice = again.advise()
    assert advice


def label_round(one: Campaign, truth: dict[str, str]) -> None:
    from tailwise.campaign.images import find_image
    from tailwise.campaign.rounds import current_round, round_picks

    open_round = current_round(one.ledger)
    assert open_round is not None
    for pick in round_picks(one.ledger, open_round.id):
        path = find_image(one.ledger, pick.image).path
        one.label(path, truth[path])


@flow
def damaged_ledger() -> None:
    """Rescued from a backup: files are renamed over others."""
    import tailwise
    from tailwise.campaign.database import restore_backup

    truth = make_photos(Path("photos"))
    with tailwise.Campaign.create("zoo", "photos", NAMES) as one:
        one.label(next(iter(truth)), NAMES[0])
        one.backup()
    Path("zoo/campaign.sqlite").write_bytes(b"no ledger at all")
    assert restore_backup("zoo").is_file()
    with tailwise.Campaign.open("zoo") as again:
        assert again.status().labelled == 1


@flow
def bench() -> None:
    from tailwise.experiments.experiment import parse_experiment
    from tailwise.experiments.runner import run_experiment, status_of
    from tailwise.experiments.store import Store

    tiny = parse_experiment(EXPERIMENT, "test")
    assert run_experiment(tiny, Store(Path("out")), processes=2) == {}
    assert status_of(tiny, Store(Path("out"))).complete == 6


@flow
def command_line() -> None:
    from tailwise.cli import main

    make_photos(Path("photos"))
    np.save("p.npy", probabilities())
    Path("tiny.toml").write_text(EXPERIMENT.replace("seeds = [0, 1]", "seeds = [0]"), encoding="utf-8")
    for line in (
        "--help", "strategies", "select p.npy --budget 20 --out picks.csv", "path p.npy --budget 20 --out path.png",
        "init zoo --images photos --classes owl,kite --backbone simple", "next zoo --budget 5", "status zoo",
        "classes zoo", "advise zoo", "report zoo", "export zoo labels.csv", "doctor zoo",
        "backup zoo", "bench run tiny.toml --out runs --processes 2", "bench status tiny.toml --out runs",
    ):  # fmt: skip
        sys.stdout.write(f"$ tailwise {line}\n")
        sys.argv = ["tailwise", *line.split()]
        assert main() == 0, line


@flow
def server() -> None:
    import tailwise
    from tailwise.web.serve import Options, running

    make_photos(Path("photos"))
    with tailwise.Campaign.create("zoo", "photos", NAMES, backbone="simple", budget=4) as one:
        one.next()
        with running(one, Options(port=0)) as serving:
            page = Page(serving.url, serving.token or "")
            assert page.get("/api/state")["round"]
            keys = [image["key"] for image in page.post("/api/lease", annotator="ada", count=4)["images"]]
            page.post("/api/answers", annotator="ada", answers=[page.answer(key, n) for n, key in enumerate(keys)])
            page.post("/api/next")
            end = time.monotonic() + JOB_SECONDS
            while (job := page.get("/api/job"))["state"] == "running":
                assert time.monotonic() < end
                time.sleep(0.1)
            assert job["state"] == "done", job
        assert len(one.rounds()) == 2
    assert not list(Path("zoo").glob(".job-*"))
    assert list(Path("zoo/models").iterdir())


class Page:
    """A client with the token."""

    def __init__(self, url: str, token: str) -> None:
        self.url, self.token = url.rstrip("/"), token

    def get(self, path: str) -> dict[str, Any]:
        return self._ask(urllib.request.Request(self.url + path))

    def post(self, path: str, **body: object) -> dict[str, Any]:
        head = {"Content-Type": "application/json"}
        return self._ask(urllib.request.Request(self.url + path, json.dumps(body).encode(), head))

    def answer(self, image: str, number: int) -> dict[str, Any]:
        return {
            "key": hashlib.md5(image.encode()).hexdigest(),
            "image": image,
            "kind": "label",
            "class_id": number % 3 + 1,
        }

    def _ask(self, request: urllib.request.Request) -> dict[str, Any]:
        request.add_header("X-Tailwise-Token", self.token)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return dict(json.load(answer))


@flow
def fetching() -> None:
    from tailwise.pools.download import Source, fetch

    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        member = tarfile.TarInfo("pets/cat.bin")
        member.size = 5
        tar.addfile(member, io.BytesIO(b"miaow"))
    Path("pets.tar.gz").write_bytes(archive.getvalue())
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler) as site:
        threading.Thread(target=site.serve_forever, daemon=True).start()
        checksum = f"md5:{hashlib.md5(archive.getvalue()).hexdigest()}"
        folder = fetch(Source(f"http://127.0.0.1:{site.server_port}/pets.tar.gz", checksum, "pets"), Path("cache"))
        site.shutdown()
    assert (folder / "cat.bin").read_bytes() == b"miaow"


@flow
def folder_for_ray() -> None:
    """Made, locked and removed; one that a killed process left is removed by the next."""
    from tailwise.ray import cluster as folders

    folders._home = Path.cwd
    left = Path(f"{folders.PREFIX}left")
    left.mkdir()
    os.utime(left, (0, 0))
    with folders.session_folder() as mine:
        folders.remove_left_behind(Path.cwd())
        assert [path.name for path in Path().iterdir()] == [mine.parent.name]
    assert not list(Path().iterdir())


@flow
def older_ledger() -> None:
    """Brought to a newer schema in a copy, which takes the place of the open file."""
    import tailwise
    from tailwise.campaign.database import Step, read_steps
    from tailwise.campaign.ledger import Ledger

    make_photos(Path("photos"), each=1)
    tailwise.Campaign.create("zoo", "photos", NAMES).close()
    steps = read_steps()
    newer = Step(steps[-1].number + 1, "CREATE TABLE more (id INTEGER PRIMARY KEY) STRICT;")
    with Ledger.open("zoo", steps=[*steps, newer]) as ledger:
        assert ledger.read("SELECT count(*) FROM more")[0][0] == 0


@flow
def learners() -> None:
    """Models that are trained, with checkpoints on the way, kept on the disk, and read again."""
    from tailwise.learners import make_learner

    pixels = np.random.default_rng(0).integers(0, 255, (24, 8, 8, 3), dtype=np.uint8)
    vectors, labels = pixels.reshape(24, -1).astype(np.float32), np.arange(24) % 3
    nets = [("resnet10", pixels, {"epochs": 2, "width": 4})] if importlib.util.find_spec("torch") else []
    for name, inputs, settings in (("linear", vectors, {}), ("mlp", vectors, {"epochs": 2}), *nets):
        learner = make_learner(name, **settings)
        model = learner.fit(inputs, labels, classes=3, seed=0, checkpoint=Path("checkpoint", name))
        model.save(Path("saved", name))
        again = learner.load(Path("saved", name)).predict_proba(inputs)
        assert np.array_equal(again, model.predict_proba(inputs))


if __name__ == "__main__":
    FLOWS[sys.argv[1]]()
