"""Shared code of the checks of evictions: which pools were short of pages, and which victims were
chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from hicache.core.actions import Backup, Cached, Evicted, Refused
from hicache.core.events import AdmitWanted, ContinueWanted, EvictWanted, PagesWanted
from hicache.core.types import Tier
from invariants.base import Check
from invariants.books.book import Book
from invariants.books.mirror import NodeMirror, Rank
from invariants.books.pages import NODE, PageBook
from invariants.books.requests import RequestMirror
from invariants.reasons import Reason


def wanted(book: Book, slot: int) -> int:
    """Pages that a pool lacked for what the operation allocated or was refused."""
    pages, event = book.pages[slot], book.event
    needed = sum(len(claimed) for claimed, code in pages.claimed if code & 3 != NODE)
    if type(event) is EvictWanted and (event.tier, event.component) == (pages.tier, pages.name):
        needed += event.pages + book.free_before[slot]
    if pages.tier == Tier.DEVICE:
        for item in book.outcomes:
            if type(item) is Refused and item.reason == "writing_back":
                most = max(needs(book, item, pages.component), default=0)
                needed += min(item.needed, most) if item.component == pages.name else most
    if pages.tier == Tier.HOST:
        needed += kept_free(book, pages.component)
    return max(0, needed - book.free_before[slot])


def kept_free(book: Book, index: int) -> int:
    """Maximum number of host pages that stay free for exchanges."""
    spare = book.config.exchange_pages
    return spare[index] if spare else 0


def depths(book: Book, req: RequestMirror | None) -> tuple[int, ...]:
    """Boundaries in pages from which a refused request may have been planned to start: with a load
    and without one.
    """
    if req is None or type(book.event) is not AdmitWanted:
        return (0,)
    return tuple({req.expected.device: None, req.expected.best: None})


def needs(book: Book, item: Refused, index: int) -> list[int]:
    """The most pages of a component that a refused request can have wanted; for an admission, from
    each of `depths`. Room is made for one component after the other, so none is wanted of those
    after the one that was short.
    """
    req, event, kind = book.requests.by_id.get(item.request), book.event, book.kinds[index]
    if req is None or index > book.index_of(item.component):
        return [0]
    size = book.page_size
    if type(event) is PagesWanted:
        more = -(-event.length // size) - len(req.tables[0])
        return [more if kind.positional else 0]
    if type(event) is ContinueWanted:
        end = min(req.computed_tokens + event.chunk, req.length)
        return [max(1, -(-end // size) - req.filled) if kind.positional and index else 0]
    if type(event) is not AdmitWanted:
        return [0]
    found = []
    for depth in depths(book, req):
        loads = req.expected.lacking[index] if depth == req.expected.best else 0
        end = min(depth * size + event.chunk, req.length)
        if not kind.positional:
            found.append(loads + kind.slots)
        elif index:
            found.append(loads + max(1, -(-end // size) - depth))
        else:
            found.append(loads + max(0, -(-req.length // size) - depth))
    return found


class Decided(NamedTuple):
    """by: the component by whose order the operation chose its first victim. reason: why that
    is not certain.
    """

    by: int
    reason: Reason | None = None


def decided_by(book: Book, item: Evicted) -> Decided:
    """What the operation chose its first victim by. A leaf is evicted with all its components,
    whichever of them is wanted, and room is made for one component after the other.
    """
    pages = book_of(book, item)
    if book.width == 1:
        return Decided(0)
    if thinned(book, pages, int(item.pages[0])):
        return Decided(pages.component, Reason.THINNED)
    short = [slot for slot in range(len(book.pages)) if wanted(book, slot)]
    if short == [pages.tier * book.width + pages.component]:
        return Decided(pages.component)
    refused = any(type(other) is Refused for other in book.outcomes)
    if item.tier == Tier.DEVICE and short and short[0] < book.width and not refused:
        return Decided(short[0])
    return Decided(pages.component, Reason.UNCERTAIN_POOL)


def decided_later(book: Book, item: Evicted, earlier: Sequence[int]) -> Decided:
    """The same of a victim after the nodes `earlier`, which may have turned those above and below
    them into garbage.
    """
    pages = book_of(book, item)
    if thinned(book, pages, int(item.pages[0])):
        return Decided(pages.component, Reason.THINNED)
    giver = int(pages.giver[item.pages[0]])
    short = [slot for slot in range(len(book.pages)) if wanted(book, slot)]
    below = any(one in earlier for one in _path_ids(book, giver))
    above = any(giver in _path_ids(book, one) for one in earlier)
    if len(short) != 1 or short[0] // book.width != item.tier or below or above:
        return Decided(pages.component, Reason.LATER)
    return Decided(short[0] % book.width)


def known(book: Book, number: int) -> NodeMirror | None:
    """The record of a node, also of one that this operation removed."""
    found = book.nodes.by_id.get(number)
    return found or next((one for one in book.nodes.gone if one.id == number), None)


def _path_ids(book: Book, number: int) -> list[int]:
    step = known(book, number)
    found = []
    while step is not None and step.parent is not None:
        found.append(step.id)
        step = step.parent
    return found


def thinned(book: Book, pages: PageBook, page: int) -> bool:
    """Whether the page was a state above the limit of a path that a request has just extended, and
    that has as many states as the limit allows.
    """
    limit = book.kinds[pages.component].per_path
    if not limit:
        return False
    reqs = [book.requests.by_id.get(item.request) for item in book.outcomes if type(item) is Cached]
    paths = [req.tags for req in reqs if req is not None]
    if book.left is not None:
        paths.append(book.left[1])
    if book.answered is not None and len(book.answered.prompt):  # a fetch extended it
        paths.append(book.answered.prompt)
    tag = int(pages.content[page])
    there = _states_before_backups(book, pages.component)
    return any(
        tag in tags and sum(one in there for one in tags) >= limit
        for tags in (path.tolist() for path in paths)
    )


def _states_before_backups(book: Book, index: int) -> set[int]:
    """The prefixes with a state on a tier, or whose room on host a backup took that came last."""
    device, host = (book.nodes.resident[tier * book.width + index] for tier in (0, 1))
    outcomes = list(book.outcomes)
    told = next((at for at, one in enumerate(outcomes) if type(one) is Cached), 0)
    late = outcomes[told:] if any(type(one) is Backup for one in outcomes) else []
    taken = [
        tag
        for item in late
        if type(item) is Evicted and item.tier == Tier.HOST
        if book.index_of(item.component) == index
        for tag in book_of(book, item).content[item.pages].tolist()
    ]
    return device | host | set(taken)


def book_of(book: Book, item: Evicted) -> PageBook:
    """The page book of the pool that the victim left."""
    return book.pool(item.tier, book.index_of(item.component))


def demoted(book: Book, item: Evicted) -> bool:
    """Whether the node kept a copy of the victim on host: it is there still, or was evicted from
    there later in this operation.
    """
    if item.tier != Tier.DEVICE or not len(item.pages):
        return False
    pages, host = book_of(book, item), book.pool(Tier.HOST, book.index_of(item.component))
    tag = int(pages.content[item.pages[0]])
    if tag in book.nodes.resident[book.width + pages.component]:
        return True
    later = book.outcomes[1 + next(at for at, one in enumerate(book.outcomes) if one is item) :]
    return any(
        type(other) is Evicted
        and book_of(book, other) is host
        and tag in host.content[other.pages].tolist()
        for other in later
    )


def sheltered(book: Book, index: int) -> Mapping[int, Reason]:
    """Nodes whose copies of a component may not have been candidates while the victims were chosen,
    and why. An admission locks what it would reuse, even if it is refused.
    """
    nodes = book.nodes
    found = dict.fromkeys(nodes.hosted, Reason.ON_HOST) | dict.fromkeys(nodes.sank, Reason.SANK)
    if type(book.event) is AdmitWanted and any(type(item) is Refused for item in book.outcomes):
        req = book.requests.by_id.get(book.event.request)
        for depth in depths(book, req) if req is not None else ():
            for mirror in nodes.required(index, req.known[depth - 1]) if depth and req else ():
                found[mirror.id] = Reason.TO_BE_ADMITTED
    return found


def passed_over(
    check: Check,
    book: Book,
    index: int,
    queue: int,
    spared: Mapping[int, Reason],
    wrong: Callable[[Rank], bool | None],
) -> NodeMirror | None:
    """Returns the first candidate of a queue that should have been evicted instead of a victim.

    wrong: whether a candidate of this rank should have been; None to look at the next one. spared:
    candidates that are forgiven, and why.
    """
    seen: set[int] = set()
    while True:
        other = book.nodes.coldest(index, queue, seen)
        rank = other.rank[index] if other is not None else None
        if other is None or rank is None:
            return None
        verdict = wrong(rank)
        if verdict is False:
            return None
        if verdict and other.id not in spared:
            return other
        if verdict:
            check.excuse(spared[other.id])
        seen.add(other.id)
