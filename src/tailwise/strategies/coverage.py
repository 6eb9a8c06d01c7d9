"""How well labelled and picked images represent a pool, and picking those that represent it best (herding).

    F(S) = Σ_n w_n · max over j in L ∪ S of k(n, j),   k(n, j) = exp(−‖x_n − x_j‖² / s²),   Σ w = 1,  rows x of length 1

F is monotone and submodular: what an image adds only falls as others are picked. So a stale gain is an upper bound, and
lazy evaluation is exact. With balance, a pick weighs its gain against what it adds to λ·‖Ω − Pᵀz‖₁, which only rises,
so it stays exact. Embeddings in, picks out; `coverage_bound` says what any batch can reach.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..matrix.blocks import map_blocks, rows_per_block
from ..processes import one_blas_thread
from ..types import Float64Array, FloatArray, IntArray, Matrix
from .strategy import Imbalance

REFERENCES = 1_500  # images that stand for the pool; more did not change what was learnt from the picks
BLOCK_ROWS = 512  # rows whose similarities are computed together: the same sums, whatever the number of threads
CHECKED_AT_ONCE = 32  # stale gains that are computed anew together
CHARGED_AT_ONCE = 256  # stale costs of balance that are; twice as many each time that this settles nothing
UNIT = 2.0**-22  # about what rounding in float32 may change in a squared distance of rows of length 1
TILE = 2_048  # references whose similarities to a block of rows are computed together, so that they stay in the cache
MOST_KEPT = 1 << 26  # similarities that may be kept, 8 bytes each
DENSEST_KEPT = 1 / 8  # where more of them would have to be kept, computing them anew is quicker
WIDTH_ROWS = 20_000  # of more images, every second, third or so sets the width
ONE = np.float32(1)
Float32Array = NDArray[np.float32]


def unit_rows(rows: FloatArray) -> Float32Array:
    """Rows of length 1, in float32; a row of zeros stays so.

    >>> unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """
    units = np.empty(rows.shape, np.float32)
    for start in range(0, len(rows), BLOCK_ROWS):  # a copy of all in float64 would be larger than the rows
        wide = np.asarray(rows[start : start + BLOCK_ROWS], dtype=np.float64)
        lengths = np.sqrt(np.einsum("ij,ij->i", wide, wide))[:, None]
        units[start : start + BLOCK_ROWS] = np.divide(wide, lengths, out=np.zeros_like(wide), where=lengths > 0)
    return units


def first_copies(pool: Matrix) -> IntArray:
    """For each row the first row that is equal to it, (N,): its own number if it is the first.

    Rows are compared by 64 bits computed from all of their numbers.

    >>> first_copies(np.array([[1.0, 2.0], [2.0, 1.0], [1.0, 2.0]])).tolist()
    [0, 1, 0]
    """
    factors = np.random.default_rng(0).integers(1, 1 << 63, pool.shape[1], dtype=np.uint64) * 2 + 1

    def digest(where: slice) -> NDArray[np.uint64]:
        bits = (np.asarray(pool[where], dtype=np.float64) + 0.0).view(np.uint64)  # + 0: the two zeros are equal
        bits = (bits ^ (bits >> np.uint64(32))) * factors  # low bits of a float are often 0: mix before they add up
        bits ^= bits >> np.uint64(29)
        digests: NDArray[np.uint64] = bits.sum(axis=1, dtype=np.uint64)
        return digests

    parts = map_blocks(pool.shape[0], BLOCK_ROWS, digest)
    _, first, same = np.unique(np.concatenate([np.empty(0, np.uint64), *parts]), return_index=True, return_inverse=True)
    return first[same].astype(np.int64, copy=False)


def squared_distances(rows: Float32Array, others: Float32Array) -> Float32Array:
    """‖x_i − y_j‖² of rows of length 1 (or 0), (m, n), never below 0."""
    result: Float32Array = rows @ others.T
    result *= -2
    result += np.einsum("ij,ij->i", rows, rows)[:, None]
    result += np.einsum("ij,ij->i", others, others)
    return np.maximum(result, 0, out=result)


def nearest_distances(rows: Float32Array, step: int = 1) -> Float32Array:
    """Squared distance of each of two or more images, or of every `step`-th, to the nearest other one of all."""

    def nearest(where: slice) -> Float32Array:
        distances = squared_distances(rows[where][::step], rows)
        distances[np.arange(len(distances)), np.arange(where.start, where.stop, step)] = np.inf
        closest: Float32Array = distances.min(axis=1)
        return closest

    with one_blas_thread():
        return np.concatenate(map_blocks(len(rows), BLOCK_ROWS, nearest))


def kernel_width(rows: Float32Array, least: float = 1e-4, *, smallest: bool = False) -> float:
    """s²: the median (or smallest) squared distance of images to the nearest other; 1 where there are fewer than two.

    >>> kernel_width(unit_rows(np.array([[1.0, 0.0], [0.0, 1.0]])))
    2.0
    """
    if len(rows) < 2:
        return 1.0
    nearest = nearest_distances(rows, 1 if smallest else -(-len(rows) // WIDTH_ROWS))
    return max(float(nearest.min() if smallest else np.median(nearest)), least)


def sample_references(weights: Float64Array, count: int, rng: np.random.Generator) -> tuple[IntArray, Float64Array]:
    """Images drawn in proportion to their weights, and the weights that they stand for, summing to 1.

    Systematic sampling: an image that weighs more than 1/count of the whole is always drawn, and keeps its own weight.

    >>> rows, shares = sample_references(np.array([1.0, 0.0, 3.0]), 2, np.random.default_rng(0))
    >>> rows.tolist(), shares.tolist()
    ([0, 2], [0.25, 0.75])
    """
    total = float(weights.sum())
    weights = weights / total if total > 0 else np.full(len(weights), 1 / len(weights))
    positive = np.flatnonzero(weights)
    if len(positive) <= count:
        return positive, weights[positive]
    chance = inclusion_chances(weights, count)
    steps = rng.random() + np.arange(count)
    drawn = np.unique(np.minimum(np.searchsorted(np.cumsum(chance), steps, side="right"), len(weights) - 1))
    shares = weights[drawn] / chance[drawn]
    return drawn, shares / shares.sum()


def inclusion_chances(weights: Float64Array, count: int) -> Float64Array:
    """min(1, c·w) with c such that they sum to `count`, (n,): how likely each image is drawn."""
    heaviest = np.sort(weights)[::-1]
    rest = weights.sum() - np.concatenate([[0.0], np.cumsum(heaviest)[:-1]])  # without the i heaviest
    factors = (count - np.arange(len(weights))) / np.maximum(rest, 1e-300)
    certain = int(np.argmax(factors * heaviest <= 1))  # the fewest that must be drawn, so that no other exceeds 1
    chances: Float64Array = np.minimum(weights * factors[certain], 1.0)
    return chances


@dataclass(slots=True, eq=False)
class Coverage:
    """How well each reference is represented by what is labelled or picked; `Candidates.add_if` changes it."""

    references: Float32Array  # (R, d) rows of length 1
    weights: Float64Array  # (R,), summing to 1
    width: float  # s²
    covered: Float32Array  # (R,) the largest k so far; 0 where nothing is labelled

    @classmethod
    def of(cls, references: Float32Array, weights: Float64Array, labelled: Float32Array, width: float) -> Coverage:
        """Coverage by what is labelled, (L, d), rows of length 1."""
        coverage = cls(references, weights, width, np.zeros(len(references), np.float32))
        with one_blas_thread():
            for start in range(0, len(labelled), BLOCK_ROWS):
                similarities = coverage.similarities(labelled[start : start + BLOCK_ROWS])
                np.maximum(coverage.covered, similarities.max(axis=0, initial=0.0), out=coverage.covered)
        return coverage

    @property
    def value(self) -> float:
        """F of what is labelled and picked."""
        return float(self.weights @ self.covered)

    @property
    def rounding(self) -> float:
        """By which share a similarity may be wrong, as it is computed in float32."""
        return UNIT * (1 + 1 / self.width)

    def similarities(self, rows: Float32Array) -> Float32Array:
        """k(n, j) of rows (m, d) and references, (m, R)."""
        distances = squared_distances(rows, self.references)
        distances *= np.float32(-1 / self.width)
        return np.exp(distances, out=distances)

    def gains(self, rows: Float32Array) -> Float64Array:
        """By how much each row, alone, would raise F, (m,)."""
        with one_blas_thread():
            parts = map_blocks(len(rows), BLOCK_ROWS, lambda where: self._gains(rows[where]))
            return np.concatenate([np.empty(0), *parts])

    def gains_of(self, pool: Matrix, excess: float = 0.0) -> Float64Array:
        """The same for embeddings of any length, wherever they are, read block by block, (N,).

        With `excess` similarities count as larger by this share.
        """
        with one_blas_thread():
            parts = map_blocks(pool.shape[0], BLOCK_ROWS, lambda where: self._gains(unit_rows(pool[where]), excess))
            return np.concatenate([np.empty(0), *parts])

    def _gains(self, rows: Float32Array, excess: float = 0.0) -> Float64Array:
        more = self.similarities(rows)
        if excess:
            more *= np.float32(1 + excess)
        more -= self.covered
        gains: Float64Array = np.maximum(more, 0, out=more) @ self.weights
        return gains


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """Similarities of rows to the references that they represent better than anything labelled or picked so far."""

    stops: IntArray  # (m + 1,) where the references of each row end, the first from 0
    where: NDArray[np.int32]  # (n,) references, row after row
    similarities: Float32Array  # (n,)
    least: Float32Array  # (R,) what was covered then: smaller similarities are left out

    def of(self, row: int) -> tuple[NDArray[np.int32], Float32Array]:
        """References of a row, and how similar they are."""
        part = slice(self.stops[row], self.stops[row + 1])
        return self.where[part], self.similarities[part]

    def places(self, rows: IntArray) -> tuple[IntArray, IntArray]:
        """Where the similarities of some rows are, one row after the other, and the number of each of these rows."""
        counts = self.stops[rows + 1] - self.stops[rows]
        begins = self.stops[rows] - (np.cumsum(counts) - counts)
        return np.repeat(begins, counts) + np.arange(counts.sum()), np.repeat(np.arange(len(rows)), counts)


class Candidates:
    """Rows that may be picked, and what each would add to a coverage, asked again and again.

    Coverage only rises, so of a row's similarities only those above it matter, now and later. These are kept, if they
    are few: no product is computed twice. If they are not, they may be once as many gains have been asked for as there
    are rows.
    """

    def __init__(self, coverage: Coverage, rows: Float32Array, kept: Kept | None = None) -> None:
        self.coverage, self.rows, self.kept = coverage, rows, kept  # rows (m, d)
        self._asked = len(rows)

    def gains(self, some: IntArray) -> Float64Array:
        """By how much each of some rows, alone, would raise the coverage now."""
        self._asked += len(some)
        if self.kept is None and self._asked >= len(self.rows):
            self._asked, self.kept = 0, self.keep()
        if self.kept is None:
            return self.coverage.gains(self.rows[some])
        return self._kept_gains(self.kept, some, self.coverage.covered)

    def most_at(self, levels: Float32Array) -> Float64Array:
        """Σ w·max(0, k − level) of each row, at least, (m,)."""
        excess = self.coverage.rounding
        if self.kept is None or (levels < self.kept.least).any():
            return replace(self.coverage, covered=levels).gains_of(self.rows, excess)
        return self._kept_gains(self.kept, np.arange(len(self.rows)), levels, np.float32(1 + excess))

    def add_if(self, row: int, least: float) -> bool:
        """Count a row as picked if that raises the coverage by at least so much; whether it did."""
        where: slice | NDArray[np.int32] = slice(None)
        if self.kept is None:
            similarities: Float32Array = self.coverage.similarities(self.rows[row : row + 1])[0]
        else:
            where, similarities = self.kept.of(row)
        covered = self.coverage.covered[where]
        if np.maximum(similarities - covered, 0) @ self.coverage.weights[where] < least:
            return False
        self.coverage.covered[where] = np.maximum(covered, similarities)
        return True

    def _kept_gains(
        self, kept: Kept, some: IntArray, levels: Float32Array, factor: np.float32 = ONE
    ) -> Float64Array:  # fmt: skip
        def gains(part: slice) -> Float64Array:
            at, row = kept.places(some[part])
            where = kept.where[at]
            more = np.maximum(factor * kept.similarities[at] - levels[where], 0)
            sums = np.bincount(row, weights=more * self.coverage.weights[where], minlength=part.stop - part.start)
            return sums.astype(np.float64, copy=False)  # whole numbers where there is nothing to add

        return np.concatenate([np.empty(0), *map_blocks(len(some), 8 * BLOCK_ROWS, gains)])

    def keep(self) -> Kept | None:
        """Similarities above what is covered; None where a sample of the rows says that they are too many."""
        count = len(self.rows)
        with one_blas_thread():
            sample = np.linspace(0, count - 1, min(count, BLOCK_ROWS)).astype(np.int64)
            share = len(self._above(self.rows[sample])[1]) / max(1, len(sample) * len(self.coverage.covered))
            if share > DENSEST_KEPT or share * count * len(self.coverage.covered) > MOST_KEPT:
                return None
            blocks = map_blocks(count, BLOCK_ROWS, lambda where: self._above(self.rows[where]))
        counts, where, similarities = zip(*blocks, strict=True)
        stops = np.concatenate([[0], np.cumsum(np.concatenate(counts))])
        return Kept(stops, np.concatenate(where), np.concatenate(similarities), self.coverage.covered.copy())

    def _above(self, rows: Float32Array) -> tuple[IntArray, NDArray[np.int32], Float32Array]:
        """For a block of rows: how many references each represents better, which ones, and how similar they are."""
        coverage = self.coverage
        lengths = np.einsum("ij,ij->i", rows, rows)
        with np.errstate(divide="ignore"):
            # Squared distance at which a row represents as well, in float64: a width may be larger than float32 can be.
            reach = -coverage.width * np.log(coverage.covered.astype(np.float64))
        parts = []
        for start in range(0, len(coverage.references), TILE):
            others = coverage.references[start : start + TILE]
            their = np.einsum("ij,ij->i", others, others)
            products = rows @ others.T
            # −2·x·y + ‖x‖² + ‖y‖² < reach, and a little more than that, to be sure; products are between −1 and 1
            least = (lengths.min() + their - reach[start : start + TILE]) / 2 - 4 * (1 + coverage.width) * UNIT
            least = np.clip(least, -2, 2).astype(np.float32)
            row, other = np.divmod(np.flatnonzero(products > least), len(others))
            distances = products[row, other] * np.float32(-2) + lengths[row] + their[other]
            similar = np.exp(np.maximum(distances, 0) * np.float32(-1 / coverage.width))
            found = np.flatnonzero(similar * np.float32(1 + coverage.rounding) > coverage.covered[start + other])
            parts.append((row[found], (start + other[found]).astype(np.int32), similar[found]))
        row, where, similar = (np.concatenate(column) for column in zip(*parts, strict=True))
        order = np.argsort(row.astype(np.int16), kind="stable")
        return np.bincount(row, minlength=len(rows)), where[order], similar[order]


@dataclass(frozen=True, slots=True, eq=False)
class Herd:
    """A batch that was picked greedily, and what it reaches."""

    indices: IntArray  # (b,) in the order of picking
    gains: Float64Array  # (b,) by how much each raised F; without balance they never rise
    start: Float32Array  # (R,) what was covered without the batch
    before: float  # F without the batch
    value: float  # F with the batch
    candidates: Candidates  # with the batch


def herd(
    coverage: Coverage, rows: Float32Array, budget: int, imbalance: Imbalance | None = None, *, kept: Kept | None = None
) -> Herd:
    """Pick the row with the largest gain, less what it adds to the imbalance, again and again; ties by index.

    `coverage`, which is kept for the bound, and `imbalance` are changed; `kept` are the similarities that matter, if
    they are known.

    >>> rows = unit_rows(np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]))  # the first two are copies
    >>> herd(Coverage.of(rows, np.full(3, 1 / 3), rows[:0], width=1.0), rows, 2).indices.tolist()
    [0, 2]
    """
    start, before = coverage.covered.copy(), coverage.value
    picks, raised = np.empty(budget, dtype=np.int64), np.empty(budget)
    with one_blas_thread():
        candidates = Candidates(coverage, rows, kept)
        race = _Race(candidates, imbalance, candidates.gains(np.arange(len(rows))))
        for turn in range(budget):
            picks[turn] = best = race.best(turn)
            raised[turn] = race.gains[best]
            race.take(best)
    return Herd(picks, raised, start, before, coverage.value, candidates)


class _Race:
    """Upper bounds on what each row is worth now; those of rows that could win are brought up to date."""

    def __init__(self, candidates: Candidates, imbalance: Imbalance | None, gains: Float64Array) -> None:
        self.candidates, self.imbalance, self.gains = candidates, imbalance, gains
        self.known_at = np.zeros(len(gains), dtype=np.int64)  # after how many picks each gain was computed
        self.charged_at = np.zeros(len(gains), dtype=np.int64)  # and what it adds to the imbalance
        self.added = np.zeros(len(gains))
        if imbalance:
            steps = map_blocks(
                len(gains),
                rows_per_block(imbalance.rows.classes),
                lambda where: imbalance.added(imbalance.rows.read(where)),
            )
            self.added = np.concatenate([np.empty(0), *steps])
        self.worth = gains - self.added

    def best(self, turn: int) -> int:
        """The row that is worth most after `turn` picks; of equals the first."""
        charged = CHARGED_AT_ONCE
        while True:
            best = int(self.worth.argmax())
            if self.imbalance and self.charged_at[best] < turn:  # cheap: before the gains
                stale = self._stale(self.charged_at, turn, charged, best)
                self.added[stale], self.charged_at[stale] = self.imbalance.added(self.imbalance.rows.take(stale)), turn
                charged *= 2
            elif self.known_at[best] < turn:
                stale = self._stale(self.known_at, turn, CHECKED_AT_ONCE, best)
                self.gains[stale], self.known_at[stale] = self.candidates.gains(stale), turn
            else:
                return best
            self.worth[stale] = self.gains[stale] - self.added[stale]

    def take(self, row: int) -> None:
        """Pick a row."""
        self.candidates.add_if(row, least=0.0)
        if self.imbalance:
            self.imbalance.add(row)
        self.worth[row] = self.gains[row] = -np.inf

    def _stale(self, known_at: IntArray, turn: int, count: int, best: int) -> IntArray:
        """The best row and others that seem to be worth much and are out of date."""
        count = min(count, len(self.worth))
        top = np.argpartition(-self.worth, count - 1)[:count]
        keep = (known_at[top] < turn) & (top != best) & (self.worth[top] > -np.inf)
        return np.append(top[keep], best)
