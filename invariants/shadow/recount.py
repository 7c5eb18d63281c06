"""Builds the shadow state again from the view alone, and compares them with the incremental shadow
state.

Lives here: a second, simpler way to compute the same sums. A difference is an error in the shadow
state, or in the core's list of touched objects.

Tags depend only on keys. A recount keeps the tags of nodes with the same key object and parent, and
recomputes one sixteenth of them, a different sixteenth each time. Computing all of them would take
longer than everything else.
"""

from typing import Any

import numpy as np

from hicache.core.errors import About
from hicache.core.node import Node, Receipt, TransferKind
from hicache.core.types import NO_PAGES, Tier
from hicache.core.view import CoreView

from . import story
from .distances import recounted
from .nodes import NodeShadow
from .pages import NODE, REQUEST, TRANSFER, PageShadow, code_of, name_of
from .record import NodeRecord, candidacy
from .requests import own_of
from .shadow import Shadow
from .tags import run_tags, seed_of

SAMPLE = 16
_TIERS = {
    TransferKind.LOAD: (Tier.HOST, Tier.DEVICE),
    TransferKind.BACKUP: (Tier.DEVICE, Tier.HOST),
}


class Mismatch(Exception):
    """The incremental and the recounted shadow state differ."""

    def __init__(self, equation: str, *about: About) -> None:
        super().__init__(equation)
        self.equation = equation
        self.about = about


def recount(view: CoreView, kept: Shadow, history: bool) -> Shadow:
    """Returns the shadow state of the present state. history: whether `kept` saw every operation;
    if not, pins and uses are taken from the view.
    """
    shadow = Shadow(view)
    shadow.history = False
    shadow.operations, shadow.outcomes, shadow.event = kept.operations, kept.outcomes, kept.event
    shadow.nodes.stride = kept.nodes.stride
    for node in (view.root, *view.nodes()):
        _node(shadow.nodes, node, kept.nodes, history)
    for slot, owned in enumerate(shadow.pages):
        owned.claim_all(
            [
                (pages, code_of(NODE, record.id))
                for record in shadow.nodes.by_id.values()
                if (pages := record.pages[slot]) is not None
            ]
        )
    _requests(shadow, view, kept, history)
    if history:
        _open_records(shadow, kept)
        for pin in kept.pins.pins.values():
            for slot, pages in pin.locked:
                shadow.pages[slot].locks[pages] += 1
    else:
        _transfers(shadow, view)
        for pinned in view.pins.values():
            _locked(shadow, pinned.receipt)
    for record in shadow.nodes.by_id.values():
        for slot, pages in enumerate(record.pages):
            if pages is not None and len(pages):
                count = record.locked[slot] = int(shadow.pages[slot].locks[pages[0]])
                shadow.pages[slot].protected += len(pages) if count else 0
    for owned in shadow.pages:
        owned.retiring.update(((owned.owner == 0) & (owned.busy > 0)).nonzero()[0].tolist())
        owned.count()
    recounted(list(shadow.nodes.by_id.values()), shadow.kinds, shadow.nodes.widest)
    for record in shadow.nodes.by_id.values():
        record.candidate = candidacy(record, shadow.kinds)
    shadow.changed = shadow.pages
    shadow.requests.admitted = sum(request.admitted for request in view.requests.values())
    return shadow


def _node(nodes: NodeShadow, node: Node, kept: NodeShadow, history: bool) -> None:
    before = kept.by_id.get(node.id)
    record = nodes.root if node.parent is None else NodeRecord(node.id, nodes.width)
    record.node, record.key, record.label, record.end_page = (
        node,
        node.key,
        node.label,
        node.end_page,
    )
    nodes.by_id[node.id] = record
    parent = nodes.by_id.get(node.parent.id) if node.parent is not None else None
    record.use = before.use if before is not None and history else node.last_use[0]
    if parent is None:
        return
    record.parent = parent
    record.span = len(node.key) // nodes.stride
    parent.kids += 1
    if parent is nodes.root:
        record.namespace = node.label[: -nodes.stride].rstrip(b"\0").decode()
        above = seed_of(record.namespace)
    else:
        record.namespace = parent.namespace
        above = parent.tags[-1] if len(parent.tags) else seed_of(parent.namespace)
    same = before is not None and before.key is node.key and before.parent is not None
    if before is not None and same and (node.id + kept.recounts) % SAMPLE:
        record.tags = before.tags
    elif history:
        record.tags = run_tags(node.key, nodes.stride, parent.end_page, above)
    on_device, on_host = node.pages
    record.pages = [*on_device, *on_host]
    parent.kids_on[0] += on_device[0] is not None
    parent.kids_on[1] += on_host[0] is not None


def _requests(shadow: Shadow, view: CoreView, kept: Shadow, history: bool) -> None:
    """Files the pages that requests own and, if the history is known, those that they lock."""
    for request in view.requests.values():
        req, code = kept.requests.by_id.get(request.id), code_of(REQUEST, request.id)
        if not (req.admitted if history and req is not None else request.admitted):
            continue
        shared = req.boundary if history and req is not None else request.shared_pages
        for kind in shadow.kinds:
            shadow.pool(0, kind.at).claim(own_of(request.tables[kind.at], kind, shared), code)
        if not history:
            _locked(shadow, request.receipt)
        elif req is not None:
            shadow.device.locks[req.shared_pages] += 1
            settled = not req.load and not req.low
            for index, before in enumerate(req.locked_pages, 1):
                arrays = kept.requests.required(req, index) if settled else before
                for pages in arrays:
                    shadow.pool(0, index).locks[pages] += 1


def _locked(shadow: Shadow, receipt: Receipt | None) -> None:
    for index, entries in enumerate(receipt.locked if receipt is not None else ()):
        for node, tier in entries:
            pages = node.pages[tier][index]
            shadow.pool(tier, index).locks[NO_PAGES if pages is None else pages] += 1


def _open_records(shadow: Shadow, kept: Shadow) -> None:
    for transfer in kept.transfers.open.values():
        for slot, pages in transfer.locks:
            shadow.pages[slot].locks[pages] += 1
        for index, locked in enumerate(transfer.locked):
            for pages in locked:
                shadow.pages[index].locks[pages] += 1
        for use in transfer.uses:
            shadow.pages[use.at].busy[use.busy] += 1
        for move in transfer.moves if not transfer.landed else ():
            source, other = (shadow.pages[at] for at in kept.transfers.slots(transfer, move.at))
            source.busy[move.source] += 1
            other.busy[move.target] += 1
            other.claim(move.target, code_of(TRANSFER, transfer.id))


def _transfers(shadow: Shadow, view: CoreView) -> None:
    for transfer in view.transfers.values():
        _locked(shadow, transfer.receipt)
        for index, pages in enumerate(transfer.on_loan):
            shadow.pool(0, index).busy[pages] += 1
        source, target = _TIERS.get(transfer.kind, (Tier.HOST, Tier.HOST))
        for segment in transfer.segments:
            shadow.pool(source, segment.component).busy[segment.source] += 1
            shadow.pool(target, segment.component).busy[segment.target] += 1
            shadow.pool(target, segment.component).claim(
                segment.target, code_of(TRANSFER, transfer.id)
            )


def compare(kept: Shadow, counted: Shadow) -> None:
    """Raises Mismatch for the first difference."""
    kept.nodes.recounts += 1
    for pages_shadow, other in zip(kept.pages, counted.pages, strict=True):
        _compare_pages(pages_shadow, other)
    if kept.nodes.by_id.keys() != counted.nodes.by_id.keys():
        odd = sorted(kept.nodes.by_id.keys() ^ counted.nodes.by_id.keys())
        raise Mismatch(
            f"nodes kept {len(kept.nodes.by_id)}, recounted {len(counted.nodes.by_id)}; "
            f"first difference {odd[0]}",
            story.node(odd[0]),
        )
    for record in counted.nodes.by_id.values():
        _compare_node(kept.nodes.by_id[record.id], record)
    nodes = len(counted.nodes.by_id) - 1
    for name, places in (("first", kept.nodes.first), ("last", kept.nodes.at)):
        if len(places) != nodes:
            raise Mismatch(f"{name} pages of nodes: kept {len(places)}, recounted {nodes}")


def _compare_pages(pages_shadow: PageShadow, other: PageShadow) -> None:
    for name in ("owner", "locks", "busy"):
        kept, result = getattr(pages_shadow, name), getattr(other, name)
        if not np.array_equal(kept, result):
            page = int((kept != result).argmax())
            shown = [name_of(int(x[page])) if name == "owner" else x[page] for x in (kept, result)]
            raise Mismatch(
                f"{pages_shadow.where} page {page}, {name}: kept {shown[0]}, recounted {shown[1]}",
                story.page(pages_shadow, page),
            )
    sums = [(shadow.owned, shadow.protected, shadow.retiring) for shadow in (pages_shadow, other)]
    if sums[0] != sums[1]:
        raise Mismatch(
            f"{pages_shadow.where} pages held by (-, nodes, requests, transfers), protected and "
            f"retiring: kept {sums[0]}, recounted {sums[1]}",
            story.pool(pages_shadow),
        )


_FIELDS = ("end_page", "kids", "kids_on", "locked", "candidate", "namespace", "live_distance")


def _compare_node(record: NodeRecord, other: NodeRecord) -> None:
    kept: Any
    for name in _FIELDS:
        kept, result = getattr(record, name), getattr(other, name)
        if kept != result:
            raise Mismatch(
                f"node {record.id}, {name}: kept {kept}, recounted {result}", story.node(record.id)
            )
    same_parent = (record.parent and record.parent.id) == (other.parent and other.parent.id)
    same_pages = all(
        a is b or (a is not None and b is not None and np.array_equal(a, b))
        for a, b in zip(record.pages, other.pages, strict=True)
    )
    same_tags = record.tags is other.tags or np.array_equal(record.tags, other.tags)
    if not (same_parent and same_pages and same_tags):
        raise Mismatch(
            f"node {record.id}: kept and recounted agree on parent {same_parent}, "
            f"pages {same_pages}, tags {same_tags}",
            story.node(record.id),
        )
