from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tailwise.errors import BadFile
from tailwise.formats import FORMATS, Record, guess_format

from .conftest import CLASSES, Pictures, in_order

STUDIO = FORMATS["label-studio"]


def choice(*names: str) -> list[dict[str, object]]:
    return [
        {
            "id": "Dx_aB91ISN",
            "from_name": "choice",
            "to_name": "image",
            "type": "choices",
            "origin": "manual",
            "value": {"choices": list(names)},
        }
    ]


def task(number: int, image: str, *annotations: dict[str, object], **more: object) -> dict[str, object]:
    return {
        "id": number,
        "annotations": list(annotations),
        "file_upload": None,
        "drafts": [],
        "predictions": [],
        "data": {"image": image},
        "meta": {},
        "created_at": "2023-11-14T20:00:00.000000Z",
        "project": 1,
    } | more


def annotation(result: list[dict[str, object]], **more: object) -> dict[str, object]:
    return {
        "id": 11,
        "completed_by": 1,
        "result": result,
        "was_cancelled": False,
        "ground_truth": False,
        "created_at": "2023-11-14T22:13:20.123456Z",
        "updated_at": "2023-11-14T22:13:21.123456Z",
        "lead_time": 4.2,
    } | more


def saved(path: Path, content: object) -> Path:
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


MOMENT = 1_700_000_000_123_456
ANN = {"id": 2, "email": "ann@example.org", "first_name": "", "last_name": ""}


def test_an_export_of_label_studio_is_read(tmp_path: Path) -> None:
    path = saved(
        tmp_path / "project-1.json",
        [
            task(1, "/data/local-files/?d=pets/a%20b.jpg", annotation(choice("cat"))),
            task(2, "/data/upload/1/3f2c1a9b-dog.jpg", annotation(choice("dog"), completed_by=ANN)),
            task(3, "s3://bucket/pets/3.jpg", annotation([], was_cancelled=True)),
            task(4, "gs://b/pets/4.jpg?k=1", annotation(choice("cat")), annotation(choice("dog"), completed_by=ANN)),
            task(5, "pets/5.jpg"),
            task(6, "pets/6.jpg", annotation(choice("__other__"), completed_by={"id": 3})),
        ],
    )  # fmt: skip
    assert guess_format(path) == "label-studio"
    loaded = STUDIO.read(path, ())
    assert loaded.problems == []
    assert loaded.records == [
        Record("pets/a b.jpg", "cat", annotator="user 1", at=MOMENT),
        Record("dog.jpg", "dog", annotator="ann@example.org", at=MOMENT),
        Record("pets/3.jpg", None, kind="skip", annotator="user 1", at=MOMENT),
        Record("pets/4.jpg", "cat", annotator="user 1", at=MOMENT),
        Record("pets/4.jpg", "dog", annotator="ann@example.org", at=MOMENT),
        Record("pets/5.jpg", None),
        Record("pets/6.jpg", None, kind="other", annotator="user 3", at=MOMENT),
    ]
    assert loaded.classes == ("cat", "dog")


def test_an_annotation_without_the_mark_of_a_skip_is_a_label(tmp_path: Path) -> None:
    plain = annotation(choice("cat"))
    del plain["was_cancelled"], plain["completed_by"], plain["created_at"]
    assert STUDIO.read(saved(tmp_path / "x.json", task(1, "1.jpg", plain)), ()).records == [Record("1.jpg", "cat")]


def test_the_small_json_export_is_read(tmp_path: Path) -> None:
    rest = {"annotation_id": 11, "created_at": "2023-11-14T22:13:20.123456Z", "updated_at": "x", "lead_time": 4.2}
    path = saved(
        tmp_path / "min.json",
        [
            {"image": "/data/upload/1/3f2c1a9b-1.jpg", "id": 1, "choice": "cat", "annotator": 1, **rest},
            {"photo": "pets/2.jpg", "id": 2, "animal": "dog", "annotator": "ann@example.org", **rest},
            {"image": "pets/3.jpg", "id": 3, "choice": {"choices": ["cat", "dog"]}, "annotator": 1, **rest},
            {"image": "pets/4.jpg", "id": 4, "animal": "dog", "colour": "red", "annotator": 1, **rest},
            {"image": "pets/5.jpg", "id": 5, "annotator": 1, **rest},
        ],
    )
    assert guess_format(path) == "label-studio"
    loaded = STUDIO.read(path, ())
    assert loaded.records == [
        Record("1.jpg", "cat", annotator="user 1", at=MOMENT),
        Record("pets/2.jpg", "dog", annotator="ann@example.org", at=MOMENT),
    ]
    assert [problem.split(":")[0] for problem in loaded.problems] == [
        "task 3 (pets/3.jpg)",
        "task 4",
        "task 5 (pets/5.jpg)",
    ]
    assert "which of animal, colour is the class is unclear" in loaded.problems[1]


def test_predictions_are_read_as_probabilities(tmp_path: Path) -> None:
    guess = {"model_version": "m1", "score": 0.75, "result": choice("cat"), "created_ago": "3 hours"}
    none = {"model_version": "m0", "result": choice("cat")}
    odd = {"score": 7, "result": choice("cat")}
    path = saved(tmp_path / "x.json", [task(1, "1.jpg", predictions=[none, odd, guess])])
    assert STUDIO.read(path, ()).records == [Record("1.jpg", None, model_version="m1", proba={"cat": 0.75})]


@pytest.mark.parametrize(
    ("item", "problem"),
    [
        (task(1, "1.jpg", annotation(choice("cat", "dog"))), r"task 1 \(1.jpg\): 2 choices \(cat, dog\)"),
        (task(1, "1.jpg", annotation([])), r"task 1 \(1.jpg\): 0 choices"),
        (task(1, "1.jpg", annotation([{"type": "rectanglelabels", "value": {}}])), "0 choices"),
        (task(1, "1.jpg", annotation(choice("cat"), created_at="soon")), "'soon' is not a time"),
        (task(1, "1.jpg", annotation([{"type": "choices", "value": {"choices": [7]}}])), "1 choices"),
        ({"id": 9, "data": {"text": "hello"}, "annotations": []}, r"task 9: no image among its data \(text\)"),
        ({"id": 9, "data": {}, "annotations": []}, "no image among its data"),
        ({"id": 9, "data": {"image": "1.jpg"}, "annotations": [7]}, "an object was expected"),
        ({"id": 9, "data": {"image": "https://example.org/"}}, "names no file"),
        ({"id": 9, "data": {"tailwise": {"path": "1.jpg", "sha256": "x"}}}, "not 64 hexadecimal digits"),
    ],
)
def test_what_cannot_be_read_is_told_and_the_rest_is_read(item: object, problem: str, tmp_path: Path) -> None:
    loaded = STUDIO.read(saved(tmp_path / "x.json", [item, task(2, "2.jpg", annotation(choice("cat")))]), ())
    assert [record.path for record in loaded.records if record.answered] == ["2.jpg"]
    assert len(loaded.problems) == 1
    assert re.search(problem, loaded.problems[0])


@pytest.mark.parametrize("content", ["[7]", '["x"]', "3"])
def test_other_json_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(content, encoding="utf-8")
    with pytest.raises(BadFile, match="item 1 is not a task"):
        STUDIO.read(tmp_path / "x.json", ())


def test_the_configuration_beside_an_export_gives_the_order_of_the_classes(tmp_path: Path) -> None:
    path = saved(tmp_path / "tasks.json", [task(1, "1.jpg", annotation(choice("c1")))])
    (tmp_path / "label_config.xml").write_text(
        '<View><Image name="image" value="$image"/><Choices name="choice" toName="image">'
        '<Choice value="Zebra"/><Choice value="Cat" alias="c1"/></Choices></View>',
        encoding="utf-8",
    )
    assert STUDIO.read(path, ()).classes == STUDIO.read(tmp_path, ()).classes == ("Zebra", "c1")


def test_an_alias_is_the_class_that_people_see_where_the_campaign_has_that(tmp_path: Path) -> None:
    path = saved(tmp_path / "tasks.json", [
        task(1, "1.jpg", annotation(choice("c1"))), task(2, "2.jpg", annotation(choice("dog"))),
        task(3, "3.jpg", annotation(choice("__other__"))),
    ])  # fmt: skip
    (tmp_path / "label_config.xml").write_text(
        '<View><Choices name="choice" toName="image"><Choice value="Cat" alias="c1"/>'
        '<Choice value="A dog" alias="dog"/>'
        '<Choice value="none" alias="__other__"/></Choices></View>',
        encoding="utf-8",
    )
    for known, wanted in ((("cat", "dog"), "Cat"), (("cat", "c1"), "c1"), ((), "c1")):
        loaded = STUDIO.read(path, known)
        assert [record.label for record in loaded.records] == [wanted, "dog", None]
        assert loaded.records[2].kind == "other"
        assert loaded.classes == (wanted, "dog")


def test_an_export_has_tasks_and_a_configuration_that_label_studio_takes(
    records: list[Record], pictures: Pictures, tmp_path: Path
) -> None:
    out = STUDIO.write(records, tmp_path / "out", pictures.source, CLASSES)
    config = ElementTree.parse(out / "label_config.xml").getroot()
    image, choices = config.find("Image"), config.find("Choices")
    assert image is not None
    assert choices is not None
    assert (image.get("value"), choices.get("toName")) == ("$image", image.get("name"))
    assert [choice.get("value") for choice in choices] == [*CLASSES, "None of these"]
    allowed = {choice.get("alias") or choice.get("value") for choice in choices}
    tasks = json.loads((out / "tasks.json").read_text(encoding="utf-8"))
    assert len(tasks) == 15
    for item in tasks:
        assert item["data"]["image"].startswith("/data/local-files/?d=my%20pictures/")
        for said in item["annotations"]:
            assert "completed_by" not in said
            for result in said["result"]:
                assert (result["from_name"], result["to_name"]) == (choices.get("name"), image.get("name"))
                assert set(result["value"]["choices"]) <= allowed
    (guessed,) = [item for item in tasks if item["data"]["tailwise"]["path"] == "10.png"]
    assert [(guess["score"], guess["model_version"]) for guess in guessed["predictions"]] == [(2 / 3, "m2")]


def test_what_label_studio_gives_back_is_matched_by_the_note_in_the_data(
    records: list[Record], pictures: Pictures, tmp_path: Path
) -> None:
    out = STUDIO.write(records[:1], tmp_path / "out", pictures.source, CLASSES)
    (item,) = json.loads((out / "tasks.json").read_text(encoding="utf-8"))
    back = task(1, "", annotation(choice("cat"), completed_by=ANN)) | {"data": item["data"] | {"image": "s3://x/other"}}
    (record,) = STUDIO.read(saved(tmp_path / "back.json", [back]), ()).records
    assert record == Record("a/1.png", "cat", annotator="ann@example.org", at=MOMENT, sha256=records[0].sha256)


def test_a_class_with_the_name_of_the_choice_for_none_stays_a_class(pictures: Pictures, tmp_path: Path) -> None:
    pictures.add("1.png", 1)
    pictures.add("2.png", 2)
    records = [Record("1.png", "__other__"), Record("2.png", None, kind="other", annotator="ann")]
    out = STUDIO.write(records, tmp_path / "out", pictures.source, ("__other__",))
    assert in_order(STUDIO.read(out, ()).records) == in_order(records)
    assert "__other___" in (out / "label_config.xml").read_text(encoding="utf-8")
