"""Instruments of the core's records: report every change of a page, lock or link, and its line.

Within `instruments`, the methods of the page ledger and the attributes of nodes, requests, flights
and pools report their changes and callers. The core's decisions do not change. Plant a bug before,
so that its own lines are reported.

Lives here: what is reported. Does not assign changes to objects (see recorder, explain) or judge
them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from hicache.core.ledger import Pool
from hicache.core.radix.node import FAR, NONE, Flight, Node
from hicache.core.requests.record import Request
from hicache.core.types import PageState, Tier

from ..source_lines import SourceLine, running_lines

RETIRING = "retiring"
TAKING, MOVING, LENDING = ("take", "reserve"), ("cache", "move", "give_back"), ("lend", "repay")
LINKS, MINOR = (
    ("parent", "end_page", "live_distance", "hits", "host_refused", "queued"),
    ("hits", "queued"),
)
BITS = ("host_refused", "queued")
PROGRESS = ("admitted", "shared_pages", "computed_tokens", "shared_node", "prefill", "load")
HOLDER = re.compile(r"\b(request|backup|load) (\d+)")
_UNSET = object()


class Change(NamedTuple):
    """A change.

    text: description. source_lines: the lines that made it, innermost first. tier, component,
    pages: the changed pages and their pool. node: the node whose link, page or lock changed. whom:
    ("request" or "flight", number) of the holders before and after. after: the holder now. lock:
    the receipt's number, if a lock was taken or released. minor: omitted from long lists.
    """

    text: str
    source_lines: tuple[SourceLine, ...]
    tier: int = -1
    component: str = ""
    pages: tuple[int, ...] = ()
    node: int = -1
    whom: tuple[tuple[str, int], ...] = ()
    after: tuple[str, int] = ("", -1)
    lock: int = 0
    minor: bool = False


Report = Callable[[Change], None]


@contextmanager
def instruments(report: Report, components: Sequence[str]) -> Iterator[None]:
    """Within the block, every new core reports its changes."""
    with ExitStack() as stack:
        for name in (*TAKING, *MOVING, *LENDING):
            _patch(stack, Pool, name, _ledger(name, vars(Pool)[name], report))
        _patch(stack, Pool, "__setattr__", _protection(report))
        _patch(stack, Node, "__init__", _birth(Node.__init__, report, components))
        _patch(stack, Node, "__setattr__", _links(report, components))
        _patch(stack, Request, "__setattr__", _owner("request", PROGRESS, report, components))
        _patch(stack, Flight, "__setattr__", _owner("flight", (), report, components))
        yield


def _patch(stack: ExitStack, owner: type, name: str, replacement: Any) -> None:
    original = vars(owner).get(name, _UNSET)
    setattr(owner, name, replacement)
    if original is _UNSET:
        stack.callback(delattr, owner, name)
    else:
        stack.callback(setattr, owner, name, original)


# -- the ledger


def _ledger(name: str, real: Any, report: Report) -> Any:
    def method(self: Pool, what: Any, *rest: Any) -> Any:
        source_lines = running_lines()
        pages = [] if name in TAKING else _numbers(what)
        before = [_had(self, page, name) for page in pages]
        retiring = [page for page in pages if name in LENDING and _had(self, page) == RETIRING]
        try:
            result = real(self, what, *rest)
        except Exception:
            _tell(report, self, source_lines, pages, before, [f"refused ({name})"] * len(pages))
            raise
        if name in TAKING:
            pages = _numbers(result)
            before = ["free"] * len(pages)
        _tell(report, self, source_lines, pages, before, [_had(self, page, name) for page in pages])
        free = [page for page in retiring if _had(self, page) != RETIRING]
        _tell(
            report,
            self,
            source_lines,
            free,
            [RETIRING] * len(free),
            [_had(self, one) for one in free],
        )
        return result

    return method


def _numbers(pages: Any) -> list[int]:
    listed: Any = getattr(pages, "tolist", list)()
    return listed if isinstance(listed, list) else [int(listed)]


def _had(pool: Pool, page: int, name: str = "") -> str:
    """Describes the holder of a page; for a loan, the number of loans."""
    if not 0 <= page < pool.capacity:
        return "no page"
    if name in LENDING:
        count = int(pool.loans[page])
        return f"on {count} loan{'s' * (count != 1)}"
    owner = int(pool.owner[page])
    return {
        PageState.FREE: "free",
        PageState.OWNED: f"request {owner}",
        PageState.CACHED: f"node {owner}",
        PageState.LENT: f"flight {owner}",
        PageState.RETIRING: RETIRING,
    }[PageState(int(pool.state[page]))]


def _tell(
    report: Report,
    pool: Pool,
    source_lines: tuple[SourceLine, ...],
    pages: Sequence[int],
    before: Sequence[str],
    after: Sequence[str],
) -> None:
    """Reports one change for all pages with the same holders before and after."""
    ways = list(zip(before, after, strict=True))
    where = f"{Tier(pool.tier).name.lower()} {pool.component}"
    for way in dict.fromkeys(ways):
        some = tuple(page for page, one in zip(pages, ways, strict=True) if one == way)
        owners = tuple(one for one in map(_who, way) if one[0])
        text = f"{where} {named(some)}: {way[0]} -> {way[1]}"
        report(
            Change(
                text, source_lines, int(pool.tier), pool.component, some, -1, owners, _who(way[1])
            )
        )


def _who(words: str) -> tuple[str, int]:
    kind, _, number = words.partition(" ")
    return (kind, int(number)) if kind in ("request", "node", "flight") else ("", -1)


def named(pages: Sequence[int]) -> str:
    """Returns `page 3` or `pages 3 4 5`; long lists are shortened."""
    shown = " ".join(str(page) for page in pages[:8])
    more = f" ... ({len(pages)})" if len(pages) > 8 else ""
    return f"page{'s' * (len(pages) != 1)} {shown}{more}"


def _protection(report: Report) -> Any:
    def setter(self: Pool, name: str, value: Any) -> None:
        old = getattr(self, name, _UNSET)
        object.__setattr__(self, name, value)
        if name == "protected" and old is not _UNSET and old != value:
            text = f"{Tier(self.tier).name.lower()} {self.component}: protected {old} -> {value}"
            report(Change(text, running_lines(), int(self.tier), self.component))

    return setter


# -- nodes


class _Uses(list[Any]):
    """Last uses of a node, by component."""

    def __init__(self, values: Sequence[Any], node: int, report: Report) -> None:
        super().__init__(values)
        self.node, self.report = node, report

    def __setitem__(self, index: Any, value: Any) -> None:
        old = list(self)
        super().__setitem__(index, value)
        if old != self:
            text = f"node {self.node}: last use {old} -> {list(self)}"
            self.report(Change(text, running_lines(), node=self.node, minor=True))


class _Locks(dict[int, Any]):
    """Locks on a component of a node on a tier."""

    def __init__(self, node: int, tier: int, index: int, tell: Any) -> None:
        super().__init__()
        self.place, self.tell = (node, tier, index), tell

    def __setitem__(self, number: int, receipt: Any) -> None:
        fresh = number not in self
        super().__setitem__(number, receipt)
        if fresh:
            self.tell(*self.place, f"locked by {receipt.name}", running_lines(), receipt)

    def __delitem__(self, number: int) -> None:
        self.pop(number)

    def clear(self) -> None:
        for number in list(self):
            self.pop(number)

    def pop(self, number: int, *default: Any) -> Any:
        receipt = super().pop(number, *default)
        if receipt is not None:
            left = ", ".join(other.name for other in self.values())
            text = f"unlocked by {receipt.name}{f', still locked by {left}' if left else ''}"
            self.tell(*self.place, text, running_lines(), receipt)
        return receipt


def _pages_or_none(pages: Any) -> str:
    return "none" if pages is None else named(_numbers(pages))


def _teller(report: Report, components: Sequence[str]) -> Any:
    """Reports what happened to a component of a node on a tier."""

    def tell(
        node: int,
        tier: int,
        index: int,
        text: str,
        source_lines: tuple[SourceLine, ...],
        receipt: Any = None,
    ) -> None:
        name = components[index]
        where = f"node {node}: {Tier(tier).name.lower()} {name}"
        lock = 0 if receipt is None else receipt.id
        whom = () if receipt is None else holder_of(receipt.name)
        report(Change(f"{where} {text}", source_lines, tier, name, (), node, whom, lock=lock))

    return tell


def _birth(real: Any, report: Report, components: Sequence[str]) -> Any:
    tell = _teller(report, components)

    def init(self: Node, number: int, parent: Node | None, *rest: Any) -> None:
        real(self, number, parent, *rest)
        device, host = (
            tuple(_Locks(number, tier, index, tell) for index in range(len(components)))
            for tier in range(2)
        )
        self.locks = device, host
        above = "as the root" if parent is None else f"below {_shown('parent', parent)}"
        text = f"node {number}: made {above}, ends at page {self.end_page}"
        report(Change(text, running_lines(), node=number))

    return init


def holder_of(words: str) -> tuple[tuple[str, int], ...]:
    """Returns the request or flight in the name of a receipt's holder."""
    found = HOLDER.search(words)
    if found is None:
        return ()
    return (("request" if found[1] == "request" else "flight", int(found[2])),)


def _links(report: Report, components: Sequence[str]) -> Any:
    tell = _teller(report, components)

    def setter(self: Node, name: str, value: Any) -> None:
        if name == "last_use":
            value = _Uses(value, self.id, report)
        old: Any = getattr(self, name, _UNSET)
        if name == "locks" and old is not _UNSET and type(old[0][0]) is _Locks:
            return  # those that report stay, where the node would share empty ones
        object.__setattr__(self, name, value)
        if name == "pages" and old is not _UNSET:
            for tier, (before, after) in enumerate(zip(old, value, strict=True)):
                for index, (one, other) in enumerate(zip(before, after, strict=True)):
                    if one is not other:
                        text = f"{_pages_or_none(one)} -> {_pages_or_none(other)}"
                        tell(self.id, tier, index, text, running_lines())
        known = name in LINKS and old is not _UNSET and hasattr(self, "digests")
        if known and old is not value and old != value:
            text = f"node {self.id}: {name} {_shown(name, old)} -> {_shown(name, value)}"
            if name == "parent" and value is None:
                text = f"node {self.id}: removed"
            report(Change(text, running_lines(), node=self.id, minor=name in MINOR))

    return setter


def _shown(name: str, value: Any) -> str:
    if isinstance(value, Node):
        return f"node {value.id}" if value.parent is not None else "the root"
    if name == "live_distance":
        return {NONE: "none", FAR: "far"}.get(value, str(value))
    if name in BITS:
        return str([bit for bit in range(int(value).bit_length()) if value >> bit & 1])
    return str(value)


# -- requests and flights


def _owner(kind: str, told: Sequence[str], report: Report, components: Sequence[str]) -> Any:
    def setter(self: Any, name: str, value: Any) -> None:
        old: Any = getattr(self, name, _UNSET)
        object.__setattr__(self, name, value)
        if old is _UNSET or old is value:
            return
        if name == "receipt" and old is not None:
            for component, entries in zip(components, old.locked, strict=True):
                for node, tier in entries:
                    side = f"{Tier(tier).name.lower()} {component}"
                    text = f"node {node.id}: {side}: {kind} {self.id} forgets its lock"
                    whom = ((kind, self.id),)
                    report(Change(text, running_lines(), tier, component, node=node.id, whom=whom))
        elif name in told and old != value:
            text = f"{kind} {self.id}: {name} {_shown(name, old)} -> {_shown(name, value)}"
            report(Change(text, running_lines(), whom=((kind, self.id),)))

    return setter
