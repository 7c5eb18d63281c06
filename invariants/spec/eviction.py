"""What leaves a tier when its pages are wanted.

The coldest that may go goes first, and no more than was wanted, rounded up to a page. Again and
again the first of these goes:

    1. copies that no live end requires (unreachable),
    2. on host: copies that are on host only before copies that are on device too,
    3. what the eviction policy ranks lowest; of equal ranks, the copy that ends deepest, and of
       these, that of the node that was made first.

A copy may go if it is in nobody's hold. Full attention goes from the leaves up: no child may have
it on the tier, and no other kind of the node may be in a hold.
"""

from hicache.core.actions import Evicted
from hicache.core.types import Tier

from . import copies
from .cache import Cache
from .kinds import FULL
from .matching import tail
from .records import BOTH, DEVICE, HOST, Hold, Node, as_pages


def make_room(cache: Cache, tier: Tier, kind: int, count: int) -> bool:
    """Whether `count` pages are free now, on host besides those kept for exchanges. Evicts what
    this takes."""
    wanted = count + (kept_for_exchanges(cache, kind) if tier == HOST else 0)
    lacking = wanted - cache.free(tier, kind)
    free_pages(cache, tier, kind, lacking)
    return lacking <= 0 or cache.free(tier, kind) >= wanted


def kept_for_exchanges(cache: Cache, kind: int) -> int:
    """Host pages, less those that loads in flight will free."""
    if not cache.config.exchange_pages:
        return 0
    coming = sum(transfer.gives_up.get(kind, 0) for transfer in cache.transfers.values())
    return max(0, cache.config.exchange_pages[kind] - coming)


def free_pages(cache: Cache, tier: Tier, kind: int, count: int) -> None:
    """Frees so many pages of a tier, now or when their copies to host have ended; fewer if the rest
    is in use, or if what goes next is being copied to host."""
    goal = cache.free(tier, kind) + count if count > 0 else 0
    while count > 0:
        copied = (transfer.frees.get(kind, 0) for transfer in cache.transfers.values())
        wanted = count - (sum(copied) if tier == DEVICE else 0)
        node = next_to_go(cache, tier, kind) if wanted > 0 else None
        if node is None or _is_too_early(cache, node, tier, kind):
            return
        _evict(cache, node, tier, kind, wanted)
        count = goal - cache.free(tier, kind)


# -- which copy


def next_to_go(cache: Cache, tier: Tier, kind: int) -> Node | None:
    """Of all nodes whose copy may go, the first."""
    may_go = _may_go(cache, tier, kind)
    return min(may_go, key=lambda node: _order(cache, node, tier, kind), default=None)


def _may_go(cache: Cache, tier: Tier, kind: int) -> list[Node]:
    kept, having = cache.holds(), cache.having[tier][kind]
    idle = [node for page, node in having.items() if page not in kept]
    if kind != FULL:
        return idle
    inner = {node.parent for node in having.values()}
    return [node for node in idle if node not in inner and not node.any_in_use(kept, tier)]


def _order(cache: Cache, node: Node, tier: Tier, kind: int) -> tuple[object, ...]:
    needed = not cache.is_unreachable(node, kind)
    goes = range(len(cache.kinds)) if kind == FULL else [kind]
    twice = tier == HOST and all(node.has(DEVICE, at) for at in goes if node.has(HOST, at))
    return needed, twice, cache.rank(node, kind), -node.end, node.made


def _is_too_early(cache: Cache, node: Node, tier: Tier, kind: int) -> bool:
    """Whether something colder would be on its way out, were it not being copied to host: what
    copies alone hold, and what is right above a node that leaves with its copy. So the order of
    evictions does not depend on whether there is a host."""
    copied = [transfer for transfer in cache.transfers.values() if transfer.to == HOST]
    if tier == HOST or kind != FULL or not copied or cache.is_unreachable(node, FULL):
        return False
    out = [transfer for transfer in copied if transfer.frees.get(FULL)]
    leaving = [node for transfer in out for node in copies.nodes_of(cache, transfer)]
    above = {node.parent for node in leaving}.difference([cache.root, *leaving])
    read = set[int]().union(*(transfer.hold for transfer in copied if not transfer.frees))
    waiting = cache.held_nodes(read, DEVICE, FULL)
    kept = cache.holds(copied, storage=False) if waiting else Hold()
    waiting = [node for node in waiting if not node.any_in_use(kept, DEVICE)]
    rank = cache.rank(node, FULL)
    return any(cache.rank(node, FULL) < rank for node in (*waiting, *above) if node is not None)


# -- what goes with it


def _evict(cache: Cache, node: Node, tier: Tier, kind: int, wanted: int) -> None:
    """A copy goes: of a leaf as many of its last pages as are wanted, with all kinds; of any other
    node this kind alone. For a state a leaf goes as a whole. Where only other kinds are wanted, no
    prefix goes that something below it on host needs. A policy may want copies on host first; what
    host cannot take is lost."""
    full = kind == FULL or _is_free_leaf(cache, node, tier)
    lacking = _to_host_first(cache, node, kind, full) if tier == DEVICE else []
    full = full and (kind == FULL or kind in lacking or not lacking)
    branch = node
    first = lacking if full else [kind] if kind in lacking else []
    if full and cache.kinds[kind].per_page:
        keep = max(0, len(node.rows) - wanted)
        stays = bool(first) or node.has(1 - tier, FULL)
        node = tail(cache, node, keep, shorten=not stays and _is_bare(cache, node))
    hopeful = cache.hopeful([*cache.down_to(node), *cache.and_below(node)])
    frees = {kind: len(node.pages(tier, kind))}
    if first and copies.copy_to_host(cache, [(node, first)], frees):
        pass
    elif not full:
        free_kind(cache, node, tier, kind)
    elif node.has(1 - tier, FULL):
        _leave(cache, node, tier)
    elif kind != FULL and node.children:
        free_kind(cache, node, tier, kind)
    else:
        delete(cache, node)
    if branch not in cache.nodes:
        hopeful.update(cache.down_to(branch))
    delete_useless(cache, hopeful)


def _is_free_leaf(cache: Cache, node: Node, tier: Tier) -> bool:
    """Whether the node can go as a whole: nothing below it is on the tier, nothing of it is held
    there, and on host, it is not on device as well."""
    leaf = not any(child.has(tier, FULL) for child in node.children)
    alone = tier == DEVICE or not node.has(DEVICE, FULL)
    return leaf and alone and not node.any_in_use(cache.holds(), tier)


def _to_host_first(cache: Cache, node: Node, kind: int, full: bool) -> list[int]:
    """The kinds that are copied to host before this one leaves the device. None if the copy is
    unreachable, or if host cannot hold one that goes: without it the rest is worth nothing."""
    if not (cache.writes.before_eviction and cache.config.has_host):
        return []
    goes = [at for at in range(len(cache.kinds)) if node.has(DEVICE, at)] if full else [kind]
    lost = [
        item
        for item in goes
        if not node.has(HOST, item)
        and (item in node.refused_by_host or not cache.capacity(HOST, item))
    ]
    return [] if lost or cache.is_unreachable(node, kind) else copies.lacking_on_host(cache, node)


def _is_bare(cache: Cache, node: Node) -> bool:
    """Whether the node is a leaf with full attention alone."""
    others = (*cache.windows, *cache.stateful)
    return not (node.children or any(node.anywhere(kind) for kind in others))


def delete(cache: Cache, node: Node) -> None:
    """A node whose last copy goes leaves the tree, and so does all below it: without its prefix it
    cannot be matched. Should its pages come back, they are stored again."""
    for below in reversed(cache.and_below(node)):
        for tier in (HOST, DEVICE):
            _leave(cache, below, tier)
        for digest in cache.digests(below) if cache.believed else ():
            cache.believed.difference_update((kind, digest) for kind in range(len(cache.kinds)))
        cache.to_store = [item for item in cache.to_store if item is not below]
        del cache.nodes[below]
    assert node.parent is not None
    node.parent.children.remove(node)


def delete_useless(cache: Cache, nodes: set[Node]) -> None:
    """Deletes from the leaves up those of these nodes that have no live end at or below them. What
    is in a hold stays, and so does all above it.

    nodes: what had a live end at or below it, and what is above a deleted node."""
    there = nodes & cache.nodes.keys()
    useless = there - cache.hopeful(there)
    kept = cache.holds() if useless else Hold()
    for node in sorted(useless, key=lambda node: -node.end):
        if not (node.children or any(node.any_in_use(kept, tier) for tier in BOTH)):
            delete(cache, node)


def free_kind(cache: Cache, node: Node, tier: Tier, kind: int) -> None:
    """Frees one kind of a node that stays. Later kinds go too where they are in nobody's hold, and
    are on the other tier as well or unreachable now."""
    _free_copy(cache, node, tier, kind)
    kept = cache.holds()
    for later in range(kind + 1, len(cache.kinds)):
        useless = node.has(1 - tier, later) or cache.is_unreachable(node, later)
        if node.has(tier, later) and not node.is_in_use(kept, tier, later) and useless:
            _free_copy(cache, node, tier, later)


def end_exchange(cache: Cache, nodes: list[Node]) -> None:
    """Frees the host copies that are on device too and in nobody's hold."""
    kept = cache.holds()
    for node in nodes:
        for kind in range(len(cache.kinds)):
            twice = node.has(DEVICE, kind) and node.has(HOST, kind)
            if twice and not node.is_in_use(kept, HOST, kind):
                _take_away(cache, node, HOST, kind)


def _leave(cache: Cache, node: Node, tier: Tier) -> None:
    for kind in range(len(cache.kinds)):
        if node.has(tier, kind):
            _free_copy(cache, node, tier, kind)


def _free_copy(cache: Cache, node: Node, tier: Tier, kind: int) -> None:
    below = tier == DEVICE and node.has(HOST, kind)
    pages, name = as_pages(node.pages(tier, kind)), cache.kinds[kind].name
    _take_away(cache, node, tier, kind)
    cache.say(Evicted(tier, name, pages, node.last_use[kind], below))


def _take_away(cache: Cache, node: Node, tier: Tier, kind: int) -> None:
    pages = node.pages(tier, kind)
    del cache.having[tier][kind][pages[0]]
    cache.cached[tier][kind].difference_update(pages)
    node.copies[tier][kind] = None
    if kind == FULL:
        cache.tell_routers(tier, node, stored=False)
