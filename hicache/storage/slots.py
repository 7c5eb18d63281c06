"""Which slots of one large file hold which value. A journal remembers it (`journal`).

A value is written into free slots first and recorded then; a slot is free for another value only
after the record that it is no longer used. So a process that is killed at any point leaves whole
values or none.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(slots=True)
class Extents:
    """Where a value lies: runs of slots (first, count), and its bytes. readers: that are under way;
    gone: its slots are free when the last of them ends."""

    size: int
    runs: list[tuple[int, int]]
    readers: int = 0
    gone: bool = False

    def pieces(self, slot_bytes: int) -> Iterator[tuple[int, int, int]]:
        """(offset in the file, offset in the value, size), neighbours in one."""
        start = 0
        for first, count in self.runs:
            size = min(count * slot_bytes, self.size - start)
            yield first * slot_bytes, start, size
            start += size

    def slots(self) -> list[int]:
        return [slot for first, count in self.runs for slot in range(first, first + count)]


class Reserved(NamedTuple):
    """value: the slots of a new value. gone: the values that lose theirs to it."""

    value: Extents
    gone: list[tuple[str, Extents]]


class Slots:
    """The values by their keys, the least recently used first. Thread-safe; never waits for I/O."""

    def __init__(self, slot_bytes: int, slots: int) -> None:
        self.slot_bytes, self.slots = slot_bytes, slots
        self._lock = threading.Lock()
        self._values: OrderedDict[str, Extents] = OrderedDict()
        self._free = list(range(slots - 1, -1, -1))
        self.evicted = 0  # values, of all processes that had the file

    def known(self, keys: Sequence[str]) -> list[bool]:
        with self._lock:
            return [key in self._values for key in keys]

    def sizes(self) -> list[tuple[str, int]]:
        with self._lock:
            return [(key, value.size) for key, value in self._values.items()]

    @property
    def free(self) -> int:
        return len(self._free)

    def reserve(self, size: int, spare: list[int]) -> Reserved | None:
        """Slots for a value, from the values that were not used for longest if it must be. None if
        it does not fit.

        spare: slots of such values that no value of the batch has yet. Record what is gone, then
        write, and give them back (`give_spare`). If it cannot be recorded, `undo` all of it."""
        needed = self._needed(size)
        with self._lock:
            victims: list[tuple[str, Extents]] = []
            room = len(self._free) + len(spare)
            for key, value in self._values.items():
                if room >= needed:
                    break
                if not value.readers:
                    victims.append((key, value))
                    room += sum(count for _, count in value.runs)
            if room < needed:
                return None
            for key, value in victims:
                del self._values[key]
                spare += value.slots()
            self.evicted += len(victims)
            slots = [spare.pop() for _ in range(min(needed, len(spare)))]
            slots += [self._free.pop() for _ in range(needed - len(slots))]
        return Reserved(Extents(size, _runs(sorted(slots))), victims)

    def undo(self, batch: Sequence[Reserved], spare: Sequence[int]) -> None:
        """As if nothing had been reserved: what lost its slots has them again, and is as cold."""
        with self._lock:
            free = {*spare, *(slot for one in batch for slot in one.value.slots())}
            for key, value in reversed([gone for one in batch for gone in one.gone]):
                if key not in self._values:  # else it was written anew meanwhile
                    free.difference_update(value.slots())
                    self._values[key] = value
                    self._values.move_to_end(key, last=False)
                    self.evicted -= 1
            self._free += sorted(free, reverse=True)

    def give_spare(self, spare: list[int]) -> None:
        with self._lock:
            self._free += sorted(spare, reverse=True)

    def give_back(self, value: Extents) -> None:
        """Slots that hold nothing, or the value that `remove` or `publish` took out."""
        with self._lock:
            value.gone = True
            if not value.readers:
                self._give(value)

    def publish(self, key: str, value: Extents) -> Extents | None:
        """From now on the key has this value. Returns the old one: give it back."""
        with self._lock:
            old = self._values.pop(key, None)
            self._values[key] = value
            return old

    def remove(self, key: str) -> Extents | None:
        """Returns the value: record that it is gone, then give it back."""
        with self._lock:
            return self._values.pop(key, None)

    @contextmanager
    def reading(self, keys: Sequence[str]) -> Iterator[list[Extents | None]]:
        """The values, whose slots stay theirs in the block. They count as used."""
        found: list[Extents | None] = []
        with self._lock:
            for key in keys:
                value = self._values.pop(key, None)
                found.append(value)
                if value is not None:
                    self._values[key] = value
                    value.readers += 1
        try:
            yield found
        finally:
            with self._lock:
                for value in found:
                    if value is not None:
                        value.readers -= 1
                        if value.gone and not value.readers:
                            self._give(value)

    def can_hold(self, value: Extents) -> bool:
        """Whether these are slots of this file, as many as such a value has."""
        inside = all(
            isinstance(first, int) and isinstance(count, int) and first >= 0 and count > 0
            for first, count in value.runs
        ) and all(first + count <= self.slots for first, count in value.runs)
        return inside and sum(count for _, count in value.runs) == self._needed(value.size)

    def adopt(self, records: Iterable[tuple[str, Extents | None]]) -> None:
        """Begin with what a journal says, in its order. A value whose slot a later one got is
        gone, whether the journal says so or not."""
        owners: dict[int, str] = {}

        def forget(key: str) -> None:
            old = self._values.pop(key, None)
            for slot in old.slots() if old else ():
                del owners[slot]

        for key, value in records:
            forget(key)
            if value is not None:
                for slot in value.slots():
                    if slot in owners:
                        forget(owners[slot])
                owners |= dict.fromkeys(value.slots(), key)
                self._values[key] = value
        self._free = [slot for slot in range(self.slots - 1, -1, -1) if slot not in owners]

    def records(self) -> list[tuple[str, Extents]]:
        with self._lock:
            return list(self._values.items())

    def _needed(self, size: int) -> int:
        return -(-size // self.slot_bytes) or 1

    def _give(self, value: Extents) -> None:
        self._free.extend(reversed(value.slots()))


def _runs(slots: Sequence[int]) -> list[tuple[int, int]]:
    """Neighbours as (first, count)."""
    runs: list[tuple[int, int]] = []
    for slot in slots:
        if runs and slot == sum(runs[-1]):
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((slot, 1))
    return runs
