"""A request on a real model, played by hand: tables of shuffled pages, and passes over them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from hicache.core.actions import Prefill, StateSlots
from hicache.core.types import Tier
from hicache.memory.arena import Arena
from hicache.transformers.describing import describe
from hicache.transformers.passes import Passes

PAGES = 40
WORKING, SLOTS, FIRST_CHECKPOINT = 0, (1, 2), 3


class Rig:
    """One model, its device pools full of garbage, and one request's pages."""

    def __init__(self, model: Any, page_size: int, seed: int = 0, draft: Any = None) -> None:
        self.model, self.draft, self.page_size = model, draft, page_size
        self.described = describe(model, page_size, draft)
        self.positional = [one for one in self.described.components if one != "mamba"]
        sizes = dict.fromkeys(self.described.components, PAGES)
        empty = dict.fromkeys(sizes, 0)
        tiers = {Tier.DEVICE: sizes, Tier.HOST: empty}
        self.arena = Arena(self.described.model, page_size, tiers)
        self.spoil()
        draws = np.random.default_rng(seed)
        self.tokens = draws.integers(1, self.described.model.vocabulary, 96).tolist()
        self.tables = tuple(draws.permutation(PAGES)[: 96 // page_size] for _ in self.positional)
        self.passes = Passes(model, self.described, self.arena, draft)
        self.sequence = self.passes.sequence()
        self.decoded: dict[int, int] = {}  # slots of the states that decoding stored, by depth

    def spoil(self) -> None:
        """Garbage in every byte: of floats, NaN."""
        for component in self.described.components:
            for pool in self.arena.pools(Tier.DEVICE, component):
                pool.flat[:] = 255

    def states(self, source: int, first: int, end: int) -> tuple[StateSlots, ...]:
        """The slots of a pass that stores a state at every page boundary."""
        if "mamba" not in self.described.components:
            return ()
        size = self.page_size
        depths = range((first // size + 1) * size, end + 1, size)
        checkpoints = tuple((depth, FIRST_CHECKPOINT + depth // size) for depth in depths)
        return (StateSlots("mamba", source, WORKING, SLOTS, size, checkpoints),)

    def prefill(self, first: int, end: int, source: int = -1) -> torch.Tensor:
        """Logits of the model from a chunk, and of its draft behind them."""
        states = self.states(source, first, end)
        action = Prefill(1, 0, first, end, self.tables, (), end == len(self.tokens), states)
        return torch.cat(self.passes.prefill(self.sequence, self.tokens, action), dim=-1)

    def decode(self, length: int) -> torch.Tensor:
        """Logits after the token at length - 1."""
        states = self.states(-1, length, length)
        tokens = self.tokens[:length]
        if length % self.page_size == 0:  # a state is stored, over the one before the last
            slot = SLOTS[length // self.page_size % 2]
            kept = {depth: page for depth, page in self.decoded.items() if page != slot}
            self.decoded = kept | {length: slot}
        return torch.cat(self.passes.decode(self.sequence, tokens, self.tables, states), dim=-1)

    def again(self, depth: int) -> torch.Tensor:
        """Logits of a new request that reuses the pages before `depth`."""
        self.sequence = self.passes.sequence()
        source = self.decoded.get(depth, FIRST_CHECKPOINT + depth // self.page_size)
        return self.prefill(depth, len(self.tokens), source)

    def cold(self) -> torch.Tensor:
        """Logits of all tokens without any cache."""
        models = [self.model] if self.draft is None else [self.model, self.draft]
        ids = torch.tensor([self.tokens])
        with torch.inference_mode():
            return torch.cat([model(ids, use_cache=False).logits[0] for model in models], dim=-1)
