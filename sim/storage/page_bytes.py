"""The bytes of host pages, as a store reads and writes them in a run that keeps bytes.

A value's content follows from its digest: it is the content of the prefix with this digest. So a
page that is stored under the digest of another prefix is found here, and a page that is fetched
into the wrong place is found when it is read. Does not know a store.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hicache.core.actions import Piece
from hicache.core.types import Key, Tier
from hicache.storage.base import Status

from ..content import Words
from ..device.memory import Memory


class PageBytes:
    """memory: None if the run keeps no bytes; then nothing happens here."""

    def __init__(self, memory: Memory | None) -> None:
        self._memory = memory
        self._tags: dict[bytes, int] = {}

    def announce(self, key: Key, tags: Words) -> None:
        """Tells the tags of the pages of a key, before any of them is stored or fetched."""
        if self._memory is not None:
            self._tags.update(zip(key.page_digests(), tags.tolist(), strict=True))

    def check(self, piece: Piece) -> None:
        """Compares the host pages that are stored with their digests. Raises WrongBytesError."""
        if self._memory is not None and len(piece.digests):
            why = f"store of {piece.component} from page {piece.first_page}"
            self._memory.verify(
                (Tier.HOST, piece.component),
                piece.pages,
                self._tagged(piece.digests),
                *self._all(why),
            )

    def fill(self, piece: Piece, statuses: Sequence[Status]) -> None:
        """Writes the content of the values that have arrived into their host pages."""
        arrived = [place for place, status in enumerate(statuses) if status is Status.DONE]
        if self._memory is None or not arrived:
            return
        place, pages = (Tier.HOST, piece.component), piece.pages[arrived]
        tags = self._tagged([piece.digests[index] for index in arrived])
        why = f"fetch of {piece.component} from page {piece.first_page}"
        self._memory.claim(place, pages, tags, (0, self._memory.layers))
        self._memory.write(place, pages, tags, *self._all(why))

    def _all(self, why: str) -> tuple[tuple[int, int], str]:
        assert self._memory is not None
        return (0, self._memory.layers), why

    def _tagged(self, digests: Sequence[bytes]) -> Words:
        return np.array([self._tags[digest] for digest in digests], dtype=np.uint64)
