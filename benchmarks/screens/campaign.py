"""The campaign on show: leaves of ten kinds with a long tail, two rounds labelled by three people, a third one open.

Only what anybody can call is called: `tailwise.Campaign` while nobody serves it, the HTTP API afterwards.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import tailwise
from benchmarks.labeller import Line, SaidNo
from tailwise.campaign.images import find_image, list_images

from .leaves import write_leaf

NAME = "Leaves of the arboretum"
COUNTS = {
    "Oak": 150, "Maple": 110, "Birch": 85, "Willow": 65, "Ginkgo": 48, "Clover": 40, "Linden": 32, "Holly": 26,
    "Aspen": 22, "Ivy": 22,
}  # fmt: skip
PAIRS = (("Ana", "Mei"), ("Mei", "Tomás"), ("Tomás", "Ana"))  # who answers the same images in the first round
SLIPS = {
    "Holly": "Oak",
    "Aspen": "Linden",
    "Birch": "Aspen",
    "Linden": "Birch",
}  # the first leaf of each, by one of two
BUDGET = 60


@dataclass(frozen=True, slots=True)
class Show:
    """A campaign and what its images are."""

    folder: Path
    kinds: Mapping[str, str]  # kind of leaf by the key of its image
    class_ids: Mapping[str, int]  # by the name of the class


def make_show(home: Path, seed: int) -> Show:
    """Draw the leaves below a folder, and label them up to the third round."""
    truth = draw_photos(home / "photos", seed)
    with tailwise.Campaign.create(
        home / "campaign", home / "photos", list(COUNTS), name=NAME, backbone="simple", budget=BUDGET
    ) as campaign:
        _label_in_pairs(campaign, truth)
        _label_alone(campaign, truth)
        campaign.next()
        kinds = {image.key: truth[image.path] for image in list_images(campaign.ledger, usable=True)}
        return Show(campaign.folder, kinds, {one.name: one.id for one in campaign.classes()})


def draw_photos(folder: Path, seed: int) -> dict[str, str]:
    """Pictures of all leaves in an order that tells nothing; gives the kind of each by its file's name."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    kinds = rng.permutation(np.repeat(list(COUNTS), list(COUNTS.values())))
    truth = {f"{number:04d}.jpg": str(kind) for number, kind in enumerate(kinds)}
    for (name, kind), own in zip(truth.items(), rng.spawn(len(truth)), strict=True):
        write_leaf(folder / name, kind, own)
    return truth


def _label_in_pairs(campaign: tailwise.Campaign, truth: Mapping[str, str]) -> None:
    """The first round: each leaf by two people, who differ over a few."""
    slips = dict(SLIPS)
    for pick, (first, second) in zip(campaign.next(overlap=2).picks, itertools.cycle(PAIRS), strict=False):
        path = find_image(campaign.ledger, pick.image).path
        kind = truth[path]
        campaign.label(path, kind, annotator=first)
        campaign.label(path, slips.pop(kind, kind), annotator=second)


def _label_alone(campaign: tailwise.Campaign, truth: Mapping[str, str]) -> None:
    """The second round: each leaf by one person."""
    for pick, (one, _) in zip(campaign.next().picks, itertools.cycle(PAIRS), strict=False):
        path = find_image(campaign.ledger, pick.image).path
        campaign.label(path, truth[path], annotator=one)


def settle_one(line: Line, show: Show, annotator: str, kind: str) -> None:
    """Somebody decides the conflict over a leaf of one kind, if there is one."""
    for item in line.get("/api/conflicts", annotator=annotator)["items"]:
        if show.kinds[item["image"]] == kind:
            line.post(
                "/api/settle", annotator=annotator, key=f"settle-{item['image']}", image=item["image"],
                kind="settle-label", class_id=show.class_ids[kind],
            )  # fmt: skip
            return


def answer(line: Line, show: Show, annotator: str, count: int) -> int:
    """Somebody answers up to so many images of the open round; gives how many there were."""
    images = [image["key"] for image in line.post("/api/lease", annotator=annotator, count=count)["images"]]
    _say(line, annotator, {image: show.class_ids[show.kinds[image]] for image in images})
    return len(images)


def skip_one(line: Line, annotators: Sequence[str]) -> None:
    """Some people, one after the other, leave the same image of the open round to others."""
    image = line.post("/api/lease", annotator=annotators[0], count=1)["images"][0]["key"]
    for annotator in annotators:
        _say(line, annotator, {image: None})


def odd_class(line: Line, show: Show, annotator: str, seen: int) -> tuple[str, list[str]]:
    """The class whose proposals fill most of a screen, of which, as nearly as can be, two are wrong.

    Gives its name and the keys of the images on that screen.
    """
    found = []
    for name, number in show.class_ids.items():
        told = line.post("/api/grid", annotator=annotator, class_id=number, count=seen)["images"]
        keys = [image["key"] for image in told]
        line.post("/api/release", annotator=annotator, images=keys)
        odd = sum(show.kinds[key] != name for key in keys)
        found.append(((len(keys) >= 0.7 * seen, odd > 0, -abs(odd - 2), len(keys)), name, keys))
    _, name, keys = max(found)
    return name, keys


def _say(line: Line, annotator: str, classes: Mapping[str, int | None]) -> None:
    """Answers by the key of the image; None is a skip."""
    said = [
        {"key": f"{annotator[0]}-{image}", "image": image, "kind": "skip" if number is None else "label",
         "class_id": number, "seconds": 3.0}
        for image, number in classes.items()
    ]  # fmt: skip
    told = line.post("/api/answers", annotator=annotator, answers=said)["results"] if said else []
    for one in told:
        if not one["saved"]:
            raise SaidNo(200, one["error"]["code"], one["error"]["message"])
