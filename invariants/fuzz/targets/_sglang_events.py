"""A router that reads SGLang's KV events: what it believes must be what is cached, on each tier."""

from __future__ import annotations

from typing import Any

import numpy as np

from invariants.fuzz.target import chain, need
from invariants.fuzz.targets._sglang_doubles import World
from invariants.fuzz.targets._sglang_state import tree_slots

GPU, CPU = "GPU", "CPU_PINNED"


class Mirror:
    """on: the blocks that are announced on each medium. prompts: by block hash, the tokens up to
    its end."""

    def __init__(self) -> None:
        self.on: dict[str, set[int]] = {GPU: set(), CPU: set()}
        self.prompts: dict[Any, list[int]] = {None: []}

    def read(self, world: World) -> None:
        """Takes the new events. Raises Broken if one cannot follow those before it."""
        for event in world.cache.take_events():
            kind = type(event).__name__
            if kind == "AllBlocksCleared":
                self.on = {GPU: set(), CPU: set()}
                continue
            medium = str(getattr(event.medium, "value", event.medium))
            known = self.on[medium]
            if kind == "BlockStored":
                self._stored(event, medium, known)
            for block in event.block_hashes if kind == "BlockRemoved" else ():
                text = f"a block is removed from {medium} that was not announced there"
                need(block in known, "EVENT-MIRROR", text, f"{medium} removed unknown")
                known.remove(block)

    def _stored(self, event: Any, medium: str, known: set[int]) -> None:
        parent, size = event.parent_block_hash, event.block_size
        announced = parent is None or any(parent in blocks for blocks in self.on.values())
        text = f"a block is stored on {medium} below one that is not announced"
        need(announced, "EVENT-MIRROR", text, f"{medium} no parent")
        for at, block in enumerate(event.block_hashes):
            text = f"a block is stored on {medium} that is announced there already"
            need(block not in known, "EVENT-MIRROR", text, f"{medium} stored twice")
            known.add(block)
            tokens = list(event.token_ids[at * size : (at + 1) * size])
            self.prompts[block] = self.prompts.get(parent, []) + tokens
            parent = block

    def judge(self, world: World) -> None:
        """What is announced is what is cached."""
        self.read(world)
        page = world.config["page"]
        slots = tree_slots(world)
        ends = slots[slots % page == page - 1]
        self._compare(world, GPU, world.pools["full"].content[ends])
        if world.config["host"] and not world.cache.ongoing_write_through:
            host = world.pools["host full"]
            ends = np.flatnonzero(host.taken) * page + page - 1
            ends = ends[host.promise[ends] >= 0]  # a page that is being fetched has no promise
            self._compare(world, CPU, host.content[ends][host.content[ends] >= 0])

    def _compare(self, world: World, medium: str, ends: Any) -> None:
        count, said = len(ends), self.on[medium]
        text = f"{len(said)} blocks are announced on {medium}, {count} are there"
        more = "more" if len(said) > count else "fewer"
        need(len(said) == count, "EVENT-MIRROR", text, f"{medium} {more} announced")
        if not world.config["bigram"]:
            found = {int(chain(self.prompts[block])[-1]) for block in said}
            text = f"the blocks that are announced on {medium} are not those that are there"
            need(found == set(ends.tolist()), "EVENT-MIRROR", text, f"{medium} others")
