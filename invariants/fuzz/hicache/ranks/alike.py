"""Compares ranks: answers and changes after every event, and the whole trees at times.

The first difference is reported by its subject, with both sides. Does not run ranks (see ranks) or
check a single core.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hicache.core.actions import (
    Admitted,
    Backup,
    Cached,
    Evicted,
    Granted,
    Load,
    Matched,
    Outcome,
    Prefill,
    Refused,
)
from hicache.core.errors import About
from hicache.core.events import Event
from hicache.core.radix.node import Node
from hicache.core.types import Tier
from hicache.core.view import CoreView
from hicache.runtime.decisions import Decisions
from hicache.runtime.group import Diverged
from invariants.books.story import named_by

Position = tuple[int, int, int, bytes]  # id, parent, end, key
Held = tuple[tuple[bytes | None, int], ...]
KINDS: dict[type, str] = {
    Evicted: "victims",
    Matched: "match",
    Admitted: "match",
    Refused: "refusals",
    Load: "transfers",
    Backup: "transfers",
    Prefill: "passes",
    Granted: "pages",
    Cached: "pages",
}


def compare_answers(
    rank: int, event: Event, one: Sequence[Outcome], other: Sequence[Outcome]
) -> None:
    """Raises Diverged for the first answer that differs."""
    if _digest(one) == _digest(other):
        return
    pairs = zip(one, other, strict=False)
    at = next(
        (at for at, (a, b) in enumerate(pairs) if _digest([a]) != _digest([b])),
        min(len(one), len(other)),
    )
    first = one[at] if at < len(one) else other[at]
    raise Diverged(
        KINDS.get(type(first), "answers"),
        f"after {event}, answer {at + 1}: rank 0 has {_told(one, at)}, "
        f"rank {rank} has {_told(other, at)}",
        *named_by(first),
    )


def compare_touched(rank: int, event: Event, one: CoreView, other: CoreView) -> None:
    """Compares what the event changed: nodes, their pages and locks, and the pools."""
    after = f"after {event}"
    _compare_nodes(rank, after, one.touched, other.touched)
    compare_pools(rank, after, one, other)


def compare_trees(rank: int, one: CoreView, other: CoreView) -> None:
    """Compares the whole trees and the pools."""
    mine, theirs = ({node.id: node for node in view.nodes()} for view in (one, other))
    _compare_nodes(rank, "in the whole tree", mine, theirs)
    compare_pools(rank, "in the whole tree", one, other)


def compare_pools(rank: int, when: str, one: CoreView, other: CoreView) -> None:
    for tier in (Tier.DEVICE, Tier.HOST):
        for mine, theirs in zip(one.pools(tier), other.pools(tier), strict=True):
            pair = [(pool.capacity, pool.protected, *pool.counts) for pool in (mine, theirs)]
            if pair[0] != pair[1]:
                words = "capacity, protected, free, owned, cached, lent, retiring"
                raise Diverged(
                    "pools",
                    f"{when}: {mine.component} on {tier.name.lower()} ({words}): "
                    f"rank 0 has {pair[0]}, rank {rank} has {pair[1]}",
                    About("pool", -1, int(tier), mine.component),
                )


def _compare_nodes(
    rank: int, when: str, one: Mapping[int, Node], other: Mapping[int, Node]
) -> None:
    for key in {**one, **other}:
        mine, theirs = one.get(key), other.get(key)
        if _position(mine) != _position(theirs):
            raise Diverged(
                "splits",
                f"{when}, node {key}: rank 0 has {mine or 'none'}, "
                f"rank {rank} has {theirs or 'none'}",
                About("node", key),
            )
        if mine is not None and theirs is not None and _held(mine) != _held(theirs):
            raise Diverged(
                "tree",
                f"{when}, pages and locks of node {key}: rank 0 has {_shown(mine)}, "
                f"rank {rank} has {_shown(theirs)}",
                About("node", key),
            )


def _shown(node: Node) -> str:
    sides = [[None if pages is None else pages.tolist() for pages in side] for side in node.pages]
    return f"{node} {sides} locked {[[len(one) for one in side] for side in node.locks]}"


def _digest(outcomes: Sequence[Outcome]) -> str:
    decisions = Decisions()
    decisions.add(outcomes)
    return decisions.digest()


def _told(outcomes: Sequence[Outcome], at: int) -> str:
    return str(outcomes[at]) if at < len(outcomes) else "nothing more"


def _position(node: Node | None) -> Position | None:
    if node is None:
        return None
    return (
        node.id,
        node.parent.id if node.parent is not None else -1,
        node.end_page,
        bytes(node.key),
    )


def _held(node: Node) -> Held:
    """Pages and number of locks, by tier and component."""
    return tuple(
        (None if pages is None else pages.tobytes(), len(locks))
        for side, held in zip(node.pages, node.locks, strict=True)
        for pages, locks in zip(side, held, strict=True)
    )
