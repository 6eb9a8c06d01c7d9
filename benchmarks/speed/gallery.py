"""The gallery and the search over 100,000 images: a real server and a real browser, a campaign made by direct inserts.

The images have no files: what is measured is everything but their pixels. Times on the clock hold whatever else the
machine does; processor time is that of the server alone.
"""

from __future__ import annotations

import http.client
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .labelling import served
from .measured import Measured, Row, Run, Sheet

NAME = "gallery"
IMAGES, WIDTH, CLASSES, LABELS, PEOPLE = 100_000, 512, 44, 5_000, 4
PAGE_LIMIT, SEARCH_LIMIT, CHANGE_LIMIT = 100.0, 200.0, 3_000.0  # ms of the server's processor
PAINT_LIMIT = 1_000.0  # ms on the clock, in the browser
REPEATS, QUICK_REPEATS = 40, 10
OPENINGS, QUICK_OPENINGS = 9, 3
FIRST_PAINT = """
const done = arguments[arguments.length - 1];
const began = performance.now();
location.hash = 'gallery';
const drawn = () => document.querySelectorAll('#gallery .gtile[data-key]').length;
const look = () => requestAnimationFrame(() => (drawn()
  ? setTimeout(() => done([performance.now() - began, drawn()])) : look())); // the timer runs when the frame is painted
look();
"""


def measure(run: Run) -> Iterator[Measured]:
    """First page, filters and orders, likeness, hunt, and a change of 1,000 images."""
    images = 20_000 if run.quick else IMAGES
    repeats = QUICK_REPEATS if run.quick else REPEATS
    sheet = Sheet(NAME, f"{images:,} images")
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home) / "campaign"
        make_campaign(folder, images)
        yield from in_process(sheet, folder, repeats)
        with served(folder) as (port, token):
            yield from over_http(sheet, port, token, repeats)
            yield from in_browser(
                sheet, f"http://127.0.0.1:{port}/?token={token}", QUICK_OPENINGS if run.quick else OPENINGS
            )


def make_campaign(folder: Path, images: int) -> None:
    """Images, labels, a round, a model's predictions and features, all without a file of an image."""
    from tailwise.campaign.answers import Answer, record
    from tailwise.campaign.models import Predicted
    from tailwise.campaign.predictions import keep_predictions
    from tailwise.campaign.rounds import ModelRow, Pick, open_round
    from tailwise.campaign.search import FeatureIndex, _keep, images_digest
    from tailwise.campaign.service import Campaign

    rng = np.random.default_rng(0)
    photos = folder.parent / "photos"
    photos.mkdir()
    with Campaign.create(
        folder, photos, [f"class {number}" for number in range(CLASSES)], backbone="simple"
    ) as campaign:
        ledger = campaign.ledger
        with ledger.writing() as connection:
            connection.executemany(
                "INSERT INTO image (key, folder_id, path, sha256, bytes, width, height, orientation, added_at) "
                "VALUES (?, 1, ?, ?, 9, 640, 480, 1, 0)",
                [(f"{n:016x}", f"{n % 97:02}/{n:06}.jpg", f"{n:064x}") for n in range(1, images + 1)],
            )
        ids = np.arange(1, images + 1)
        logits = 3 * rng.normal(size=(images, CLASSES)).astype(np.float32)
        proba = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        class_ids = tuple(one.id for one in campaign.classes())
        model = ModelRow(
            "round-1-speed", "linear", {"backbone": "simple"}, LABELS, class_ids, {"counts": [9] * CLASSES}
        )
        target = {"class_ids": list(class_ids), "counts": [0] * CLASSES, "target": [200.0] * CLASSES}
        open_round(ledger, [Pick(int(n)) for n in ids[:1000]], budget=1000, strategy="random", model=model, why=target)
        keep_predictions(ledger, Predicted(model.version, class_ids, ids, proba))
        labelled = rng.choice(ids, min(LABELS, images // 4), replace=False).tolist()
        record(ledger, [
            Answer(f"speed-{n:08}", n, f"person {n % PEOPLE}", "label", class_ids[n % CLASSES]) for n in labelled
        ])  # fmt: skip
        rows = rng.normal(size=(images, WIDTH)).astype(np.float32)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        _keep(ledger, FeatureIndex(ids, rows, "simple", images_digest(ledger)))


def in_process(sheet: Sheet, folder: Path, repeats: int) -> Iterator[Measured]:
    """What the library itself needs."""
    from tailwise.campaign.gallery import GalleryFilter, GalleryOrder, describe_images, gallery_page
    from tailwise.campaign.search import more_like
    from tailwise.campaign.service import Campaign

    with Campaign.open(folder, read_only=True) as campaign:
        ledger = campaign.ledger
        started = time.process_time()
        gallery_page(ledger, GalleryFilter(), GalleryOrder("confidence"))
        yield sheet.tell("first page after a start, library: ms of processor", 1000 * (time.process_time() - started))

        def page(asked: GalleryFilter, order: GalleryOrder) -> None:
            describe_images(ledger, gallery_page(ledger, asked, order).ids.tolist())

        works: dict[str, tuple[Callable[[], Any], float]] = {
            "first page by file name": (lambda: page(GalleryFilter(), GalleryOrder()), PAGE_LIMIT),
            "filter by guess and confidence, hardest first": (
                lambda: page(GalleryFilter(("unlabelled",), guesses=(3,), most=0.6), GalleryOrder("uncertainty")),
                PAGE_LIMIT,
            ),
            "filter by annotator and class, latest first": (
                lambda: page(GalleryFilter(classes=(1, 2), annotator="person 1"), GalleryOrder("time")), PAGE_LIMIT
            ),
            "50 images like 3": (lambda: more_like(ledger, [5, 77, 4242], 50, make=False), SEARCH_LIMIT),
        }  # fmt: skip
        for name, (work, limit) in works.items():
            yield from timed(sheet, f"{name}, library", work, limit, repeats)


def timed(sheet: Sheet, name: str, work: Callable[[], Any], limit: float, repeats: int) -> Iterator[Measured]:
    """p50 and p95 on the clock, and p95 of the processor, which is promised."""
    work()
    wall, processor = [], []
    for _ in range(repeats):
        before, used = time.perf_counter(), time.process_time()
        work()
        wall.append(1000 * (time.perf_counter() - before))
        processor.append(1000 * (time.process_time() - used))
    yield sheet.tell(f"{name}: p50 ms", float(np.quantile(wall, 0.5)))
    yield sheet.tell(f"{name}: p95 ms", float(np.quantile(wall, 0.95)))
    yield sheet.at_most(f"{name}: p95 ms of processor", float(np.quantile(processor, 0.95)), limit)


def over_http(sheet: Sheet, port: int, token: str, repeats: int) -> Iterator[Measured]:
    """What a page waits for, JSON included."""
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def ask(path: str, **body: Any) -> Any:  # noqa: ANN401 - whatever JSON has
        headers = {"X-Tailwise-Token": token, "Content-Type": "application/json"}
        line.request("POST", path, json.dumps(body), headers)
        answer = line.getresponse()
        content = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{path}: {answer.status} {content!r}")
        return json.loads(content)

    started = time.perf_counter()
    first = ask("/api/gallery", count=200)
    yield sheet.tell("first page after a start of the server: ms", 1000 * (time.perf_counter() - started))
    keys = [tile["key"] for tile in first["tiles"]]
    works: dict[str, Callable[[], Any]] = {
        "first page": lambda: ask("/api/gallery", count=200),
        "page in the middle": lambda: ask("/api/gallery", offset=9_000, count=200, snapshot=first["snapshot"]),
        "filter": lambda: ask("/api/gallery", states=["unlabelled"], guesses=[2], sort="confidence", count=200),
        "similarity": lambda: ask("/api/find/similar", images=keys[:3], count=50),
        "hunt": lambda: ask("/api/hunt", class_id=2),
    }
    for name, work in works.items():
        work()
        wall = []
        for _ in range(repeats):
            before = time.perf_counter()
            work()
            wall.append(1000 * (time.perf_counter() - before))
        yield sheet.tell(f"{name}, over HTTP: p50 ms", float(np.quantile(wall, 0.5)))
        yield sheet.tell(f"{name}, over HTTP: p95 ms", float(np.quantile(wall, 0.95)))
    many = ask("/api/gallery/keys", states=["unlabelled"])["keys"][:1000]
    before = time.perf_counter()
    ask("/api/gallery/relabel", annotator="ann", batch="g-speed-0001", images=many, class_id=2)
    wait = 1000 * (time.perf_counter() - before)
    yield sheet.at_most("1,000 images labelled at once, on the disk: ms", wait, CHANGE_LIMIT)
    line.close()


def in_browser(sheet: Sheet, link: str, repeats: int) -> Iterator[Measured]:
    """From the tab to the frame in which tiles are painted; each time in a page that is loaded anew."""
    from benchmarks.screens.browser import browsing

    times, tiles = [], 0
    with browsing(link) as page:
        for _ in range(repeats):
            page.open("Ann", "label")
            taken, tiles = page.wait_for(FIRST_PAINT)
            times.append(float(taken))
    note = f"{tiles} tiles without their images"
    yield sheet.tell("from the tab to the first paint, in Chromium: p50 ms", float(np.quantile(times, 0.5)), note)
    yield sheet.at_most("from the tab to the first paint, in Chromium: longest ms", max(times), PAINT_LIMIT, note)


PROMISE = (
    f"of {IMAGES:,} images, a filtered and sorted page takes at most {PAGE_LIMIT:g} ms of processor, and a search for "
    f"neighbours in {WIDTH} numbers each {SEARCH_LIMIT:g} ms; the browser shows the first tiles within 1 s"
)
ROW = Row(NAME, PROMISE, measure)
