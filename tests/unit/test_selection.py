"""A selection explains itself: ids, names, reasons, tables, HTML."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import tailwise

PROBA = np.array([[0.9, 0.1], [0.6, 0.4], [0.55, 0.45], [0.1, 0.9], [0.2, 0.8], [0.03, 0.97]])
IDS = ["=a.jpg", "b.jpg", "c.jpg", "d.jpg", "e.jpg", "f.jpg"]
NAMES = ["<owl>", "kite"]


def batch(**more: object) -> tailwise.Selection:
    return tailwise.select(PROBA, 4, score="entropy", balance=1.0, ids=IDS, class_names=NAMES, **more)  # type: ignore[arg-type]


def test_picks_come_back_as_ids_and_index_arrays_by_row() -> None:
    found = batch()
    assert list(found) == [IDS[row] for row in found.indices]
    assert (PROBA[found] == PROBA[found.indices]).all()
    assert np.asarray(found).tolist() == found.indices.tolist()
    assert list(tailwise.select(PROBA, 4)) == tailwise.select(PROBA, 4).indices.tolist()


def test_each_pick_has_its_class_probability_score_and_reason() -> None:
    entropy = -(PROBA * np.log(PROBA)).sum(axis=1)
    found = batch(counts={"kite": 6, "<owl>": 2})
    for rank, pick in enumerate(found.picks, 1):
        row = IDS.index(pick.id)
        assert (pick.rank, pick.index) == (rank, row)
        assert pick.predicted == NAMES[PROBA[row].argmax()]
        assert pick.probability == pytest.approx(PROBA[row].max())
        assert pick.score == pytest.approx(entropy[row])
    reasons = {pick.id: pick.reason for pick in found.picks}
    assert reasons["c.jpg"] == "uncertain between <owl> and kite; <owl> is 4 labels short"
    assert all("kite is" not in reason for reason in reasons.values())  # it has labels enough


def test_a_sure_prediction_is_called_probable() -> None:
    found = tailwise.select(PROBA, 6, score="margin", balance=0, class_names=NAMES)
    assert {pick.index: pick.reason for pick in found.picks}[5] == "probably kite"


def test_names_are_in_every_print() -> None:
    rare = tailwise.select(PROBA, 4, score="entropy", balance=1.0, class_names=NAMES, target=[4, 0])
    assert "class    <owl> kite" in repr(rare)
    assert "<owl> can reach at most 2.2 of the 4.0 wanted" in repr(rare)
    assert "&lt;owl&gt;" in rare._repr_html_()
    assert "<owl>" not in rare._repr_html_()
    assert "class 0 can reach" in repr(tailwise.select(PROBA, 4, score="entropy", balance=1.0, target=[4, 0]))


def test_tables_hold_one_row_per_pick(tmp_path: Path) -> None:
    found = batch()
    frame = found.to_frame()
    assert frame["id"].tolist() == list(found)
    assert frame["index"].tolist() == found.indices.tolist()
    assert frame["reason"].tolist() == [pick.reason for pick in found.picks]
    found.to_csv(tmp_path / "picks.csv")
    with (tmp_path / "picks.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["id"].removeprefix("'") for row in rows] == list(found)
    assert not any(row["id"].startswith("=") for row in rows)
    assert [float(row["score"]) for row in rows] == pytest.approx([pick.score for pick in found.picks], rel=1e-5)
    with pytest.raises(tailwise.errors.BadInput, match="'pandas' or 'polars'"):
        found.to_frame("excel")  # type: ignore[arg-type]


def test_polars_tables_are_made_too() -> None:
    polars = pytest.importorskip("polars")
    assert isinstance(batch().to_frame("polars"), polars.DataFrame)


def test_json_holds_ids_names_and_scores() -> None:
    plain = json.loads(batch().to_json())
    assert plain["ids"] == list(batch())
    assert plain["class_names"] == NAMES
    assert len(plain["scores"]) == len(plain["likeliest"]) == 4


def test_ids_and_names_of_a_table_are_used() -> None:
    found = tailwise.select(pd.DataFrame(PROBA, index=IDS, columns=NAMES), 3, exclude=["b.jpg"], include=["f.jpg"])
    assert next(iter(found)) == "f.jpg"
    assert "b.jpg" not in list(found)
    assert found.class_names == ("<owl>", "kite")
