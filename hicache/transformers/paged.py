"""A cache of the library whose past is in pages, and which keeps what a pass adds.

The library sees layers that have the right length from the start. The rows of a layer are put in
place when the pass first asks for the layer, so those of later layers may still be on their way.
Does not read or write pages: `fill` does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from transformers import DynamicCache

from .describing import DescribedCache
from .layers.base import Seen


class PagedCache(DynamicCache):  # type: ignore[misc]
    """One pass of one model, or several passes in a row. fill: called with a layer's place before
    the pass first reads that layer; None if there is no past."""

    def __init__(
        self, described: DescribedCache, fill: Callable[[int, Any], None] | None = None
    ) -> None:
        super().__init__()
        self.layer_class_to_replicate = None
        self.layers = described.fresh()
        self.seen = [Seen() for _ in self.layers]
        self._fill = fill
        self._waiting = set(range(len(self.layers))) if fill is not None else set()

    @property
    def is_compileable(self) -> bool:
        """No: on an accelerator the library compiles a model for every cache whose layers have
        fixed shapes, as those of states, unless the cache is exactly a DynamicCache. Layers that
        arrive, and hooks, are no part of a graph."""
        return False

    def arrive(self, place: int) -> None:
        """Put the past of a layer in place, if that was not done yet."""
        if place in self._waiting and self._fill is not None:
            self._waiting.remove(place)
            self._fill(place, self.layers[place])

    def arrive_all(self) -> None:
        """Put the past of every layer in place."""
        for place in sorted(self._waiting):
            self.arrive(place)

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        layer_idx: int,
        *args: Any,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        self.arrive(layer_idx)
        seen = self.seen[layer_idx]
        seen.keys.append(_alone(key_states))
        seen.values.append(_alone(value_states))
        updated: tuple[torch.Tensor, torch.Tensor] = super().update(
            key_states, value_states, layer_idx, *args, **kwargs
        )
        return updated

    def update_indexer(self, indexer_key_states: torch.Tensor, layer_idx: int) -> torch.Tensor:
        self.arrive(layer_idx)
        self.seen[layer_idx].indexer.append(_alone(indexer_key_states))
        updated: torch.Tensor = super().update_indexer(indexer_key_states, layer_idx)
        return updated

    def get_conv_state(self, layer_idx: int, state_idx: int = 0) -> torch.Tensor | None:
        self.arrive(layer_idx)
        state: torch.Tensor | None = super().get_conv_state(layer_idx, state_idx)
        return state

    def get_recurrent_state(self, layer_idx: int, state_idx: int = 0) -> torch.Tensor | None:
        self.arrive(layer_idx)
        state: torch.Tensor | None = super().get_recurrent_state(layer_idx, state_idx)
        return state

    def update_conv_state(
        self, conv_states: torch.Tensor, layer_idx: int, state_idx: int = 0, **kwargs: Any
    ) -> torch.Tensor:
        self.arrive(layer_idx)
        state: torch.Tensor = super().update_conv_state(conv_states, layer_idx, state_idx, **kwargs)
        return state


def _alone(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor that does not keep more in memory than itself, as a part of a joint projection of
    queries, keys and values would."""
    whole = tensor.untyped_storage().nbytes()
    return tensor if whole <= tensor.numel() * tensor.element_size() else tensor.clone()
