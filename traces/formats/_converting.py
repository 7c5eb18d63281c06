"""A trace of any format as the lines of a native one.

Rows are written as they are read, so the memory does not grow with the trace, where a format yields
them in order and says the size of its blocks first. Else the trace is read into columns, and
written from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice

from hicache.core.errors import CallerError

from . import _blocks, base, log, native
from ._blocks import BlockTrace
from ._open import source
from ._rows import About, Row
from .base import Record


def native_texts(
    path: str,
    format_name: str,
    about: About,
    limit: int,
    made_by: Record,
    shown: Callable[[int], None],
) -> Iterator[str]:
    """The lines. shown: takes the number of requests done so far. Raises CallerError with the place
    of the first fault."""
    opened = source(path, format_name, about)
    if hasattr(opened.entry, "columns"):
        yield from log.texts(opened.files, about, opened.entry, limit, made_by, shown)
        return
    if getattr(opened.entry, "PROVES_BLOCK_SIZE", False) and not about.wanted_block_size:
        if path == "-":
            yield from _from_columns(opened.trace(limit), about, made_by, shown)
            return
        about.wanted_block_size = _proved(path, opened.name, limit)
    rows = opened.rows()
    first = next(rows, None)
    lines = about.lines
    assert lines is not None
    if first is None:
        lines.wrong("a request", "none", base.NO_TRACE)
    if about.sorts:
        again = chain([first], rows)
        trace = _blocks.read(again, about, opened.path, opened.name, limit or base.MAX_REQUESTS)
        yield from _from_columns(trace, about, made_by, shown)
        return
    checked = _checked(chain([first], islice(rows, limit - 1 if limit else None)), about, shown)
    yield from native.block_texts(checked, about, made_by)
    about.settle()


def _proved(path: str, format_name: str, limit: int) -> int:
    """The size of the blocks that all rows together prove."""
    about = About()
    for _ in islice(source(path, format_name, about).rows(), limit or None):
        pass
    about.settle()
    return about.block_size


def _checked(rows: Iterator[Row], about: About, shown: Callable[[int], None]) -> Iterator[Row]:
    last_ns = 0
    for count, row in enumerate(rows, 1):
        lines = about.lines
        assert lines is not None
        _blocks.check(lines, row)
        if row.after < 0:
            base.not_backwards(lines, row.arrival_ns, last_ns)
            last_ns = row.arrival_ns
        shown(count)
        yield row


def _from_columns(
    trace: base.Trace, about: About, made_by: Record, shown: Callable[[int], None]
) -> Iterator[str]:
    if not isinstance(trace, BlockTrace):
        raise CallerError(
            f"{trace.path}: expected a trace of blocks, found tokens; use it as it is"
        )
    yield from native.block_texts(_rows(trace, shown), about, made_by)


def _rows(trace: BlockTrace, shown: Callable[[int], None]) -> Iterator[Row]:
    names, tenants = trace.tenant_names, trace.tenants
    for job in trace.jobs:
        shown(job.index + 1)
        yield Row(
            job.arrival_ns,
            job.input_length,
            job.output_length,
            trace.blocks(job).tolist(),
            after=job.after,
            session=f"s{job.session}" if job.session >= 0 else None,
            priority=job.priority,
            tenant=names[int(tenants[job.index])],
        )
