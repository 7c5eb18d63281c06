"""What a user wants beside requests: prefixes that stay, and copies that go when nobody uses them.

A pin holds what is on its tier of a prefix: the part that could be reused from that tier alone.
Whenever copies come to the tier, it holds more.
"""

from __future__ import annotations

from hicache.core.actions import Pinned, PinRefused, Unpinned
from hicache.core.events import PinWanted, TimePassed, UnpinWanted
from hicache.core.types import Tier

from .cache import Cache
from .eviction import delete, delete_lost
from .kinds import FULL
from .matching import cut_windows, required, split, walk
from .records import DEVICE, HOST, Node, Pin


def pin(cache: Cache, event: PinWanted) -> None:
    """Pins a prefix, if everything that pins may ever hold is within the bound."""
    config = cache.config
    bound = config.pin_pages if event.tier == DEVICE else config.pin_host_pages
    others = [one.key.pages for one in cache.pins.values() if one.tier == event.tier]
    for kind, one in enumerate(cache.kinds):
        left = bound[kind] if bound else 0
        left -= sum(_most(cache, kind, pages) for pages in others)
        needed = _most(cache, kind, event.key.pages)
        if needed > left:
            cache.say(PinRefused(event.pin, one.name, needed, left))
            return
    cache.pins[event.pin] = Pin(event.key, event.tier)
    hold_pinned(cache, event.tier)
    cache.say(Pinned(event.pin, cache.pins[event.pin].held))


def unpin(cache: Cache, event: UnpinWanted) -> None:
    cache.say(Unpinned(event.pin, cache.pins.pop(event.pin).held))


def hold_pinned(cache: Cache, tier: Tier) -> None:
    """Each pin of the tier holds what is there of its prefix. It splits no node for nothing."""
    for one in cache.pins.values():
        if one.tier != tier:
            continue
        path, partly, pages = walk(cache, one.key, one.key.pages)
        if partly and _is_whole(cache, [*path, partly], tier, partly.start + pages):
            path.append(split(cache, partly, pages))
        while path and not _is_whole(cache, path, tier, path[-1].end):
            path.pop()
        if not path or path[-1].end <= one.held:
            continue
        cut_windows(cache, path)
        one.hold = set()
        for kind in range(len(cache.kinds)):
            for node in required(cache, path, kind):
                one.hold.update(node.pages(tier, kind))
        one.held = path[-1].end


def time_passed(cache: Cache, event: TimePassed) -> None:
    """What was not used since a period that ended long enough ago goes, from the leaves up, unless
    it is in a hold or something below it stays."""
    cache.periods.append(cache.tick)
    if len(cache.periods) <= cache.config.ttl_periods:
        return
    since = cache.periods.pop(0)
    before = cache.hopeful()
    for node in sorted(cache.nodes(), key=lambda node: -node.end):
        held = cache.held()
        in_use = any(node.any_held(held, tier) for tier in (DEVICE, HOST))
        if node.last_use[FULL] <= since and not node.children and not in_use:
            delete(cache, node)
    delete_lost(cache, before)


def _most(cache: Cache, kind: int, pages: int) -> int:
    """How many pages of a kind a prefix of this length can require."""
    one = cache.kinds[kind]
    return min(pages, one.window) if one.per_page else 1


def _is_whole(cache: Cache, path: list[Node], tier: Tier, depth: int) -> bool:
    """Whether a prefix of `depth` pages, which ends in the last node of the path, is reusable from
    this tier alone."""
    last = path[-1]
    return all(
        node.has(tier, kind) and (one.per_page or node is not last or depth == last.end)
        for kind, one in enumerate(cache.kinds)
        for node in path
        if node is last or depth - node.end < one.window
    )
