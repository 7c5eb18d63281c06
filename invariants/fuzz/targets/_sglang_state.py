"""What a server does between SGLang's calls, and what the laws read: slots, contents, look-ups.

A slot of the full or window pool holds the prefix that ends at its position; a state holds the
prefix that it was computed from. With bigram keys (EAGLE) the draft's rows depend on the next
token, too, so the content of a position is that of the prefix one longer; the last position has no
next token yet.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType

from invariants.fuzz.laws import Part, longest
from invariants.fuzz.target import Holding, PoolState, chain, need
from invariants.fuzz.targets._sglang_doubles import World
from invariants.fuzz.targets._sglang_storage import path_end

UNPAIRED = 1 << 60  # marks the content of a position whose next token is not known


def contents(world: World, tokens: Sequence[int], space: str) -> Any:
    """The content of every position of a prompt."""
    key = (space, array("q", tokens).tobytes())
    found = world.chains.get(key)
    if found is None:
        if len(world.chains) > 200:
            world.chains.clear()
        found = chain(tokens, space)
        if world.config["bigram"]:
            found = np.append(found[1:], found[-1:] ^ UNPAIRED)
        world.chains[key] = found
        if world.storage is not None:
            world.storage.learn(tokens, space, found)
    return found


def of_request(world: World, request: Any) -> Any:
    """The content of every position of a request, which only grows."""
    length, known = len(request.origin_input_ids) + len(request.output_ids), request.known
    if known is None or len(known) != length:
        tokens = request.origin_input_ids + request.output_ids
        known = request.known = contents(world, tokens, request.space)
    return known


# -- what a server does


def seat(world: World, request: Any, slots: Any) -> None:
    """Writes the slots of what hit into the row of a request."""
    kv = request.kv
    world.rows.table[kv.req_pool_idx, : len(slots)] = slots.numpy()
    kv.kv_allocated_len = kv.kv_committed_len = len(slots)


def take_slots(world: World, request: Any, until: int) -> bool:
    """Takes slots up to this position for a request, as alloc_for_extend does after evicting: what
    is left of its last page, then whole pages, and as many window slots. False: there are too few.
    """
    kv, page = request.kv, world.config["page"]
    start = kv.kv_allocated_len
    left = min(-start % page, until - start)
    count = -(-(until - start - left) // page)
    pools = [world.pools[name] for name in ("full", "swa") if name in world.pools]
    if any(count > len(pool.free_list) for pool in pools):
        return False
    taken = [pool.take(count) or [] for pool in pools]
    row = world.rows.table[kv.req_pool_idx]
    if left:
        last = int(row[start - 1])
        slots = [*range(last + 1, last + 1 + left), *taken[0]][: until - start]
    else:
        slots = taken[0][: until - start]
    row[start:until] = slots
    if len(pools) == 2 and count:
        world.mapping[taken[0]] = taken[1]
    kv.kv_allocated_len = until
    return True


def lacking(world: World, request: Any, until: int) -> int:
    """Slots of whole pages that a request lacks to reach this position."""
    page: int = world.config["page"]
    taken: int = -(-request.kv.kv_allocated_len // page)
    return (-(-until // page) - taken) * page


def available(world: World) -> int:
    """Slots that can be allocated now, of the scarcer pool."""
    swa = world.pools.get("swa")
    full: int = world.pools["full"].available_size()
    return full if swa is None else min(full, int(swa.available_size()))


def compute(world: World, request: Any, start: int, until: int) -> None:
    """A pass writes what belongs to these positions, and the state after them."""
    kv, expected = request.kv, of_request(world, request)
    world.copies.before_pass()
    if world.config["bigram"] and start > kv.cache_protected_len:
        start -= 1  # its next token is known now
    row = world.rows.table[kv.req_pool_idx, start:until]
    world.pools["full"].content[row] = expected[start:until]
    if "swa" in world.pools:
        swa = world.mapping[row]
        alive = swa > 0
        world.pools["swa"].content[swa[alive]] = expected[start:until][alive]
    if "mamba" in world.pools:
        world.pools["mamba"].content[int(kv.mamba_pool_idx)] = expected[until - 1]
    world.pools["full"].changes += 1
    kv.kv_committed_len = until


def generate(request: Any, token: int) -> None:
    request.output_ids.append(token)


def begin_states(world: World, request: Any) -> None:
    """The pass starts from a copy of the state that hit (_collect_deferred_mamba_cow_and_clear)."""
    kv = request.kv
    if kv.mamba_cow_src_index is not None:
        target = kv.mamba_pool_idx.unsqueeze(0)
        world.rows.mamba_pool.copy_from(kv.mamba_cow_src_index, target)
        kv.mamba_cow_src_index = None
    kv.mamba_needs_clear = False


def judge_state(world: World, request: Any, at: int, copied: bool = False) -> None:
    """The state that a pass starts from is that of the prefix before it; at 0 there is none.
    copied: whether the pass was told to copy one."""
    held = int(world.pools["mamba"].content[int(request.kv.mamba_pool_idx)])
    right = held == of_request(world, request)[at - 1] if at else not copied
    kind = "stale state" if copied else "state"
    need(right, "BYTES", f"{request.rid} starts at {at} from the state of another prefix", kind)


def track(world: World, request: Any, start: int, until: int, decodes: bool) -> None:
    """A pass leaves the state of a page boundary in a slot that the cache may take over (see
    _mamba_radix_cache_v2_req_prepare_for_extend and _mamba_prefix_cache_update)."""
    if not world.config["extra"] or "mamba" not in world.pools:
        return
    kv, page = request.kv, world.config["page"]
    at = until if decodes else start + (until - start) // page * page
    if at == start or (decodes and at % world.config.get("interval", page)):
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


def tree_slots(world: World) -> Any:
    if not world.core.full_evictable_size() + world.core.full_protected_size():
        return np.zeros(0, np.int64)
    return world.core.all_values_flatten().numpy().astype(np.int64, copy=False)


def mark_of(world: World, requests: Sequence[Any]) -> Any:
    """What the laws read, in short: with the same slots taken and written, the same sizes and the
    same extents of the requests, they would find the same."""
    core = world.core
    sizes = [core.full_evictable_size(), core.full_protected_size()]
    if "swa" in world.pools:
        sizes += core.swa_evictable_size(), core.swa_protected_size()
    if "mamba" in world.pools:
        sizes += core.mamba_evictable_size(), core.mamba_protected_size()
    extents = [
        (one.rid, kv.kv_committed_len, kv.kv_allocated_len, kv.cache_protected_len)
        for one in requests
        for kv in [one.kv]
    ]
    return sum(pool.changes for pool in world.pools.values()), sizes, extents, world.busy()


def pools_of(world: World, requests: Sequence[Any]) -> list[PoolState]:
    """Who holds which slot. Of host pages only their number is known, since a core in Rust does not
    tell which of them a node has."""
    core, cached, busy = world.core, tree_slots(world), world.busy()
    full = world.pools["full"]
    own = [(one, _own_row(world, one)) for one in requests if one.kv.req_pool_idx is not None]
    held = [Holding("cache", cached), *(_held(world, one, row, full) for one, row in own)]
    found = [
        PoolState(
            "full",
            full.page_size,
            full.size,
            len(full.free_list),
            held,
            full.content,
            counted=core.full_evictable_size() + core.full_protected_size(),
            protected=-1 if busy else core.full_protected_size(),
        )
    ]
    if "swa" in world.pools:
        found.append(_windows(world, cached, own, busy))
    if "mamba" in world.pools:
        found.append(_states(world, requests, busy))
    for name, pool in world.pools.items():
        if name.startswith("host"):
            page, free = pool.page_size, len(pool.free_list)
            found.append(PoolState(name, page, pool.size, free, [Holding("cache", pool.held())]))
    return found


def _own_row(world: World, request: Any) -> Any:
    kv = request.kv
    return world.rows.table[kv.req_pool_idx, kv.cache_protected_len : kv.kv_allocated_len]


def _held(world: World, request: Any, row: Any, pool: Any) -> Holding:
    expected = pool.content[row]  # what is not computed yet may hold anything
    kv = request.kv
    done = kv.kv_committed_len - kv.cache_protected_len
    if done > 0:
        expected[:done] = of_request(world, request)[kv.cache_protected_len : kv.kv_committed_len]
    return Holding(f"request {request.rid}", row, expected)


def _windows(world: World, cached: Any, own: Sequence[Any], busy: bool) -> PoolState:
    core, pool, full = world.core, world.pools["swa"], world.pools["full"]
    held = []
    for owner, slots in [("cache", cached), *((f"request {one.rid}", row) for one, row in own)]:
        peers = world.mapping[slots]
        alive = peers > 0
        held.append(Holding(owner, peers[alive], full.content[slots[alive]]))
    return PoolState(
        "swa",
        pool.page_size,
        pool.size,
        len(pool.free_list),
        held,
        pool.content,
        counted=core.swa_evictable_size() + core.swa_protected_size(),
        protected=-1 if busy else core.swa_protected_size(),
    )


def _states(world: World, requests: Sequence[Any], busy: bool) -> PoolState:
    core, pool = world.core, world.pools["mamba"]
    counted = core.mamba_evictable_size() + core.mamba_protected_size()
    none = np.zeros(0, np.int64)
    cached = np.asarray(core.all_mamba_values_flatten()).astype(np.int64) if counted else none
    held = [Holding("cache", cached)]
    for request in requests:
        kv, slots = request.kv, list[int]()
        if kv.mamba_pool_idx is not None:
            slots.append(int(kv.mamba_pool_idx))
        if kv.mamba_ping_pong_track_buffer is not None:
            slots += [one for one in kv.mamba_ping_pong_track_buffer.tolist() if one >= 0]
        held.append(Holding(f"request {request.rid}", np.array(slots, np.int64)))
    return PoolState(
        "mamba",
        1,
        pool.size,
        len(pool.free_list),
        held,
        counted=counted,
        protected=-1 if busy else core.mamba_protected_size(),
    )


def judge_reads(world: World, requests: Sequence[Any]) -> None:
    """What every running request reads is its own: all positions, its window, its state."""
    full, swa = world.pools["full"], world.pools.get("swa")
    for request in requests:
        kv = request.kv
        until = kv.kv_committed_len
        if kv.req_pool_idx is None or not until:
            continue
        who, expected = request.rid, of_request(world, request)[:until]
        row = world.rows.table[kv.req_pool_idx, :until]
        held = full.content[row]
        if held.tobytes() != expected.tobytes():
            at = int((held != expected).nonzero()[0][0])
            text = f"{who} reads position {at} of {until}, which holds another prefix"
            need(False, "BYTES", text, "full row")
        if swa is not None:
            low = max(0, until - world.config["window"])
            peers = world.mapping[row[low:]]
            if min(peers.tolist()) <= 0:
                text = f"{who} at {until}: a position of its window has no slot"
                need(False, "BYTES", text, "swa lost")
            held = swa.content[peers]
            if held.tobytes() != expected[low:].tobytes():
                at = low + int((held != expected[low:]).nonzero()[0][0])
                text = f"{who} at {until} reads position {at} of its window, of another prefix"
                need(False, "BYTES", text, "swa row")


# -- look-ups


def judge_admission(world: World, request: Any) -> None:
    """The same for the look-up of a request, which leaves out its last token."""
    hit = SimpleNamespace(
        device_prefix_len=request.prefix_len,
        host_hit_length=request.host_hit_length,
        last_device_node=request.last_node,
        best_match_node=request.best_match_node,
    )
    judge_match(world, request.origin_input_ids[:-1], request.space, hit)


def judge_match(world: World, tokens: Sequence[int], space: str, result: Any) -> None:
    """A look-up answers with what is cached of this prompt, and its slots hold it."""
    pools, config = world.pools, world.config
    expected = contents(world, tokens, space)
    most = (len(tokens) - config["bigram"]) // config["page"] * config["page"]
    device, host = on_device(result), result.host_hit_length
    need(device + host <= most, "MATCH", f"{device} + {host} tokens hit, of {most}", "beyond")
    slots = path_slots(world, result)[:device]
    need(slots.size == device, "MATCH", f"{device} tokens hit, the path has {slots.size}", "path")
    right = (pools["full"].content[slots] == expected[:device]).all()
    need(right, "BYTES", f"a hit of {device} tokens has slots of another prefix", "match full")
    cached = tree_slots(world)
    parts = [Part("full", _among(expected, pools["full"].content[cached]))]
    if "swa" in pools:
        parts.append(_window_part(world, expected, device, slots, cached))
    if "mamba" in pools:
        parts.append(_state_part(world, expected, device, result))
    if config["host"]:
        _judge_tiers(world, result, expected, parts, most)
        return
    best = longest(parts, config["page"], most)
    text = f"{device} of {len(tokens)} tokens hit, {best} are cached"
    need(device <= best, "MATCH", text, "longer")
    need(device == best or config["bigram"], "MATCH", text, "shorter")


def on_device(result: Any) -> int:
    """Tokens that hit on the device."""
    return int(result.device_prefix_len)


def path_slots(world: World, result: Any) -> Any:
    """The slots of what hit on the device."""
    indices = world.cache.path_device_indices(result.last_device_node)
    return indices.numpy().astype(np.int64, copy=False)


def _among(expected: Any, cached: Any) -> Any:
    """For each position whether its content is cached."""
    known = set(cached.tolist())
    return np.fromiter((one in known for one in expected.tolist()), np.bool_, len(expected))


def _window_part(world: World, expected: Any, device: int, slots: Any, cached: Any) -> Part:
    swa, full, window = world.pools["swa"], world.pools["full"], world.config["window"]
    if device:
        low = max(0, device - window)
        peers = world.mapping[slots[low:]]
        need((peers > 0).all(), "MATCH", f"a hit of {device}: its window lacks slots", "swa lost")
        right = (swa.content[peers] == expected[low:device]).all()
        need(right, "BYTES", f"a hit of {device}: its window holds another prefix", "match swa")
    alive = cached[world.mapping[cached] > 0]
    return Part("window", _among(expected, full.content[alive]), window)


def _state_part(world: World, expected: Any, device: int, result: Any) -> Part:
    core, pool = world.core, world.pools["mamba"]
    if device:
        state = core.get_component_device_value(result.last_device_node, ComponentType.MAMBA)
        right = state is not None and pool.content[int(state[0])] == expected[device - 1]
        need(right, "BYTES", f"a hit of {device} tokens has the state of another prefix", "state")
    counted = core.mamba_evictable_size() + core.mamba_protected_size()
    none = np.zeros(0, np.int64)
    cached = np.asarray(core.all_mamba_values_flatten()).astype(np.int64) if counted else none
    return Part("state", _among(expected, pool.content[cached]))


def _judge_tiers(world: World, result: Any, expected: Any, parts: list[Part], most: int) -> None:
    """With a host tier: each part may be on either."""
    page, device, host = world.config["page"], on_device(result), result.host_hit_length
    names = ["full", *(name for name in ("swa", "mamba") if name in world.pools)]
    both = []
    for name, part in zip(names, parts, strict=True):
        pool = world.pools[f"host {name}"]
        backed = pool.promise[pool.held()]
        both.append(part._replace(there=part.there | _among(expected, backed)))
    best, exact = longest(both, page, most), not world.config["bigram"] and len(parts) < 3
    if world.storage is not None and len(parts) > 1:
        exact = False  # which fetched windows and states the cache took is not known
    if len(parts) == 1:
        found, there = device + host, longest(parts, page, most)
        text = f"{device} tokens hit on the device, {there} are cached there"
        need(device <= there, "MATCH", text, "longer")
        need(device == there or not exact, "MATCH", text, "shorter")
    else:
        found = path_end(world, result.best_match_node)
    text = f"the best match has {found} tokens, {best} are cached on the tiers"
    need(found <= best, "MATCH", text, "tiers longer")
    need(found == best or not exact, "MATCH", text, "tiers shorter")
