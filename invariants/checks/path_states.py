"""The limit of states per path, if the configuration sets one."""

from __future__ import annotations

from typing import Any

from hicache.core.actions import Cached, Evicted
from hicache.core.events import Finished, Retracted
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.books.book import Book
from invariants.books.kinds import Kind
from invariants.books.mirror import NodeMirror
from invariants.books.story import node as node_story
from invariants.books.tags import Tags
from invariants.checks._victims import book_of, wanted
from invariants.reasons import Reason


class PathStates(Check):
    name = "PATH-STATES"
    sentence = (
        "A path that was just extended keeps at most as many states as the setting allows, not "
        "counting states in use, states at forks and the last state; the shallowest go first."
    )
    of_several = True
    watches = (Cached, Finished, Retracted)

    def see(self, book: Book, item: Any, view: CoreView) -> None:
        """For a request that leaves, checks the path that it committed; its locks are released by
        now.
        """
        if type(item) is Cached:
            req = book.requests.by_id.get(item.request)
            if req is not None and item.pages:
                self._look(book, req.tags, item.pages)
        elif book.left is not None:
            _, tags, made = book.left
            self._look(book, tags, made[0])

    def _freed(self, book: Book, tags: Tags, kind: Kind) -> int:
        """The depth in pages of the deepest state of the path that was freed above the limit, or 0.
        0 also if its pool was short, or that of a component whose eviction takes states along:
        then it may have been evicted for another reason.
        """
        pools = [tier * book.width + at for tier in (0, 1) for at in range(kind.at + 1)]
        if any(wanted(book, slot) for slot in pools):
            return 0
        known = tags.tolist()
        freed = [
            known.index(tag) + 1
            for item in book.outcomes
            if type(item) is Evicted and item.component == kind.name
            for tag in book_of(book, item).content[item.pages].tolist()
            if tag in known
        ]
        return max(freed, default=0)

    def _look(self, book: Book, tags: Tags, pages: int) -> None:
        path = [book.nodes.at[tag] for tag in tags[:pages].tolist() if tag in book.nodes.at]
        for kind in book.kinds:
            held = [mirror for mirror in path if _has(mirror, kind, book)]
            excess = len(held) - kind.per_path
            freed = self._freed(book, tags, kind) if kind.per_path else 0
            if not kind.per_path or (excess <= 0 and not freed):
                continue
            spare = []
            for mirror in held[:-1]:
                reason = _why(mirror, kind, book)
                if reason:
                    self.excuse(reason)
                else:
                    spare.append(mirror)
            if freed and spare and spare[0].end_page < freed:
                self.fail(
                    f"the state at page {freed} of the path to node {path[-1].id} was freed; "
                    f"expected that of node {spare[0].id}, end {spare[0].end_page}, to go before",
                    node_story(spare[0].id),
                )
            if excess > 0 and spare:
                self.fail(
                    f"the path to node {path[-1].id} has {len(held)} states of {kind.name}: "
                    f"expected at most {kind.per_path} but for those that must stay, found that "
                    f"of node {spare[0].id}, end {spare[0].end_page}",
                    node_story(spare[0].id),
                )


def _has(mirror: NodeMirror, kind: Kind, book: Book) -> bool:
    return any(mirror.pages[tier * book.width + kind.at] is not None for tier in (0, 1))


def _why(mirror: NodeMirror, kind: Kind, book: Book) -> Reason | None:
    """Why a state must stay, if it must.

    A fork counts as it was when the operation began; a child may have been removed since.
    """
    for tier in (0, 1):
        slot = tier * book.width + kind.at
        pages = mirror.pages[slot]
        pinned = pages is not None and int(pages[0]) in book.wants.before.get(slot, ())
        if mirror.locked[slot] or pinned:  # a pin may have moved to a deeper state since
            return Reason.STATE_IN_USE
    if mirror.kids + sum(one.parent is mirror for one in book.nodes.gone) > 1:
        return Reason.STATE_AT_FORK
    return None


def check() -> PathStates:
    return PathStates()
