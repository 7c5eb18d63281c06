"""The fields that all requests of a native trace have, and its header.

Does not know how a request gives its tokens; see native and _block_lines.
"""

from __future__ import annotations

from dataclasses import dataclass

from hicache.core.types import MOST_PRIORITY
from sim.sending import SenderOptions

from . import _sender, base
from .base import Lines, Record

NAME = "hicache-trace"
VERSIONS = (1, 2)
SEGMENTS, BLOCKS, LENGTHS = "segments", "blocks", "lengths"
# Fields of a request whatever its tokens are.
FIELDS = frozenset({"timestamp", "after", "delay", "namespace", "session", "priority"})
_HEADER = frozenset(
    {
        "format",
        "version",
        "made_by",
        "sender",
        "requests",
        "block_size",
        "partial_blocks",
        "output_blocks",
    }
)


@dataclass(frozen=True, slots=True)
class Header:
    """requests: what identifies their tokens. sender: how they are sent, None for when they arrive.
    The others are of blocks; see `About`."""

    version: int
    sender: SenderOptions | None
    requests: str = SEGMENTS
    block_size: int = 0
    partial: bool = True
    knows_output: bool = False


def read_header(lines: Lines, record: Record) -> Header:
    """The first line of the file. Raises CallerError if it is not one."""
    do = f'begin the file with {{"format": "{NAME}", "version": 1}}'
    if record.get("format") != NAME:
        lines.wrong_field(record, "format", f'"{NAME}"', do)
    version = record.get("version")
    if type(version) is not int or version not in VERSIONS:
        lines.wrong_field(record, "version", " or ".join(map(str, VERSIONS)), do)
    if version == 1:
        return Header(version, _sender.read(lines, record))
    check_fields(lines, record, _HEADER)
    requests = record.get("requests", SEGMENTS)
    if requests not in (SEGMENTS, BLOCKS, LENGTHS):
        lines.wrong_field(record, "requests", f'"{SEGMENTS}", "{BLOCKS}" or "{LENGTHS}"')
    if requests != BLOCKS:
        return Header(version, _sender.read(lines, record), requests)
    return Header(
        version,
        _sender.read(lines, record),
        requests,
        base.integer(lines, record, "block_size", 1, base.MAX_BLOCK_TOKENS),
        _flag(lines, record, "partial_blocks", True),
        _flag(lines, record, "output_blocks", False),
    )


def _flag(lines: Lines, record: Record, field: str, usual: bool) -> bool:
    value = record.get(field, usual)
    if type(value) is not bool:
        lines.wrong_field(record, field, "true or false")
    return value


def check_fields(lines: Lines, record: Record, known: frozenset[str]) -> None:
    """Raises CallerError for a field that nothing reads."""
    if not record.keys() <= known:
        unknown = next(field for field in record if field not in known)
        names = ", ".join(sorted(known))
        lines.wrong(f"only the fields {names}", base.show(unknown), "remove it")


def arrival(lines: Lines, record: Record, index: int) -> tuple[int, int]:
    """(after, arrival_ns), as in `Job`."""
    if "after" not in record:
        if "delay" in record:
            lines.wrong("delay only beside after", "delay alone", "add after, or use timestamp")
        return -1, base.nanoseconds(lines, record, "timestamp")
    if "timestamp" in record:
        lines.wrong("either timestamp or after", "both", "remove one of them")
    if not index:
        lines.wrong("a timestamp in the first request", "after", "give it a timestamp")
    after = base.integer(
        lines, record, "after", 0, index - 1, "name an earlier request, counted from 0"
    )
    return after, base.nanoseconds(lines, record, "delay") if "delay" in record else 0


def name(lines: Lines, record: Record, field: str) -> str:
    """An optional field of text; empty if it is absent."""
    return base.text(lines, record, field) if field in record else ""


def priority(lines: Lines, record: Record) -> int:
    """0 if the field is absent."""
    if "priority" not in record:
        return 0
    return base.integer(lines, record, "priority", -MOST_PRIORITY, MOST_PRIORITY)
