"""What a user wants beside requests: prefixes that stay, and copies that go when nobody uses them.

A pin holds what is on its tier of a prefix: the part that could be reused from that tier alone.
Whenever copies come to the tier, it holds more.
"""

from hicache.core.actions import Pinned, PinRefused, Unpinned
from hicache.core.events import PinWanted, TimePassed, UnpinWanted
from hicache.core.types import Tier

from . import copies
from .cache import Cache
from .eviction import delete, delete_useless
from .kinds import FULL
from .matching import deepest, end_nodes_at, end_nodes_before_windows, known_of, requires
from .records import BOTH, DEVICE, Hold, Node, Pin


def pin(cache: Cache, event: PinWanted) -> None:
    """Pins a prefix, if everything that pins may ever hold is within the bound."""
    config = cache.config
    bound = config.pin_pages if event.tier == DEVICE else config.pin_host_pages
    others = [pin.key.pages for pin in cache.pins.values() if pin.tier == event.tier]
    for kind, item in enumerate(cache.kinds):
        needed = _most(cache, kind, event.key.pages)
        left = (bound or [0] * len(cache.kinds))[kind]
        left -= sum(_most(cache, kind, pages) for pages in others)
        if needed > left:
            cache.say(PinRefused(event.pin, item.name, needed, left))
            return
    cache.pins[event.pin] = Pin(event.key, event.tier)
    apply_pins(cache, event.tier)
    cache.say(Pinned(event.pin, cache.pins[event.pin].held_pages))


def unpin(cache: Cache, event: UnpinWanted) -> None:
    cache.say(Unpinned(event.pin, cache.pins.pop(event.pin).held_pages))


def apply_pins(cache: Cache, tier: Tier) -> None:
    """Each pin of the tier holds what the deepest end within its prefix requires that this tier
    alone makes reusable. It splits no node for nothing."""
    for pin in (pin for pin in cache.pins.values() if pin.tier == tier):
        known = known_of(cache, pin.key, pin.key.pages)
        end = deepest(cache, known, [tier], range(len(cache.kinds)))
        if end <= pin.held_pages:
            continue
        end_nodes_at(cache, known.nodes, [end])
        path = [node for node in known.nodes if node.end <= end]
        end_nodes_before_windows(cache, path)
        pin.held_pages, pin.hold = end, Hold()
        for kind in range(len(cache.kinds)):
            for node in requires(cache, path, kind):
                copies.hold(pin.hold, node, tier, kind)


def time_passed(cache: Cache, event: TimePassed) -> None:
    """All goes that was not used since a period that ended long enough ago, but what is in a hold
    and what is above anything that stays."""
    cache.periods.append(cache.tick)
    if len(cache.periods) <= cache.config.ttl_periods:
        return
    since, kept, stay = cache.periods.pop(0), cache.holds(), set[Node]()
    for node in cache.nodes:
        if node.last_use[FULL] > since or any(node.any_in_use(kept, tier) for tier in BOTH):
            stay.update(cache.down_to(node))
    if go := [node for node in cache.nodes if node not in stay]:
        useful = cache.hopeful(cache.nodes).union(*map(cache.down_to, go))
        for node in sorted(go, key=lambda node: -node.end):
            delete(cache, node)
        delete_useless(cache, useful)


def _most(cache: Cache, kind: int, pages: int) -> int:
    """How many pages of a kind a prefix of this length can require."""
    item = cache.kinds[kind]
    return min(pages, item.window) if item.per_page else 1
