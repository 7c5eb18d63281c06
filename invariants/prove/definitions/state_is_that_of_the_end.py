"""Planted in `_Pass._forward`: checkpoints are stored when the pass has ended."""

from __future__ import annotations

from typing import Any

from hicache.transformers import passes

from ...planted.base import Patch

TITLE = "Every checkpoint of a pass has the state at the end of the pass."
FAMILIES: tuple[str, ...] = ("qwen3-next", "nemotron-h", "falcon-h1", "mamba2")

_forward = passes._Pass._forward


def _late(self: Any, at: int, model: Any, cache: Any, ids: Any, checkpoints: Any) -> Any:
    logits = _forward(self, at, model, cache, ids, {})
    for page in checkpoints.values():
        self._store_states(at, cache, page)
    return logits


def plant(patch: Patch) -> None:
    patch(passes._Pass, "_forward", _late)
