"""Room in the file backend: growing by a segment, and what goes when there is no more.

Works inside a transaction of `_file_index`. The order of eviction is the order of last use. All
values of one page go together, and a segment is given to values of another size when everything in
it is colder than the coldest value of that size. Reserved slots are never taken.
"""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from ._file_data import Data

SEGMENT_BYTES = 64 << 20
_FIRST_SLOTS = 16  # of a size's first segment; each further one doubles what there is
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Growth(StrEnum):
    """What became of an attempt to add a segment."""

    ADDED = "added"
    LIMIT = "limit"  # the store may not use more
    DISK = "disk"  # the disk has no room


class Coldest(NamedTuple):
    """A segment, and when a value in it was last used."""

    segment: int
    used: int


def reserved_bytes(base: sqlite3.Connection) -> int:
    """What all segments take on disk."""
    total: int = base.execute(
        "SELECT COALESCE(SUM(slot_bytes * slots), 0) FROM segments"
    ).fetchone()[0]
    return total


def grow(base: sqlite3.Connection, data: Data, size: int, limit_bytes: int) -> Growth:
    """Add a segment with slots of this size, if the limit (0: none) and the disk allow one."""
    there: int = base.execute(
        "SELECT COALESCE(SUM(slots), 0) FROM segments WHERE slot_bytes = ?", (size,)
    ).fetchone()[0]
    slots = max(1, min(max(_FIRST_SLOTS, there), SEGMENT_BYTES // size))
    if limit_bytes:
        slots = min(slots, (limit_bytes - reserved_bytes(base)) // size)
    if slots < 1:
        return Growth.LIMIT
    added = base.execute("INSERT INTO segments (slot_bytes, slots) VALUES (?, ?)", (size, slots))
    segment = added.lastrowid
    assert segment is not None
    try:
        data.create(segment, size * slots)
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        base.execute("DELETE FROM segments WHERE id = ?", (segment,))
        return Growth.DISK
    base.executemany(
        "INSERT INTO slots (segment, slot, slot_bytes) VALUES (?, ?, ?)",
        [(segment, slot, size) for slot in range(slots)],
    )
    return Growth.ADDED


def oldest(base: sqlite3.Connection, size: int) -> int | None:
    """When the least recently used value in a slot of this size was used."""
    row = base.execute(
        "SELECT used FROM slots WHERE slot_bytes = ? AND key IS NOT NULL ORDER BY used LIMIT 1",
        (size,),
    ).fetchone()
    return None if row is None else int(row[0])


def coldest_segment(base: sqlite3.Connection, other_than: int = 0) -> Coldest | None:
    """The segment without reserved slots whose newest use is the oldest. other_than: a size of
    slots that does not count."""
    row = base.execute(
        "SELECT id, used FROM segments WHERE slot_bytes != ? AND id NOT IN"
        " (SELECT segment FROM slots WHERE owner IS NOT NULL) ORDER BY used LIMIT 1",
        (other_than,),
    ).fetchone()
    return None if row is None else Coldest(*row)


def use_segments(base: sqlite3.Connection, segments: Sequence[int], tick: int) -> None:
    """Note that values in these segments were used, at ticks that count up from `tick`."""
    last = {segment: number for number, segment in enumerate(segments, tick)}
    base.executemany(
        "UPDATE segments SET used = ? WHERE id = ?",
        [(number, segment) for segment, number in last.items()],
    )


def evict(base: sqlite3.Connection, size: int, count: int) -> int:
    """Free at least `count` slots of this size, if so many have values; how many values went."""
    families = base.execute(
        "SELECT family FROM slots WHERE slot_bytes = ? AND key IS NOT NULL ORDER BY used LIMIT ?",
        (size, count),
    ).fetchall()
    return sum(free(base, "family = ?", family) for family in set(families))


def drop(base: sqlite3.Connection, segment: int) -> int:
    """Remove a segment, its values and what belongs to them; how many values went."""
    families = base.execute(
        "SELECT DISTINCT family FROM slots WHERE segment = ? AND key IS NOT NULL", (segment,)
    ).fetchall()
    count = sum(free(base, "family = ?", family) for family in families)
    base.execute("DELETE FROM slots WHERE segment = ?", (segment,))
    base.execute("DELETE FROM segments WHERE id = ?", (segment,))
    return count


def is_empty(base: sqlite3.Connection, segment: int) -> bool:
    """Whether all slots are free."""
    row = base.execute(
        "SELECT 1 FROM slots WHERE segment = ? AND (key IS NOT NULL OR owner IS NOT NULL) LIMIT 1",
        (segment,),
    ).fetchone()
    return row is None


def release_dead(base: sqlite3.Connection, alive: Callable[[int], bool]) -> int:
    """Free what stores had reserved that are not open any more; how many stores."""
    owners = base.execute("SELECT DISTINCT owner FROM slots WHERE owner IS NOT NULL").fetchall()
    dead = [owner for owner in owners if not alive(owner[0])]
    base.executemany("UPDATE slots SET owner = NULL WHERE owner = ?", dead)
    return len(dead)


def free(base: sqlite3.Connection, which: str, values: tuple[Any, ...]) -> int:
    """Free the slots of stored values for which a condition holds; how many they were."""
    return base.execute(
        "UPDATE slots SET key = NULL, family = NULL, length = NULL, generation = NULL,"
        f" used = NULL, used_at = NULL WHERE key IS NOT NULL AND {which}",
        values,
    ).rowcount
