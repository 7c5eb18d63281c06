"""A reference for look-ups in vLLM's cache: what each group of layers needs at the end of a hit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from invariants.fuzz.target import need
from invariants.fuzz.targets._vllm_doubles import Group


def longest_hit(
    index: Any,
    groups: Sequence[Group],
    hashes: Sequence[bytes],
    page: int,
    step: int,
    most: int,
    until: int = 0,
) -> int:
    """The longest prefix that every group can restore, from nothing but the hashes that are cached.
    page: tokens of a block hash. step: tokens that hits are multiples of. until: tokens up to which
    hashes are looked at, if more than `most`: a block of full attention that is cached for a longer
    prefix also has the shorter one."""
    most = min(most, len(hashes) * page) // step * step
    until = max(until, most)
    for at, group in enumerate(groups):
        if group.kind == "full":
            most = min(most, _leading(index, at, group.block, hashes, page, until, step))
    while most > 0:
        if all(
            group.kind == "full" or _restores(index, at, group, hashes, page, most)
            for at, group in enumerate(groups)
        ):
            return most
        most -= step
    return 0


def _key(at: int, hashes: Sequence[bytes], page: int, end: int) -> bytes:
    """The key of the prefix of `end` tokens for a group."""
    return hashes[end // page - 1] + at.to_bytes(4, "big")


def _leading(
    index: Any, at: int, size: int, hashes: Sequence[bytes], page: int, until: int, step: int
) -> int:
    """The tokens that a group with full attention has from the start on, in steps."""
    end = 0
    while end + size <= until and _key(at, hashes, page, end + size) in index:
        end += size
    if step < size:  # a block may be cached for a part of it
        for part in range(size - step, 0, -step):
            if end + part <= until and _key(at, hashes, page, end + part) in index:
                return end + part
    return end // step * step


def _restores(
    index: Any, at: int, group: Group, hashes: Sequence[bytes], page: int, end: int
) -> bool:
    if group.kind in ("align", "all"):
        return _key(at, hashes, page, end) in index
    if group.kind == "chunk":
        first = end // group.reach * group.reach
    else:
        first = max(0, end - group.reach + 1)
    size = group.block
    return end % size == 0 and all(
        _key(at, hashes, page, (block + 1) * size) in index
        for block in range(first // size, end // size)
    )


def judge_hit(
    manager: Any, groups: Sequence[Group], request: Any, blocks: Any, hit: int, exact: bool
) -> None:
    """Judges an answer to a look-up. exact: nothing shorter is allowed."""
    coordinator = manager.coordinator
    page, index = manager.block_pool.hash_block_size, manager.block_pool.cached_block_hash_to_block
    step = (
        getattr(coordinator, "_cache_hit_alignment_tokens", 0) or coordinator.scheduler_block_size
    )
    hashes, most = request.block_hashes, request.num_tokens - 1
    need(0 <= hit <= most, "MATCH", f"{hit} tokens of a prompt of {most + 1} hit", "bounds")
    best = longest_hit(index._cache, groups, hashes, page, step, most, len(hashes) * page)
    text = f"{hit} tokens hit, the longest prefix that is cached has {best}"
    need(hit <= best, "MATCH", text, "longer")
    if exact:
        best = longest_hit(index._cache, groups, hashes, page, step, most)
        text = f"{hit} tokens hit, the longest prefix that is cached has {best}"
        need(hit >= best, "MATCH", text, "shorter")
    for at, group in enumerate(groups):
        _judge_blocks(at, group, blocks.blocks[at], hashes, page, hit)


def _judge_blocks(
    at: int, group: Group, blocks: Any, hashes: Sequence[bytes], page: int, hit: int
) -> None:
    """The blocks of a hit are those of its prefix; what is not needed may be the null block."""
    size = group.block
    if len(blocks) > -(-hit // size):
        need(False, "MATCH", f"group {at}: {len(blocks)} blocks for {hit} tokens", "blocks")
    first = 0
    if group.kind == "window":
        first = max(0, hit - group.reach + 1) // size
    elif group.kind == "chunk":
        first = hit // group.reach * group.reach // size
    elif group.kind != "full":
        first = len(blocks) - 1
    for number, block in enumerate(blocks):
        if block.is_null:
            need(number < first, "MATCH", f"group {at}: block {number} is missing", "blocks")
        elif (number + 1) * size <= hit:
            key = _key(at, hashes, page, (number + 1) * size)
            if block.block_hash != key:
                text = f"group {at}: block {number} of the hit is that of another prefix"
                need(False, "MATCH", text, "blocks")
