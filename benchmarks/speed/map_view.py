"""The map with 100,000 images in Chromium without a graphics card: how long points take to arrive, a frame, a hover.

The ledger has 100,000 images whose files do not exist, and a map that was made up: only the page and its
server are measured.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .measured import Measured, Row, Run, Sheet

NAME = "map"
IMAGES = 100_000
CLASSES = 44  # the groups of the map, too
LABELS = 5_000
FRAME = 1000 / 30  # ms
HOVER = 16  # ms
BYTES = 2_000_000
FRAMES = """
const done = arguments[arguments.length - 1];
const stage = document.querySelector('.map-stage');
const { left, top } = stage.getBoundingClientRect();
const say = (type, x, y, more = {}) => stage.dispatchEvent(new PointerEvent(type, {
  pointerId: 1, button: 0, clientX: left + x, clientY: top + y, bubbles: true, ...more }));
stage.setPointerCapture = () => {};
say('pointerdown', 300, 300);
const times = [];
let count = 0;
function frame(now) {
  times.push(now);
  count += 1;
  if (count > arguments_count) {
    say('pointerup', 300, 300);
    return done(times.slice(1).map((one, at) => one - times[at]));
  }
  if (count % 2) say('pointermove', 300 + 40 * Math.sin(count / 5), 300 + 40 * Math.cos(count / 7));
  else stage.dispatchEvent(new WheelEvent('wheel', {
    deltaY: 60 * Math.sin(count / 9), clientX: left + 400, clientY: top + 300, cancelable: true }));
  requestAnimationFrame(frame);
}
const arguments_count = arguments[0];
requestAnimationFrame(frame);
"""
WORK = """
const [repeats, done] = [arguments[0], arguments[arguments.length - 1]];
(async () => {
  const [{ readPoints, makeIndex, nearest }, { makeCanvas, drawOrder, wholeMap, radiusOf }, { colouring }] =
    await Promise.all(['map_points', 'map_canvas', 'map_colours'].map((name) => import(`/static/js/${name}.js`)));
  const bytes = await (await fetch('/api/map/points')).arrayBuffer();
  const timed = (count, work) => Array.from({ length: count }, (_, at) => {
    const began = performance.now();
    work(at);
    return performance.now() - began;
  });
  let points, index;
  const parse = timed(repeats, () => { points = readPoints(bytes); index = makeIndex(points); });
  const { clientWidth: width, clientHeight: height } = document.querySelector('.map-stage');
  const painter = makeCanvas(document.createElement('canvas'));
  painter.resize(width, height);
  const { category, entries } = colouring(points, 'class', 'light', String);
  const hidden = new Uint8Array(points.count);
  const { x, y } = points;
  const colours = entries.map((one) => one.colour);
  const scene = { x, y, order: drawOrder(category, 1, null), category, colours, hidden, chosen: null };
  const camera = wholeMap(width, height);
  const radius = radiusOf(points.count, 1);
  const paint = timed(repeats, (at) => painter.draw(scene, { ...camera, x: camera.x + at % 9 }, radius));
  const hover = timed(20 * repeats, () =>
    nearest(points, index, Math.random(), Math.random(), 14 / camera.scale, hidden));
  return { parse, paint, hover, width, height };
})().then(done);
"""


def make_campaign(folder: Path) -> None:
    """A ledger with images, labels and a map."""
    from tailwise.campaign.answers import Answer, record
    from tailwise.campaign.features import SIMPLE
    from tailwise.campaign.projection import fit_map, map_file, replace, write_map
    from tailwise.campaign.service import Campaign

    (folder / "photos").mkdir()
    rng = np.random.default_rng(0)
    kinds = rng.integers(0, CLASSES, IMAGES)
    middles = rng.uniform(0.05, 0.95, (CLASSES, 2))
    xy = np.clip(middles[kinds] + rng.normal(0, 0.03, (IMAGES, 2)), 0, 1).astype(np.float32)
    digests = [hashlib.sha256(str(number).encode()).hexdigest() for number in range(IMAGES)]
    names = [f"class {number}" for number in range(CLASSES)]
    with Campaign.create(folder / "campaign", folder / "photos", names, backbone=SIMPLE) as campaign:
        with campaign.ledger.writing() as connection:
            connection.execute("INSERT OR IGNORE INTO folder (id, path) VALUES (1, ?)", (str(folder / "photos"),))
            connection.executemany(
                "INSERT INTO image (key, folder_id, path, sha256, width, height, added_at) "
                "VALUES (?, 1, ?, ?, 64, 64, 1)",
                [(digest[-16:], f"{number:06}.png", digest) for number, digest in enumerate(digests)],
            )
        answers = [
            Answer(f"label-{number:06}", number + 1, "ann", "label", int(kinds[number]) + 1, None, None, None, "api")
            for number in range(LABELS)
        ]
        record(campaign.ledger, answers)
        keys = np.frombuffer(bytes.fromhex("".join(digest[:32] for digest in digests)), dtype="V16")
        empty = fit_map(rng.normal(size=(10, 4)).astype(np.float32), "pca")
        fitted = replace(empty, backbone=SIMPLE, cache="simple-1", keys=keys, xy=xy)
        write_map(map_file(campaign.ledger, "pca", SIMPLE), fitted)


def measure(run: Run) -> Iterator[Measured]:
    """The server alone, then the page."""
    from benchmarks.screens.browser import browsing
    from tailwise.web.serve import Options, running

    sheet = Sheet(NAME, f"{IMAGES:,} images, {CLASSES} classes, {LABELS:,} labels")
    repeats = 15 if run.quick else 60
    with tempfile.TemporaryDirectory() as home:
        make_campaign(Path(home))
        with running(Path(home) / "campaign", Options(port=0)) as serving:
            yield from measure_points(sheet, serving.url, serving.token or "", 5 if run.quick else 15)
            with browsing(serving.link) as page:
                yield from measure_page(sheet, page, repeats)


def measure_points(sheet: Sheet, url: str, token: str, repeats: int) -> Iterator[Measured]:
    """How long all points take from the server to a program on the same machine."""
    seconds, size = [], 0
    for _ in range(repeats):
        began = time.perf_counter()
        request = urllib.request.Request(f"{url.rstrip('/')}/api/map/points", headers={"X-Tailwise-Token": token})
        with urllib.request.urlopen(request, timeout=60) as answer:
            size = len(answer.read())
        seconds.append(time.perf_counter() - began)
    yield sheet.at_most("bytes of all points", size, BYTES)
    yield from spread(sheet, "points from the server: ms", [1000 * one for one in seconds])


def measure_page(sheet: Sheet, page: Any, repeats: int) -> Iterator[Measured]:  # noqa: ANN401 - of benchmarks.screens
    """From the key to the first paint, then frames while somebody drags and turns the wheel."""
    page.open("Ann", "label")
    began = time.perf_counter()
    page.run("location.hash = 'map'")
    page.until(lambda: page.run("return document.querySelector('.map-canvas')?.dataset.camera"), "the map")
    yield sheet.tell("from the tab to the first paint: ms", 1000 * (time.perf_counter() - began), "asked every 50 ms")
    page._driver.set_script_timeout(300)
    frames = page._driver.execute_async_script(FRAMES, 3 * repeats)
    yield from spread(sheet, "from frame to frame while moving: ms", frames, FRAME)
    found = page._driver.execute_async_script(WORK, repeats)
    area = f"{found['width']} × {found['height']} pixels"
    yield from spread(sheet, "reading and indexing the points: ms", found["parse"])
    yield from spread(sheet, "painting all points: ms", found["paint"], note=area)
    yield sheet.at_most("painting all points: ms, fastest", min(found["paint"]), FRAME, "least disturbed by other load")
    yield from spread(sheet, "the image under the pointer: ms", found["hover"], HOVER)


def spread(
    sheet: Sheet, quantity: str, values: list[float], limit: float | None = None, note: str = ""
) -> Iterator[Measured]:
    """Half of the values and 95 % of them; the promise is about the latter."""
    half, most = (float(np.quantile(values, share)) for share in (0.5, 0.95))
    yield sheet.tell(f"{quantity}, p50", half, note)
    name = f"{quantity}, p95"
    yield sheet.tell(name, most, note) if limit is None else sheet.at_most(name, most, limit, note)


PROMISE = f"{IMAGES:,} points move at 30 frames a second without a graphics card, and are less than 2 MB"
ROW = Row(NAME, PROMISE, measure)


def main() -> None:
    """This row alone, as `python -m benchmarks.speed --only map` measures it."""
    from . import __main__ as speed

    sys.argv[1:1] = ["--only", NAME, "--no-peers"]
    speed.main()


if __name__ == "__main__":
    main()
