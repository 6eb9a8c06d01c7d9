"""Near-duplicates: groups of images that look alike by a perceptual hash and by their features, labelled once for all.

Exact copies are known from their bytes and are never asked about; here they only show where their labels differ. Close
hashes are found by their 16-bit parts: of two hashes that differ in at most 7 of 64 bits, one of the four parts differs
in at most one bit. Crops and turned images change more bits, but hardly their features: pairs with very close features
are found by comparing each with each along a few axes. Features are the simple ones whatever the backbone: those of a
net differ too much between an image and its JPEG.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..errors import BadFile, BadInput, MissingExtra
from ..files import read_regular, write_whole
from ..learners.features import Features
from ..pools.pool import InputArray
from ..types import BoolArray, FloatArray, IntArray, Progress, no_progress
from .features import SIMPLE, Extractor, embed, main_axes
from .ledger import HasLedger, Ledger, ledger_of

FOLDER, DUPLICATES_FILE = "review", "duplicates.json"  # where the pairs are kept
HASH = "phash-1"  # the folder of the hashes; another way to make them, another name
SIDE = 64  # pixels of the images that are hashed
WORDS = 4  # parts of a hash
BITS = 16  # of a part
MOST_BITS = 7  # in which near-duplicates may differ: with a probe of one bit per part, no closer pair is missed
# Half the size, more contrast or a strong JPEG left the cosine of simple features above 0.95 in nine of ten photos;
# different photos with close hashes were below in most cases.
LEAST_COSINE = 0.95
# Of 300 photos cropped by 10 %, 84 % pass both limits; 55 pairs of CIFAR-10's 10,000 test images do, and the 40 of them
# with farther hashes are near-duplicates to the eye (benchmarks/quality/near_duplicates.py).
CLOSE_COSINE = 0.98  # of features, from which on hashes may differ in more bits
CLOSE_BITS = 20
CROWD = 2000  # images with one part in common, above which each is compared with its neighbours alone
NEIGHBOURS = 50
BLOCK = 1 << 21  # pairs that are looked at together

Hashes = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class DuplicateImage:
    """One image of a group."""

    image: int  # its id
    key: str
    path: str
    label: str | None  # the name of its class; None where it has no decided label
    class_id: int | None
    outcome: str | None  # "agreed", "settled", "other", "skipped" or "conflict"; None: unanswered


@dataclass(frozen=True, slots=True)
class DuplicateGroup:
    """Images that look alike, by id."""

    images: tuple[DuplicateImage, ...]

    @property
    def labels(self) -> tuple[str, ...]:
        """The classes that its images are labelled as, each once, in their order of appearance."""
        return tuple(dict.fromkeys(one.label for one in self.images if one.label is not None))

    @property
    def disagree(self) -> bool:
        """Whether its images are labelled as different things."""
        other = any(one.outcome == "other" for one in self.images)
        return len(self.labels) + other > 1

    @property
    def unlabelled(self) -> int:
        """How many of its images have no decided label."""
        return sum(one.label is None and one.outcome != "other" for one in self.images)


def find_duplicates(campaign: HasLedger | Ledger, *, report: Progress = no_progress) -> list[DuplicateGroup]:
    """All groups: first those whose labels differ, then those that are labelled in part, then the largest."""
    ledger = ledger_of(campaign)
    key, kept = duplicates_key(ledger), kept_edges(ledger)
    if kept is None or kept[0] != key:
        kept = key, _edges(ledger, report)
        if not ledger.read_only:
            (ledger.files / FOLDER).mkdir(parents=True, exist_ok=True)
            facts = {"key": key, "edges": kept[1].tolist()}
            write_whole(ledger.files / FOLDER / DUPLICATES_FILE, json.dumps(facts).encode())
    return duplicate_groups(ledger, kept[1])


def duplicates_key(ledger: Ledger) -> str:
    """Changes with the images and the limits."""
    usable = "trouble IS NULL AND duplicate_of IS NULL"
    count, first, last, size = ledger.read(
        f"SELECT count(*), min(id), max(id), sum(bytes) FROM image WHERE {usable}"
    )[0]  # fmt: skip
    limits = f"{MOST_BITS} {LEAST_COSINE} {CLOSE_BITS} {CLOSE_COSINE}"
    return f"{HASH} {limits} {SIMPLE} {count} {first} {last} {size}"


def kept_edges(ledger: Ledger) -> tuple[str, IntArray] | None:
    """The pairs that were found last, by id, with their key; None where nothing is kept, or it cannot be read."""
    try:
        facts = json.loads(read_regular(ledger.files / FOLDER / DUPLICATES_FILE))
        return str(facts["key"]), np.array(facts["edges"], dtype=np.int64).reshape(-1, 2)
    except (OSError, BadFile, ValueError, KeyError, TypeError):
        return None


def _edges(ledger: Ledger, report: Progress) -> IntArray:
    """Pairs of images that look alike by their hashes and by their features, (p, 2) ids."""
    extractor = hash_extractor()

    def hashing(share: float, what: str) -> None:
        report(0.5 * share, what)

    def embedding(share: float, what: str) -> None:
        report(0.5 + 0.5 * share, what)

    hashed = embed(ledger, backbone=extractor, report=hashing)
    found = embed(ledger, backbone=SIMPLE, report=embedding)
    report(1.0, "comparing the images")
    rows, there = found.rows(hashed.ids)
    ids, features, hashes = hashed.ids[there], found.features[rows[there]], as_hashes(hashed.features)[there]
    pairs = close_pairs(hashes)
    both = np.concatenate([pairs[are_alike(features, pairs)], close_features(features, hashes)])
    edges: IntArray = ids[np.unique(both, axis=0)]
    return edges


def hash_extractor() -> Extractor:
    """Makes perceptual hashes, kept like features: by the bytes of the image, in `features/phash-1`."""
    try:
        import imagehash
    except ImportError as error:
        raise MissingExtra.named("finding near-duplicates", "imagehash", "review") from error
    from PIL import Image

    def hashes(images: InputArray) -> Features:
        """The four 16-bit parts of each hash, (m, 4); each is a whole number that float32 holds exactly."""
        bits = np.stack([imagehash.phash(Image.fromarray(one)).hash.ravel() for one in images])  # (m, 64)
        words = np.packbits(bits, axis=1).view(">u2")
        return words.astype(np.float32)

    return Extractor("perceptual hash", HASH, SIDE, hashes)


def as_hashes(words: FloatArray) -> Hashes:
    """Hashes (n,) from their parts (n, 4), the first of them highest.

    >>> as_hashes(np.array([[0, 0, 1, 2]], np.float32)).tolist()
    [65538]
    """
    parts = words.reshape(-1, WORDS).astype(np.uint64)
    shifts = np.arange(WORDS - 1, -1, -1, dtype=np.uint64) * np.uint64(BITS)
    hashes: Hashes = np.bitwise_or.reduce(parts << shifts, axis=1)
    return hashes


def close_pairs(hashes: Hashes, most_bits: int = MOST_BITS) -> IntArray:
    """Pairs (p, 2) of places whose hashes differ in at most so many bits; the lower first, ascending.

    All of them for up to 7 bits, unless more than 2,000 images share a part of their hash.

    >>> close_pairs(np.array([0b1000, 1 << 40, 0b1001], np.uint64), 1).tolist()
    [[0, 2]]
    """
    if not 0 <= most_bits <= MOST_BITS:
        raise BadInput(f"most_bits is {most_bits}; it must be a whole number from 0 to {MOST_BITS}")
    size = len(hashes)
    found = [np.empty(0, dtype=np.int64)]
    for band in range(WORDS):
        words = (hashes >> np.uint64(BITS * band)) & np.uint64((1 << BITS) - 1)
        order = np.lexsort((np.arange(size), hashes, words))
        values, starts, counts = np.unique(words[order], return_index=True, return_counts=True)
        for left, right in _candidates(values, starts.astype(np.int64), counts.astype(np.int64)):
            one, two = order[left], order[right]
            close = np.bitwise_count(hashes[one] ^ hashes[two]) <= most_bits
            one, two = one[close], two[close]
            found.append(np.minimum(one, two) * size + np.maximum(one, two))
    both = np.unique(np.concatenate(found))
    return np.stack([both // max(size, 1), both % max(size, 1)], axis=1)


def _candidates(values: Hashes, starts: IntArray, counts: IntArray) -> Iterator[tuple[IntArray, IntArray]]:
    """Places in the sorted order whose parts are equal, or differ in one bit; in blocks."""
    crowded = counts > CROWD
    for start, count in zip(starts[crowded].tolist(), counts[crowded].tolist(), strict=True):
        for step in range(1, NEIGHBOURS + 1):
            left = np.arange(start, start + count - step)
            yield left, left + step
    for left, right in _products(starts, counts, starts, counts, ~crowded):
        ahead = left < right
        yield left[ahead], right[ahead]
    for bit in range(BITS):
        mask = np.uint64(1 << bit)
        low = np.flatnonzero((values & mask) == 0)
        at = np.minimum(np.searchsorted(values, values[low] | mask), len(values) - 1)
        there = values[at] == values[low] | mask
        low, high = low[there], at[there]
        few = counts[low] * counts[high] <= CROWD**2
        yield from _products(starts[low], counts[low], starts[high], counts[high], few)


def _products(
    first: IntArray, firsts: IntArray, second: IntArray, seconds: IntArray, wanted: BoolArray
) -> Iterator[tuple[IntArray, IntArray]]:
    """All pairs of two runs of places, for many pairs of runs, each given by its start and its length."""
    first, firsts, second, seconds = first[wanted], firsts[wanted], second[wanted], seconds[wanted]
    sizes = firsts * seconds
    ends = np.cumsum(sizes)
    at = 0
    while at < len(sizes):
        before = ends[at] - sizes[at]
        end = max(int(np.searchsorted(ends, before + BLOCK, side="right")), at + 1)
        run = np.repeat(np.arange(at, end), sizes[at:end])
        inside = np.arange(len(run)) - (ends - sizes - before)[run]
        yield first[run] + inside // seconds[run], second[run] + inside % seconds[run]
        at = end


def are_alike(features: FloatArray, pairs: IntArray, least: float = LEAST_COSINE) -> BoolArray:
    """Whether the cosine of the features of each pair (p, 2) of rows is high enough, (p,)."""
    lengths = np.maximum(np.linalg.norm(features, axis=1), 1e-12)
    alike = np.empty(len(pairs), dtype=bool)
    block = max(1, BLOCK // max(features.shape[1], 1))
    for start in range(0, len(pairs), block):
        one, two = pairs[start : start + block].T
        cosine = np.einsum("nd,nd->n", features[one], features[two]) / (lengths[one] * lengths[two])
        alike[start : start + block] = cosine >= least
    return alike


def close_features(features: FloatArray, hashes: Hashes) -> IntArray:
    """Pairs (p, 2) of rows with very close features whose hashes are not far apart; the lower first.

    Lengths can only shrink along some of the axes, so no pair is missed for comparing rows along 64 of them first. Each
    row is paired with at most 50 later ones.
    """
    lengths = np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-12)
    short, _ = main_axes((features / lengths).astype(np.float32), features[:0])
    half = (short**2).sum(axis=1, keepdims=True) / 2
    ones = np.ones_like(half)
    left, right = np.hstack([short, -half, ones]), np.hstack([short, ones, -half])  # left · right = −distance² / 2
    least = CLOSE_COSINE - 1 - 1e-4  # what rounding may cost
    found = [np.empty((0, 2), dtype=np.int64)]
    step = max(1, 4 * BLOCK // max(len(features), 1))
    for start in range(0, len(features), step):
        one, two = np.nonzero(left[start : start + step] @ right[start:].T >= least)
        near = (one < two) & (np.bitwise_count(hashes[start + one] ^ hashes[start + two]) <= CLOSE_BITS)
        one, two = one[near], two[near]
        place = np.arange(len(one)) - np.searchsorted(one, one)  # of a pair among those of its row
        found.append(start + np.stack([one, two], axis=1)[place < NEIGHBOURS])
    pairs = np.concatenate(found)
    alike: IntArray = pairs[are_alike(features, pairs, CLOSE_COSINE)]
    return alike


def _labelled_copies(ledger: Ledger) -> IntArray:
    """Exact copies that have answers of their own, with their originals, (p, 2)."""
    rows = ledger.read(
        "SELECT duplicate_of, id FROM image WHERE duplicate_of IS NOT NULL AND trouble IS NULL "
        "AND id IN (SELECT image_id FROM answer)"
    )
    return np.array([tuple(row) for row in rows], dtype=np.int64).reshape(-1, 2)


def duplicate_groups(ledger: Ledger, edges: IntArray) -> list[DuplicateGroup]:
    """Groups of images that are connected by pairs (p, 2) of ids, with their labels now."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    edges = np.concatenate([edges, _labelled_copies(ledger)])
    if not len(edges):
        return []
    ids, places = np.unique(edges, return_inverse=True)
    one, two = places.reshape(-1, 2).T
    graph = coo_array((np.ones(len(one), dtype=np.int8), (one, two)), shape=(len(ids), len(ids)))
    _, group_of = connected_components(graph, directed=False)
    rows = {one.image: one for one in _images(ledger, ids.tolist())}
    members: dict[int, list[DuplicateImage]] = {}
    for number, group in zip(ids.tolist(), group_of.tolist(), strict=True):
        if number in rows:
            members.setdefault(group, []).append(rows[number])
    groups = [DuplicateGroup(tuple(images)) for images in members.values() if len(images) > 1]
    return sorted(groups, key=_rank)


def _rank(group: DuplicateGroup) -> tuple[bool, bool, int, int]:
    partly = 0 < group.unlabelled < len(group.images)
    return not group.disagree, not partly, -len(group.images), group.images[0].image


def _images(ledger: Ledger, ids: Sequence[int]) -> list[DuplicateImage]:
    rows = ledger.read(
        "SELECT i.id, i.key, i.path, c.name, v.class_id, v.outcome FROM image AS i "
        "LEFT JOIN verdict AS v ON v.image_id = i.id LEFT JOIN class AS c ON c.id = v.class_id "
        "WHERE i.trouble IS NULL AND i.id IN (SELECT value FROM json_each(?)) ORDER BY i.id",
        (json.dumps(list(ids)),),
    )
    return [DuplicateImage(*row) for row in rows]
