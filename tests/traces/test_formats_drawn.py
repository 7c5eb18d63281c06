"""Drawn requests, written in each format and read back, and converted to the native one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traces.formats import _pages, native
from traces.formats._open import open_trace, parse
from traces.formats.base import About, Lines, Row, Trace
from traces.replaying.account import ceiling_of

from . import formats_drawn as drawn
from .formats_drawn import BLOCK, Drawn


@st.composite
def requests(draw: st.DrawFn) -> list[Drawn]:
    """Requests on a tree of blocks. Equal ids have equal prefixes, and a partial block is last."""
    found: list[Drawn] = []
    quarter = 0
    for place in range(draw(st.integers(1, 8))):
        quarter += draw(st.integers(0, 9))
        before = draw(st.sampled_from(found)) if found and draw(st.booleans()) else None
        shared = draw(st.integers(0, len(before.whole))) if before else 0
        begin = before.ids[:shared] if before else ()
        length = draw(st.integers(max(1, shared * BLOCK), (shared + 3) * BLOCK))
        more = -(-length // BLOCK) - shared
        ids = (*begin, *(1000 * (place + 1) + one for one in range(more)))
        found.append(Drawn(quarter / 4, length, draw(st.integers(1, 9)), ids))
    return found


def read(text: str, name: str) -> Trace:
    about = About(BLOCK if name == "mooncake" else 0)
    return parse(Lines("drawn", text.encode().splitlines(keepends=True)), about=about)


def lengths_and_times(rows: Sequence[Drawn], name: str) -> list[tuple[int, int, int]]:
    first = rows[0].second if name in drawn.FROM_ZERO else 0
    return [
        (
            int((row.second - first) * 1_000_000_000),
            row.input_length,
            row.output_length,
        )
        for row in rows
    ]


def found_in(trace: Trace) -> list[tuple[int, int, int]]:
    return [(job.arrival_ns, job.input_length, job.output_length) for job in trace.jobs]


@pytest.mark.parametrize("name", drawn.WITH_IDS)
@settings(max_examples=20, deadline=None)
@given(rows=requests())
def test_drawn_blocks_read_back_equal(name: str, rows: list[Drawn]) -> None:
    trace = read(drawn.WITH_IDS[name](rows), name)
    assert trace.format == name
    assert trace.block_size == BLOCK
    assert found_in(trace) == lengths_and_times(rows, name)
    paged = trace.paged(BLOCK)
    numbers: dict[int, int] = {}
    for row, job in zip(rows, trace.jobs, strict=True):
        expected = [numbers.setdefault(one, len(numbers)) for one in row.ids]
        assert paged.chain(job).tolist() == expected
        # pages of two blocks and of half a block are equal where the blocks are
        assert (
            trace.paged(2 * BLOCK).chain(job).tolist()
            == [
                expected[min(place + 1, len(expected) - 1)] for place in range(0, len(expected), 2)
            ][: trace.paged(2 * BLOCK).prompt_pages[job.index]]
        )
        halves = trace.paged(BLOCK // 2).chain(job)
        assert (halves // 2).tolist() == [one for one in expected for _ in "ab"][: len(halves)]


@pytest.mark.parametrize("name", drawn.LENGTHS)
@settings(max_examples=20, deadline=None)
@given(rows=requests())
def test_drawn_lengths_read_back_equal(name: str, rows: list[Drawn]) -> None:
    trace = read(drawn.LENGTHS[name](rows), name)
    assert trace.format == name
    assert not trace.identity
    assert found_in(trace) == lengths_and_times(rows, name)
    keys = [trace.paged(1).key(job, job.input_length).raw for job in trace.jobs]
    tokens = np.frombuffer(b"".join(keys), dtype="<i8")
    assert len({*tokens.tolist()}) == sum(row.input_length for row in rows)


def same(first: Trace, second: Trace) -> None:
    """Both say the same of every request, whatever the names of their blocks."""
    assert list(first.jobs) == list(second.jobs)
    assert first.identity == second.identity
    assert first.block_size == second.block_size
    assert first.tenants.tolist() == second.tenants.tolist()
    assert [*first.tenant_names] == [*second.tenant_names]
    for size in (4, 16, 64):
        one, other = first.paged(size), second.paged(size)
        assert one.knows_output == other.knows_output
        assert ceiling_of(one, True).tolist() == ceiling_of(other, True).tolist()
        for job in first.jobs:
            assert one.chain(job).tolist() == other.chain(job).tolist()
            assert one.prompt_key(job) == other.prompt_key(job)


@pytest.mark.parametrize("name", [*drawn.WITH_IDS, *drawn.LENGTHS])
def test_a_converted_trace_hits_the_same_to_the_token(
    name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("converted")
    write: Callable[[Sequence[Drawn]], str] = (drawn.WITH_IDS | drawn.LENGTHS)[name]

    @settings(max_examples=10, deadline=None)
    @given(rows=requests())
    def check(rows: list[Drawn]) -> None:
        path = folder / "trace"
        path.write_text(write(rows))
        size = BLOCK if name == "mooncake" else 0
        trace = open_trace(str(path), block_size=size)
        (folder / "native").write_text("".join(native.texts(trace, {})))
        same(trace, open_trace(str(folder / "native")))

    check()


def test_all_that_a_row_has_survives_a_conversion() -> None:
    rows = [
        Row(1_500_000, 40, 3, (5, 6, 7), "x", -1, "s", -4, "red"),
        Row(2_000_000, 33, 1, (5, 6, 9), "y", -1, None, 0, "blue"),
        Row(7, 48, 2, (5, 6, 8), "x", 0, None, 9, "red"),
    ]
    about = About(block_size=BLOCK, lines=Lines("rows", [b"x"]))
    trace = _pages.read(iter(rows), about, "rows", "drawn", 9)
    made = parse(Lines("native", [line.encode() for line in native.texts(trace, {})]))
    same(trace, made)
    assert [job.session for job in made.jobs] == [0, -1, 0]
    assert [*made.tenant_names] == ["red", "blue"]
    chains = [made.paged(BLOCK).chain(job).tolist() for job in made.jobs]
    assert chains == [[0, 1, 2], [3, 4, 5], [0, 1, 6]]


def test_requests_of_blocks_may_have_a_sender() -> None:
    header, *rest = drawn.native([Drawn(0, 40, 1, (1, 2, 3))]).splitlines(keepends=True)
    sent = header.replace("{", '{"sender": {"seed": 7}, ', 1)
    trace = read("".join([sent, *rest]), "native")
    assert trace.jobs.sender is not None
    assert trace.jobs.sender.seed == 7
