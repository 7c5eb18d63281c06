"""What a server does between SGLang's calls, and what the laws read: slots, contents, look-ups and
KV events.

A slot of the full or window pool holds the prefix that ends at its position; a state holds the
prefix that it was computed from. With bigram keys (EAGLE) the draft's rows depend on the next
token, too, so the content of a position is that of the prefix one longer; the last position has no
next token yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from invariants.fuzz.laws import Part, longest
from invariants.fuzz.target import Holding, PoolState, chain, need
from invariants.fuzz.targets._sglang_doubles import NAMES, World
from invariants.fuzz.targets._sglang_storage import path_end

UNPAIRED = 1 << 60  # marks the content of a position whose next token is not known


def contents(world: World, tokens: Sequence[int], space: str) -> Any:
    """The content of every position of a prompt."""
    content = chain(tokens, space)
    if world.config["bigram"]:
        content = np.append(content[1:], content[-1:] ^ UNPAIRED)
    return content


def of_request(world: World, request: Any) -> Any:
    """The content of every position of a request, which only grows."""
    length, known = len(request.origin_input_ids) + len(request.output_ids), request.known
    if known is None or len(known) != length:
        tokens = request.origin_input_ids + request.output_ids
        known = request.known = contents(world, tokens, request.space)
    return known


# -- what a server does


def seat(world: World, request: Any) -> None:
    """Writes the slots of what hit into the row of a request, and gives it a copy of the state that
    hit (_collect_deferred_mamba_cow_and_clear)."""
    kv, slots = request.kv, world.cache.prefix_device_indices(request).numpy()
    world.table[kv.req_pool_idx, : slots.size] = slots
    kv.kv_allocated_len = kv.kv_committed_len = slots.size
    request.copied = kv.mamba_cow_src_index is not None
    if request.copied:
        target = kv.mamba_pool_idx.unsqueeze(0)
        world.rows.mamba_pool.copy_from(kv.mamba_cow_src_index, target)
        kv.mamba_cow_src_index = None
    kv.mamba_needs_clear = False


def take_slots(world: World, request: Any, until: int) -> None:
    """Takes slots up to this position for a request, as alloc_for_extend does after evicting: what
    is left of its last page, then whole pages, and as many window slots."""
    kv, page = request.kv, world.config["page"]
    start = kv.kv_allocated_len
    left = min(-start % page, until - start)
    count = -(-(until - start - left) // page)
    row = world.table[kv.req_pool_idx]
    if left:
        row[start : start + left] = row[start - 1] + np.arange(1, left + 1)
    taken = world.pools["full"].take(count)
    row[start + left : until] = taken[: until - start - left]
    if "swa" in world.pools and count:
        world.mapping[taken] = world.pools["swa"].take(count)
    kv.kv_allocated_len = until


def forward(world: World, request: Any, start: int, until: int, token: int | None = None) -> None:
    """A pass takes the slots of these positions and writes what belongs to them, and the state
    after them. token: what it decodes."""
    if token is not None:
        request.output_ids.append(token)
        request.decode_batch_idx += 1
    take_slots(world, request, until)
    kv, expected, low = request.kv, of_request(world, request), start
    world.copies.before_pass()
    if world.config["bigram"] and start > kv.cache_protected_len:
        low -= 1  # its next token is known now
    row = world.table[kv.req_pool_idx, low:until]
    world.pools["full"].content[row] = expected[low:until]
    if "swa" in world.pools:
        swa = world.mapping[row]
        alive = swa > 0
        world.pools["swa"].content[swa[alive]] = expected[low:until][alive]
    kv.kv_committed_len, request.copied = until, False
    if "mamba" in world.pools:
        world.pools["mamba"].content[int(kv.mamba_pool_idx)] = expected[until - 1]
        if world.config["extra"]:
            track(world, request, start, until, token is not None)


def track(world: World, request: Any, start: int, until: int, decodes: bool) -> None:
    """A pass leaves the state of a page boundary in a slot that the cache may take over (see
    _mamba_radix_cache_v2_req_prepare_for_extend and _mamba_prefix_cache_update)."""
    kv, page = request.kv, world.config["page"]
    at = until if decodes else start + (until - start) // page * page
    if at == start or (decodes and at % page):
        return
    branching = request.mamba_branching_seqlen
    if not decodes and branching is not None and start < branching < until:
        at = branching
    here = kv.mamba_next_track_idx
    slot = int(kv.mamba_ping_pong_track_buffer[here])
    world.pools["mamba"].content[slot] = of_request(world, request)[at - 1]
    if decodes:
        kv.mamba_prev_track_seqlen = kv.mamba_last_track_seqlen
    kv.mamba_last_track_idx, kv.mamba_last_track_seqlen = here, at
    kv.mamba_next_track_idx = world.rows.get_mamba_ping_pong_other_idx(here)


# -- what the laws read


def cached_slots(world: World, part: str = "full") -> Any:
    """The slots of a component that the tree holds."""
    if not any(world.sizes(part)):
        return np.zeros(0, np.int64)
    core = world.core
    slots = core.all_mamba_values_flatten() if part == "mamba" else core.all_values_flatten()
    return np.asarray(slots).astype(np.int64, copy=False)


def pools_of(world: World, requests: Sequence[Any]) -> list[PoolState]:
    """Who holds which slot. Of host pages only their number is known, since a core in Rust does not
    tell which of them a node has."""
    owners = [("cache", cached_slots(world))]
    for request in requests:
        if request.kv.req_pool_idx is not None:
            row = world.table[request.kv.req_pool_idx]
            own = row[request.kv.cache_protected_len : request.kv.kv_allocated_len]
            owners.append((f"request {request.rid}", own))
    states = [pool_of(world, "full", [Holding(*owner) for owner in owners])]
    if "swa" in world.pools:
        kept, content = [], world.pools["full"].content
        for owner, slots in owners:
            pairs = world.mapping[slots]
            alive = pairs > 0
            kept.append(Holding(owner, pairs[alive], content[slots[alive]]))
        states.append(pool_of(world, "swa", kept))
    if "mamba" in world.pools:
        kept = [Holding("cache", cached_slots(world, "mamba"))]
        kept += [Holding(f"request {request.rid}", states_of(request.kv)) for request in requests]
        states.append(pool_of(world, "mamba", kept))
    for name, pool in world.pools.items():
        if name.startswith("host"):
            page, free = pool.page_size, len(pool.free_list)
            states.append(PoolState(name, page, pool.size, free, [Holding("cache", pool.used())]))
    return states


def pool_of(world: World, part: str, kept: Sequence[Holding]) -> PoolState:
    pool, (evictable, protected) = world.pools[part], world.sizes(part)
    locked = -1 if world.busy() else protected
    sizes = pool.page_size, pool.size, len(pool.free_list)
    return PoolState(part, *sizes, kept, pool.content, False, evictable + protected, locked)


def states_of(kv: Any) -> Any:
    """The slots of the states of a request."""
    slots = [] if kv.mamba_pool_idx is None else [int(kv.mamba_pool_idx)]
    if kv.mamba_ping_pong_track_buffer is not None:
        slots += [item for item in kv.mamba_ping_pong_track_buffer.tolist() if item >= 0]
    return np.array(slots, np.int64)


def judge_slots(who: str, pool: Any, slots: Any, expected: Any, kind: str, first: int = 0) -> None:
    """These slots hold these contents, which begin at this position."""
    content = pool.content[slots]
    if content.tobytes() != expected.tobytes():
        at = first + int((content != expected).nonzero()[0][0])
        need(False, "BYTES", f"{who}: the {pool.name} slot of position {at} holds another", kind)


def judge_reads(world: World, requests: Sequence[Any]) -> None:
    """What every running request reads is its own: all positions, and its window."""
    for request in requests:
        until = request.kv.kv_committed_len
        if request.kv.req_pool_idx is None or not until:
            continue
        who, expected = f"{request.rid} at {until}", of_request(world, request)[:until]
        row = world.table[request.kv.req_pool_idx, :until]
        judge_slots(who, world.pools["full"], row, expected, "full row")
        if "swa" in world.pools:
            low = max(0, until - world.config["window"])
            pairs = world.mapping[row[low:]]
            judge_slots(who, world.pools["swa"], pairs, expected[low:], "swa row", low)


def judge_state(world: World, request: Any) -> None:
    """The state that a pass starts from is that of the prefix before it; at 0 there is none."""
    at, slot = request.kv.kv_committed_len, int(request.kv.mamba_pool_idx)
    content = int(world.pools["mamba"].content[slot])
    right = content == of_request(world, request)[at - 1] if at else not request.copied
    kind = "stale state" if request.copied else "state"
    need(right, "BYTES", f"{request.rid} starts at {at} from the state of another prefix", kind)


def judge_admission(world: World, request: Any) -> None:
    """The look-up of a request, which leaves out its last token."""
    tokens, hit = request.origin_input_ids[:-1], int(request.prefix_len)
    judge_match(world, tokens, request.space, request, hit, request.last_node)


def judge_match(
    world: World, tokens: Sequence[int], space: str, result: Any, device: int, node: Any
) -> None:
    """A look-up answers with what is cached of this prompt, and its slots hold it. Each part may be
    on either tier. device, node: the tokens that hit on device, and where they end."""
    pools, config, expected = world.pools, world.config, contents(world, tokens, space)
    full, who = pools["full"], f"a hit of {device} tokens"
    slots = world.cache.path_device_indices(node).numpy()[:device]
    need(slots.size == device, "MATCH", f"{who} has {slots.size} slots", "path")
    judge_slots(who, full, slots, expected[:device], "match full")
    cached = cached_slots(world)
    parts = [Part(among(expected, full.content[cached]), len(tokens))]
    if "swa" in pools:
        low = max(0, device - config["window"])
        pairs = world.mapping[slots[low:]]
        judge_slots(who, pools["swa"], pairs, expected[low:device], "match swa", low)
        alive = cached[world.mapping[cached] > 0]
        parts.append(Part(among(expected, full.content[alive]), config["window"]))
    if "mamba" in pools:
        content = pools["mamba"].content
        if device:
            state = world.core.get_component_device_value(node, NAMES["mamba"])
            right = state is not None and content[int(state[0])] == expected[device - 1]
            need(right, "BYTES", f"{who} has the state of another prefix", "state")
        parts.append(Part(among(expected, content[cached_slots(world, "mamba")]), 1))
    hits, exact = [(device, parts, "")], not config["bigram"]
    if config["host"]:
        both, tier = [], device + result.host_hit_length
        for name, part in zip(world.parts, parts, strict=True):
            host = pools[f"host {name}"]
            below = among(expected, host.promise[host.used()])
            both.append(part._replace(there=part.there | below))
        exact = exact and len(parts) < 3 and not world.storage  # what it keeps of a read is unknown
        if len(parts) > 1:
            hits, tier = [], path_end(world, result.best_match_node)
        hits.append((tier, both, "tiers "))
    page = config["page"]
    for hit, there, kind in hits:
        best = longest(there, page, (len(tokens) - config["bigram"]) // page * page)
        text = f"{hit} of {len(tokens)} tokens hit, {best} are cached"
        need(hit <= best, "MATCH", text, f"{kind}longer")
        need(hit == best or not exact, "MATCH", text, f"{kind}shorter")


def among(expected: Any, cached: Any) -> Any:
    """For each position whether its content is cached."""
    known = set(cached.tolist())
    return np.fromiter((item in known for item in expected.tolist()), np.bool_, len(expected))


# -- KV events

GPU, CPU = "GPU", "CPU_PINNED"


class Record:
    """A router that reads KV events: what it believes must be what is cached, on each tier. on: the
    blocks that are announced on each medium. ends: by block, the tokens up to its end."""

    def __init__(self) -> None:
        self.on: dict[str, set[int]] = {GPU: set(), CPU: set()}
        self.ends: dict[Any, list[int]] = {None: []}

    def judge(self, world: World) -> None:
        """Takes the new events. What is announced then is what is cached."""
        for event in world.cache.take_events():
            self._take(event, type(event).__name__)
        page, slots = world.config["page"], cached_slots(world)
        ends = slots[slots % page == page - 1]
        self._compare(world, GPU, world.pools["full"].content[ends])
        if world.config["host"] and not (world.storage or world.cache.ongoing_write_through):
            host = world.pools["host full"]
            ends = host.used()[page - 1 :: page]
            self._compare(world, CPU, host.content[ends][host.content[ends] >= 0])

    def _take(self, event: Any, kind: str) -> None:
        if kind == "AllBlocksCleared":
            self.on = {GPU: set(), CPU: set()}
            return
        medium = str(getattr(event.medium, "value", event.medium))
        known = self.on[medium]
        if kind == "BlockRemoved":
            text = f"a block is removed from {medium} that was not announced there"
            gone = set(event.block_hashes)
            need(known >= gone, "EVENT-MIRROR", text, f"{medium} removed unknown")
            known -= gone
            return
        parent, size = event.parent_block_hash, event.block_size
        announced = parent is None or any(parent in blocks for blocks in self.on.values())
        text = f"a block is stored on {medium} below one that is not announced"
        need(announced, "EVENT-MIRROR", text, f"{medium} no parent")
        for at, block in enumerate(event.block_hashes):
            text = f"a block is stored on {medium} that is announced there already"
            need(block not in known, "EVENT-MIRROR", text, f"{medium} stored twice")
            known.add(block)
            self.ends[block] = self.ends[parent] + event.token_ids[at * size : (at + 1) * size]
            parent = block

    def _compare(self, world: World, medium: str, ends: Any) -> None:
        count, blocks = len(ends), self.on[medium]
        text = f"{len(blocks)} blocks are announced on {medium}, {count} are there"
        more = "more" if len(blocks) > count else "fewer"
        need(len(blocks) == count, "EVENT-MIRROR", text, f"{medium} {more} announced")
        if not world.config["bigram"]:
            content = {int(chain(self.ends[block])[-1]) for block in blocks}
            text = f"the blocks that are announced on {medium} are not those that are there"
            need(content == set(ends.tolist()), "EVENT-MIRROR", text, f"{medium} others")
