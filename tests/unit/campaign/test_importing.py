from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tailwise.campaign.answers import Answer, record, settle, undo
from tailwise.campaign.classes import add_classes, list_classes, rename_class, retire_class
from tailwise.campaign.importing import (
    Change,
    Disagreement,
    Imported,
    Options,
    UnknownClass,
    Unmatched,
    import_file,
    import_records,
)
from tailwise.campaign.ledger import Ledger
from tailwise.errors import BadFile, BadInput, UnknownName
from tailwise.formats import FORMATS, Record
from tailwise.formats.label_studio_api import Connection

from .conftest import add_images

MOMENT = 1_700_000_000_000_000


def said(path: str, label: str | None, annotator: str = "ann", at: int | None = MOMENT, **more: object) -> Record:
    return Record(path, label, annotator=annotator, at=at, **more)  # type: ignore[arg-type]


def run(ledger: Ledger, *records: Record, **options: object) -> Imported:
    return import_records(ledger, records, Options(**options))  # type: ignore[arg-type]


def standing(ledger: Ledger) -> set[tuple[object, ...]]:
    rows = ledger.read(
        "SELECT i.path, a.annotator, a.kind, c.name, a.at, a.source FROM answer AS a "
        "JOIN image AS i ON i.id = a.image_id LEFT JOIN class AS c ON c.id = a.class_id"
    )
    return {tuple(row) for row in rows}


def events(ledger: Ledger) -> int:
    return int(ledger.read("SELECT count(*) FROM event")[0][0])


def test_answers_of_every_kind_are_written_as_they_were_given(ledger: Ledger) -> None:
    done = run(
        ledger,
        said("1.jpg", "cat"),
        said("2.jpg", None, "Zoë", MOMENT + 1, kind="other"),
        said("3.jpg", None, kind="skip"),
        said("4.jpg", None),
    )
    assert done == Imported(added=3, unanswered=1)
    assert standing(ledger) == {
        ("1.jpg", "ann", "label", "cat", MOMENT, "import"),
        ("2.jpg", "Zoë", "other", None, MOMENT + 1, "import"),
        ("3.jpg", "ann", "skip", None, MOMENT, "import"),
    }


def test_importing_twice_changes_nothing(ledger: Ledger) -> None:
    records = [said("1.jpg", "cat"), said("2.jpg", None, kind="other"), said("3.jpg", "dog", at=None)]
    run(ledger, *records)
    before, written = standing(ledger), events(ledger)
    assert run(ledger, *records) == Imported(same=3)
    assert run(ledger, *records, overwrite=True) == Imported(same=3)
    assert (standing(ledger), events(ledger)) == (before, written)


def test_a_dry_run_says_what_an_import_would_do_and_does_nothing(ledger: Ledger) -> None:
    record(ledger, [Answer("by-the-page", 1, "bob", "label", 2), Answer("by-the-page-2", 2, "ann", "label", 2)])
    records = [said("1.jpg", "cat"), said("2.jpg", "cat"), said("3.jpg", "newt"), said("99.jpg", "cat")]
    options = {"create_classes": True, "overwrite": True}
    before, written = standing(ledger), events(ledger)
    planned = run(ledger, *records, dry_run=True, **options)
    assert (standing(ledger), events(ledger)) == (before, written)
    assert [one.name for one in list_classes(ledger)] == ["cat", "dog", "eel"]
    done = run(ledger, *records, **options)
    assert replace(planned, dry_run=False) == done
    assert (done.added, done.overwritten, len(done.conflicts), len(done.unmatched)) == (2, 1, 1, 1)
    assert done.new_classes == ("newt",)


def test_a_dry_run_needs_no_more_than_reading(ledger: Ledger, home: Path) -> None:
    ledger.close()
    with Ledger.open(home, read_only=True) as reader:
        assert run(reader, said("1.jpg", "newt"), create_classes=True, dry_run=True).added == 1
        with pytest.raises(BadInput, match="read-only"):
            run(reader, said("1.jpg", "cat"))


def test_another_person_who_disagrees_is_written_and_listed(ledger: Ledger) -> None:
    record(ledger, [Answer("by-the-page", 1, "bob", "label", 2)])
    done = run(ledger, said("1.jpg", "cat"))
    assert done == Imported(added=1, conflicts=(Disagreement("1.jpg", (("ann", "cat"), ("bob", "dog"))),))
    assert [row["image_id"] for row in ledger.read("SELECT image_id FROM conflict")] == [1]
    assert run(ledger, said("1.jpg", "cat")).conflicts == done.conflicts


def test_a_skip_disagrees_with_nobody_and_an_other_with_every_class(ledger: Ledger) -> None:
    record(ledger, [Answer("by-the-page", 1, "bob", "label", 2), Answer("by-the-page-2", 2, "bob", "label", 2)])
    done = run(ledger, said("1.jpg", None, kind="skip"), said("2.jpg", None, kind="other"))
    assert done.conflicts == (Disagreement("2.jpg", (("ann", "other"), ("bob", "dog"))),)


def test_a_class_called_other_is_not_the_answer_other(ledger: Ledger) -> None:
    add_classes(ledger, ["other"])
    record(ledger, [Answer("by-the-page", 1, "bob", "label", 4)])
    assert len(run(ledger, said("1.jpg", None, kind="other")).conflicts) == 1


def test_what_was_settled_stays_and_a_different_answer_is_listed(ledger: Ledger) -> None:
    settle(ledger, key="decided-it", image=1, annotator="boss", class_id=2)
    done = run(ledger, said("1.jpg", "cat"), said("2.jpg", "cat"))
    assert done.conflicts == (Disagreement("1.jpg", (("ann", "cat"),), settled="dog"),)
    assert ledger.read("SELECT class_id FROM current_label WHERE image_id = 1")[0][0] == 2


def test_the_same_person_who_says_something_else_is_listed_and_written_only_when_asked(ledger: Ledger) -> None:
    record(ledger, [Answer("by-the-page", 1, "ann", "label", 2)])
    changed = (Change("1.jpg", "ann", "dog", "cat"),)
    assert run(ledger, said("1.jpg", "cat")) == Imported(changed=changed)
    assert {row[3] for row in standing(ledger)} == {"dog"}
    assert run(ledger, said("1.jpg", "cat"), overwrite=True) == Imported(overwritten=1, changed=changed)
    assert {row[3] for row in standing(ledger)} == {"cat"}
    assert events(ledger) == 2


def test_to_and_fro_is_followed_every_time_and_each_time_once(ledger: Ledger) -> None:
    for label in ("cat", "dog", "cat", "dog"):
        for _ in range(2):
            run(ledger, said("1.jpg", label, at=None), overwrite=True)
        assert {row[3] for row in standing(ledger)} == {label}
    assert events(ledger) == 4


def test_an_import_that_was_undone_does_not_come_back_by_itself(ledger: Ledger) -> None:
    run(ledger, said("1.jpg", "cat"))
    undo(ledger, "take-it-back", "ann")
    assert run(ledger, said("1.jpg", "cat")) == Imported(changed=(Change("1.jpg", "ann", "undone", "cat"),))
    assert standing(ledger) == set()
    assert run(ledger, said("1.jpg", "cat"), overwrite=True).overwritten == 1
    assert {row[3] for row in standing(ledger)} == {"cat"}


def test_two_answers_of_one_person_in_a_file_are_told_and_the_later_counts(ledger: Ledger) -> None:
    records = [said("1.jpg", "dog", at=MOMENT + 5), said("1.jpg", "cat"), said("2.jpg", "cat"), said("2.jpg", "cat")]
    done = run(ledger, *records)
    assert (done.added, done.same) == (2, 1)
    assert done.problems == ("1.jpg: ann answers more than once (cat, dog); the last one counts",)
    assert {(row[0], row[3]) for row in standing(ledger)} == {("1.jpg", "dog"), ("2.jpg", "cat")}
    written = events(ledger)
    run(ledger, *records, overwrite=True)
    assert events(ledger) == written


def test_images_and_classes_that_are_not_there_are_listed(ledger: Ledger) -> None:
    done = run(ledger, said("x/99.jpg", "cat"), said("1.jpg", "newt"), said("2.jpg", "newt"), said("3.jpg", "cat"))
    assert done == Imported(
        added=1,
        unmatched=(Unmatched("x/99.jpg", "no image has that name"),),
        unknown_classes=(UnknownClass("newt", 2, "no class is called so"),),
    )


def test_labels_are_matched_whatever_their_case_spaces_and_composition(ledger: Ledger) -> None:
    add_classes(ledger, ["caf\u00e9"])
    done = run(ledger, said("1.jpg", " CAT "), said("2.jpg", "Cafe\u0301"))
    assert done == Imported(added=2)
    assert {row[3] for row in standing(ledger)} == {"cat", "caf\u00e9"}


def test_labels_are_renamed_and_a_name_that_is_not_there_is_told(ledger: Ledger) -> None:
    done = run(
        ledger, said("1.jpg", "Katze"), said("2.jpg", "cat"), rename={"Katze": "cat", "cat": "dog", "Hnud": "dog"}
    )
    assert done == Imported(added=2, problems=("asked to rename 'Hnud', but no record has that label",))
    assert {(row[0], row[3]) for row in standing(ledger)} == {("1.jpg", "cat"), ("2.jpg", "dog")}
    done = run(ledger, said("3.jpg", "Katze"), rename={"Katze": "katze"})
    assert done.unknown_classes == (UnknownClass("Katze", 1, "it is renamed to 'katze', and no class is called so"),)


def test_classes_are_created_in_the_order_of_the_file_also_without_images(ledger: Ledger) -> None:
    records = [said("1.jpg", "newt"), said("2.jpg", "kite"), said("3.jpg", "bad\u202ename")]
    options = Options(create_classes=True, rename={"kite": "red kite"})
    done = import_records(ledger, records, options, classes=("zebra", "kite", "Cat", "newt"))
    assert done.new_classes == ("zebra", "red kite", "newt")
    assert [one.name for one in list_classes(ledger)] == ["cat", "dog", "eel", "zebra", "red kite", "newt"]
    assert [unknown.name for unknown in done.unknown_classes] == ["bad\u202ename"]
    assert "cannot be shown" in done.unknown_classes[0].reason


def test_a_retired_class_takes_no_new_labels_and_keeps_its_old_ones(ledger: Ledger) -> None:
    run(ledger, said("1.jpg", "cat"))
    retire_class(ledger, "cat")
    done = run(ledger, said("1.jpg", "cat"), said("2.jpg", "cat"), create_classes=True)
    assert done == Imported(
        same=1, unknown_classes=(UnknownClass("cat", 1, "the class is retired; restore it, or rename the label"),)
    )


def test_a_renamed_class_is_still_the_same_answer(ledger: Ledger) -> None:
    run(ledger, said("1.jpg", "cat"))
    rename_class(ledger, "cat", "lynx")
    assert run(ledger, said("1.jpg", "lynx")) == Imported(same=1)


def test_records_that_name_nobody_are_of_the_given_annotator(ledger: Ledger) -> None:
    run(ledger, said("1.jpg", "cat", ""), said("2.jpg", "cat", "Zoë"), annotator="bob")
    assert {row[1] for row in standing(ledger)} == {"bob", "Zoë"}
    with pytest.raises(BadInput, match="annotator name"):
        run(ledger, annotator="\n")


def test_a_record_that_cannot_be_written_does_not_stop_the_others(ledger: Ledger) -> None:
    done = run(ledger, said("1.jpg", "cat", "x" * 61), said("2.jpg", "cat", at=-1), said("3.jpg", "cat", at=1 << 70))
    assert done.added == 2
    assert [problem.split(":")[0] for problem in done.problems] == ["1.jpg", "2.jpg", "3.jpg"]
    assert all(row[4] > MOMENT for row in standing(ledger))  # the time of the import stands in


def test_the_version_of_a_model_from_elsewhere_is_left_out(ledger: Ledger) -> None:
    assert run(ledger, said("1.jpg", "cat", model_version="theirs")) == Imported(added=1)
    assert ledger.read("SELECT model_version FROM event")[0][0] is None


def test_nothing_is_nothing(ledger: Ledger) -> None:
    assert import_records(ledger, [], Options()) == Imported()


def test_a_file_is_imported_with_its_problems(ledger: Ledger, tmp_path: Path) -> None:
    path = tmp_path / "export.json"
    path.write_text(
        '[{"id": 1, "data": {"image": "s3://b/1.jpg"}, "annotations": [{"completed_by": 7, "result": [{"type": '
        '"choices", "value": {"choices": ["cat"]}}]}]}, '
        '{"id": 2, "data": {"image": "2.jpg"}, "annotations": [{"result": []}]}]',
        encoding="utf-8",
    )
    done = import_file(ledger, path)
    assert done.added == 1
    assert "task 2 (2.jpg): 0 choices" in done.problems[0]
    assert {row[1] for row in standing(ledger)} == {"user 7"}
    assert import_file(ledger, str(path), format="label-studio").same == 1


def test_a_file_of_the_wrong_format_is_refused_before_anything_is_written(ledger: Ledger, tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    path.write_text("path,label\n1.jpg,newt\n2.jpg\n", encoding="utf-8")
    with pytest.raises(BadFile, match="line 3"):
        import_file(ledger, path, create_classes=True)
    with pytest.raises(UnknownName, match="no format is called 'cvs'"):
        import_file(ledger, path, format="cvs")
    with pytest.raises(BadFile, match="there is no file or folder"):
        import_file(ledger, tmp_path / "none.csv")
    assert (events(ledger), len(list_classes(ledger))) == (0, 3)


def test_transactions_are_short(ledger: Ledger) -> None:
    add_images(ledger, 1300)
    sizes: list[int] = []
    records = [said(f"{n}.jpg", "cat") for n in range(1, 1301)]
    import_records(ledger, records, Options(), report=lambda *_: sizes.append(events(ledger)))
    assert sizes == [0, 500, 1000, 1300]  # what others could read while it went on


def test_an_import_agrees_with_a_plain_replay(ledger: Ledger) -> None:
    """Random files, imported over each other, against a few lines that say what must come out."""
    add_images(ledger, 18)
    rng = random.Random(3)
    truth: dict[tuple[str, str], tuple[str, str | None]] = {}
    for _ in range(30):
        overwrite = rng.random() < 0.5
        records = random_file(rng)
        run(ledger, *records, overwrite=overwrite)
        for key, what in last_of_each(records).items():
            if overwrite or key not in truth:
                truth[key] = what
        assert {(row[0], row[1]): (row[2], row[3]) for row in standing(ledger)} == truth


def random_file(rng: random.Random) -> list[Record]:
    records = []
    for _ in range(rng.randrange(12)):
        kind = rng.choice(["label", "label", "other", "skip"])
        label = rng.choice(["cat", "dog", "eel"]) if kind == "label" else None
        path, person = f"{rng.randrange(1, 31)}.jpg", rng.choice(["ann", "bob"])
        records.append(said(path, label, person, rng.choice([None, MOMENT, MOMENT + 1]), kind=kind))
    return records


def last_of_each(records: Sequence[Record]) -> dict[tuple[str, str], tuple[str, str | None]]:
    latest: dict[tuple[str, str], tuple[tuple[int, int], tuple[str, str | None]]] = {}
    for number, one in enumerate(records):
        order = (-1 if one.at is None else one.at, number)
        key = (one.path, one.annotator)
        if key not in latest or latest[key][0] < order:
            latest[key] = (order, (one.kind, one.label))
    return {key: what for key, (_, what) in latest.items()}


IMPORT = """
import sys
from pathlib import Path
from tailwise.campaign.importing import import_file
from tailwise.campaign.ledger import Ledger

home, table, stop = sys.argv[1], sys.argv[2], int(sys.argv[3])
calls = 0

def report(share, what):
    global calls
    calls += 1
    if calls == abs(stop):
        print("now", flush=True)
        if stop > 0:
            sys.stdin.read()  # until the end, which is a kill

with Ledger.open(home) as ledger:
    import_file(ledger, Path(table), create_classes=True, report=report)
"""
State = tuple[list[tuple[object, ...]], list[tuple[int, str]]]


def campaign_of(home: Path, images: int) -> Path:
    with Ledger.create(home) as ledger:
        add_classes(ledger, ["cat", "dog"])
        add_images(ledger, images)
    return home


def table_of(path: Path, images: int) -> Path:
    records = [
        said(f"{n}.jpg", ("cat", "newt", "dog")[n % 3], f"person {n % 2}", MOMENT + n) for n in range(1, images + 1)
    ]
    return FORMATS["csv"].write(records, path, lambda _: Path(), ("zebra", "newt"))


def finished(home: Path, table: Path) -> State:
    """Import to the end; every event and every class then."""
    with Ledger.open(home) as ledger:
        done = import_file(ledger, table, create_classes=True)
        assert done.added + done.same == len(FORMATS["csv"].read(table, ()).records)
        rows = ledger.read("SELECT key, image_id, annotator, kind, class_id, at, source FROM event ORDER BY id")
        return [tuple(row) for row in rows], [(one.id, one.name) for one in list_classes(ledger)]


def kill_import(home: Path, table: Path, stop: int, wait: float = 0.0) -> None:
    """Kill an import where it reports for the `stop`-th time, or `wait` seconds after that while it goes on."""
    killed = subprocess.Popen(
        [sys.executable, "-c", IMPORT, str(home), str(table), str(-stop if wait else stop)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert killed.stdout is not None
    assert killed.stdin is not None
    assert killed.stdout.readline() == "now\n"
    time.sleep(wait)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    killed.stdin.close()
    killed.stdout.close()


@pytest.mark.parametrize("stop", [2, 4, 5])
def test_an_import_that_was_killed_is_finished_by_importing_again(stop: int, tmp_path: Path) -> None:
    table = table_of(tmp_path / "labels.csv", 1600)
    whole, cut = campaign_of(tmp_path / "whole", 1600), campaign_of(tmp_path / "cut", 1600)
    kill_import(cut, table, stop)
    with Ledger.open(cut, read_only=True) as ledger:
        assert events(ledger) == (stop - 2) * 500  # whole transactions, and nothing of the one under way
    state = finished(whole, table)
    assert finished(cut, table) == state
    assert [name for _, name in state[1]] == ["cat", "dog", "zebra", "newt"]


def test_kills_at_any_moment_lose_and_double_nothing(tmp_path: Path) -> None:
    table = table_of(tmp_path / "labels.csv", 3000)
    whole, cut = campaign_of(tmp_path / "whole", 3000), campaign_of(tmp_path / "cut", 3000)
    rng = random.Random(1)
    for _ in range(4):
        kill_import(cut, table, 1, wait=rng.uniform(0.01, 0.25))
    assert finished(cut, table) == finished(whole, table)


# Accounts of Label Studio: one annotator in JSON, in CSV, and in answers that came by webhook.


def studio_json(ledger: Ledger) -> Path:
    given = {"id": 9, "completed_by": 1, "result": [{"type": "choices", "value": {"choices": ["cat"]}}]}
    path = ledger.folder / "studio.json"
    path.write_text(json.dumps([{"id": 3, "data": {"image": "1.jpg"}, "annotations": [given]}]), encoding="utf-8")
    return path


def studio_csv(ledger: Ledger) -> Path:
    path = ledger.folder / "studio.csv"
    path.write_text(
        '"annotation_id","annotator","created_at","id","image","label","lead_time"\n'
        '9,"1","2026-11-18T11:07:35.248183Z",3,"/data/upload/1/1f0c2a9b-1.jpg","cat",1.0\n',
        encoding="utf-8",
    )
    return path


@pytest.mark.parametrize(
    ("given", "person"),
    [("", "user 1"), ("1=anna", "anna"), ({"1": "anna"}, "anna"), ("2=ben", "user 1")],
    ids=str,
)
def test_an_account_is_one_person_in_json_and_csv(ledger: Ledger, given: str | dict[str, str], person: str) -> None:
    first = import_file(ledger, studio_json(ledger), format="label-studio", annotator_map=given)
    second = import_file(ledger, studio_csv(ledger), annotator_map=given)
    assert (first.added, second.added, second.same) == (1, 0, 1)
    assert {row[1] for row in standing(ledger)} == {person}


def test_the_accounts_of_the_connected_label_studio_are_used(ledger: Ledger) -> None:
    Connection("http://lab:8080", 1, {"user 1": "anna@example.org"}).write(ledger.folder)
    import_file(ledger, studio_json(ledger), format="label-studio")
    assert {row[1] for row in standing(ledger)} == {"anna@example.org"}
    import_file(ledger, studio_csv(ledger), annotator_map="1=anna")
    assert {row[1] for row in standing(ledger)} == {"anna@example.org", "anna"}


def test_an_annotator_of_a_table_from_elsewhere_may_be_called_1(ledger: Ledger) -> None:
    (ledger.folder / "plain.csv").write_text("path,label,annotator\n1.jpg,cat,1\n", encoding="utf-8")
    import_file(ledger, ledger.folder / "plain.csv")
    assert {row[1] for row in standing(ledger)} == {"1"}
