"""`hicache store check`: reads every value of a store and verifies it.

Exits with code 12 if a value is not what was written and stays where it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hicache.core.errors import CallerError
from hicache.storage import keys
from hicache.storage.base import Entry, Status, Storage
from hicache.storage.verified import HEADER_BYTES, Verified

from ..terminal.progress import progress
from ..terminal.rows import option
from . import _contents as contents

SUMMARY = "read and verify every value in a store"
WRONG_BYTES = 12
_AT_ONCE = 64  # values
_BYTES_AT_ONCE = 64 << 20
_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Options(contents.OfStore):
    delete: bool = option("delete what does not verify", default=False)


def run(options: Options, command: str) -> int:
    with contents.opened(options) as store:
        entries = sorted(store.entries(""))
        with progress("check", len(entries), "values") as report:
            found = verify(store, entries, options.delete, report)
    wrong = [key for key, status in found.items() if status is Status.CORRUPT]
    counts = Counter(str(status) for status in found.values())
    told = [
        f"{counts[Status.DONE]:,} of {len(entries):,} values are what was written.",
        *(f"corrupt: {key}" for key in wrong[:_SHOWN]),
        *([f"... and {len(wrong) - _SHOWN:,} more"] if len(wrong) > _SHOWN else []),
    ]
    if wrong:
        told.append(
            "They were deleted."
            if options.delete
            else "They are read as missing; --delete deletes them."
        )
    if counts[Status.MISSING]:
        told.append(f"{counts[Status.MISSING]:,} went away meanwhile.")
    result = {
        "values": len(entries),
        "bytes": sum(entry.size_bytes for entry in entries),
        "verified": counts[Status.DONE],
        "corrupt": wrong,
        "gone": counts[Status.MISSING],
        "unread": counts[Status.FAILED],
        "deleted": options.delete,
    }
    contents.tell(options, command, result, *told, wrap=False)
    if counts[Status.FAILED]:
        raise CallerError(
            f"storage: expected a store that answers, found {counts[Status.FAILED]:,} values that "
            "could not be read; try again when it does"
        )
    return WRONG_BYTES if wrong and not options.delete else 0


def verify(
    store: Storage, entries: Sequence[Entry], delete: bool, report: Callable[[int], None]
) -> dict[str, Status]:
    """What became of reading each value."""
    checked = Verified(store, delete_corrupt=delete)
    found: dict[str, Status] = {}
    first = 0
    while first < len(entries):
        some, size = [entries[first]], entries[first].size_bytes
        for entry in entries[first + 1 : first + _AT_ONCE]:
            size += entry.size_bytes
            if size > _BYTES_AT_ONCE:
                break
            some.append(entry)
        found.update(zip((one.key for one in some), _read(checked, some), strict=True))
        first += len(some)
        report(first)
    return found


def _read(checked: Verified, some: Sequence[Entry]) -> list[Status]:
    values = [memoryview(bytearray(max(0, one.size_bytes - HEADER_BYTES))) for one in some]
    found = checked.read([one.key for one in some], [(value,) for value in values])
    for index, (entry, value) in enumerate(zip(some, values, strict=True)):
        parts = keys.take_apart(entry.key)
        if found[index] is Status.DONE and parts is not None and not parts.pool:
            right = keys.document_of(bytes(value), parts.context) is not None
            found[index] = Status.DONE if right else Status.CORRUPT
    return found
