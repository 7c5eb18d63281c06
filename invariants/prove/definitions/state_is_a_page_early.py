"""Planted in `_Pass._forward`: a checkpoint is stored at the depth before."""

from __future__ import annotations

from typing import Any

from hicache.transformers import passes

from ...planted.base import Patch

TITLE = "A checkpoint has the state of the checkpoint before it."
FAMILIES: tuple[str, ...] = ("qwen3-next", "nemotron-h", "falcon-h1", "mamba2")

_forward = passes._Pass._forward


def _early(self: Any, at: int, model: Any, cache: Any, ids: Any, checkpoints: Any) -> Any:
    depths = sorted(checkpoints)
    sooner = [max(self._span.first, depth - self._span.page_size) for depth in depths]
    moved = {new: checkpoints[depth] for new, depth in zip(sooner, depths, strict=True)}
    return _forward(self, at, model, cache, ids, moved)


def plant(patch: Patch) -> None:
    patch(passes._Pass, "_forward", _early)
