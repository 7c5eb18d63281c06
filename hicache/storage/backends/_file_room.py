"""Room in the file backend: growing by a segment, and what goes when there is no more.

Works inside a transaction of `_file_index`. The order of eviction is the order of last use. All
values of one page go together, and a segment is given to values of another size when everything in
it is colder than the coldest value of that size. Reserved slots are never taken.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from ._file_data import NO_ROOM, Data

SEGMENT_BYTES = 64 << 20
_FIRST_SLOTS = 16  # of a size's first segment; each further one doubles what there is
_INDEX_BYTES = 1024  # of the index, for each value


class Growth(StrEnum):
    """What became of an attempt to add a segment."""

    ADDED = "added"
    LIMIT = "limit"  # the store may not use more
    DISK = "disk"  # the disk has no room


class Coldest(NamedTuple):
    """A segment or the family of a page, when a value of it was last used, and how many slots of
    the wanted size it has."""

    number: int
    used: int
    slots: int = 0


def reserved_bytes(base: sqlite3.Connection, segment: int = 0) -> int:
    """What a segment takes on disk; 0: all of them."""
    total: int = base.execute(
        "SELECT COALESCE(SUM(slot_bytes * slots), 0) FROM segments WHERE ? IN (0, id)", (segment,)
    ).fetchone()[0]
    return total


def grow(
    base: sqlite3.Connection, data: Data, size: int, limit_bytes: int, given_up: int = 0
) -> Growth:
    """Add a segment with slots of this size, if the limit (0: none) and the disk allow one.
    given_up: bytes that another segment had, which need not be left to the index."""
    there: int = base.execute(
        "SELECT COALESCE(SUM(slots), 0) FROM segments WHERE slot_bytes = ?", (size,)
    ).fetchone()[0]
    slots = max(1, min(max(_FIRST_SLOTS, there), SEGMENT_BYTES // size))
    if limit_bytes:
        slots = min(slots, (limit_bytes - reserved_bytes(base)) // size)
    if slots < 1:
        return Growth.LIMIT
    slots = min(slots, max(data.room() // (size + _INDEX_BYTES), given_up // size))
    for fewer in sorted({slots, min(slots, _FIRST_SLOTS)}, reverse=True):
        if fewer > 0 and _add(base, data, size, fewer):
            return Growth.ADDED
    return Growth.DISK


def _add(base: sqlite3.Connection, data: Data, size: int, slots: int) -> bool:
    """Add a segment. False: the disk has no room."""
    added = base.execute("INSERT INTO segments (slot_bytes, slots) VALUES (?, ?)", (size, slots))
    segment = added.lastrowid
    assert segment is not None
    try:
        data.create(segment, size * slots)
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        base.execute("DELETE FROM segments WHERE id = ?", (segment,))
        return False
    base.executemany(
        "INSERT INTO slots (segment, slot, slot_bytes) VALUES (?, ?, ?)",
        [(segment, slot, size) for slot in range(slots)],
    )
    return True


def coldest_page(base: sqlite3.Connection, size: int) -> Coldest | None:
    """The page with a value in a slot of this size that was used least recently, and when that was.
    A page is used when any of its values is; what was used with a hotter one is noted here."""
    while True:
        row = base.execute(
            "SELECT family, used FROM slots WHERE slot_bytes = ? AND key IS NOT NULL"
            " ORDER BY used LIMIT 1",
            (size,),
        ).fetchone()
        if row is None:
            return None
        family, used = row
        last, count = base.execute(
            "SELECT MAX(used), SUM(slot_bytes = ?) FROM slots WHERE key IS NOT NULL AND family = ?",
            (size, family),
        ).fetchone()
        if last == used:
            return Coldest(family, used, count)
        base.execute(
            "UPDATE slots SET used = ? WHERE key IS NOT NULL AND family = ?", (last, family)
        )


def coldest_segment(base: sqlite3.Connection, other_than: int = 0) -> Coldest | None:
    """The segment without reserved slots whose newest use is the oldest; the same of the pages that
    have a value in it. other_than: a size of slots that does not count."""
    while True:
        row = base.execute(
            "SELECT id, used FROM segments WHERE slot_bytes != ? AND id NOT IN"
            " (SELECT segment FROM slots WHERE owner IS NOT NULL) ORDER BY used LIMIT 1",
            (other_than,),
        ).fetchone()
        if row is None:
            return None
        segment, used = row
        last = base.execute(
            "SELECT MAX(used) FROM slots WHERE key IS NOT NULL AND family IN"
            " (SELECT family FROM slots WHERE segment = ? AND key IS NOT NULL)",
            (segment,),
        ).fetchone()[0]
        if last is None or last <= used:
            return Coldest(segment, used)
        use_segments(base, [segment], last)


def use_segments(base: sqlite3.Connection, segments: Sequence[int], tick: int) -> None:
    """Note that values in these segments were used, at ticks that count up from `tick`."""
    last = {segment: number for number, segment in enumerate(segments, tick)}
    base.executemany(
        "UPDATE segments SET used = ? WHERE id = ?",
        [(number, segment) for segment, number in last.items()],
    )


def evict(base: sqlite3.Connection, size: int, count: int, before: int | None = None) -> int:
    """Free at least `count` slots of this size, if so many have values that were used before that;
    how many values went."""
    gone = 0
    while count > 0 and (page := coldest_page(base, size)):
        if before is not None and page.used >= before:
            break
        gone += free(base, "family = ?", (page.number,))
        count -= page.slots
    return gone


def drop(base: sqlite3.Connection, segment: int) -> int:
    """Remove a segment, its values and what belongs to them; how many values went."""
    count = free(
        base,
        "family IN (SELECT family FROM slots WHERE segment = ? AND key IS NOT NULL)",
        (segment,),
    )
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
    newest = base.execute(
        "SELECT DISTINCT segment FROM slots JOIN segments ON id = segment"
        f" WHERE key IS NOT NULL AND {which} AND slots.used >= segments.used",
        values,
    ).fetchall()
    count = base.execute(
        "UPDATE slots SET key = NULL, family = NULL, length = NULL, generation = NULL,"
        f" used = NULL, used_at = NULL WHERE key IS NOT NULL AND {which}",
        values,
    ).rowcount
    base.executemany(  # their newest use is that of another value now
        "UPDATE segments SET used = (SELECT COALESCE(MAX(used), 0) FROM slots WHERE segment = id)"
        " WHERE id = ?",
        newest,
    )
    return count


def tally(base: sqlite3.Connection, what: str, count: int) -> None:
    """Add to a total of the folder, that of all its stores."""
    if count:
        base.execute(
            "INSERT INTO totals VALUES (?, ?)"
            " ON CONFLICT (name) DO UPDATE SET value = value + excluded.value",
            (what, count),
        )
