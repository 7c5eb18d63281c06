"""Mooncake traces: one request a line, the prompt as chained ids of its blocks.

Fields: timestamp (ms), input_length, output_length (tokens), hash_ids. Equal ids mean equal blocks
after equal prefixes. The last block is usually partial. Ids may use all 64 bits. Output tokens have
no ids, so no other request can hit them. Times are optional. Format:
github.com/kvcache-ai/Mooncake, FAST25-release/traces, and what DynoSim and AIPerf read beside it.
Of agents: a line with `wait_for` follows the requests whose
`request_id` it names, `tool_wait_ms` after their end.

The size of a block does not stand in the file. A line of L tokens and n ids says that it is from
ceil(L / n) to ceil(L / (n - 1)) - 1. The published traces have 512; a file that contradicts it is
read if one power of two is left, and refused otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hicache.core.errors import CallerError
from hicache.core.types import MOST_PRIORITY

from . import base
from ._rows import About, Head, Row
from .base import Lines, Record

BLOCK_SIZE = 512
PROVES_BLOCK_SIZE = True  # only all lines together say it
SUMMARY = "timestamp (ms), input_length, output_length, hash_ids of 512 tokens or --block-size"

SAMPLE = """\
{"timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": [7, 8]}
{"timestamp": 1.5, "input_length": 1000, "output_length": 1, "hash_ids": [7, 9]}
"""

_ALIASES = {
    "timestamp": ("created_time",),
    "input_length": ("input_tokens",),
    "output_length": ("output_tokens",),
    "delay": ("delay_ms",),
}
_TIMES = frozenset({"timestamp", "created_time", "delay", "delay_ms"})
_UNSURE = frozenset({"chat_id", "parent_chat_id"})
_SEVERAL = (
    "requests wait for several others; each follows the one of them that comes last in the file."
)
_UNPLAYED = "requests have a tool_wait_ms and wait for no other; it is not played."


def recognises(head: Head) -> bool:
    return "hash_ids" in head.keys and not head.keys & _UNSURE and not head.is_list


def rows(files: Iterable[Lines], about: About) -> Iterator[Row]:
    sizes = _Sizes(about)
    last: dict[str, int] = {}  # of each session, its last request
    named: dict[str, int] = {}  # by request_id
    count = 0
    for lines in about.each(files):
        for record in lines:
            session = _session(lines, record)
            before = last.get(session, -1) if session is not None else -1
            waits = _waits(lines, about, record, named)
            if not count:
                about.timed = waits is not None or not record.keys().isdisjoint(_TIMES)
            if about.timed or waits:
                after, arrival_ns = waits or _arrival(lines, record, before)
            elif record.keys().isdisjoint(_TIMES):
                after, arrival_ns = -1, 0
            else:
                lines.wrong("no time, as in the lines before", "one", "give each request a time")
            length = _length(lines, record, "input_length")
            output = _length(lines, record, "output_length")
            ids = record.get("hash_ids")
            if type(ids) is not list:
                expected = -(-length // (about.wanted_block_size or BLOCK_SIZE))
                lines.wrong_field(record, "hash_ids", f"a list of {expected} integers")
            sizes.learn(lines, length, len(ids))
            if session is not None:
                last[session] = count
            name = record.get("request_id")
            if type(name) in (str, int):
                named[str(name)] = count
            count += 1
            priority = 0
            if "priority" in record:
                most = MOST_PRIORITY
                priority = base.integer(lines, record, "priority", -most, most)
            yield Row(
                arrival_ns, length, output, ids, after=after, session=session, priority=priority
            )


def _name(lines: Lines, record: Record, field: str) -> str:
    """The field as this line spells it. Raises CallerError if it is there twice."""
    if record.keys().isdisjoint(_ALIASES[field]):
        return field
    found = [name for name in (field, *_ALIASES[field]) if name in record]
    if len(found) > 1:
        lines.wrong(f"one of {', '.join(found)}", "more than one", "remove the others")
    return found[0]


def _length(lines: Lines, record: Record, field: str) -> int:
    do = ""
    if field == "output_length":
        do = "write at least 1 (a prefill yields the first token)"
    return base.integer(lines, record, _name(lines, record, field), 1, base.MAX_REQUEST_TOKENS, do)


def _session(lines: Lines, record: Record) -> str | None:
    if "session_id" not in record:
        return None
    name = record["session_id"]
    if type(name) is int:
        return str(name)
    return base.text(lines, record, "session_id")


def _waits(
    lines: Lines, about: About, record: Record, named: dict[str, int]
) -> tuple[int, int] | None:
    """(after, arrival_ns) of a request that waits for others; None for one that does not."""
    names = record.get("wait_for")
    names = [names] if type(names) in (str, int) else names
    if names is None or names == []:
        if record.get("tool_wait_ms"):
            about.notes[_UNPLAYED] += 1
        return None
    if type(names) is not list or any(type(name) not in (str, int) for name in names):
        lines.wrong_field(record, "wait_for", "a list of request_ids")
    unknown = [name for name in names if str(name) not in named]
    if unknown:
        lines.wrong(
            "wait_for: the request_id of an earlier line",
            base.show(unknown[0]),
            "sort the lines, or correct the name",
        )
    if _name(lines, record, "delay") in record:
        lines.wrong("either wait_for or delay", "both", "remove one of them")
    if len(names) > 1:
        about.notes[_SEVERAL] += 1
    wait_ns = base.nanoseconds(lines, record, "tool_wait_ms") if "tool_wait_ms" in record else 0
    return max(named[str(name)] for name in names), wait_ns


def _arrival(lines: Lines, record: Record, before: int) -> tuple[int, int]:
    """(after, arrival_ns): a request with a delay follows the one before it in its session."""
    time, delay = _name(lines, record, "timestamp"), _name(lines, record, "delay")
    if delay not in record:
        return -1, base.nanoseconds(lines, record, time)
    if time in record and before >= 0:
        lines.wrong(f"either {time} or {delay}", "both", "remove one of them")
    if before < 0 and time in record:
        lines.wrong(
            f"{delay} only after another request of the session",
            f"both {time} and {delay} in the first",
            f"remove {delay}",
        )
    if before < 0:
        lines.wrong(
            f"{delay} only after another request of the same session_id",
            "none before it",
            f"give it a {time}",
        )
    return before, base.nanoseconds(lines, record, delay)


class _Sizes:
    """Which sizes of a block the lines so far allow."""

    def __init__(self, about: About) -> None:
        self._about = about
        self._least, self._most = 1, base.MAX_BLOCK_TOKENS
        about.block_size = about.wanted_block_size or BLOCK_SIZE
        about.settle = self._settle

    def learn(self, lines: Lines, length: int, count: int) -> None:
        """A line with `count` ids for `length` tokens. Raises CallerError if no size is left."""
        wanted, size = self._about.wanted_block_size, self._about.block_size
        least, most = self._least, self._most
        if count:
            self._least = max(least, -(-length // count))
        if count > 1:
            self._most = min(most, -(-length // (count - 1)) - 1)
        if count and self._least <= (wanted or self._least) <= self._most:
            return
        if not wanted and not least <= size <= most:
            size = next(iter(_powers(least, most)), least)
        base.check_count(lines, count, length, size, "hash_ids")
        lines.wrong(
            f"hash_ids for blocks of {least} to {most} tokens, as in the lines before",
            f"{count} for {length} tokens",
            "correct the line",
        )

    def _settle(self) -> None:
        """Decides after the last line. Raises CallerError if more than one size is possible."""
        about = self._about
        if self._least <= about.block_size <= self._most:
            return
        found = _powers(self._least, self._most)
        if not found and self._least == self._most:
            found = [self._least]
        if len(found) != 1:
            lines = about.lines
            assert lines is not None
            sizes = " or ".join(map(str, found)) or f"any from {self._least} to {self._most}"
            raise CallerError(
                f"{lines.path}: expected blocks of {BLOCK_SIZE} tokens, or of a size that the "
                f"lengths prove, found blocks that can have {sizes}; give it with --block-size"
            )
        about.block_size = found[0]


def _powers(least: int, most: int) -> list[int]:
    """The powers of two in between."""
    return [1 << power for power in range(most.bit_length()) if least <= 1 << power <= most]
