"""Simulates a storage: which pages it has, and with which content.

A page is stored under its component and its digest. What is stored is a reference to the content
that the host page had (see content), so a page that comes back holds what was stored under its
digest, right or wrong. The replies follow from what is stored, except where a fault says otherwise.
A page that is damaged on the way is one that does not arrive, since readers verify it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

from hicache.core.actions import Delete, Fetch, Lookup, Piece, StorageAction, Store
from hicache.core.config import Config
from hicache.core.errors import About
from hicache.core.events import DeleteDone, FetchDone, LookupDone, StorageReply, StoreDone
from hicache.core.types import Tier
from invariants.fuzz.hicache.content import Content, WrongContent

Name: TypeAlias = tuple[int, bytes]  # component and digest
MOST_PROMPTS = 40
OLD = 32  # values after which the old state that may come back is replaced


class Way(Protocol):
    """How an action goes; see `faults.base.Fault`."""

    @property
    def fine(self) -> bool: ...

    def says(self, pages: int, most: int) -> int: ...

    def kept(self, pages: int) -> int: ...


class Shelf:
    """values: what is stored. old: what was stored some time ago. dead_until: before this time it
    does nothing and every reply says so.
    """

    def __init__(self, config: Config) -> None:
        self.names = config.components
        self.values: dict[Name, Any] = {}
        self.old: dict[Name, Any] = {}
        self.dead_until = 0
        self.prompts: list[tuple[list[int], str]] = []  # with their namespaces, latest last
        self._reading: dict[int, list[Any]] = {}  # by store, the content of its pages when it began

    def begin(self, action: StorageAction, content: Content | None) -> None:
        """The action was issued: from now on it reads or fills its host pages."""
        if content is None or not isinstance(action, Fetch | Store):
            return
        pages = [
            (content.pages[Tier.HOST][index], page) for index, _, page in self._pages(action.pieces)
        ]
        if isinstance(action, Store):
            self._reading[action.flight] = [held[page] for held, page in pages]
            return
        for held, page in pages:
            held[page] = None

    def reply(
        self, action: StorageAction, kind: Way, now: int, content: Content | None
    ) -> StorageReply:
        """Carries out an action under a fault, and returns its reply."""
        works = kind.fine and now >= self.dead_until
        if isinstance(action, Delete):
            if works:
                self.values.clear()
            return DeleteDone(action.flight, works)
        if isinstance(action, Lookup):
            most = len(action.digests)
            found = self.found(action.digests, action.trailing_pages, action.known_pages)
            return LookupDone(action.flight, kind.says(found, most) if works else 0)
        if isinstance(action, Fetch):
            most = action.pages
            arrived = kind.says(self._fetched(action, content), most) if works else 0
            return FetchDone(action.flight, arrived)
        return StoreDone(action.flight, self._stored(action, kind, works, content))

    def remember(self, tokens: list[int], namespace: str) -> None:
        """Notes a prompt of which pages may be stored."""
        others = [one for one in self.prompts if one != (tokens, namespace)]
        self.prompts = [*others[1 - MOST_PROMPTS :], (tokens, namespace)]

    def forget(self, names: list[Name]) -> None:
        for name in names:
            self.values.pop(name, None)

    def named(self, action: object) -> list[Name]:
        """What an action reads or writes, in order."""
        if isinstance(action, Fetch | Store):
            return [(index, digest) for index, digest, _ in self._pages(action.pieces)]
        digests = action.digests if isinstance(action, Lookup) else ()
        return [(index, digest) for index in range(len(self.names)) for digest in digests]

    def come_back(self) -> None:
        """Only what was stored some time ago is there again."""
        self.values = dict(self.old)

    def _pages(self, pieces: tuple[Piece, ...]) -> list[tuple[int, bytes, int]]:
        return [
            (self.names.index(piece.component), digest, page)
            for piece in pieces
            for digest, page in zip(piece.digests, piece.pages.tolist(), strict=True)
        ]

    def found(self, digests: Sequence[bytes], trailing_pages: Sequence[int], known: int = 0) -> int:
        """The deepest boundary for which everything is there; see `Lookup`."""
        whole = len(digests)
        for index, trailing in enumerate(trailing_pages):
            for at in range(0 if index else known, whole if not trailing else 0):
                if (index, digests[at]) not in self.values:
                    whole = at
                    break
        for pages in range(whole, 0, -1):
            if all(
                (index, digest) in self.values
                for index, trailing in enumerate(trailing_pages)
                if trailing
                for digest in digests[max(0, pages - trailing) : pages]
            ):
                return pages
        return 0

    def boundaries(self, action: Lookup) -> set[int]:
        """All boundaries for which everything is there; `found` is the deepest."""
        return {
            end
            for end in range(1, len(action.digests) + 1)
            if all(
                (index, digest) in self.values
                for index, trailing in enumerate(action.trailing_pages)
                for at, digest in enumerate(action.digests[:end])
                if (at >= end - trailing if trailing else index or at >= action.known_pages)
            )
        }

    def _fetched(self, action: Fetch, content: Content | None) -> int:
        """Fills the host pages with what is there. Returns up to where everything has arrived."""
        arrived = action.pages
        for piece in action.pieces:
            index = self.names.index(piece.component)
            pages = zip(piece.digests, piece.pages.tolist(), strict=True)
            for depth, (digest, page) in enumerate(pages, piece.first_page - action.first_page):
                if (index, digest) not in self.values:
                    arrived = min(arrived, depth)
                elif content is not None:
                    content.pages[Tier.HOST][index][page] = self.values[index, digest]
        return arrived

    def _stored(self, action: Store, kind: Way, works: bool, content: Content | None) -> int:
        pages = self._pages(action.pieces)
        said = kind.says(len(pages), len(pages)) if works else 0
        before = self._reading.pop(action.flight, [None] * len(pages))
        for (index, digest, page), was in list(zip(pages, before, strict=True))[: kind.kept(said)]:
            if content is not None and content.pages[Tier.HOST][index][page] is not was:
                raise WrongContent(
                    f"flight {action.flight}: {self.names[index]} page {page} changed while it "
                    "was stored",
                    About("page", page, Tier.HOST, self.names[index]),
                    About("flight", action.flight),
                )
            self.values[index, digest] = was
        if len(self.values) >= len(self.old) + OLD:
            self.old = dict(self.values)
        return said
