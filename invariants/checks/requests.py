"""The tables and the shared pages of requests, and what requests are told of them."""

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np

from hicache.core.actions import (
    Admitted,
    Backup,
    Cached,
    Evicted,
    Fetch,
    Granted,
    Load,
    Lookup,
    Matched,
    Prefetched,
    Prefill,
    Store,
)
from hicache.core.errors import About
from hicache.core.events import AdmitWanted, Finished, Retracted
from hicache.core.node import Node
from hicache.core.types import NO_PAGES, Pages, Tier
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.shadow import story
from invariants.shadow.kinds import Kind
from invariants.shadow.nodes import Reach
from invariants.shadow.pages import KIND_BITS, KIND_MASK, KINDS, TRANSFER, PageShadow, name_of, same
from invariants.shadow.record import NodeRecord
from invariants.shadow.requests import RequestRecord
from invariants.shadow.shadow import Shadow
from invariants.shadow.tags import NO_TAGS


class Anchor(Check):
    name = "ANCHOR"
    sentence = (
        "The pages that a request shares are exactly those of the nodes on the path to its "
        "anchor, in order, and that path is its own prefix. What it commits is in the tree."
    )
    items = (Admitted, Cached, Finished, Retracted)

    def after(
        self, shadow: Shadow, item: Admitted | Cached | Finished | Retracted, view: CoreView
    ) -> None:
        if shadow.missing:
            self.fail(
                f"expected a node, found none: {shadow.missing[0]}", story.request(item.request)
            )
        if type(item) is Finished or type(item) is Retracted:
            self._left(shadow, item)
            return
        req, request = shadow.requests.by_id.get(item.request), view.requests.get(item.request)
        if req is None or request is None:
            self.fail(
                f"request {item.request} is answered but unknown", story.request(item.request)
            )
        depth = _depth_of(item)  # type: ignore[arg-type]
        if type(item) is Cached and shadow.width == 1:
            depth = max(depth, min(req.computed_tokens // shadow.page_size, len(req.tags)))
        shared = req.shared_pages
        if request.shared_pages != req.boundary:
            self.fail(
                f"request {item.request}: expected {req.boundary} shared pages on record, found "
                f"{request.shared_pages}",
                story.request(item.request),
            )
        if len(shared) < depth or (type(item) is Admitted and len(shared) != depth):
            self.fail(
                f"request {item.request}: expected {depth} shared pages, found {len(shared)}",
                story.request(item.request),
            )
        end = len(shared)
        step = shadow.nodes.at.get(int(req.tags[end - 1])) if end else None
        if end and type(item) is Cached:
            self._states(shadow, item, step, end)
        while step is not None and step.parent is not None:
            start = step.end_page - step.span
            pages = step.pages[0]
            if pages is None or not same(pages, shared[start:end]):
                self.fail(
                    f"request {item.request}: pages {start}..{end} of its table are not those of "
                    f"node {step.id}",
                    story.request(item.request),
                )
            for kind in shadow.kinds[1:]:
                if kind.positional:
                    self._window(req, step, kind)
            end, step = start, step.parent
        if end:
            self.fail(
                f"request {item.request}: no node ends at page {end} of its prefix",
                story.request(item.request),
            )

    def _left(self, shadow: Shadow, item: Finished | Retracted) -> None:
        tags = NO_TAGS if shadow.left is None else shadow.left
        if end := shadow.left_state if shadow.width > 1 else len(tags):
            self._states(shadow, item, shadow.nodes.at.get(tags.item(end - 1)), end)

    def _states(self, shadow: Shadow, item: Any, at: NodeRecord | None, end: int) -> None:
        wanted = sum(1 << kind.at for kind in shadow.kinds if not kind.positional)
        if at is None or at.pages[0] is None or at.there & wanted != wanted:
            self.fail(
                f"request {item.request}: expected page {end} and its states in the tree",
                story.request(item.request),
            )

    def _window(self, req: RequestRecord, step: NodeRecord, kind: Kind) -> None:
        """Checks the window pages in the table against the node's, where the boundary requires
        them."""
        page = step.pages[kind.at]
        mine = req.tables[kind.at][step.end_page - step.span : step.end_page]
        if page is None or same(mine, page):
            return  # a load fills these positions, or they are not read
        required = np.arange(step.end_page - step.span, step.end_page) >= req.low - kind.need
        required &= req.boundary - kind.need < step.end_page <= req.boundary
        wrong = (mine != page) & ((mine >= 0) | required)
        if wrong.any():
            at = int(wrong.argmax())
            self.fail(
                f"request {req.id}, boundary {req.boundary}: {kind.name} page "
                f"{step.end_page - step.span + at} of its table is {mine[at]}, expected node "
                f"{step.id}'s {page[at]}",
                story.request(req.id),
                story.node(step.id),
            )


def _depth_of(item: Admitted | Cached) -> int:
    """Number of leading backbone pages that the request shares now."""
    if type(item) is Cached:
        return item.pages
    loads = item.loaded_pages[0] if item.loaded_pages else item.host_pages  # type: ignore[union-attr]
    return item.device_pages + item.host_pages - loads  # type: ignore[union-attr]


_WithPages: TypeAlias = Load | Backup | Prefill | Granted | Cached | Fetch | Store


class Alias(Check):
    name = "ALIAS"
    sentence = (
        "No page array of a node, a request or an action can be written through any name, and a "
        "table does not change after it was handed out."
    )
    items = (Load, Backup, Prefill, Granted, Cached, Fetch, Store)
    of_changes = True

    def totals(self, shadow: Shadow, view: CoreView) -> None:
        for pages in shadow.changed:
            for claimed, code in pages.claimed:
                if code & KIND_MASK != TRANSFER and _writable(claimed):
                    self.fail(
                        f"pages of {name_of(code)}: expected read-only, found writable",
                        About(KINDS[code & KIND_MASK], code >> KIND_BITS),
                    )

    def after(self, shadow: Shadow, item: _WithPages, view: CoreView) -> None:
        arrays = None
        if type(item) is Load or type(item) is Backup:
            arrays = [pages for copy in item.copies for pages in (copy.source, copy.target)]
        elif type(item) is Fetch or type(item) is Store:
            arrays = [piece.pages for piece in item.pieces]
        if arrays is not None:
            if any(map(_writable, arrays)):
                number: int = item.transfer  # type: ignore[union-attr]
                self.fail(f"transfer {number}: its pages are writable", story.transfer(number))
            return
        tables = item.tables  # type: ignore[union-attr]
        if any(map(_writable, tables)):
            number = item.request  # type: ignore[union-attr]
            self.fail(f"a table of request {number} is writable", story.request(number))
        req = shadow.requests.by_id.get(item.request)  # type: ignore[union-attr]
        if req is not None and (not req.handed or req.handed[0][0] is not tables[0]):
            self._unchanged(req)
            req.handed = tuple((table, table.tobytes()) for table in tables)

    def audit(self, shadow: Shadow, view: CoreView) -> None:
        for req in shadow.requests.by_id.values():
            self._unchanged(req)

    def _unchanged(self, req: RequestRecord) -> None:
        for table, copy in req.handed:
            if table.tobytes() != copy:
                self.fail(
                    f"the table handed to request {req.id} changed after it was handed out",
                    story.request(req.id),
                )


def _writable(pages: Pages) -> bool:
    base = pages.base
    return pages.flags.writeable or (base is not None and base.flags.writeable)


class MetricReference(Check):
    name = "METRIC-REF"
    sentence = (
        "The hits of all tiers and the computed tokens sum to the prompt, hits reach the deepest "
        "boundary on device or, with loads, on either tier, and the prefills compute exactly the "
        "rest, in order; a prefetch asks for what may be reused, and finds and fetches a part of "
        "it."
    )
    items = (AdmitWanted, Admitted, Matched, Prefill, Prefetched, Lookup)

    def __init__(self) -> None:
        self._next: dict[int, int] = {}  # by request, the first token of its next prefill
        self._before = Reach(0, 0, (), 0)  # of the request that is to be admitted

    def after(self, shadow: Shadow, item: Any, view: CoreView) -> None:
        req = shadow.requests.by_id.get(item.request)
        if req is None or isinstance(item, AdmitWanted | Prefill):
            return
        if isinstance(item, Admitted | Matched):
            self._reaches(shadow, req, item, view)
            return
        first, most = item.first_page, len(req.known)
        if isinstance(item, Prefetched):
            requested = item.asked_pages
            wrong = not 0 <= item.fetched_pages <= item.found_pages <= requested
        else:
            requested = len(item.digests)
            wrong = first + requested > most
        if wrong:
            self.fail(
                f"request {req.id}, {most} pages that may be reused: {story.brief(item)}",
                story.request(req.id),
            )

    def _reaches(
        self, shadow: Shadow, req: RequestRecord, item: Admitted | Matched, view: CoreView
    ) -> None:
        """Compares hits with what there was before; less where room was made for the request."""
        reach = self._before if isinstance(item, Admitted) else shadow.nodes.reach(req.known)
        device, end = item.device_pages, item.device_pages + item.host_pages
        fits = device == reach.device and end == reach.best
        if isinstance(item, Admitted):
            took = any(type(other) is Evicted for other in shadow.outcomes)
            more, config, request = reach.best - device, shadow.config, view.requests[item.request]
            worth = max(1, config.load_threshold_pages) <= more <= (config.load_quota_pages or more)
            spare = shadow.width > 1 or not (worth and request.may_load)
            fits |= end == device <= reach.device and (spare if device == reach.device else took)
            fits &= item.matched_pages == request.branch_pages == reach.known
        if not fits or item.depths != reach.alone:
            self.fail(f"{story.brief(item)}, expected {reach}", story.request(req.id))

    def before(self, shadow: Shadow, item: Any, view: CoreView) -> None:
        req = shadow.requests.by_id.get(item.request)
        if req is None or isinstance(item, Matched | Prefetched | Lookup):
            return
        if isinstance(item, AdmitWanted):
            self._before = shadow.nodes.reach(req.known)
            return
        if isinstance(item, Admitted):
            hits = item.device_pages + item.host_pages
            reused = min(req.length, hits * shadow.page_size)
            self._next[item.request] = reused
            if reused + item.tokens_to_compute != req.length or hits > req.match_pages:
                self.fail(
                    f"request {item.request}: device {item.device_pages} + host {item.host_pages} "
                    f"pages of {shadow.page_size} + computed {item.tokens_to_compute}, expected a "
                    f"sum of {req.length} and at most {req.match_pages} pages",
                    story.request(item.request),
                )
            return
        start = max(self._next.get(item.request, 0), req.computed_tokens)
        for earlier in shadow.passes_before(item):
            start = max(start, earlier.action.end_token)  # type: ignore[union-attr]
        first, end, completes_prompt = item.start_token, item.end_token, item.completes_prompt
        last = end == req.length
        if first != start or not start <= end <= req.length or completes_prompt != last:
            self.fail(
                f"request {item.request}: prefill {first}..{end}, last {completes_prompt}; "
                f"expected to start at {start} and end by {req.length}",
                story.request(item.request),
            )
        if last:
            self._next.pop(item.request, None)


class PeerMap(Check):
    name = "MAP-SWA"
    sentence = (
        "The map from pages of full attention to pages of a windowed component is zero where "
        "there is no peer and injective elsewhere, and a page and its peer have one owner."
    )
    of_several = True
    items = (Prefill, Cached, Granted)

    def node(self, shadow: Shadow, record: NodeRecord, node: Node) -> None:
        arrays, shadows = record.pages, shadow.pages
        if not record.moved and not shadow.clashed:
            return  # what was the node's own still is
        for first in (0, shadow.width):
            full = arrays[first]
            for kind in shadow.kinds[1:]:
                peers = arrays[first + kind.at]
                if kind.positional and full is not None and peers is not None:
                    self._one_owner(shadows[first], full, shadows[first + kind.at], peers)

    def after(self, shadow: Shadow, item: Prefill | Cached | Granted, view: CoreView) -> None:
        req = shadow.requests.by_id.get(item.request)
        request = view.requests.get(item.request)
        if req is None or request is None:
            return
        for kind in shadow.kinds[1:]:
            if kind.positional:
                full, peers = _own(shadow, req, kind)
                self._one_owner(shadow.device, full, shadow.pages[kind.at], peers)

    def _one_owner(
        self, pages_shadow: PageShadow, full: Pages, other: PageShadow, peers: Pages
    ) -> None:
        if len(full) != len(peers):
            self.fail(
                f"{len(full)} {pages_shadow.where} pages have {len(peers)} {other.where} peers",
                story.pool(pages_shadow),
                story.pool(other),
            )
        owners, others = pages_shadow.owner[full], other.owner[peers]
        if not same(owners, others):
            at = int((owners != others).argmax())
            self.fail(
                f"{pages_shadow.where} page {full[at]} is "
                f"{name_of(int(pages_shadow.owner[full[at]]))}'s, "
                f"its peer {other.where} page {peers[at]} {name_of(int(other.owner[peers[at]]))}'s",
                story.page(pages_shadow, int(full[at])),
                story.page(other, int(peers[at])),
            )

    def audit(self, shadow: Shadow, view: CoreView) -> None:
        for tier in (Tier.DEVICE, Tier.HOST):
            for kind in shadow.kinds[1:]:
                if kind.positional:
                    self._agree(shadow, view, tier, kind)

    def _agree(self, shadow: Shadow, view: CoreView, tier: Tier, kind: Kind) -> None:
        full, other = shadow.pool(tier), shadow.pool(tier, kind.at)
        expected = np.zeros(full.capacity, dtype=np.int64)
        pairs = list(_pairs(shadow, tier, kind))
        pages = np.concatenate([NO_PAGES, *(array for array, _ in pairs)])
        expected[pages] = np.concatenate([NO_PAGES, *(peers for _, peers in pairs)]) + 1
        result = view.peers(tier, kind.at)
        if not np.array_equal(result, expected):
            at = int((result != expected).argmax())
            self.fail(
                f"{full.where} page {at}: expected the {other.where} peer {expected[at] - 1}, "
                f"found {result[at] - 1} (-1: none)",
                story.page(full, at),
            )
        there = np.sort(expected[expected > 0])
        twice = there[1:][there[1:] == there[:-1]]
        if len(twice):
            self.fail(
                f"{other.where} page {twice[0] - 1} is the peer of two {full.where} pages",
                story.page(other, int(twice[0]) - 1),
            )


def _pairs(shadow: Shadow, tier: Tier, kind: Kind) -> Iterator[tuple[Pages, Pages]]:
    """Yields the full attention pages and their peers of each node, and on device of each
    request."""
    first = tier * shadow.width
    for record in shadow.nodes.by_id.values():
        page, peers = record.pages[first], record.pages[first + kind.at]
        if page is not None and peers is not None and len(page) == len(peers):
            yield page, peers
    if tier == Tier.DEVICE:
        for req in shadow.requests.by_id.values():
            yield _own(shadow, req, kind)


def _own(shadow: Shadow, req: RequestRecord, kind: Kind) -> tuple[Pages, Pages]:
    """Returns the request's own full attention pages that have a peer, and the peers."""
    own = req.own[0]
    if not len(own):
        return NO_PAGES, NO_PAGES
    peers = req.tables[kind.at][len(req.tables[0]) - len(own) :]
    there = peers >= 0
    return own[there], peers[there]


CHECKS = (Anchor, Alias, MetricReference, PeerMap)
