"""A simulated storage: which pages it has, and what it answers under a fault."""

from collections.abc import Iterator, Sequence
from typing import Any

from hicache.core import actions, events
from hicache.core.actions import Fetch, Lookup, StorageAction, Store
from hicache.core.config import Config
from hicache.core.errors import About
from hicache.core.events import StorageReply
from invariants.base import Deviation


class WrongContent(Deviation):
    """What carries out the actions for a real storage answers or brings something else."""

    def __init__(self, text: str, *about: About) -> None:
        super().__init__("BYTES by content", text, *about)


class SimulatedStore:
    """values: what is stored, by component and digest."""

    def __init__(self, config: Config) -> None:
        self.names = config.components
        self.values: set[tuple[int, bytes]] = set()

    def lose(self) -> None:
        """Everything that is stored is lost, and nobody is told."""
        self.values.clear()

    def reply(self, action: StorageAction, kind: Any) -> StorageReply:
        """Carries out an action under a fault (hand.Fault), and returns its reply."""
        if isinstance(action, actions.Delete):
            if kind.fine:
                self.values.clear()
            return events.DeleteDone(action.transfer, kind.fine)
        if isinstance(action, Lookup):
            pages = self.matched(action.digests, action.trailing_pages, action.known_pages)
            answer = kind.says(pages, len(action.digests)) if kind.fine else 0
            return events.LookupDone(action.transfer, answer)
        pieces = list(self._pages(action))
        if isinstance(action, Fetch):
            missing = [piece[-1] for piece in pieces if piece[:2] not in self.values]
            arrived = min(missing, default=action.first_page + action.pages) - action.first_page
            answer = kind.says(arrived, action.pages) if kind.fine else 0
            return events.FetchDone(action.transfer, answer)
        answer = kind.says(len(pieces), len(pieces)) if kind.fine else 0
        self.values.update(piece[:2] for piece in pieces[: kind.kept(answer)])
        return events.StoreDone(action.transfer, answer)

    def _pages(self, action: Fetch | Store) -> Iterator[tuple[int, bytes, int, int]]:
        """Component, digest, host page and depth of each page of an action."""
        for piece in action.pieces:
            index = self.names.index(piece.component)
            pages = zip(piece.digests, piece.pages.tolist(), strict=True)
            for depth, (digest, page) in enumerate(pages, piece.first_page):
                yield index, digest, page, depth

    def matched(
        self, digests: Sequence[bytes], trailing_pages: Sequence[int], known: int = 0
    ) -> int:
        """The deepest boundary for which everything is there; see `Lookup`."""
        ends = range(len(digests), 0, -1)
        return next((end for end in ends if self._fits(digests[:end], trailing_pages, known)), 0)

    def boundaries(self, action: Lookup) -> set[int]:
        """All boundaries for which everything is there."""
        digests, more = action.digests, (action.trailing_pages, action.known_pages)
        return {end for end in range(1, len(digests) + 1) if self._fits(digests[:end], *more)}

    def _fits(self, digests: Sequence[bytes], trailing_pages: Sequence[int], known: int) -> bool:
        return all(
            (index, digest) in self.values
            for index, trailing in enumerate(trailing_pages)
            for digest in digests[-trailing if trailing else 0 if index else known :]
        )
