"""Planted in `Passes.decode`: a checkpoint is stored in the step behind its depth."""

from __future__ import annotations

from typing import Any

from hicache.transformers import passes

from ...planted.base import Patch

TITLE = "A state that is stored while a request decodes has one token too many."
FAMILIES: tuple[str, ...] = ("qwen3-next", "nemotron-h", "falcon-h1", "mamba2")

_decode = passes.Passes.decode


def _late(self: Any, sequence: Any, tokens: Any, tables: Any, states: Any = (), *more: Any) -> Any:
    none = tuple(slots._replace(checkpoint_slots=(-1, -1)) for slots in states)
    logits = _decode(self, sequence, tokens, tables, none, *more)
    for slots in states:
        before, over = divmod(len(tokens) - 1, slots.interval)
        page = slots.checkpoint_slots[before % 2]
        if before and not over and page >= 0:
            for pool in self._described.model.pools:
                if pool.component == slots.component:
                    there = self._rows._pools[pool.name]
                    there[:, :, page] = there[:, :, slots.working]
    return logits


def plant(patch: Patch) -> None:
    patch(passes.Passes, "decode", _late)
