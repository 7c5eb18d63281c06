"""The cache of one request while the library generates: its past from pages, and what is computed.

It goes through every pass of the request, and hooks on the model tell it what each computes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from transformers import DynamicCache

from .describing import DescribedCache
from .layers import New, Past, Seen

States = list[New]  # by layer


class LiveCache(DynamicCache):  # type: ignore[misc]
    """The cache of a model. count: tokens that it has, in all layers. fitting: tokens before the
    first pass that did not fit, whose rows may be kept. states: by depth in tokens."""

    def __init__(
        self,
        described: DescribedCache,
        reused: Sequence[int] = (),
        past: Sequence[Past] = (),
        prompt_tokens: int = 0,
        longest: int = sys.maxsize,
        interval: int = 0,
    ) -> None:
        """reused: the tokens that come from pages. past: their rows, by layer. prompt_tokens: of
        the whole prompt. longest: a pass that ends later does not fit: it turns all of its tokens
        by other angles. interval: tokens between states that are kept; 0 for none."""
        super().__init__()
        self.layer_class_to_replicate = None
        self.described = described
        self.layers = described.fresh()
        self.seen = [Seen() for _ in self.layers]
        self.states: dict[int, States] = {}
        self.count = len(reused)
        if past:
            for one, layer, rows in zip(described.layers, self.layers, past, strict=True):
                one.kind.put(layer, one.rows, rows, self.count)
        self.fitting = self._longest = longest
        self.wanted: set[int] = set()
        self.first_of_generate = False
        self._prompt, self._interval = prompt_tokens, interval
        self._ids = torch.tensor([list(reused)], dtype=torch.long)
        self._parts: list[torch.Tensor] = []

    @property
    def is_compileable(self) -> bool:
        """No: on an accelerator the library compiles a model for every cache whose layers have
        fixed shapes, as those of states, unless the cache is exactly a DynamicCache. Hooks are no
        part of a graph."""
        return False

    def update(
        self, key_states: Any, value_states: Any, layer_idx: int, *args: Any, **kwargs: Any
    ) -> Any:
        seen = self.seen[layer_idx]
        seen.keys.append(_alone(key_states))
        seen.values.append(_alone(value_states))
        return super().update(key_states, value_states, layer_idx, *args, **kwargs)

    def taken(self) -> list[New]:
        """The rows that all passes have added to each layer."""
        layers = zip(self.described.layers, self.layers, self.seen, strict=True)
        return [one.kind.take(layer, one.rows, seen) for one, layer, seen in layers]

    def states_now(self) -> States:
        """Copies of the states of all layers."""
        layers = zip(self.described.layers, self.layers, strict=True)
        return [one.kind.state(layer) for one, layer in layers]

    def tokens(self) -> list[int]:
        """The tokens whose rows the cache has."""
        self._ids = torch.cat([self._ids, *(part.to("cpu") for part in self._parts)], dim=1)
        self._parts = []
        found: list[int] = self._ids[0].tolist()
        return found

    def begin(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Before a pass: leave out the tokens that the cache has, where the library did not."""
        ids = kwargs["input_ids"]
        first, self.first_of_generate = self.first_of_generate, False
        if first and self.count and ids.shape[1] >= self._prompt:
            kwargs = {**kwargs, "input_ids": ids[:, self.count :]}
            positions = kwargs.get("position_ids")
            if positions is not None and positions.shape[-1] == ids.shape[1]:
                kwargs["position_ids"] = positions[..., self.count :]
        return kwargs

    def end(self, ids: torch.Tensor) -> None:
        """After a pass over these tokens."""
        if self.count + ids.shape[1] > self._longest:
            self.fitting = min(self.fitting, self.count)
        self.count += ids.shape[1]
        self._parts.append(ids)
        if self._interval and (self.count in self.wanted or self.count % self._interval == 0):
            self.states = {depth: self.states[depth] for depth in self.wanted & self.states.keys()}
            self.states[self.count] = self.states_now()

    def crop(self, *args: Any, **kwargs: Any) -> None:
        """What was computed and taken back is not kept, nor what follows."""
        super().crop(*args, **kwargs)
        self.fitting = 0


def _alone(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor that does not keep more in memory than itself, as a part of a joint projection of
    queries, keys and values would."""
    whole = tensor.untyped_storage().nbytes()
    return tensor if whole <= tensor.numel() * tensor.element_size() else tensor.clone()


@contextmanager
def followed(model: Any, live: LiveCache) -> Iterator[None]:
    """In the `with` block, the passes of the model that use the cache are told to it."""
    name = live.described.argument

    def before(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if args:
            kwargs = {**kwargs, "input_ids": args[0]}
        return ((), live.begin(kwargs)) if kwargs.get(name) is live else None

    def after(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        if kwargs.get(name) is live:
            live.end(kwargs["input_ids"])

    hooks = [
        model.register_forward_pre_hook(before, with_kwargs=True),
        model.register_forward_hook(after, with_kwargs=True),
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
