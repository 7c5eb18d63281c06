"""Everything a core holds, page by page, as plain data: the same state iff the dumps are equal.

Splits do not show: what a node holds is told per page (a state: at its node's end), so that "the
same but for splits" is equality of dumps. Must not live here: any expectation.
"""

from __future__ import annotations

from typing import Any

from hicache.core.radix.node import Node, Receipt
from hicache.core.requests.record import Request
from hicache.core.types import PageState, Tier
from hicache.core.view import CoreView

Dump = dict[str, Any]


def dump(view: CoreView) -> Dump:
    """Tree, pools, requests and flights of this moment."""
    return {
        "tick": view.tick,
        "tree": {spot: what for node in view.nodes() for spot, what in _node(view, node)},
        "pools": [
            _pool(view, tier, index)
            for tier in (Tier.DEVICE, Tier.HOST)
            for index in range(len(view.components))
        ],
        "requests": {one.id: _request(one) for one in view.requests.values()},
        "flights": {one.id: (one.kind, len(one.legs)) for one in view.flights.values()},
    }


def path_of(node: Node) -> bytes:
    """The rows from the root to the node's end (two namespaces are not told apart)."""
    rows: list[bytes] = []
    above: Node | None = node
    while above is not None and above.parent is not None:
        rows.append(above.key)
        above = above.parent
    return b"".join(reversed(rows))


def _node(view: CoreView, node: Node) -> list[tuple[tuple[Any, ...], Any]]:
    """(path to the page, tier, component) -> (page, who locks it)."""
    path, found = path_of(node), []
    stride = len(path) // node.end_page
    start = node.end_page - len(node.key) // stride
    for tier in (Tier.DEVICE, Tier.HOST):
        for index, component in enumerate(view.components):
            held = node.pages[tier][index]
            locks = sorted(_holder(one) for one in node.locks[tier][index].values())
            if held is None:
                continue
            ends = range(start + 1, node.end_page + 1) if component.positional else (node.end_page,)
            for page, end in zip(held.tolist(), ends, strict=True):
                spot = (path[: end * stride], int(tier), component.name)
                found.append((spot, (page, tuple(locks), node.last_use[index])))
    return found


def _holder(receipt: Receipt) -> str:
    return receipt.name


def _pool(view: CoreView, tier: Tier, index: int) -> tuple[Any, ...]:
    pool = view.pool(tier, index)
    return (
        tuple(pool.counts),
        pool.protected,
        pool.state.tolist(),
        pool.owner[pool.state == PageState.OWNED].tolist(),
        pool.loans.tolist(),
        sorted(pool.free_pages().tolist()),
    )


def _request(request: Request) -> tuple[Any, ...]:
    return (
        request.admitted,
        [table.tolist() for table in request.tables],
        request.shared_pages,
        request.computed_tokens,
        request.prefill,
        request.load,
        request.may_load,
        request.receipt is None,
    )
