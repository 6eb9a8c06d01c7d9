"""Label Studio's side of the wire: health, setup, predictions with the campaign's model, annotations that come in."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from tailwise.campaign.service import Campaign
from tailwise.formats.label_studio import label_config
from tailwise.formats.label_studio_api import Connection
from tailwise.web.serve import Options

from .api_client import Api, reopened, serving_api
from .conftest import PATIENCE, Plan, make_campaign, until

CONFIG = (
    '<View><Image name="photo" value="$image"/><Choices name="animal" toName="photo">'
    '<Choice value="cat" alias="felis"/><Choice value="dog"/><Choice value="owl"/></Choices></View>'
)
OPTIONS = Options(port=0, ml_backend=True)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A campaign whose second round has a model."""
    home = tmp_path_factory.mktemp("ml")
    make_campaign(home, Plan(images=30, settings={"budget": 6}, chosen=0))
    with Campaign.open(home / "campaign") as campaign:
        for path in [f"{number:03}_{number % 3}.png" for number in range(12)]:
            campaign.label(path, int(Path(path).stem[-1]) + 1)
        campaign.next(seed=1)
    with reopened(home / "campaign", OPTIONS) as api:
        yield api


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    with serving_api(tmp_path, OPTIONS, images=6) as made:
        yield made


def task(number: int, image: str) -> dict[str, Any]:
    return {"id": number, "data": {"image": image}, "annotations": [], "predictions": [], "meta": {}, "project": 1}


def annotation(number: int, choice: str | None, **more: Any) -> dict[str, Any]:  # noqa: ANN401
    result = [{"from_name": "animal", "to_name": "photo", "type": "choices", "value": {"choices": [choice]}}]
    return {
        "id": 100 + number, "task": number, "completed_by": {"id": 7, "email": "ann@example.org"},
        "was_cancelled": choice is None, "created_at": "2026-11-01T10:00:00.000000Z",
        "result": result if choice else [], **more,
    }  # fmt: skip


def told(api: Api, action: str, status: int = 202, **body: Any) -> dict[str, Any]:  # noqa: ANN401
    """Send what Label Studio sends; gives the answer."""
    answer = api.client.post("/webhook", json={"action": action, "project": {"id": 1}, **body})
    assert answer.status_code == status, answer.text
    found: dict[str, Any] = answer.json()
    return found


def hook(api: Api, action: str, **body: Any) -> int:  # noqa: ANN401
    """How many annotations of a message were accepted."""
    return int(told(api, action, **body)["accepted"])


def answers(api: Api) -> list[tuple[Any, ...]]:
    return api.rows(
        "SELECT i.path, a.annotator, a.kind, c.name FROM answer AS a JOIN image AS i ON i.id = a.image_id "
        "LEFT JOIN class AS c ON c.id = a.class_id ORDER BY i.path, a.annotator"
    )


def test_health_is_told_at_once_to_everybody(api: Api) -> None:
    started = time.monotonic()
    answer = httpx.get(f"{api.serving.url}health", trust_env=False)
    assert time.monotonic() - started < PATIENCE
    assert (answer.status_code, answer.json()["status"]) == (200, "UP")


def test_all_else_needs_the_token_which_label_studio_shows_as_a_password(api: Api) -> None:
    body = {"project": "1.17", "schema": CONFIG}
    url = f"{api.serving.url}setup"
    assert httpx.post(url, json=body, trust_env=False).status_code == 401
    assert httpx.post(url, json=body, auth=("tailwise", "wrong" * 8), trust_env=False).status_code == 401
    assert httpx.post(url, json=body, auth=("tailwise", api.serving.token or ""), trust_env=False).status_code == 200
    for text in ("Basic !!!", "Basic", "Bearer x", "Basic " + base64.b64encode(b"\xff\xfe").decode()):
        assert httpx.post(url, json=body, headers={"Authorization": text}, trust_env=False).status_code == 401
    state = httpx.get(f"{api.serving.url}api/state", auth=("tailwise", api.serving.token or ""), trust_env=False)
    assert state.status_code == 401, "a password opens only the routes that Label Studio uses"


def test_without_the_option_there_are_no_such_routes(tmp_path: Path) -> None:
    with serving_api(tmp_path, images=1) as plain:
        for path in ("/health", "/setup", "/predict", "/webhook"):
            assert plain.client.get(path).status_code == 404


def test_before_the_first_model_setup_says_so_and_predictions_are_empty(api: Api) -> None:
    setup = {"project": "1", "schema": CONFIG, "hostname": "http://ls:8080", "access_token": "x", "extra_params": None}
    assert api.post("/setup", **setup) == {"model_version": "untrained"}
    told = api.post("/predict", tasks=[task(1, "000_0.png"), task(2, "nowhere.png")], label_config=CONFIG)
    assert [one["result"] for one in told["results"]] == [[], []]


def test_setup_names_the_model_quickly(trained: Api) -> None:
    started = time.monotonic()
    version = trained.post("/setup", project="1", schema=CONFIG)["model_version"]
    assert time.monotonic() - started < PATIENCE
    assert trained.rows("SELECT version FROM model") == [(version,)]


def test_predictions_are_those_of_the_model_in_the_names_of_the_configuration(trained: Api) -> None:
    names = [
        "000_0.png", "/data/local-files/?d=images/001_1.png", "/data/upload/1/1f0c2a9b-002_2.png", "nowhere.png",
        "https://evil.example/003_0.png", "s3://bucket/images/004_1.png",
    ]  # fmt: skip
    tasks = [task(number, name) for number, name in enumerate(names)]
    told = trained.post("/predict", tasks=tasks, label_config=CONFIG, project="1", params={"context": None})
    assert told["model_version"] == trained.rows("SELECT version FROM model")[0][0]
    assert len(told["results"]) == len(names)
    with Campaign.open(trained.folder, read_only=True) as campaign:
        expected = model_says(campaign)
    for name, one in zip(names, told["results"], strict=True):
        assert one["model_version"] == told["model_version"]
        if name == "nowhere.png":
            assert (one["result"], one["score"]) == ([], 1.0)
            continue
        (region,) = one["result"]
        assert (region["from_name"], region["to_name"], region["type"]) == ("animal", "photo", "choices")
        cls, score = expected[name.rsplit("/", 1)[-1].split("-")[-1]]
        assert region["value"]["choices"] == [{"cat": "felis"}.get(cls, cls)]
        assert region["score"] == pytest.approx(score, abs=1e-6)


def model_says(campaign: Campaign) -> dict[str, tuple[str, float]]:
    """Class and probability by file, asked of the model itself."""
    import numpy as np

    from tailwise.campaign.images import list_images
    from tailwise.campaign.models import predict

    images = list_images(campaign.ledger, usable=True)
    found = predict(campaign, np.array([image.id for image in images]))
    names = {one.id: one.name for one in campaign.classes()}
    best, score = found.best()
    paths = {image.id: image.path for image in images}
    return {
        paths[image]: (names[cls], share)
        for image, cls, share in zip(found.images.tolist(), best.tolist(), score.tolist(), strict=True)
    }


def test_scores_put_the_open_round_first_by_rank_and_decided_images_last(trained: Api) -> None:
    """Label Studio's uncertainty sampling shows the lowest score first."""
    paths = [path for (path,) in trained.rows("SELECT path FROM image ORDER BY id")]
    tasks = [task(number, path) for number, path in enumerate(paths)]
    scores = [one["score"] for one in trained.post("/predict", tasks=tasks)["results"]]
    ranked = trained.rows("SELECT i.path FROM round_image AS r JOIN image AS i ON i.id = r.image_id ORDER BY r.rank")
    decided = {path for (path,) in trained.rows("SELECT i.path FROM verdict JOIN image AS i ON i.id = image_id")}
    order = [path for _, path in sorted(zip(scores, paths, strict=True))]
    assert order[:6] == [path for (path,) in ranked if path not in decided]
    assert set(order[-len(decided) :]) == decided
    assert len(decided) >= 12


def test_an_image_that_wants_a_second_answer_keeps_its_place(tmp_path: Path) -> None:
    with serving_api(tmp_path, OPTIONS, images=3, settings={"overlap": 2}) as api:
        ranked = api.rows("SELECT i.path FROM round_image AS r JOIN image AS i ON i.id = r.image_id ORDER BY r.rank")
        (first,), (second,), _ = ranked
        tasks = [task(1, first), task(2, second)]
        scores = []
        for number in range(3):
            scores.append([one["score"] for one in api.post("/predict", tasks=tasks)["results"]])
            said = annotation(1, "cat", id=200 + number, completed_by=number + 1)
            hook(api, "ANNOTATION_CREATED", annotation=said, task=tasks[0])
    assert scores == [[0.125, 0.25], [0.125, 0.25], [1.0, 0.25]]


def test_where_people_label_blind_tasks_have_a_place_but_no_prediction(tmp_path: Path) -> None:
    make_campaign(tmp_path, Plan(images=12, settings={"budget": 3}, chosen=0))
    with Campaign.open(tmp_path / "campaign") as campaign:
        for number in range(6):
            campaign.label(f"{number:03}_{number % 3}.png", number % 3 + 1)
        campaign.next(seed=1)
        paths = [row[0] for row in campaign.ledger.read("SELECT path FROM image ORDER BY id")]
    with reopened(tmp_path / "campaign", replace(OPTIONS, blind=True)) as api:
        told = api.post("/predict", tasks=[task(number, path) for number, path in enumerate(paths)])
        assert [one["result"] for one in told["results"]] == [[]] * 12
        assert sum(one["score"] < 0.5 for one in told["results"]) == 3
        assert told["model_version"] == api.rows("SELECT version FROM model")[0][0]


def test_before_the_first_model_the_round_comes_first_too(api: Api) -> None:
    paths = [f"00{number}_{number % 3}.png" for number in range(6)]
    told = api.post("/predict", tasks=[task(number, path) for number, path in enumerate(paths)])["results"]
    ranked = api.rows("SELECT i.path FROM round_image AS r JOIN image AS i ON i.id = r.image_id ORDER BY r.rank")
    assert [path for _, path in sorted((one["score"], path) for one, path in zip(told, paths, strict=True))] == [
        path for (path,) in ranked
    ]


def test_what_is_refused_is_logged_with_the_reason_and_without_the_token(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = "wrong-token-0123456789"
    url = f"{api.serving.url}webhook"
    httpx.post(url, json={"action": "x"}, auth=("tailwise", wrong), trust_env=False)
    httpx.post(url, json={"action": "x"}, trust_env=False)
    api.client.post("/webhook", json={"no": "action"})
    api.client.post("/setup", json={"schema": "no xml"})
    api.client.post("/predict", content=b"x", headers={"Content-Type": "text/plain"})
    lines = [one.getMessage() for one in caplog.records if one.getMessage().startswith("refused ")]
    assert [line.partition(": ")[2][:3] for line in lines] == ["401", "401", "422", "400", "415"]
    assert "the token is not that of this campaign" in lines[0]
    assert "no token was sent" in lines[1]
    assert "body.action" in lines[2]
    assert all(
        line.startswith(f"refused POST {path} of 127.0.0.1")
        for line, path in zip(lines, ("/webhook", "/webhook", "/webhook", "/setup", "/predict"), strict=True)
    )
    assert not any(secret in line for line in lines for secret in (wrong, api.serving.token or "?"))


def test_an_account_is_the_annotator_that_the_connection_names(api: Api) -> None:
    Connection("http://lab:8080", 1, {"user 7": "anna", "ann@example.org": "anna"}).write(api.folder)
    said = annotation(0, "cat", completed_by=7)
    hook(api, "ANNOTATION_CREATED", annotation=said, task=task(0, "000_0.png"))
    hook(api, "ANNOTATION_CREATED", annotation=annotation(1, "dog"), task=task(1, "001_1.png"))
    hook(api, "ANNOTATION_CREATED", annotation=annotation(2, "owl", completed_by=8), task=task(2, "002_2.png"))
    assert [row[1] for row in answers(api)] == ["anna", "anna", "user 8"]


def test_our_own_answer_that_comes_back_is_not_a_second_person(tmp_path: Path) -> None:
    make_campaign(tmp_path, Plan(images=3))
    with Campaign.open(tmp_path / "campaign") as campaign:
        campaign.label("000_0.png", "cat", annotator="ben")
        campaign.export(tmp_path / "studio", format="label-studio")
    (sent,) = json.loads((tmp_path / "studio" / "tasks.json").read_text(encoding="utf-8"))
    result = sent["annotations"][0]["result"]
    back = {"id": 14, "completed_by": 1, "import_id": sent["annotations"][0]["id"], "result": result, "task": 5}
    with reopened(tmp_path / "campaign", OPTIONS) as api:
        given = {"id": 5, "data": sent["data"]}
        assert hook(api, "ANNOTATIONS_CREATED", annotation=[back], task=[given]) == 1
        assert answers(api) == [("000_0.png", "ben", "label", "cat")]
        changed = {**back, "result": [{**result[0], "value": {"choices": ["dog"]}}]}
        assert hook(api, "ANNOTATION_UPDATED", annotation=changed, task=given) == 1
        assert [row[1:] for row in answers(api)] == [("ben", "label", "cat"), ("user 1", "label", "dog")]


def test_no_tasks_no_predictions(trained: Api) -> None:
    assert trained.post("/predict", tasks=[])["results"] == []


@pytest.mark.parametrize(
    "odd",
    [{}, {"data": None}, {"data": []}, {"data": {"image": 5}}, {"data": {"text": "x"}}, {"data": {"image": ""}}],
    ids=str,
)
def test_a_task_without_an_image_gets_an_empty_prediction(trained: Api, odd: dict[str, Any]) -> None:
    assert trained.post("/predict", tasks=[odd])["results"][0]["result"] == []


@pytest.mark.parametrize(
    "config",
    ["<View>", "no xml", "<!DOCTYPE x [<!ENTITY a 'b'>]><View>&a;</View>", "<View>" * 1000 + "</View>" * 1000],
    ids=["cut", "text", "entities", "deep"],
)
def test_a_configuration_that_cannot_be_read_is_refused(api: Api, config: str) -> None:
    assert api.refused("/setup", schema=config) == (400, "bad_input")
    assert api.refused("/predict", tasks=[], label_config=config) == (400, "bad_input")


def test_larger_bodies_are_read_here_and_only_here(api: Api) -> None:
    large = {"tasks": [task(1, "x" * (3 << 20))]}
    assert api.client.post("/predict", json=large).status_code == 200
    assert api.client.post("/api/answers", json=large).status_code == 413
    assert api.client.post("/predict", json={"tasks": [task(1, "x" * (9 << 20))]}).status_code == 413


def test_an_annotation_that_is_accepted_is_on_the_disk(api: Api) -> None:
    started = time.monotonic()
    assert hook(api, "ANNOTATION_CREATED", annotation=annotation(1, "dog"), task=task(1, "000_0.png")) == 1
    assert time.monotonic() - started < PATIENCE
    assert answers(api) == [("000_0.png", "ann@example.org", "label", "dog")]
    assert api.rows("SELECT source FROM event") == [("import",)]


def test_an_annotation_that_is_changed_counts_as_it_stands(api: Api) -> None:
    hook(api, "ANNOTATION_CREATED", annotation=annotation(1, "dog"), task=task(1, "000_0.png"))
    until(lambda: answers(api), "the label is recorded")
    later = annotation(1, "owl", created_at="2026-11-01T11:00:00Z")
    hook(api, "ANNOTATION_UPDATED", annotation=later, task=task(1, "000_0.png"))
    until(lambda: answers(api) == [("000_0.png", "ann@example.org", "label", "owl")], "the later label stands")


def test_an_old_message_that_comes_again_changes_nothing(api: Api) -> None:
    first, second = annotation(1, "dog"), annotation(1, "owl", updated_at="2026-11-01T11:00:00Z")
    for said in (first, second, first, second, first):
        assert hook(api, "ANNOTATION_UPDATED", annotation=said, task=task(1, "000_0.png")) == 1
    assert answers(api) == [("000_0.png", "ann@example.org", "label", "owl")]
    assert api.rows("SELECT count(*) FROM event") == [(2,)]


@pytest.mark.parametrize("how", ["in the message", "at setup", "at the last prediction"])
def test_an_alias_of_the_configuration_is_the_class_that_it_stands_for(api: Api, how: str) -> None:
    project: dict[str, Any] = {"id": 7}
    if how == "in the message":
        project["label_config"] = CONFIG
    elif how == "at setup":
        api.post("/setup", project="7.1762905600", schema=CONFIG)
    else:
        api.post("/predict", project="7.1762905600", tasks=[], label_config=CONFIG)
    said = {"annotation": annotation(0, "felis"), "task": task(0, "000_0.png"), "project": project}
    assert told(api, "ANNOTATION_CREATED", **said) == {
        "accepted": 1, "taken_back": 0, "left_out": [], "training": None,
    }  # fmt: skip
    assert answers(api) == [("000_0.png", "ann@example.org", "label", "cat")]


def test_what_predict_says_is_understood_when_it_comes_back(trained: Api) -> None:
    names = [f"{number:03}_{number % 3}.png" for number in range(12, 18)]
    tasks = [task(number, name) for number, name in enumerate(names)]
    guesses = trained.post("/predict", project="1", tasks=tasks, label_config=CONFIG)["results"]
    said = [annotation(number, one["result"][0]["value"]["choices"][0]) for number, one in enumerate(guesses)]
    answer = told(trained, "ANNOTATIONS_CREATED", annotation=said, task=tasks)
    assert (answer["accepted"], answer["left_out"]) == (6, [])


def test_our_own_configuration_s_choice_for_none_of_the_classes_is_other(api: Api) -> None:
    config = label_config(["cat", "dog", "owl"]).decode()
    said = {"annotation": annotation(0, "__other__"), "task": task(0, "000_0.png")}
    assert hook(api, "ANNOTATION_CREATED", **said, project={"id": 1, "label_config": config}) == 1
    assert answers(api) == [("000_0.png", "ann@example.org", "other", None)]


def test_the_answer_says_what_was_left_out_and_why(api: Api) -> None:
    tasks = [task(0, "000_0.png"), task(1, "nowhere.png"), task(2, "002_2.png")]
    said = [annotation(0, "unicorn"), annotation(1, "cat"), annotation(2, "owl")]
    answer = told(api, "ANNOTATIONS_CREATED", annotation=said, task=tasks)
    assert answer["accepted"] == 1
    unknown, unmatched = answer["left_out"]
    assert "task 0 (000_0.png): no class is called 'unicorn'; the classes are cat, dog, owl" in unknown
    assert unmatched == "task 1 (nowhere.png): no image has that name"
    assert answers(api) == [("002_2.png", "ann@example.org", "label", "owl")]


def test_of_very_much_that_is_left_out_the_answer_says_how_much(api: Api) -> None:
    many = [annotation(number, "unicorn") for number in range(50)]
    answer = told(api, "ANNOTATIONS_CREATED", annotation=many, task=[task(n, "000_0.png") for n in range(50)])
    assert (answer["accepted"], len(answer["left_out"]), answer["left_out"][-1]) == (0, 20, "and 31 more")


def test_a_retired_class_is_left_out(tmp_path: Path) -> None:
    make_campaign(tmp_path, Plan(images=2))
    with Campaign.open(tmp_path / "campaign") as campaign:
        campaign.retire_class("owl")
    with reopened(tmp_path / "campaign", OPTIONS) as api:
        answer = told(api, "ANNOTATION_CREATED", annotation=annotation(0, "owl"), task=task(0, "000_0.png"))
        assert (answer["accepted"], "is retired" in answer["left_out"][0]) == (0, True)


@pytest.mark.parametrize(
    ("action", "field"), [("ANNOTATION_DELETED", "annotation"), ("ANNOTATIONS_DELETED", "annotations")]
)
def test_an_annotation_that_is_deleted_is_taken_back_with_all_its_versions(api: Api, action: str, field: str) -> None:
    hook(api, "ANNOTATION_CREATED", annotation=annotation(0, "dog"), task=task(0, "000_0.png"))
    later = annotation(0, "owl", updated_at="2026-11-01T11:00:00Z")
    hook(api, "ANNOTATION_UPDATED", annotation=later, task=task(0, "000_0.png"))
    hook(api, "ANNOTATION_CREATED", annotation=annotation(1, "cat"), task=task(1, "001_1.png"))
    gone = {"id": later["id"]}
    answer = told(api, action, **{field: gone if field == "annotation" else [gone]})
    assert (answer["taken_back"], answer["left_out"]) == (1, [])
    assert answers(api) == [("001_1.png", "ann@example.org", "label", "cat")]
    assert api.rows("SELECT count(*) FROM lease") == [(0,)], "nobody waits for the image"
    again = told(api, action, **{field: gone if field == "annotation" else [gone]})
    assert (again["taken_back"], "undone already" in again["left_out"][0]) == (0, True)


def test_what_came_from_elsewhere_stays_when_an_annotation_is_deleted(api: Api) -> None:
    image = api.lease("ann@example.org")[0]
    api.answer(image, 2, "ann@example.org")
    ((path,),) = api.rows("SELECT path FROM image WHERE key = ?", (image,))
    hook(api, "ANNOTATION_CREATED", annotation=annotation(0, "dog"), task=task(0, path))
    answer = told(api, "ANNOTATIONS_DELETED", annotations=[{"id": 100}, {"id": 5}, {}])
    assert answer["taken_back"] == 0
    assert [text.partition(":")[0] for text in answer["left_out"]] == [f"annotation {one}" for one in (100, 5, None)]
    assert answers(api) == [(path, "ann@example.org", "label", "dog")]


def test_start_training_trains_and_chooses_in_the_background(tmp_path: Path) -> None:
    with serving_api(tmp_path, OPTIONS, images=30, settings={"budget": 6}, chosen=0) as api:
        nothing = told(api, "START_TRAINING", 409)["training"]
        assert nothing == "not started: no image has a label yet; label some first"
        assert api.get("/api/job")["state"] == "idle"
        tasks = [task(number, f"{number:03}_{number % 3}.png") for number in range(9)]
        said = [annotation(number, ("cat", "dog", "owl")[number % 3]) for number in range(9)]
        assert hook(api, "ANNOTATIONS_CREATED", annotation=said, task=tasks) == 9
        started = time.monotonic()
        assert told(api, "START_TRAINING")["training"] == "started"
        assert time.monotonic() - started < PATIENCE
        assert "already being chosen" in told(api, "START_TRAINING", 409)["training"]
        assert api.wait_for_job()["round"] == 1
        assert api.post("/predict", tasks=[task(1, "020_2.png")])["results"][0]["result"] != []
        assert "round 1 is not finished" in told(api, "START_TRAINING", 409)["training"]
        assert api.rows("SELECT count(*) FROM round") == [(1,)]


def test_many_annotations_at_once_and_skips(api: Api) -> None:
    tasks = [task(number, f"00{number}_{number % 3}.png") for number in range(3)]
    said = [annotation(0, "cat"), annotation(1, None), annotation(2, "owl")]
    assert hook(api, "ANNOTATIONS_CREATED", annotation=said, task=tasks) == 3
    until(lambda: len(answers(api)) == 3, "all are recorded")
    assert [row[2:] for row in answers(api)] == [("label", "cat"), ("skip", None), ("label", "owl")]


def test_what_was_accepted_is_recorded_before_the_server_is_gone(tmp_path: Path) -> None:
    with serving_api(tmp_path, OPTIONS, images=6) as api:
        for number in range(6):
            image = task(number, f"00{number}_{number % 3}.png")
            hook(api, "ANNOTATION_CREATED", annotation=annotation(number, "cat"), task=image)
    with Campaign.open(tmp_path / "campaign", read_only=True) as campaign:
        assert len(campaign.labels()) == 6


@pytest.mark.parametrize(
    "body",
    [
        {"action": "PROJECT_UPDATED"}, {"action": "ANNOTATION_CREATED"},
        {"action": "ANNOTATION_CREATED", "annotation": 5, "task": "x"},
        {"action": "ANNOTATION_CREATED", "annotation": {"task": [1]}, "task": {"id": 1}},
        {"action": "ANNOTATION_CREATED", "annotation": {"result": "x"}, "task": {"id": {}, "data": None}},
        {"action": "ANNOTATION_CREATED", "annotation": annotation(1, "unicorn"), "task": task(1, "000_0.png")},
        {"action": "ANNOTATION_CREATED", "annotation": annotation(1, "cat"), "task": task(1, "../../etc/passwd")},
        {"action": "ANNOTATIONS_DELETED", "annotations": [{"id": 1}]},
    ],
    ids=lambda body: body["action"],
)  # fmt: skip
def test_what_says_nothing_about_our_images_changes_nothing(api: Api, body: dict[str, Any]) -> None:
    answer = api.client.post("/webhook", json=body)
    assert answer.status_code == 202
    hook(api, "ANNOTATION_CREATED", annotation=annotation(9, "owl"), task=task(9, "005_2.png"))
    until(lambda: answers(api), "what comes after is recorded")
    assert answers(api) == [("005_2.png", "ann@example.org", "label", "owl")]
