"""The specified state that a core shows which runs already, so that a comparison begins anywhere;
and a state as plain facts, to compare two of them.

It reads records (nodes, requests, transfers, receipts) and works out everything else.
"""

from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

from hicache.core.types import Tier

from . import records
from .cache import Cache
from .kinds import Policies
from .stores import believe

Who = tuple[str, int]  # a record: what it is, and its number
_TO = {"load": Tier.DEVICE, "backup": Tier.HOST, "prefill": None}
# Of no meaning for later events, or worked out from the rest.
_UNTOLD = {"out", "last_page", "last_transfer", "made", "children", "digests", "nodes", "cached"}
_UNTOLD |= {"config", "writes", "order", "waits", "kinds", "root", "pins", "flushed", "outdated"}
_UNTOLD |= {"requests", "transfers", "storage", "having"}
# What has other records or pages in it.
_NAMED = {"parent", "request", "load", "prefetch", "running", "to_store", "hold", "moves", "parts"}


class Reading:
    """Reads one view. named: what the specification calls pages of a tier and kind. transfers: what
    it calls transfers; the others keep their number."""

    def __init__(
        self,
        view: Any,
        policies: Policies,
        named: Callable[[int, int, list[int]], list[int]],
        transfers: dict[int, int],
    ) -> None:
        self.named = named
        self.cache = cache = Cache(view.config, policies)
        cache.tick, cache.attached, cache.periods = view.tick, view.attached, [*view.periods]
        self.nodes = {0: cache.root}
        self._read_nodes(view)
        requests = sorted(view.requests.values(), key=lambda its: its.arrived)
        cache.requests = {its.id: self._request(its) for its in requests}
        cache.running = [cache.requests[number] for number in view.running]
        for its in view.transfers.values():
            number = transfers.setdefault(its.id, its.id)
            if its.kind in _TO:
                cache.transfers[number] = self._transfer(number, its)
            else:
                cache.storage[number] = self._storage_transfer(number, its, view)
        for its in requests:
            mine = cache.requests[its.id]
            mine.load = cache.transfers[transfers[its.load]] if its.load else None
            mine.prefetch = cache.storage[transfers[its.prefetch]] if its.prefetch else None
        cache.to_store = [self.nodes[number] for number in view.store_queue]
        cache.distrusted = [*view.distrusted]
        cache.pins = {
            number: records.Pin(pin.key, pin.tier, self._hold(pin.receipt), pin.held_pages)
            for number, pin in view.pins.items()
        }
        cache.last_transfer = max([0, *transfers.values()])

    def _read_nodes(self, view: Any) -> None:
        """Nodes are made in the order in which the core made them."""
        cache, shown = self.cache, list(view.nodes())
        for its in sorted(shown, key=lambda its: its.id):
            if its.id in self.nodes:
                raise ValueError(f"node {its.id} is there twice")
            stride = len(its.key) // (its.end_page - its.parent.end_page)
            starts = range(0, len(its.key), stride)
            rows = [bytes(its.key[start : start + stride]) for start in starts]
            node = self.nodes[its.id] = cache.new_node(cache.root, "", rows)
            node.end = its.end_page
            for tier, copies in enumerate(its.pages):
                for kind, pages in enumerate(copies):
                    if pages is not None:
                        cache.put(node, tier, kind, self._pages(tier, kind, pages))
            node.last_use, node.inserted, node.hits = list(its.last_use), its.inserted, its.hits
            node.priority, node.failures = its.priority, its.store_failures
            node.refused_by_host = {
                kind for kind in range(len(cache.kinds)) if its.host_refused >> kind & 1
            }
        for its in shown:
            node, above = self.nodes[its.id], self.nodes[its.parent.id]
            node.parent, node.namespace = above, above.namespace
            if its.label != node.rows[0] and not above.namespace:
                name = its.label.removesuffix(node.rows[0]).removesuffix(b"\0")
                node.namespace = name.decode()
            above.children.append(node)
            for kind in range(len(cache.kinds)):
                if view.believed(its, kind):
                    believe(cache, node, kind)

    def _pages(self, tier: int, kind: int, pages: Any) -> list[int]:
        return self.named(tier, kind, pages.tolist())

    def _hold(self, receipt: Any) -> records.Hold:
        """The pages that a receipt lists."""
        hold: records.Hold = set()
        for kind, locked in enumerate(receipt.locked if receipt is not None else ()):
            for its, tier in locked:
                hold.update(self.nodes[its.id].copies[tier][kind] or ())
        return hold

    def _request(self, its: Any) -> records.Request:
        known = its.key, its.length, its.match_pages, its.priority, its.may_load
        mine = records.Request(its.id, *known)
        if its.admitted:
            mine.hold = self._hold(its.receipt)
            tables = enumerate(its.tables)
            mine.tables = [self._table(kind, table.tolist()) for kind, table in tables]
            mine.shared, mine.computed = its.shared_pages, its.computed_tokens
            mine.filled, mine.cleared = its.filled_pages, list(its.cleared_pages)
            mine.branch = its.branch_pages
            mine.states = [list(at) or [0, 0] for at in its.checkpoint_tokens]
            mine.refilled = its.refilled_at_tokens
            mine.sources = [self._table(at, [page])[0] for at, page in enumerate(its.sources)]
        return mine

    def _table(self, kind: int, pages: list[int]) -> list[int | None]:
        named = iter(self.named(records.DEVICE, kind, [page for page in pages if page >= 0]))
        return [None if page < 0 else next(named) for page in pages]

    def _transfer(self, number: int, its: Any) -> records.Transfer:
        to = _TO[its.kind]
        mine = records.Transfer(number, to, self.cache.requests.get(its.request))
        tier = records.DEVICE if to == records.DEVICE else records.HOST
        for segment in its.segments:
            kind = segment.component
            source = self._pages(1 - tier, kind, segment.source)
            target = self._pages(tier, kind, segment.target)
            mine.moves += [records.Move(kind, *pair) for pair in zip(source, target, strict=True)]
        mine.hold = self._hold(its.receipt)
        mine.on_loan = {
            kind: set(self._pages(records.DEVICE, kind, pages))
            for kind, pages in enumerate(its.on_loan)
        }
        mine.frees = {kind: count for kind, count in enumerate(its.frees) if count}
        mine.gives_up = {kind: count for kind, count in enumerate(its.gives_up) if count}
        mine.end_token = its.end_token
        mine.checkpoints = [(kind, tokens, slot - 1) for kind, tokens, slot in its.checkpoints]
        return mine

    def _storage_transfer(self, number: int, its: Any, view: Any) -> records.StorageTransfer:
        mine = records.StorageTransfer(number, str(its.kind), self._hold(its.receipt))
        mine.abandoned, mine.outdated = its.abandoned, view.is_outdated(its)
        if its.key is not None:
            mine.key, mine.first = its.key, its.first_page
            mine.asked_pages, mine.found_pages = its.asked_pages, its.found_pages
            mine.flushed = its.kind == "fetch" and its.receipt is None
        digests = its.key.page_digests() if its.segments and its.key is not None else []
        for segment in its.segments:
            kind, first = segment.component, segment.first_page
            chain = digests[first:]
            pages = self._pages(records.HOST, kind, segment.target if its.key else segment.source)
            if its.key is None and segment.node is not None:
                node = self.nodes[segment.node.id]
                first = self.cache.positions(node, kind)[0]
                chain = self.cache.digests(node)[first - node.start :]
            elif its.key is None:  # of a node that is gone
                chain = [b""] * len(pages)
            mine.parts += [
                records.Part(kind, first + at, chain[at], page) for at, page in enumerate(pages)
            ]
        return mine


def facts(cache: Cache, numbers: Iterable[int]) -> dict[Who, dict[str, object]]:
    """All that later events depend on, by the record that has it. numbers: of the nodes, in the
    order in which they were made."""
    nodes = dict(zip(sorted(cache.nodes, key=lambda node: node.made), numbers, strict=False))
    cached = set[int]().union(*chain(*cache.cached))

    def plain(name: str, value: Any) -> object:
        if isinstance(value, records.Node):
            return nodes.get(value)
        if isinstance(value, records.Request | records.Transfer | records.StorageTransfer):
            return value.number
        if name == "running":
            return [request.number for request in value]
        if name == "to_store":
            return [nodes.get(node) for node in value]
        if name == "parts":
            return {(part.kind, part.page) for part in value}
        return value & cached if name == "hold" else {*value} if name == "moves" else value

    every: dict[Who, object] = {("cache", -1): cache}
    every |= {("node", number): node for node, number in nodes.items()}
    every |= {("request", number): request for number, request in cache.requests.items()}
    every |= {("transfer", number): item for number, item in cache.transfers.items()}
    every |= {("transfer", number): item for number, item in cache.storage.items()}
    every |= {("pin", number): pin for number, pin in cache.pins.items()}
    result: dict[Who, dict[str, object]] = {}
    fields_of: dict[type, list[str]] = {}  # by the class of a record
    for who, item in every.items():
        if type(item) not in fields_of:
            names = getattr(item, "__mypyc_attrs__", None) or vars(item)  # of a compiled class
            fields_of[type(item)] = [name for name in names if name not in _UNTOLD]
        values = ((name, getattr(item, name)) for name in fields_of[type(item)])
        result[who] = {
            name: plain(name, value) if name in _NAMED else value for name, value in values
        }
    result["cache", -1]["nodes"] = len(cache.nodes)
    return result
