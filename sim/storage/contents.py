"""What a store has: values under a component and the digest of a page, and how it is asked.

`Medium` is the simulated store: it has a capacity in bytes, from which the least recently used
values go, and tells what was synced from what was only written. A value has no bytes here: its
content follows from its digest. A crash loses nothing that was synced. Of what was written since,
every value may be there, be gone, or be torn. A torn value is found by its digest: it is corrupt.

`Faulty` wraps the contents of another store, whose values then get lost or do not verify.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from typing import TypeAlias

from hicache.core.errors import CallerError
from hicache.storage.base import Losses, Status

from ..content import draw

MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """read_bytes_per_s, write_bytes_per_s: shared by everything that moves in that direction.

    latency_ns   of each batch, before its first byte. size_bytes: the most bytes; 0: any number.
    seed         of all draws.

    Faults, in millionths of the operations:

    loss         a value is acknowledged and is not there afterwards.
    lying        a value that is not there is said to be.
    corrupt      a value does not verify when it is read.
    slow         a batch takes ten times as long.
    dead_at_ns, hangs_at_ns, back_at_ns  from this time on every operation fails after its latency,
                 or is not answered unless it is abandoned, until `back_at_ns`; -1: never.
    """

    read_bytes_per_s: int = 6_000_000_000
    write_bytes_per_s: int = 3_000_000_000
    latency_ns: int = 200_000
    size_bytes: int = 0
    seed: int = 0
    loss: int = 0
    lying: int = 0
    corrupt: int = 0
    slow: int = 0
    dead_at_ns: int = -1
    hangs_at_ns: int = -1
    back_at_ns: int = -1

    def __post_init__(self) -> None:
        for name, least, most in (
            ("read_bytes_per_s", 1, 1 << 48),
            ("write_bytes_per_s", 1, 1 << 48),
            ("latency_ns", 0, 1 << 60),
            ("size_bytes", 0, 1 << 60),
            ("loss", 0, MILLION),
            ("lying", 0, MILLION),
            ("corrupt", 0, MILLION),
            ("slow", 0, MILLION),
        ):
            value = getattr(self, name)
            if not least <= value <= most:
                raise CallerError(f"{name}: expected {least} to {most}, found {value}")

    def is_dead(self, now_ns: int) -> bool:
        return _is_between(self.dead_at_ns, now_ns, self.back_at_ns)

    def hangs(self, now_ns: int) -> bool:
        return _is_between(self.hangs_at_ns, now_ns, self.back_at_ns)


def _is_between(first_ns: int, now_ns: int, back_ns: int) -> bool:
    return 0 <= first_ns <= now_ns and (back_ns < first_ns or now_ns < back_ns)


Name: TypeAlias = tuple[str, bytes]  # component, digest of the page


class Fate(StrEnum):
    """What became of a value that is not there."""

    NEVER = "never"  # it was never written, as far as this store knows
    EVICTED = "evicted"  # to make room for another
    LOST = "lost"  # it was acknowledged, and is gone
    CORRUPT = "corrupt"  # it did not verify
    DELETED = "deleted"  # by a flush


class Contents(ABC):
    """Values by component and digest. A batch has a status for each of its digests."""

    @abstractmethod
    def lookup(self, component: str, digests: Sequence[bytes]) -> list[bool | None]:
        """Whether each value is there, or is said to be; None: there was no answer."""

    @abstractmethod
    def read(self, component: str, digests: Sequence[bytes]) -> list[Status]:
        """Read and verify each value."""

    @abstractmethod
    def write(self, component: str, digests: Sequence[bytes]) -> list[Status]:
        """Write each value. `DONE`: it is durable."""

    @abstractmethod
    def clear(self) -> bool:
        """Delete every value. False if that failed."""

    def fate(self, component: str, digest: bytes) -> Fate:
        """What became of a value that is not there."""
        return Fate.NEVER

    @property
    def losses(self) -> Losses:
        """What a real store did not do so far. Those of a simulated one are its executor's."""
        return Losses()

    @property
    def evicted(self) -> int:
        """Values that had to make room in a real store since it was made, where it counts them."""
        return 0

    def close(self) -> None:  # noqa: B027
        """End what is open. Without effect here."""


class Medium(Contents):
    """See the module. value_bytes: of one value, by component. size_bytes: the most bytes of all
    values; 0: as many as there are."""

    def __init__(self, value_bytes: Mapping[str, int], size_bytes: int = 0) -> None:
        self._value_bytes = dict(value_bytes)
        self._size_bytes = size_bytes
        self._values: OrderedDict[Name, bool] = OrderedDict()  # by last use: whether it is whole
        self._unsynced: dict[Name, None] = {}
        self._fates: dict[Name, Fate] = {}
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._values)

    def names(self) -> Iterator[Name]:
        """The values, the least recently used first."""
        return iter(self._values)

    def lookup(self, component: str, digests: Sequence[bytes]) -> list[bool | None]:
        return [(component, digest) in self._values for digest in digests]

    def read(self, component: str, digests: Sequence[bytes]) -> list[Status]:
        return [self._read((component, digest)) for digest in digests]

    def _read(self, name: Name) -> Status:
        whole = self._values.get(name)
        if whole is None:
            return Status.MISSING
        if not whole:
            self.drop(name, Fate.CORRUPT)
            return Status.CORRUPT
        self._values.move_to_end(name)
        return Status.DONE

    def write(self, component: str, digests: Sequence[bytes]) -> list[Status]:
        found = [self.put((component, digest)) for digest in digests]
        self.sync()
        return found

    def put(self, name: Name, whole: bool = True) -> Status:
        """Write one value, without syncing it. Evicts others for its room."""
        size = self._value_bytes[name[0]]
        if self._size_bytes and size > self._size_bytes:
            return Status.FULL
        if self._values.get(name):  # the same content: it is not written again
            self._values.move_to_end(name)
            return Status.DONE
        if name in self._values:
            self.drop(name, Fate.CORRUPT)
        while self._size_bytes and self.bytes + size > self._size_bytes:
            self.drop(next(iter(self._values)), Fate.EVICTED)
        self._values[name] = whole
        self._unsynced[name] = None
        self._fates.pop(name, None)
        self.bytes += size
        return Status.DONE

    def sync(self) -> None:
        """Everything that was written until now survives a crash."""
        self._unsynced.clear()

    def drop(self, name: Name, fate: Fate) -> None:
        """Delete one value that is there."""
        del self._values[name]
        self._unsynced.pop(name, None)
        self._fates[name] = fate
        self.bytes -= self._value_bytes[name[0]]

    def clear(self) -> bool:
        for name in list(self._values):
            self.drop(name, Fate.DELETED)
        return True

    def fate(self, component: str, digest: bytes) -> Fate:
        return self._fates.get((component, digest), Fate.NEVER)

    def crashes(self) -> Iterator[Medium]:
        """Every state in which a crash at this moment may leave the medium: each value that was
        written and not synced is there, is gone or is torn."""
        for states in product(("whole", "gone", "torn"), repeat=len(self._unsynced)):
            left = Medium(self._value_bytes, self._size_bytes)
            became = dict(zip(self._unsynced, states, strict=True))
            for name, whole in self._values.items():
                state = became.get(name, "whole")
                if state != "gone":
                    left.put(name, whole and state == "whole")
            left.sync()
            yield left


class Faulty(Contents):
    """A store whose values get lost, are said to be there, or do not verify.

    Wraps the contents of another one. Each fault is drawn by the digest and the number of the
    operation, so it depends on the seed alone. Does not make a store slow or dead; see timed.
    """

    def __init__(self, contents: Contents, options: StoreOptions) -> None:
        self._contents = contents
        self._options = options
        self._operations = 0
        self._spoiled: dict[Name, Fate] = {}

    def lookup(self, component: str, digests: Sequence[bytes]) -> list[bool | None]:
        found = self._contents.lookup(component, digests)
        lost = [self._spoiled.get((component, digest)) is Fate.LOST for digest in digests]
        return [
            (there and not gone) or self._happens("lying", self._options.lying, digest)
            for there, gone, digest in zip(found, lost, digests, strict=True)
        ]

    def read(self, component: str, digests: Sequence[bytes]) -> list[Status]:
        found = self._contents.read(component, digests)
        for place, digest in enumerate(digests):
            if found[place] is not Status.DONE:
                continue
            name = component, digest
            if self._spoiled.get(name) is Fate.LOST:
                found[place] = Status.MISSING
            elif self._happens("corrupt", self._options.corrupt, digest):
                found[place] = Status.CORRUPT
                self._spoiled[name] = Fate.CORRUPT
        return found

    def write(self, component: str, digests: Sequence[bytes]) -> list[Status]:
        for digest in digests:
            name = component, digest
            if self._happens("loss", self._options.loss, digest):
                self._spoiled[name] = Fate.LOST
            else:
                self._spoiled.pop(name, None)
        return self._contents.write(component, digests)

    def clear(self) -> bool:
        self._spoiled.clear()
        return self._contents.clear()

    def fate(self, component: str, digest: bytes) -> Fate:
        return self._spoiled.get((component, digest)) or self._contents.fate(component, digest)

    def close(self) -> None:
        self._contents.close()

    def _happens(self, what: str, millionths: int, digest: bytes) -> bool:
        if not millionths:
            return False
        self._operations += 1
        number = draw(MILLION, self._options.seed, what, digest.hex(), self._operations)
        return number < millionths
