"""Laws of the state, for every target: what must hold after each operation, whatever was decided.

Lives here: judging pools, a reference for look-ups, and the end of a sequence. The names are those
of the project's own checks where they say the same (docs/invariants.md). A law reads what a
target says of its state and never a decision.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from invariants.fuzz.target import Broken, PoolState, Slots, need

LAWS = {
    "OWN": "Every slot has exactly one holder: the free list, the cache, a request or a transfer.",
    "POOL-SUM": "Free and held pages sum to the pool.",
    "BYTES": "Every cached slot, and every slot that a request reads, holds its own prefix.",
    "SIZES": "The engine's count of what is cached is what is cached.",
    "LOCK-BAL": "When nothing runs and nothing is in flight, nothing is locked.",
    "MATCH": "A look-up answers with the longest prefix that is cached, and never with more.",
    "EVICT": "An eviction frees what it says, and all that was asked for if so much can go.",
    "PIN-IO": "What a transfer reads or writes is not freed and not reissued before it ends.",
    "READ-AFTER-ARRIVE": "What a transfer writes is read only after it arrived.",
    "EVENT-MIRROR": "Replaying the KV events into an empty index gives what is cached.",
    "RESET": "After a reset nothing is cached.",
    "QUIESCENCE": "When everything was let go, every pool is whole again.",
    "PROGRESS": "A request that can run does run, and every request ends.",
    "OWN-CHECK": "The engine's own check of its state holds.",
    "CONTRACT": "The engine calls its parts as they allow it.",
    "CRASH": "The engine raises no error of its own.",
    "HANG": "An operation ends.",
    "DEATH": "The engine's process lives, within its memory.",
}
_HOLDS = {-1: "what nobody wrote", -2: "what was freed", -3: "what is still being copied"}


def judge(pools: Sequence[PoolState], idle: bool) -> None:
    """Raises Broken for the first law that a pool breaks. idle: nothing runs and nothing is in
    transfer."""
    for pool in pools:
        _owners(pool)
        _contents(pool)
        if pool.counted >= 0:
            cached = sum(item.slots.size for item in pool.holdings if item.owner == "cache")
            text = f"{pool.name}: the engine counts {pool.counted} cached slots, there are {cached}"
            need(cached == pool.counted, "SIZES", text, pool.name)
        if idle and pool.protected > 0:
            text = f"{pool.name}: nothing runs, and {pool.protected} slots are locked"
            raise Broken("LOCK-BAL", text, pool.name)


def _owners(pool: PoolState) -> None:
    page = pool.page
    kept = [holding.slots.tolist() for holding in pool.holdings]
    if page > 1:
        kept = [list({slot // page for slot in slots}) for slots in kept]
    distinct = len(set().union(*kept))
    if not pool.shares and distinct != sum(map(len, kept)):
        raise Broken("OWN", _clash(pool, kept), pool.name)
    total = pool.slots // page
    if pool.free + distinct != total:
        text = (
            f"{pool.name}: {pool.free} pages free and {distinct} held of {total} ({_holders(pool)})"
        )
        kind = "lost" if pool.free + distinct < total else "free and held"
        raise Broken("POOL-SUM", text, f"{pool.name} {kind}")


def _clash(pool: PoolState, numbers: Sequence[Sequence[int]]) -> str:
    owners: dict[int, str] = {}
    for holding, pages in zip(pool.holdings, numbers, strict=True):
        for number in pages:
            if number in owners:
                return f"{pool.name} page {number}: held by {owners[number]} and by {holding.owner}"
            owners[number] = holding.owner
    raise AssertionError("no page has two holders")


def _holders(pool: PoolState) -> str:
    parts = [f"{item.owner} {item.slots.size} slots" for item in pool.holdings if item.slots.size]
    return ", ".join(parts) or "nobody"


def _contents(pool: PoolState) -> None:
    contents = pool.contents
    if contents is None:
        return
    for holding in pool.holdings:
        if holding.expected is None or not holding.slots.size:
            continue
        content = contents[holding.slots]
        if content.tobytes() != holding.expected.tobytes():
            at = int(np.flatnonzero(content != holding.expected)[0])
            slot, owner = int(holding.slots[at]), holding.owner
            holds = _HOLDS.get(int(content[at]), "another prefix")
            text = f"{pool.name} slot {slot}, position {at} of {owner}: "
            text += f"holds {holds} instead of its own prefix"
            raise Broken("BYTES", text, f"{pool.name} {owner.partition(' ')[0]}")


def complete(pools: Sequence[PoolState]) -> None:
    """Raises Broken unless every page is free, after everything was let go."""
    for pool in pools:
        lost = pool.slots // pool.page - pool.free
        if lost:
            text = f"{pool.name}: {lost} pages never come back; held by {_holders(pool)}"
            raise Broken("QUIESCENCE", text, pool.name)


class Part(NamedTuple):
    """What one component has of a prompt. there: for each position whether its content is cached.
    needs: how many of the last positions a prefix needs of it; of full attention no less than the
    prompt has."""

    there: Slots
    needs: int


def longest(parts: Sequence[Part], page: int, most: int) -> int:
    """The longest prefix, in whole pages and of at most `most` tokens, that every component can
    restore: the reference for a look-up."""
    for end in range(most // page * page, 0, -page):
        if all(there[max(0, end - needs) : end].all() for there, needs in parts):
            return end
    return 0
