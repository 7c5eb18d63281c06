"""`hicache curve`: against plain replays, capacity by capacity, and against the real core; what it
prints, writes and refuses."""

from collections.abc import Callable, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traces import curves
from traces.curves import POLICIES, Optimum, Paths, lru_curve
from traces.formats.base import Paged
from traces.replaying.account import ceiling_of

from .rig import Capsys, Patch, document, mooncake, read, write

Records = list[dict[str, Any]]
BLOCK = 512


@st.composite
def random_traces(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Walks down a small tree of blocks; the last block of a walk may be partial."""
    records = []
    for _ in range(draw(st.integers(1, 24))):
        walk = draw(st.lists(st.integers(0, 2), min_size=1, max_size=6))
        # a chained id: equal ids only behind equal ids; 0 is no child, so paths stay distinct
        ids = [
            sum((step + 1) << 2 * place for place, step in enumerate(walk[: end + 1]))
            for end in range(len(walk))
        ]
        length = BLOCK * len(ids) - draw(st.sampled_from([0, 0, 1, 200, 511]))
        records.append(mooncake(ids, length))
    return records


# -- policies once more, in plain lists: each function takes the paths of requests, a capacity, and
# returns the hit pages of each request

Plain = Sequence[Sequence[int]]


def _replayed(paths: Plain, resident: list[int], use: Callable[[int], None]) -> list[int]:
    """resident: what the function `use` keeps up to date."""
    hits = []
    for path in paths:
        hits.append(len([*takewhile(resident.__contains__, path)]))
        for page in path[::-1]:
            use(page)
    return hits


def lru(paths: Plain, capacity: int) -> list[int]:
    resident: list[int] = []  # coldest first

    def use(page: int) -> None:
        if page in resident:
            resident.remove(page)
        elif len(resident) == capacity:
            resident.pop(0)
        resident.append(page)

    return _replayed(paths, resident, use)


def fifo(paths: Plain, capacity: int) -> list[int]:
    resident: list[int] = []

    def use(page: int) -> None:
        if page not in resident:
            if len(resident) == capacity:
                resident.pop(0)
            resident.append(page)

    return _replayed(paths, resident, use)


def sieve(paths: Plain, capacity: int) -> list[int]:
    resident: list[int] = []  # oldest first
    marked: set[int] = set()
    player = 0  # its place in `resident`

    def use(page: int) -> None:
        nonlocal player
        if page in resident:
            marked.add(page)
            return
        if len(resident) == capacity:
            while resident[player % capacity] in marked:
                marked.remove(resident[player % capacity])
                player = (player + 1) % capacity
            del resident[player]
            if player == len(resident):  # the newest page went
                player = 0
        resident.append(page)

    return _replayed(paths, resident, use)


def s3_fifo(paths: Plain, capacity: int) -> list[int]:
    resident: list[int] = []
    small: list[int] = []
    main: list[int] = []
    ghost: list[int] = []
    uses: dict[int, int] = {}
    most = capacity - max(1, capacity // 10)

    def evict() -> None:
        if len(main) > most or not small:
            page = main.pop(0)
            if uses[page] > 0:
                uses[page] -= 1
                main.append(page)
            else:
                resident.remove(page)
        else:
            page = small.pop(0)
            if uses[page] >= 2:
                uses[page] = 0
                main.append(page)
            else:
                resident.remove(page)
                ghost.append(page)
                del ghost[: max(0, len(ghost) - most)]

    def use(page: int) -> None:
        if page in resident:
            uses[page] = min(3, uses[page] + 1)
            return
        known = page in ghost
        if known:
            ghost.remove(page)
        while len(resident) == capacity:
            evict()
        uses[page] = 0
        resident.append(page)
        (main if known else small).append(page)

    return _replayed(paths, resident, use)


PLAIN = {"fifo": fifo, "s3_fifo": s3_fifo, "sieve": sieve}


def paths_of(paged: Paged) -> list[list[int]]:
    return [paged.chain(job).tolist() for job in paged.jobs]


def tokens_of(paged: Paged, hits: Sequence[int], first: int = 0) -> int:
    """The prompt tokens in this many leading pages of each request from `first` on."""
    return sum(
        min(pages * paged.page_size, job.input_length)
        for pages, job in zip(hits[first:], [*paged.jobs][first:], strict=True)
    )


@settings(max_examples=10, deadline=None)
@given(random_traces(), st.sampled_from([1, 5, 1 << 10]), st.sampled_from([128, 512]))
def test_lru_equals_a_plain_replay_at_every_capacity(
    records: Records, chunk: int, page_size: int
) -> None:
    """In batches of one request, of a few requests, and of the whole trace."""
    paged = read(*records).paged(page_size)
    paths = paths_of(paged)
    with Patch.context() as patch:
        patch.setattr(curves, "CHUNK", chunk)
        curve = lru_curve(paged)
        half = lru_curve(paged, len(paths) // 2)
    assert curve.largest == max(map(len, paths))
    assert curve.unique == len({page for path in paths for page in path})
    for capacity in range(1, curve.unique + 2):
        plain = lru(paths, capacity)
        assert curve.hit_tokens(capacity) == tokens_of(paged, plain)
        assert half.hit_tokens(capacity) == tokens_of(paged, plain, len(paths) // 2)
    assert curve.unbounded == int(ceiling_of(paged, whole_prompts=True).sum())
    assert curve.hit_tokens(curve.working_set) == curve.unbounded
    assert not curve.working_set or curve.hit_tokens(curve.working_set - 1) < curve.unbounded


@pytest.mark.parametrize("policy", sorted(PLAIN))
@settings(max_examples=8, deadline=None)
@given(records=random_traces())
def test_a_replayed_policy_equals_plain_lists_at_every_capacity(
    policy: str, records: Records
) -> None:
    paged = read(*records).paged(512)
    paths, first = paths_of(paged), len(records) // 3
    for capacity in range(1, len({page for path in paths for page in path}) + 2):
        plain = PLAIN[policy](paths, capacity)
        hit_tokens = Paths(paged, first).hit_tokens(POLICIES[policy](capacity))
        assert hit_tokens == tokens_of(paged, plain, first)


@settings(max_examples=8, deadline=None)
@given(random_traces(), st.sampled_from([128, 512]))
def test_no_policy_exceeds_the_optimum_and_none_the_bound(records: Records, page_size: int) -> None:
    paged = read(*records).paged(page_size)
    paths, first = paths_of(paged), len(records) // 2
    curve = lru_curve(paged, first)
    optimum = Optimum(curve)
    everyone = [*PLAIN.values(), lru]
    below = 0
    for capacity in range(1, curve.unique + 2):
        best = optimum.at(capacity)
        assert best.tokens <= best.bound <= curve.unbounded
        assert best.pages >= below, "more memory never costs pages"
        below = best.pages
        for policy in everyone:
            hits = policy(paths, capacity)
            assert sum(hits[first:]) <= best.pages
            assert tokens_of(paged, hits, first) <= best.bound
    assert optimum.at(curve.working_set).tokens == curve.unbounded


@pytest.fixture
def trace(tmp_path: Path) -> str:
    """Four conversations in turn over a common first block; the last block is partial."""
    turns = [
        mooncake([0, *(100 * n + k for k in range(1, turn + 2))], 512 * (turn + 2) - 100)
        for turn in range(1, 4)
        for n in range(1, 5)
    ]
    return str(write(tmp_path / "trace.jsonl", *turns))


@pytest.mark.parametrize(
    ("model", "note"), [("llama-3.1-8b", ""), ("gpt-oss-120b", "counts the pool of full alone")]
)
def test_the_figures_of_every_policy(
    model: str, note: str, trace: str, tmp_path: Path, capsys: Capsys
) -> None:
    """Those of a model with windows are of full attention, as is said."""
    picture, words = tmp_path / "curve.svg", ["--capacities", "29,14"]
    command = ["curve", trace, "--policies", "all", "--model", model, *words]
    result = document(tmp_path, *command, "-o", str(picture))
    assert result["capacities_tokens"] == [14 * 512, 29 * 512]
    assert set(result["policies"]) == {"lru", "optimum", "bound", *POLICIES}
    optimum = result["policies"]["optimum"]
    assert optimum["hit_rates"] == [item / result["input_tokens"] for item in optimum["hit_tokens"]]
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert note in " ".join(lines)
    texts = {element.text for element in ElementTree.fromstring(picture.read_text()).iter()}
    assert {"lru", "optimum", "unbounded", *POLICIES} <= texts
