"""A whole loop in a real Label Studio: tasks in, connect, answers arrive, the round is followed, training trains.

Run by `make label-studio`, which installs Label Studio into an environment of its own and names its command in the
variable LABEL_STUDIO. It starts on loopback with an empty data folder.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

from tailwise.campaign.service import Campaign
from tailwise.cli.output import run
from tailwise.web.serve import Options, running

COMMAND = os.environ.get("LABEL_STUDIO", "")
pytestmark = pytest.mark.skipif(not COMMAND, reason="needs Label Studio; run `make label-studio`")

EMAIL, PASSWORD = "anna@example.org", "anna-annotates"
TINTS = {"owl": (190, 70, 70), "kite": (70, 190, 70), "gull": (70, 70, 190)}
PATIENCE = 600.0


def say(text: str) -> None:
    """A line of the loop's log, which `make label-studio` shows."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def until(question: Callable[[], Any], what: str) -> Any:  # noqa: ANN401
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if answer := question():
            return answer
        time.sleep(0.2)
    raise AssertionError(f"not within {PATIENCE:g} s: {what}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def process(command: list[str], log: Path, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as out:
        env = {**os.environ, **variables}
        made = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=env, cwd=log.parent)
        try:
            yield made
        finally:
            made.terminate()
            made.wait(30)


def is_up(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False, timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


class LabelStudio:
    """The API, as the account of one person."""

    def __init__(self, url: str) -> None:
        self.url = url
        session = httpx.Client(base_url=url, trust_env=False, follow_redirects=True, headers={"Referer": url})
        form = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', session.get("/user/login/").text)
        assert form
        given = {"csrfmiddlewaretoken": form[1], "email": EMAIL, "password": PASSWORD}
        session.post("/user/login/", data=given).raise_for_status()
        made = session.post("/api/token/", json={}, headers={"X-CSRFToken": session.cookies["csrftoken"]})
        self.key = str(made.json()["token"])
        session.close()
        access = httpx.post(f"{url}/api/token/refresh/", json={"refresh": self.key}, trust_env=False).json()["access"]
        head = {"Authorization": f"Bearer {access}"}
        self.client = httpx.Client(base_url=url, trust_env=False, headers=head, timeout=120)

    def call(self, method: str, path: str, **what: Any) -> Any:  # noqa: ANN401
        answer = self.client.request(method, path, **what)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    def next_task(self, project: int) -> dict[str, Any]:
        found: dict[str, Any] = self.call("POST", f"/api/dm/actions?id=next_task&project={project}", json={})
        return found

    def annotate(self, task: int, choice: str) -> None:
        result = [{"from_name": "label", "to_name": "image", "type": "choices", "value": {"choices": [choice]}}]
        self.call("POST", f"/api/tasks/{task}/annotations/", json={"result": result, "lead_time": 1.0})


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabelStudio]:
    port, data = free_port(), tmp_path_factory.mktemp("label-studio")
    url = f"http://127.0.0.1:{port}"
    command = [COMMAND, "start", "--no-browser", "--internal-host", "127.0.0.1", "--port", str(port)]
    account = ["--username", EMAIL, "--password", PASSWORD]
    settings = {
        "LABEL_STUDIO_BASE_DATA_DIR": str(data), "COLLECT_ANALYTICS": "false", "LATEST_VERSION_CHECK": "false",
        "ML_BLOCK_LOCAL_IP": "false", "SSRF_PROTECTION_ENABLED": "false",
        "PYTHONPATH": "",
    }  # fmt: skip
    started = time.monotonic()
    with process([*command, *account], data / "log.txt", **settings):
        until(lambda: is_up(f"{url}/api/version"), f"Label Studio is up; see {data / 'log.txt'}")
        say(f"Label Studio {httpx.get(f'{url}/api/version', trust_env=False).json()['release']} is up "
            f"after {time.monotonic() - started:.0f} s")  # fmt: skip
        made = LabelStudio(url)
        yield made
        made.client.close()


def make_birds(folder: Path) -> Campaign:
    """A campaign of 24 pictures whose names have spaces, in the working directory."""
    (folder / "photos").mkdir()
    rng = np.random.default_rng(0)
    for number in range(24):
        name = list(TINTS)[number % 3]
        pixels = np.clip(np.array(TINTS[name]) + rng.normal(0, 30, (24, 24, 3)), 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / "photos" / f"{name} {number:02d}.png")
    return Campaign.create("birds", "photos", list(TINTS), backbone="simple", budget=8)


@pytest.fixture
def birds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With two answers of ben and an open round of eight."""
    monkeypatch.chdir(tmp_path)
    with make_birds(tmp_path) as campaign:
        campaign.label("owl 00.png", "owl", annotator="ben")
        campaign.label("kite 01.png", "kite", annotator="ben")
        campaign.next(8)
        campaign.export("tasks", format="label-studio", unlabelled=True)
    return tmp_path / "birds"


def class_of(task: dict[str, Any]) -> str:
    """Of an exported task by its note, of an upload by its new name."""
    data = task["data"]
    return re.split("[ _]", data["tailwise"]["path"] if "tailwise" in data else data["image"].rpartition("-")[2])[0]


def answers(folder: Path) -> list[tuple[str, str, str]]:
    with Campaign.open(folder, read_only=True) as campaign:
        rows = campaign.ledger.read(
            "SELECT i.path, a.annotator, c.name FROM answer AS a JOIN image AS i ON i.id = a.image_id "
            "JOIN class AS c ON c.id = a.class_id ORDER BY a.event_id"
        )
        return [tuple(row) for row in rows]


def ranked(folder: Path) -> list[str]:
    """The images of the open round, best first."""
    with Campaign.open(folder, read_only=True) as campaign:
        rows = campaign.ledger.read(
            "SELECT i.path FROM round_image AS r JOIN round AS o ON o.id = r.round_id JOIN image AS i "
            "ON i.id = r.image_id WHERE o.closed_at IS NULL ORDER BY r.rank"
        )
        return [row[0] for row in rows]


def test_the_whole_loop(studio: LabelStudio, birds: Path) -> None:
    port = free_port()
    server, log = f"http://127.0.0.1:{port}", birds.parent / "tailwise.log"
    project = int(studio.call("POST", "/api/projects/", json={"title": "Birds"})["id"])
    tasks = json.loads(Path("tasks/tasks.json").read_bytes())
    done = studio.call("POST", f"/api/projects/{project}/import", json=tasks)
    say(f"imported {done['task_count']} tasks, {done['annotation_count']} annotations of ben among them")
    serve = f"-m tailwise label birds --ml-backend --no-open --port {port}".split()
    with process([sys.executable, *serve], log, LABEL_STUDIO_API_KEY=studio.key):
        until(lambda: is_up(f"{server}/health"), "the campaign is served")
        arguments = [studio.url, "birds", "--project", str(project), "--server", server, "--api-key", studio.key]
        say(f"$ tailwise connect label-studio {studio.url} birds --project {project} --server {server} "
            "--annotator-map 1=anna")  # fmt: skip
        assert run(["connect", "label-studio", *arguments, "--annotator-map", "1=anna"]) == 0
        first_round(studio, project, birds)
        train(studio, project, birds, log)
        upload(studio, project, birds)
    for secret in (studio.key, (birds / "token").read_text(encoding="ascii").strip()):
        shown = log.read_text(encoding="utf-8").replace(f"?token={secret}", "")  # the link that opens the page
        assert secret not in shown
        assert secret not in (birds / "label-studio.json").read_text(encoding="utf-8")
    come_back(studio, project, birds)


def first_round(studio: LabelStudio, project: int, birds: Path) -> None:
    """Eight annotations, in the order of the round, arrive as answers of anna."""
    (backend,) = studio.call("GET", f"/api/ml/?project={project}")
    for rank, path in enumerate(ranked(birds), start=1):
        task = studio.next_task(project)
        data, (guess,) = task["data"], task["predictions"]
        assert (data["tailwise"]["path"], data["round"], data["rank"]) == (path, 1, rank)
        (region,) = guess["result"]
        say(f"  next task: round 1, rank {rank}, {path!r}; predicted {region['value']['choices'][0]} "
            f"({region['score']:.2f}), score {guess['score']:.3f}; anna says {class_of(task)}")  # fmt: skip
        if rank == 8:
            studio.call("POST", f"/api/ml/{backend['id']}/train", json={})
        studio.annotate(task["id"], class_of(task))
    arrived = until(lambda: len(found := answers(birds)) == 10 and found, "eight answers have arrived")
    assert [who for _, who, _ in arrived] == ["ben"] * 2 + ["anna"] * 8
    assert all(path.startswith(name) for path, _, name in arrived)
    say("the ledger has 10 answers: 2 of ben, 8 of anna")


def train(studio: LabelStudio, project: int, birds: Path, log: Path) -> None:
    """Refused while an answer was missing; then it trains, and the next tasks are those of round 2."""
    text = log.read_text(encoding="utf-8")
    refused = re.search(r"Label Studio asked for training, which was not started: (.*)", text)
    assert refused, text
    say(f"start training, too early: not started: {refused[1]}")
    (backend,) = studio.call("GET", f"/api/ml/?project={project}")
    studio.call("POST", f"/api/ml/{backend['id']}/train", json={})
    until(lambda: len(Campaign.open(birds, read_only=True).rounds()) == 2, "round 2 is open")
    path = f"/api/projects/{project}/"
    until(lambda: studio.call("GET", path)["model_version"].startswith("round-2-"), "Label Studio has the round")
    say(f"start training: round 2 is open, model {studio.call('GET', path)['model_version']}")
    for rank, image in enumerate(ranked(birds)[:3], start=1):
        task = studio.next_task(project)
        assert (task["data"]["tailwise"]["path"], task["data"]["round"], task["data"]["rank"]) == (image, 2, rank)
        say(f"  next task: round 2, rank {rank}, {image!r}")
        studio.annotate(task["id"], class_of(task))


def upload(studio: LabelStudio, project: int, birds: Path) -> None:
    """An uploaded file, which Label Studio renames, is the image of the campaign."""
    before = len(answers(birds))
    path = ranked(birds)[5]
    with (birds.parent / "photos" / path).open("rb") as file:
        studio.call("POST", f"/api/projects/{project}/import", files={"file": (path, file, "image/png")})
    found = studio.call("GET", "/api/tasks/", params={"project": project, "page_size": 100, "fields": "all"})["tasks"]
    (task,) = [one for one in found if "tailwise" not in one["data"]]
    studio.annotate(task["id"], class_of(task))
    arrived = until(lambda: len(new := answers(birds)) > before and new, "the answer has arrived")
    assert arrived[-1] == (path, "anna", class_of(task))
    say(f"uploaded {path!r}, which Label Studio calls {task['data']['image'].rpartition('/')[2]!r}: matched")


def come_back(studio: LabelStudio, project: int, birds: Path) -> None:
    """Its exports hold nothing new: ben's answers, which it gives back as its own account's, are still ben's."""
    before = answers(birds)
    for kind, name in (("JSON", "back.json"), ("JSON_MIN", "min.json"), ("CSV", "back.csv")):
        answer = studio.client.get(f"/api/projects/{project}/export", params={"exportType": kind})
        Path(name).write_bytes(answer.content)
        with Campaign.open(birds) as campaign:
            done = campaign.import_labels(name)
        say(f"imported its {kind}: {done.added} new, {done.same} known, {len(done.conflicts)} conflicts")
        assert (done.added, done.same, done.unmatched, done.problems) == (0, len(before), (), ())
    assert answers(birds) == before


def test_before_the_first_label_the_queue_follows_the_round_too(
    studio: LabelStudio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with make_birds(tmp_path) as campaign:
        campaign.next(4)
        campaign.export("tasks", format="label-studio", unlabelled=True)
    project = int(studio.call("POST", "/api/projects/", json={"title": "No label yet"})["id"])
    tasks = json.loads(Path("tasks/tasks.json").read_bytes())
    studio.call("POST", f"/api/projects/{project}/import", json=tasks)
    with running("birds", Options(port=0, ml_backend=True)) as serving:
        arguments = [studio.url, "birds", "--project", str(project), "--server", serving.url, "--api-key", studio.key]
        assert run(["connect", "label-studio", *arguments]) == 0
        for path in ranked(Path("birds")):
            task = studio.next_task(project)
            assert task["data"]["tailwise"]["path"] == path
            studio.annotate(task["id"], class_of(task))
        until(lambda: len(answers(Path("birds"))) == 4, "four answers have arrived")
    say("before the first label: four tasks in the order of round 1, four answers")
