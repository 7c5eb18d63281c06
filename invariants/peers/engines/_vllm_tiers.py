"""What vLLM's offloading managers say is on host, and what is there. Scripts copy definitions from
here."""

from __future__ import annotations

from typing import Any

from ..base import need
from ._vllm_doubles import Memory
from ._vllm_worker import MOVING, TORN


def host_chunks(scheduler: Any) -> Any:
    """The manager of the host tier."""
    manager = scheduler.connector.connector_scheduler.manager
    return getattr(manager, "primary_tier", manager)


def chunks_of(manager: Any) -> dict[bytes, Any]:
    """The chunks of the host tier by key: `OffloadKey`, a block hash and a group."""
    tables = [one for one in vars(manager._policy).values() if hasattr(one, "items")]
    return {key: chunk for one in tables for key, chunk in one.items() if hasattr(chunk, "ref_cnt")}


def _number(chunk: Any) -> int:
    return int(chunk.chunk_id if hasattr(chunk, "chunk_id") else chunk.block_id)


def audit_host(manager: Any, host: Any, memory: Memory, factor: int) -> None:
    """Raises Broken unless every chunk on host has one key and holds what that stands for."""
    chunks = chunks_of(manager)
    numbers = [_number(chunk) for chunk in chunks.values()]
    free = list(getattr(manager, "_free_list", ()))
    once = len(set(numbers) | set(free)) == len(numbers) + len(free)
    need(once, "OWN", "a chunk of the host has two keys, or is free and has one", "host")
    made = getattr(manager, "_num_allocated_chunks", getattr(manager, "_num_allocated_blocks", 0))
    text = f"{made} chunks of the host were taken, {len(numbers)} are cached, {len(free)} free"
    need(made == len(numbers) + len(free), "POOL-SUM", text, "host")
    for key, chunk in chunks.items():
        if chunk.ref_cnt < 0:
            continue
        means = memory.means.get(key[-36:-4])
        if means is None:
            continue
        last, size = means[1] - 1, memory.groups[key[-1]].block
        owner, rows = host.get(_number(chunk), last // size % factor)
        row = last % size if len(rows) == size else 0
        if owner != key[-1] or not rows or rows[row] != means[0]:
            held = {MOVING: "is still being written"}.get(owner, "holds something else")
            if owner == key[-1] and rows and rows[row] == TORN:
                held = "holds a block that was overwritten while a store read it"
            text = f"chunk {_number(chunk)} of the host is cached for {means[1]} tokens"
            kind = f"host {memory.groups[key[-1]].kind}"
            need(False, "BYTES", f"{text} of group {key[-1]}, and {held}", kind)
