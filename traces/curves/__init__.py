"""Hits at every capacity without the core: LRU from stack distances, the optimum that knows the
future, and other policies, which one loop replays page by page (docs/sizing.md).

A page hits in an LRU cache of C pages if fewer than C other pages were used since its last use.
Every request uses a path of the tree from the root on, its last page first. So the pages of a path
that one earlier request used last are neighbours, a run, and a trace has few runs for each request:

    path of request 7    page   0  1  2 | 3  4 | 5  6  7
                         last   6  6  6 | 2  2 | none (new pages)
    its runs             (last 6, depth 0, 3 pages), (last 2, depth 3, 2 pages)

With p the request that used a run last, r the one that uses it now, i the place of a page in it:

    distance(i) = D + i       D = pages that were last used between p and r
                                = pages of the paths between p and r
                                  - pages of the runs between p and r whose last use is after p, too

The runs whose last use is after p are inversions of the column `last`, weighted by their pages,
and are counted by merging sorted halves. Requests are numbered by their place in the trace.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from heapq import heappop, heappush
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from msgspec import Meta, Struct
from numpy.typing import NDArray

from ..formats.base import Paged, Trace, batches, need_identity
from ..results.record import Int, TraceFigures
from ..terminal.tables import progress

CHUNK = 1 << 18  # pages, or runs, that are looked at together
_MOST_DEFAULT = 16  # capacities

Column = NDArray[np.int64]
Rate = Annotated[float, Meta(ge=0, le=1)]


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs in columns, by request, root first within a request.

    last, request: who used the pages last, and who uses them now. depth: pages of the path before
    the run. pages: of the run.
    """

    last: Column
    request: Column
    depth: Column
    pages: Column

    def __len__(self) -> int:
        return len(self.last)


@dataclass(frozen=True, slots=True)
class Curve:
    """LRU hits as a function of the capacity, and what the optimum needs, too.

    runs: those that may hit: of counted requests, without pages behind the prompt. distance: D of
    each run. short: tokens that the last page of a run lacks, where the prompt ends in it. unique:
    different pages of the trace. largest: pages of the largest request, its known output included.
    first: requests before it are not counted.
    """

    page_size: int
    first: int
    unique: int
    largest: int
    runs: Runs
    distance: Column
    short: Column

    def hit_tokens(self, capacity: int) -> int:
        """Prompt tokens that hit in an LRU cache of `capacity` pages."""
        return int(self.tokens_at(np.array([capacity]))[0])

    def tokens_at(self, capacities: Column) -> Column:
        """The same for many capacities."""
        ends = self.distance + self.runs.pages
        partial = self.short > 0
        tokens: Column = self.page_size * (
            _ramps(self.distance, capacities) - _ramps(ends, capacities)
        ) - _steps(ends[partial], self.short[partial], capacities)
        return tokens

    def pages_for(self, tokens: float | Fraction) -> int:
        """The smallest LRU cache that hits so many prompt tokens; 0 if none does."""
        low, high = 0, self.unique + 1
        while low < high:
            middle = (low + high) // 2
            if self.hit_tokens(middle) >= tokens:
                high = middle
            else:
                low = middle + 1
        return low if low <= self.unique else 0

    @property
    def working_set(self) -> int:
        """The least capacity in pages with which LRU hits all that any cache can."""
        return int((self.distance + self.runs.pages).max(initial=0))

    @property
    def unbounded(self) -> int:
        """Tokens that a cache without limit hits."""
        return int(self.runs.pages.sum()) * self.page_size - int(self.short.sum())


def lru_curve(
    trace: Paged, first: int = 0, shown: Callable[[int], None] = lambda done: None
) -> Curve:
    """The curve of requests from place `first` on, in a cache that served all earlier ones. shown:
    is called with the number of requests done so far."""
    reuses = _Reuses()
    for paths in batches(map(trace.chain, trace.jobs), CHUNK):
        shown(reuses.add(paths))
    runs, lengths = Runs(*map(np.asarray, reuses.columns)), np.asarray(reuses.lengths)
    distance, size = _distances(runs, lengths), trace.page_size
    worth = identified_tokens(trace)[runs.request] - runs.depth * size
    pages = np.minimum(runs.pages, -(-worth // size))
    short = np.maximum(pages * size - worth, 0)
    some = (pages > 0) & (runs.request >= first)
    columns = (column[some] for column in (runs.last, runs.request, runs.depth, pages))
    largest = int(lengths.max(initial=0))
    return Curve(size, first, reuses.unique, largest, Runs(*columns), distance[some], short[some])


def identified_tokens(trace: Paged) -> Column:
    """Prompt tokens of each request in pages that the trace identifies: those that may hit."""
    tokens = trace.prompt_pages * trace.page_size
    return np.minimum(trace.jobs.input_lengths.astype(np.int64), tokens)


class _Reuses:
    """Takes batches of paths. lengths: pages of each path so far. columns: their runs. unique:
    different pages so far."""

    def __init__(self) -> None:
        self.unique = 0
        # by page, the request that used it last, counted from 1; 0 if none did
        self._last = np.zeros(1 << 12, dtype=np.int32)
        self.lengths = array("q")
        self.columns = [array("q") for _ in range(4)]

    def add(self, paths: list[Column]) -> int:
        """Returns the number of requests so far."""
        first = len(self.lengths)
        lengths = np.fromiter(map(len, paths), dtype=np.int64, count=len(paths))
        self.lengths.frombytes(lengths.tobytes())
        flat = np.concatenate(paths)
        if not len(flat):
            return len(self.lengths)
        starts = np.cumsum(lengths) - lengths
        owner = np.repeat(np.arange(first, first + len(lengths), dtype=np.int32), lengths)
        last = self._last_users(flat, owner)
        self.unique += int(np.count_nonzero(last < 0))
        begins = np.ones(len(flat), dtype=np.bool_)
        np.not_equal(last[1:], last[:-1], out=begins[1:])
        begins[starts[lengths > 0]] = True
        at = np.flatnonzero(begins)
        pages = np.diff(at, append=len(flat))
        known = last[at] >= 0
        at, pages = at[known], pages[known]
        request = owner[at].astype(np.int64)
        runs = (last[at].astype(np.int64), request, at - starts[request - first], pages)
        for kept, column in zip(self.columns, runs, strict=True):
            kept.frombytes(column.tobytes())
        return len(self.lengths)

    def _last_users(self, flat: Column, owner: NDArray[np.int32]) -> NDArray[np.int32]:
        """For each use of a page, the request that used it last; -1 for none."""
        most, known = int(flat.max()) + 1, len(self._last)
        if most > known:
            self._last.resize(max(most, known + known // 8), refcheck=False)  # not copied
        last = self._last[flat] - 1
        order = np.argsort(flat, kind="stable")
        ordered = flat[order]
        same = ordered[1:] == ordered[:-1]
        last[order[1:][same]] = owner[order[:-1][same]]
        self._last[flat] = owner + 1  # of several uses of a page, the last one stays
        return last


def _distances(runs: Runs, lengths: Column) -> Column:
    """D of each run. lengths: pages of the path of each request."""
    before = np.concatenate(([0], np.cumsum(lengths)))
    distance: Column = before[runs.request] - before[runs.last + 1] + runs.depth
    earlier = np.zeros(len(lengths) + 1, dtype=np.int64)  # pages in chunks before, by `last`
    for start in range(0, len(runs), CHUNK):
        chunk = slice(start, start + CHUNK)
        last, pages = runs.last[chunk], runs.pages[chunk]
        upwards = earlier[::-1].cumsum()[::-1]
        distance[chunk] -= upwards[last + 1] + larger_before(last, pages)
        np.add.at(earlier, last, pages)
    return distance


def larger_before(values: Column, weights: Column) -> Column:
    """For each position, the weight of the earlier positions with larger values."""
    count = len(values)
    total = 1 << max(count - 1, 0).bit_length()
    top = int(values.max(initial=0)) + 3
    padded = np.full(total, top - 1, dtype=np.int64)
    padded[:count] = values + 1
    weight = np.zeros(total, dtype=np.int64)
    weight[:count] = weights
    larger = np.zeros(total, dtype=np.int64)
    width = 1
    while width < total:
        rows = padded.reshape(-1, 2, width)
        # each row has an offset of its own, so one search serves all rows
        offset = np.arange(len(rows), dtype=np.int64)[:, None] * top
        order = np.argsort(rows[:, 0], axis=1, kind="stable")
        left = (np.take_along_axis(rows[:, 0], order, axis=1) + offset).ravel()
        weighed = np.take_along_axis(weight.reshape(-1, 2, width)[:, 0], order, axis=1)
        upto = np.concatenate(([0], np.cumsum(weighed)))
        place = np.searchsorted(left, (rows[:, 1] + offset).ravel(), side="right")
        ends = np.arange(1, len(rows) + 1, dtype=np.int64)[:, None] * width
        larger.reshape(-1, 2, width)[:, 1] += upto[ends] - upto[place].reshape(-1, width)
        width *= 2
    return larger[:count]


def _ramps(starts: Column, at: Column) -> Column:
    """The sum over all starts of max(0, at - start), for each `at`."""
    ordered = np.sort(starts)
    upto = np.concatenate(([0], np.cumsum(ordered)))
    count = np.searchsorted(ordered, at, side="left")
    ramps: Column = count * at - upto[count]
    return ramps


def _steps(starts: Column, heights: Column, at: Column) -> Column:
    """The sum of the heights whose start is at most `at`, for each `at`."""
    order = np.argsort(starts, kind="stable")
    upto = np.concatenate(([0], np.cumsum(heights[order])))
    steps: Column = upto[np.searchsorted(starts[order], at, side="right")]
    return steps


# -- other policies, replayed at one capacity


class Paths:
    """The paths of a trace, kept for several replays: eight bytes for each use of a page. Hits of
    requests before `first` do not count."""

    def __init__(self, trace: Paged, first: int = 0) -> None:
        self._page_size = trace.page_size
        self._first = first
        self._tokens = identified_tokens(trace).tolist()
        paths = [trace.chain(job) for job in trace.jobs]
        self._ends = np.cumsum([len(path) for path in paths]).tolist()
        self._flat = np.concatenate(paths) if paths else np.empty(0, dtype=np.int64)

    def __iter__(self) -> Iterator[list[int]]:
        start = 0
        for end in self._ends:
            yield self._flat[start:end].tolist()
            start = end

    def hit_tokens(self, cache: Cache) -> int:
        """Prompt tokens that the requests hit, in order, in a cache that is empty at first."""
        pages, hits = cache.pages, 0
        for request, path in enumerate(self):
            leading = 0
            for page in path:
                if page not in pages:
                    break
                leading += 1
            if request >= self._first:
                hits += min(leading * self._page_size, self._tokens[request])
            path.reverse()
            for page in path:
                if page in pages:
                    cache.again(page)
                else:
                    cache.insert(page)
        return hits


class Cache:
    """FIFO: the page that was inserted first goes first, however often it was used.

    Other policies derive from it. pages: those in the cache, each with what the policy remembers of
    it.
    """

    def __init__(self, capacity: int) -> None:
        self.pages: dict[int, int] = {}
        self.capacity = capacity
        self._queue: deque[int] = deque()

    def again(self, page: int) -> None:
        """A use of a page in the cache."""

    def insert(self, page: int) -> None:
        """A use of a page that is not in the cache. A full cache evicts one first."""
        if len(self.pages) == self.capacity:
            del self.pages[self._queue.popleft()]
        self.pages[page] = 0
        self._queue.append(page)


class S3Fifo(Cache):
    """S3-FIFO: a small queue (a tenth) for new pages, a main queue for those that were used twice
    meanwhile, and a ghost queue of names, which enter the main queue at once. A page at the end of
    the main queue that was used goes round again, and its count (at most 3) drops by one.
    The main queue gives the victim while it has more than its nine tenths, or if the small queue is
    empty (SOSP 2023; thresholds as in libCacheSim)."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self._main_room = capacity - max(1, capacity // 10)
        self._main: deque[int] = deque()
        self._ghost: OrderedDict[int, None] = OrderedDict()

    def again(self, page: int) -> None:
        self.pages[page] = min(self.pages[page] + 1, 3)

    def insert(self, page: int) -> None:
        queue = self._main if self._ghost.pop(page, 0) is None else self._queue
        while len(self.pages) == self.capacity:
            from_main = len(self._main) > self._main_room or not self._queue
            old = (self._main if from_main else self._queue).popleft()
            uses = self.pages.pop(old)
            if uses >= (1 if from_main else 2):
                self.pages[old] = uses - 1 if from_main else 0
                self._main.append(old)
            elif not from_main:
                self._ghost[old] = None
                if len(self._ghost) > self._main_room:
                    self._ghost.popitem(last=False)
        self.pages[page] = 0
        queue.append(page)


class Sieve(Cache):
    """SIEVE: a queue in order of insertion, with a hand that moves from the oldest page to newer
    ones and round again; it takes marks of use away and evicts the first page without one (NSDI
    2024). The queue stands in two halves: pages that the hand has passed, and those before it."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self._passed: deque[int] = deque()

    def again(self, page: int) -> None:
        self.pages[page] = 1

    def insert(self, page: int) -> None:
        while len(self.pages) == self.capacity:
            old = self._queue.popleft()
            if self.pages[old]:
                self.pages[old] = 0
                self._passed.append(old)
            else:
                del self.pages[old]
            if not self._queue:
                self._queue, self._passed = self._passed, self._queue
        self.pages[page] = 0
        self._queue.append(page)


POLICIES: dict[str, type[Cache]] = {"fifo": Cache, "s3_fifo": S3Fifo, "sieve": Sieve}


class Kept(NamedTuple):
    """What the optimum hits with one capacity. bound: tokens that no policy can exceed."""

    pages: int
    tokens: int
    bound: int


class Optimum:
    """The most pages that any policy can hit that knows the future and may leave a page out.

    A reuse is an interval from one use of a page to the next; a cache of C pages can keep at most C
    intervals that overlap. Whenever there are more, the one that ends last is given up (Belady,
    1966; Faigle and Nawijn, 1995), of those that end with the same request the deepest, so the kept
    pages of a request are leading pages. In tokens it may miss a little, since a partial last page
    counts like a whole one; `bound` is above every policy in tokens, too.
    """

    def __init__(self, curve: Curve) -> None:
        runs = curve.runs
        self._curve = curve
        self._starts = _array(np.argsort(runs.last, kind="stable"))
        furthest = np.lexsort((-runs.depth, -runs.request))
        rank = np.empty(len(runs), dtype=np.int32)
        rank[furthest] = np.arange(len(runs))
        self._furthest, self._rank = _array(furthest), _array(rank)
        self._columns = tuple(map(_array, (runs.last, runs.request, runs.pages)))

    def at(self, capacity: int) -> Kept:
        curve, all_pages = self._curve, self._curve.runs.pages
        kept = self._kept(capacity)
        pages = int(kept.sum())
        tokens = pages * curve.page_size - int((curve.short * (kept == all_pages)).sum())
        return Kept(pages, tokens, min(curve.unbounded, pages * curve.page_size))

    def _kept(self, capacity: int) -> Column:
        """How many pages of each run stay cached until they are used again."""
        last, request, pages = self._columns
        rank, furthest = self._rank, self._furthest
        kept = pages[:]
        cached, ended = 0, 0
        heap: list[int] = []
        for run in self._starts:
            now = last[run]
            while request[ended] <= now:
                cached -= kept[ended]
                ended += 1
            heappush(heap, rank[run])
            cached += pages[run]
            while cached > capacity:
                worst = furthest[heap[0]]
                over = cached - capacity
                if kept[worst] > over:
                    kept[worst] -= over
                    cached = capacity
                else:
                    cached -= kept[worst]
                    kept[worst] = 0
                    heappop(heap)
        return np.asarray(kept).astype(np.int64)


def _array(column: NDArray[np.integer[Any]]) -> array[int]:
    """Four bytes an element, and as fast to index as a list, which takes ten times as many."""
    return array("i", column.astype(np.int32).tobytes())


# -- all curves that one command shows

BESIDE_LRU = ("optimum", "bound")
NAMES = ("lru", *POLICIES, *BESIDE_LRU)


class PolicyHits(Struct, frozen=True):
    """For each capacity."""

    hit_tokens: Sequence[Int]
    hit_rates: Sequence[Rate]


class CurveFigures(Struct, frozen=True):
    """The document of `hicache curve`, with [the head](#all-documents).

    first_request, requests, input_tokens: whose hits count; earlier ones only warm the cache
    bytes_per_token: of full attention, all ranks; null without `--model`, as capacities in bytes
    working_set_tokens: the least capacity with which LRU hits all that any cache can
    unbounded_hit_tokens: that a cache without limit hits
    capacities_tokens, capacities_bytes: ascending
    policies: `lru`, one of those that are replayed, `optimum` or `bound` ([curves](sizing.md))
    """

    kind: Literal["curve"]
    trace: TraceFigures
    first_request: Int
    requests: Int
    page_size: Int
    bytes_per_token: Int | None
    input_tokens: Int
    working_set_tokens: Int
    unbounded_hit_tokens: Int
    capacities_tokens: Annotated[Sequence[Int], Meta(min_length=1)]
    capacities_bytes: Sequence[Int] | None
    policies: Mapping[str, PolicyHits]

    def __post_init__(self) -> None:
        size = len(self.capacities_tokens)
        lists = [policy.hit_rates for policy in self.policies.values()]
        lists += [self.capacities_bytes] if self.capacities_bytes else []
        if any(len(item) != size for item in lists):
            raise ValueError(f"expected {size} values in each list")


class Curves(NamedTuple):
    lru: Curve
    figures: CurveFigures

    def rate(self, tokens: int) -> float:
        return tokens / (self.figures.input_tokens or 1)


def curves_of(
    trace: Trace,
    paged: Paged,
    policies: tuple[str, ...] = BESIDE_LRU,
    capacities: tuple[int, ...] | None = None,
    first: int = 0,
    bytes_per_token: int | None = None,
) -> Curves:
    """The curves of a trace. Shows its progress. Raises CallerError for lengths without prompts.

    capacities: in pages; None for a choice that suits the trace. first: requests before it only
    warm the cache. bytes_per_token: of the model, all ranks.
    """
    need_identity(trace, "hit rates")
    with progress("lru", len(trace.jobs)) as shown:
        lru = lru_curve(paged, first, shown)
    pages = sorted(set(capacities or _default_capacities(lru)))
    counted = trace.jobs.input_lengths[lru.first :]
    total, size, each = int(counted.sum(dtype=np.int64)), lru.page_size, bytes_per_token
    hits = _hit_tokens(paged, lru, policies, pages)
    figures = CurveFigures(
        kind="curve",
        trace=TraceFigures.of(trace),
        first_request=lru.first,
        requests=len(counted),
        page_size=size,
        bytes_per_token=each,
        input_tokens=total,
        working_set_tokens=lru.working_set * size,
        unbounded_hit_tokens=lru.unbounded,
        capacities_tokens=[page * size for page in pages],
        capacities_bytes=None if each is None else [page * size * each for page in pages],
        policies={
            name: PolicyHits(tokens, [token / (total or 1) for token in tokens])
            for name, tokens in hits.items()
        },
    )
    return Curves(lru, figures)


def _hit_tokens(
    paged: Paged, lru: Curve, policies: tuple[str, ...], sizes: list[int]
) -> dict[str, list[int]]:
    """By policy, at each capacity. LRU has one pass for all of them; the others are replayed."""
    hits = {"lru": lru.tokens_at(np.array(sizes, dtype=np.int64)).tolist()}
    if {"optimum", "bound"} & set(policies):
        optimum = Optimum(lru)
        kept = [optimum.at(size) for size in sizes]
        hits["optimum"] = [item.tokens for item in kept]
        hits["bound"] = [item.bound for item in kept]
    replayed = [name for name in policies if name in POLICIES]
    if replayed:
        paths = Paths(paged, lru.first)
        hits |= {name: [] for name in replayed}
        with progress("curves", len(sizes), "points") as shown:
            for done, size in enumerate(sizes, 1):
                for name in replayed:
                    hits[name].append(paths.hit_tokens(POLICIES[name](size)))
                shown(done)
    return {name: hits[name] for name in dict.fromkeys(("lru", *policies))}


def _default_capacities(lru: Curve) -> set[int]:
    """From the largest request to where more memory adds nothing: two for each doubling, and the
    working set itself; the largest 16 of them."""
    last = max(lru.working_set, lru.largest, 1)
    first = max(1, min(lru.largest, last))
    sizes = {last}
    size = 1 << (last - 1).bit_length()
    while size > first and len(sizes) < _MOST_DEFAULT:
        sizes |= {number for number in (size, size * 3 // 4) if number < last}
        size //= 2
    return sizes | {max(1, size)}
