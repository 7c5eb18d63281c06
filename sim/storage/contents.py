"""What a store has: values under a component and the digest of a page, and how it is asked.

`Medium` is the simulated store: it has a capacity in bytes, from which the least recently used
values go. A value has no bytes here: its content follows from its digest. `Faulty` wraps the
contents of another store, whose values then get lost or do not verify.
"""

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

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

    def is_dead(self, now_ns: int) -> bool:
        return _is_between(self.dead_at_ns, now_ns, self.back_at_ns)

    def hangs(self, now_ns: int) -> bool:
        return _is_between(self.hangs_at_ns, now_ns, self.back_at_ns)


def _is_between(first_ns: int, now_ns: int, back_ns: int) -> bool:
    return 0 <= first_ns <= now_ns and (back_ns < first_ns or now_ns < back_ns)


Name: TypeAlias = tuple[str, bytes]  # component, digest of the page


class Contents(ABC):
    """Values by component and digest. A batch has a status for each of its digests."""

    @property
    def losses(self) -> Losses:
        """What a real store did not do so far. Those of a simulated one are its executor's."""
        return Losses()

    @property
    def evicted(self) -> int:
        """Values that had to make room in a real store since it was made, where it counts them."""
        return 0

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

    def close(self) -> None:  # noqa: B027
        """End what is open. Without effect here."""


class Medium(Contents):
    """See the module. value_bytes: of one value, by component. size_bytes: the most bytes of all
    values; 0: as many as there are."""

    def __init__(self, value_bytes: Mapping[str, int], size_bytes: int = 0) -> None:
        self._value_bytes = dict(value_bytes)
        self._size_bytes = size_bytes
        self._values: OrderedDict[Name, None] = OrderedDict()  # the least recently used first
        self.bytes = 0

    def lookup(self, component: str, digests: Sequence[bytes]) -> list[bool | None]:
        return [(component, digest) in self._values for digest in digests]

    def read(self, component: str, digests: Sequence[bytes]) -> list[Status]:
        return [self._read((component, digest)) for digest in digests]

    def _read(self, name: Name) -> Status:
        if name not in self._values:
            return Status.MISSING
        self._values.move_to_end(name)
        return Status.DONE

    def write(self, component: str, digests: Sequence[bytes]) -> list[Status]:
        return [self._write((component, digest)) for digest in digests]

    def _write(self, name: Name) -> Status:
        size = self._value_bytes[name[0]]
        if self._size_bytes and size > self._size_bytes:
            return Status.FULL
        if name in self._values:  # the same content: it is not written again
            self._values.move_to_end(name)
            return Status.DONE
        while self._size_bytes and self.bytes + size > self._size_bytes:
            (component, _), _ = self._values.popitem(last=False)
            self.bytes -= self._value_bytes[component]
        self._values[name] = None
        self.bytes += size
        return Status.DONE

    def clear(self) -> bool:
        self._values.clear()
        self.bytes = 0
        return True


class Faulty(Contents):
    """A store whose values get lost, are said to be there, or do not verify.

    Each fault is drawn by the digest and the number of the operation, so it depends on the seed
    alone.
    """

    def __init__(self, contents: Contents, options: StoreOptions) -> None:
        self._contents = contents
        self._options = options
        self._operations = 0
        self._lost: dict[Name, None] = {}

    def lookup(self, component: str, digests: Sequence[bytes]) -> list[bool | None]:
        there = self._contents.lookup(component, digests)
        lost = [(component, digest) in self._lost for digest in digests]
        return [
            (item and not gone) or self._happens("lying", self._options.lying, digest)
            for item, gone, digest in zip(there, lost, digests, strict=True)
        ]

    def read(self, component: str, digests: Sequence[bytes]) -> list[Status]:
        statuses = self._contents.read(component, digests)
        for place, digest in enumerate(digests):
            if statuses[place] is not Status.DONE:
                continue
            if (component, digest) in self._lost:
                statuses[place] = Status.MISSING
            elif self._happens("corrupt", self._options.corrupt, digest):
                statuses[place] = Status.CORRUPT
        return statuses

    def write(self, component: str, digests: Sequence[bytes]) -> list[Status]:
        for digest in digests:
            if self._happens("loss", self._options.loss, digest):
                self._lost[component, digest] = None
            else:
                self._lost.pop((component, digest), None)
        return self._contents.write(component, digests)

    def clear(self) -> bool:
        self._lost.clear()
        return self._contents.clear()

    def _happens(self, what: str, millionths: int, digest: bytes) -> bool:
        if not millionths:
            return False
        self._operations += 1
        number = draw(MILLION, self._options.seed, what, digest.hex(), self._operations)
        return number < millionths
