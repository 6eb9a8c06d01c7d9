"""The map: PCA is that of the SVD, what is on the map stays where it is, a damaged file is made again."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tailwise.campaign import projection
from tailwise.campaign.answers import settle
from tailwise.campaign.features import embed
from tailwise.campaign.images import list_images
from tailwise.campaign.projection import (
    fit_map,
    map_file,
    placed_between,
    point_values,
    principal_components,
    project,
    read_map,
    stored_projection,
)
from tailwise.campaign.rounds import Pick, open_round
from tailwise.campaign.service import Campaign
from tailwise.errors import BadInput

COUNT = 24


def draw(folder: Path, numbers: range) -> None:
    folder.mkdir(exist_ok=True)
    for number in numbers:
        rng = np.random.default_rng(number)
        pixels = rng.normal((60 * (number % 4), 90, 120), 40, (20, 20, 3)).clip(0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{number:02}.png")


@pytest.fixture
def campaign(tmp_path: Path) -> Iterator[Campaign]:
    draw(tmp_path / "images", range(COUNT))
    with Campaign.create(tmp_path / "campaign", tmp_path / "images", ["a", "b"], backbone="simple") as made:
        yield made


def file_of(campaign: Campaign, method: str = "pca") -> Path:
    return map_file(campaign.ledger, method, "simple")


def expected_pca(features: np.ndarray) -> np.ndarray:
    """By numpy's SVD of all rows, in float64: each axis may be mirrored."""
    exact = features.astype(np.float64) - features.mean(axis=0, dtype=np.float64)
    left, values, _ = np.linalg.svd(exact, full_matrices=False)
    raw = left[:, :2] * values[:2]
    low, high = raw.min(axis=0), raw.max(axis=0)
    return np.asarray((raw - (low + high) / 2) / (high - low).max() + 0.5)


def test_pca_is_that_of_the_svd_up_to_sign(campaign: Campaign) -> None:
    found = campaign.map("pca")
    embedding = embed(campaign.ledger, backbone="simple")
    assert found.images.tolist() == embedding.ids.tolist()
    expected = expected_pca(embedding.features)
    for axis in (0, 1):
        ways = (expected[:, axis], 1 - expected[:, axis])
        assert any(np.allclose(found.xy[:, axis], way, atol=1e-4) for way in ways)
    assert found.xy.dtype == np.float32
    assert found.xy.min() == pytest.approx(0, abs=1e-6)
    assert found.xy.max() == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("shape", [(40, 7), (6, 30), (3, 1)])
def test_directions_explain_as_much_as_those_of_the_svd(shape: tuple[int, int]) -> None:
    rows = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    mean, components = principal_components(rows, 2)
    _, values, right = np.linalg.svd(rows - rows.mean(axis=0, dtype=np.float64), full_matrices=False)
    width = min(2, shape[1])
    assert components.shape == (width, shape[1])
    assert np.allclose(np.abs(components @ right[:width].T), np.eye(width), atol=1e-4)
    spread = (((rows - mean) @ components.T) ** 2).sum(axis=0)
    assert np.allclose(spread, values[:width] ** 2, rtol=1e-4)
    assert (np.take_along_axis(components, np.abs(components).argmax(axis=1)[:, None], 1) > 0).all()


def test_a_large_map_is_fitted_on_a_sample_and_shows_every_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projection, "SAMPLE", 500)
    rng = np.random.default_rng(2)
    rows = (rng.normal(size=(3000, 6)) * (9, 4, 1, 1, 1, 1)).astype(np.float32)
    fitted = fit_map(rows, "pca")
    placed = fitted.place(rows)
    assert placed.min() == pytest.approx(0, abs=1e-6)
    assert placed.max() == pytest.approx(1, abs=1e-6)
    whole = expected_pca(rows)
    for axis in (0, 1):  # a sample is not all: nearly the same directions
        assert abs(np.corrcoef(placed[:, axis], whole[:, axis])[0, 1]) > 0.99


def test_images_that_are_all_alike_lie_in_the_middle() -> None:
    fitted = fit_map(np.ones((3, 5), np.float32), "pca")
    assert fitted.place(np.ones((2, 5), np.float32)).tolist() == [[0.5, 0.5]] * 2


def test_a_row_between_others_is_placed_as_brute_force_places_it() -> None:
    rng = np.random.default_rng(3)
    sample, rows = (rng.normal(size=(n, 8)).astype(np.float32) for n in (60, 20))
    where = rng.normal(size=(60, 2)).astype(np.float32)
    for row, placed in zip(rows, placed_between(rows, sample, where), strict=True):
        apart = np.sqrt(((sample.astype(np.float64) - row) ** 2).sum(axis=1))
        near = np.argsort(apart)[: projection.PLACED_BY]
        weights = 1 / apart[near]
        assert np.allclose(placed, weights @ where[near] / weights.sum(), atol=1e-5)
    assert np.allclose(placed_between(sample, sample, where), where, atol=1e-4)  # what is known stays


def test_a_stored_map_is_used_and_new_images_do_not_move_the_others(campaign: Campaign, tmp_path: Path) -> None:
    first = campaign.map("pca")
    assert first.made == COUNT
    assert campaign.map("pca").made == 0
    draw(tmp_path / "images", range(COUNT, COUNT + 6))
    campaign.index()
    stored = stored_projection(campaign.ledger)
    assert stored is not None
    assert (len(stored), stored.made) == (COUNT, 6)  # six wait for their place
    second = campaign.map("pca")
    assert second.made == 6
    assert len(second) == COUNT + 6
    old = np.isin(second.images, first.images)
    assert np.array_equal(second.xy[old], first.xy)
    features = embed(campaign.ledger, backbone="simple").features
    fitted = read_map(file_of(campaign))
    assert fitted is not None
    assert np.array_equal(second.xy[~old], fitted.place(features[~old]))


def test_a_map_follows_the_bytes_when_a_file_is_renamed(campaign: Campaign, tmp_path: Path) -> None:
    before = campaign.map("pca")
    (tmp_path / "images" / "03.png").rename(tmp_path / "images" / "zz.png")
    campaign.index()
    after = campaign.map("pca")
    assert after.made == 0
    assert np.array_equal(np.sort(after.xy, axis=0), np.sort(before.xy, axis=0))


def test_the_same_images_give_the_same_map_and_redo_draws_it_anew(campaign: Campaign) -> None:
    first = campaign.map("pca")
    file_of(campaign).unlink()
    assert np.array_equal(campaign.map("pca").xy, first.xy)
    again = campaign.map("pca", redo=True)
    assert again.made == COUNT
    assert np.array_equal(again.xy, first.xy)


@pytest.mark.parametrize("fault", ["cut", "flipped", "empty", "other"])
def test_a_damaged_file_is_made_again(campaign: Campaign, fault: str) -> None:
    first = campaign.map("pca")
    path = file_of(campaign)
    content = bytearray(path.read_bytes())
    if fault == "cut":
        content = content[: len(content) // 2]
    elif fault == "flipped":
        content[len(content) // 2] ^= 0xFF
    else:
        content = bytearray(b"" if fault == "empty" else b"not a map at all")
    path.write_bytes(content)
    assert read_map(path) is None
    assert stored_projection(campaign.ledger) is None
    again = campaign.map("pca")
    assert again.made == COUNT
    assert np.array_equal(again.xy, first.xy)
    assert read_map(path) is not None


def test_nothing_is_left_half_and_no_pickle_is_in_the_file(campaign: Campaign) -> None:
    campaign.map("pca")
    path = file_of(campaign)
    assert [one.name for one in path.parent.iterdir()] == [path.name]
    with np.load(path, allow_pickle=False) as file:
        assert all(file[name].dtype != object for name in file.files)


def test_other_weights_of_the_backbone_draw_it_anew(campaign: Campaign) -> None:
    campaign.map("pca")
    fitted = read_map(file_of(campaign))
    assert fitted is not None
    assert fitted.cache == "simple-1"
    projection.write_map(file_of(campaign), projection.replace(fitted, cache="simple-0"))
    assert campaign.map("pca").made == COUNT


def test_a_reader_draws_and_writes_nothing(campaign: Campaign) -> None:
    folder = campaign.folder
    with Campaign.open(folder, read_only=True) as reader:
        assert len(reader.map("pca")) == COUNT
    assert not file_of(campaign).exists()


def test_wrong_wishes_say_what_to_do(campaign: Campaign, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInput, match="no map is drawn by 'tsne'; use 'auto', 'pca', 'umap'"):
        campaign.map("tsne")
    with pytest.raises(BadInput, match="UMAP needs at least 30 images, but there are 24"):
        campaign.map("umap")
    assert campaign.map("auto").method == "pca"
    monkeypatch.setattr(projection, "find_spec", lambda _name: None)
    with pytest.raises(BadInput, match=r"pip install 'tailwise\[map\]'"):
        campaign.map("umap")
    assert "UMAP, which separates classes better" in campaign.map("auto").note


def test_progress_only_grows_and_ends_at_one(campaign: Campaign) -> None:
    heard: list[float] = []
    project(campaign, "pca", report=lambda share, _what: heard.append(share))
    assert heard == sorted(heard)
    assert heard[-1] == 1


def test_values_are_those_of_the_ledger(campaign: Campaign) -> None:
    rows = list_images(campaign.ledger, usable=True)
    for number, cls in ((0, "a"), (1, "b"), (2, None)):
        campaign.label(rows[number].path, cls)
    campaign.skip(rows[3].path)
    campaign.label(rows[4].path, "a", annotator="ada")
    campaign.label(rows[4].path, "b", annotator="ben")  # a conflict has no class
    campaign.label(rows[5].path, "a", annotator="ada")
    campaign.label(rows[5].path, "b", annotator="ben")
    settle(campaign.ledger, key="settled-it", image=rows[5].id, annotator="ada", class_id=2)
    open_round(campaign.ledger, [Pick(rows[6].id, 1, 0.75), Pick(rows[7].id, None, None)], budget=2, strategy="random")
    ids = np.array([row.id for row in rows[:8]], dtype=np.int64)
    found = point_values(campaign.ledger, ids)
    assert found.classes.tolist() == [1, 2, -1, 0, 0, 2, 0, 0]
    assert found.rounds.tolist() == [0] * 6 + [1, 1]
    assert found.guesses.tolist() == [0] * 6 + [1, 0]
    assert found.certainty.tolist() == [0] * 6 + [0.75, 0]


UMAP_TWICE = """
import sys
import numpy as np
from tailwise.campaign.projection import fit_map
rng = np.random.default_rng(0)
centres = rng.normal(size=(4, 20)) * 6
kinds = np.repeat(np.arange(4), 30)
rows = (centres[kinds] + rng.normal(size=(120, 20))).astype(np.float32)
first, second, other = (fit_map(rows, "umap", seed=seed) for seed in (0, 0, 1))
np.savez(sys.argv[1], first=first.place(rows), second=second.place(rows), other=other.place(rows), kinds=kinds,
         new=first.place((centres + 0.1).astype(np.float32)))
"""


@pytest.mark.long
def test_umap_is_the_same_for_the_same_seed_and_separates_groups(tmp_path: Path) -> None:
    pytest.importorskip("umap")
    # A process of its own: numba and the libraries below it warn at import, and warnings are errors here.
    subprocess.run([sys.executable, "-c", UMAP_TWICE, str(tmp_path / "out.npz")], check=True, timeout=900)
    with np.load(tmp_path / "out.npz") as file:
        first, second, other, kinds, new = (file[name] for name in ("first", "second", "other", "kinds", "new"))
    assert np.array_equal(first, second)
    assert not np.array_equal(first, other)
    assert first.min() >= 0
    assert first.max() <= 1
    apart = np.linalg.norm(first[:, None] - first[None], axis=2) + 9 * np.eye(len(first))
    assert (kinds[apart.argmin(axis=1)] == kinds).mean() > 0.97  # a neighbour is of the same group
    nearest = np.linalg.norm(new[:, None] - first[None], axis=2).argmin(axis=1)
    assert kinds[nearest].tolist() == [0, 1, 2, 3]  # new ones are placed in their group
