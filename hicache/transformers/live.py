"""The cache of one request while the library generates: its past from pages, and what is computed.

It is filled once and goes through every pass of the request, so nothing is gathered twice. Hooks on
the model tell it which tokens each pass computes. Does not write pages; see `engine`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from hicache.clock import Clock

from .describing import DescribedCache
from .layers.base import Seen
from .moving import States, states_of
from .paged import PagedCache


class LiveCache(PagedCache):
    """The cache of one model. count: tokens that it has, in all layers. reused: of them, those that
    came from pages. fitting: tokens before the first pass that did not fit, whose rows may be kept.
    prefill_s, prefill_tokens: seconds and tokens of passes over the prompt."""

    def __init__(
        self,
        described: DescribedCache,
        reused: Sequence[int],
        prompt_tokens: int,
        longest: int,
        fill: Callable[[int, Any], None] | None,
        interval: int,
        clock: Clock,
    ) -> None:
        """reused: the tokens that come from pages. prompt_tokens: of the whole prompt. longest:
        a pass that ends later does not fit: it turns all of its tokens by other angles. interval:
        tokens between states that are kept; 0 for none."""
        super().__init__(described, fill)
        self.described = described
        self.reused = self.count = len(reused)
        self.fitting = self._longest = longest
        self.prefill_s, self.prefill_tokens = 0.0, 0
        self.states: dict[int, States] = {}
        self.wanted: set[int] = set()
        self.first_of_generate = False
        self._prompt = prompt_tokens
        self._interval, self._clock = interval, clock
        self._ids = torch.tensor([reused], dtype=torch.long)
        self._parts: list[torch.Tensor] = []
        self._began_s = 0.0

    def tokens(self) -> list[int]:
        """The tokens whose rows the cache has."""
        self._ids = torch.cat([self._ids, *(part.to("cpu") for part in self._parts)], dim=1)
        self._parts = []
        found: list[int] = self._ids[0].tolist()
        return found

    def begin(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Before a pass: leave out the tokens that the cache has, where the library did not."""
        ids = kwargs["input_ids"]
        if self.first_of_generate:
            self.first_of_generate = False
            if ids.shape[1] > self._longest:
                self._forget()
            if self.count and ids.shape[1] >= self._prompt:
                kwargs = {**kwargs, "input_ids": ids[:, self.count :]}
                positions = kwargs.get("position_ids")
                if positions is not None and positions.shape[-1] == ids.shape[1]:
                    kwargs["position_ids"] = positions[..., self.count :]
        self._began_s = self._clock.now_s()
        return kwargs

    def end(self, ids: torch.Tensor) -> None:
        """After a pass over these tokens."""
        if self.count < self._prompt:
            self.prefill_s += self._clock.now_s() - self._began_s
            self.prefill_tokens += ids.shape[1]
        if self.count + ids.shape[1] > self._longest:
            self.fitting = min(self.fitting, self.count)
        self.count += ids.shape[1]
        self._parts.append(ids)
        if self._interval and (self.count in self.wanted or self.count % self._interval == 0):
            self.states = {depth: self.states[depth] for depth in self.wanted & self.states.keys()}
            self.states[self.count] = states_of(self.described, self)

    def _forget(self) -> None:
        """Have no tokens: without a cache this pass, with candidates behind the prompt, would
        compute them all, by its own angles."""
        self.layers = self.described.fresh()
        self.activate_past_recording()
        self.seen, self.states = [Seen() for _ in self.layers], {}
        self._waiting.clear()
        self.reused = self.count = 0
        self._ids, self._parts = self._ids[:, :0], []

    def crop(self, tokens_to_remove: int) -> None:
        """Forget the last tokens, which assisted generation did not accept. Called with a negative
        number, or with 0."""
        super().crop(tokens_to_remove)
        dropped = abs(tokens_to_remove)
        if not dropped:
            return
        self.tokens()
        self.count -= dropped
        self._ids = self._ids[:, : self.count]
        self.states = {depth: one for depth, one in self.states.items() if depth <= self.count}
        for seen in self.seen:
            for tensors, axis in ((seen.keys, 2), (seen.values, 2), (seen.indexer, 1)):
                _drop(tensors, axis, dropped)


def _drop(tensors: list[torch.Tensor], axis: int, count: int) -> None:
    """Drop the last `count` rows of a list of tensors."""
    while count and tensors:
        last = tensors.pop()
        kept = last.shape[axis] - count
        if kept > 0:
            tensors.append(last.narrow(axis, 0, kept))
        count = max(0, -kept)


class Resumed:
    """Stands before the streamer of a call, which is not told twice what it knows when the call
    begins anew."""

    def __init__(self, streamer: Any) -> None:
        self._streamer = streamer
        self._given = self._repeated = 0

    def again(self) -> None:
        """The call begins anew, with the same prompt: what was given already is left out."""
        self._repeated = self._given

    def put(self, value: Any) -> None:
        if self._repeated:
            self._repeated -= 1
            return
        self._given += 1
        self._streamer.put(value)

    def end(self) -> None:
        self._streamer.end()


@contextmanager
def followed(model: Any, live: LiveCache, given: bool) -> Iterator[None]:
    """In the `with` block, the passes of the model that use the cache are told to it. given: the
    library is given the cache; otherwise it makes one of its own for each call, as for an assistant
    model, and gets this one instead."""
    name = live.described.argument

    def before(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if args:
            kwargs = {**kwargs, "input_ids": args[0]}
        if not given and kwargs.get(name) is not live and live.first_of_generate:
            live.activate_past_recording()
            kwargs = {**kwargs, name: live}
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
