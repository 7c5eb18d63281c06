"""A store whose values get lost, are said to be there, or do not verify.

Wraps the contents of another one. Each fault is drawn by the digest and the number of the
operation, so it depends on the seed alone. Does not make a store slow or dead; see timed.
"""

from __future__ import annotations

from collections.abc import Sequence

from hicache.storage.base import Status

from ..keyed_draw import draw
from .contents import Contents, Fate, Name
from .options import MILLION, StoreOptions


class Faulty(Contents):
    """See the module."""

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
