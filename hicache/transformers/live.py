"""The cache of one request while the library generates, and its rows in pages.

It goes through every pass of the request, and hooks on the model tell it what each computes.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from transformers import DynamicCache

from hicache.core.actions import StateSlots
from hicache.core.types import Pages, Tier
from hicache.memory.pools import PoolTable

from .layers import STATE, Described, New, Past, Seen

States = list[New]  # by layer


class LiveCache(DynamicCache):  # type: ignore[misc]
    """The cache of a model. count: tokens that it has, in all layers. fitting: tokens before the
    first pass that did not fit, whose rows may be kept. states: by depth in tokens. wanted: pages
    for those that are stored, by depth."""

    def __init__(
        self,
        described: Described,
        reused: Sequence[int] = (),
        past: Sequence[Past] = (),
        prompt_tokens: int = 0,
        interval: int = 0,
    ) -> None:
        """reused: the tokens that come from pages. past: their rows, by layer. prompt_tokens: of
        the whole prompt. interval: tokens between states that are kept; 0 for none."""
        super().__init__()
        self.layer_class_to_replicate = None
        self.described = described
        self.layers = deepcopy(list(described.template))
        self.seen: list[Seen] = [([], []) for _ in self.layers]
        self.states: dict[int, States] = {}
        self.count = len(reused)
        if past:
            for item, layer, rows in zip(described.layers, self.layers, past, strict=True):
                item.put(layer, rows, self.count)
        self.fitting = described.longest
        self.wanted: dict[int, int] = {}
        self.first_of_generate = False
        self._prompt, self._interval = prompt_tokens, interval
        self._ids = torch.tensor([list(reused)], dtype=torch.long)
        self._parts: list[torch.Tensor] = []

    @property
    def is_compileable(self) -> bool:
        """No: hooks are no part of a graph, which the library makes of fixed shapes."""
        return False

    def update(
        self, key_states: Any, value_states: Any, layer_idx: int, *args: Any, **kwargs: Any
    ) -> Any:
        for seen, states in zip(self.seen[layer_idx], (key_states, value_states), strict=True):
            seen.append(_alone(states))
        return super().update(key_states, value_states, layer_idx, *args, **kwargs)

    def taken(self) -> list[New]:
        """The rows that all passes have added to each layer."""
        layers = zip(self.described.layers, self.seen, strict=True)
        return [item.take(seen) for item, seen in layers]

    def states_now(self) -> States:
        """Copies of the states of all layers."""
        layers = zip(self.described.layers, self.layers, strict=True)
        return [item.state(layer) for item, layer in layers]

    def tokens(self) -> list[int]:
        """The tokens whose rows the cache has."""
        self._ids = torch.cat([self._ids, *(part.to("cpu") for part in self._parts)], dim=1)
        self._parts = []
        return list[int](self._ids[0].tolist())

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
        if self.count + ids.shape[1] > self.described.longest:  # all are turned by other angles
            self.fitting = min(self.fitting, self.count)
        self.count += ids.shape[1]
        self._parts.append(ids)
        if self._interval and (self.count in self.wanted or self.count % self._interval == 0):
            known = self.wanted.keys() & self.states.keys()
            self.states = {depth: self.states[depth] for depth in known}
            self.states[self.count] = self.states_now()

    def crop(self, *args: Any, **kwargs: Any) -> None:
        """What was computed and taken back is not kept, nor what follows."""
        super().crop(*args, **kwargs)
        self.fitting = 0


def _alone(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor in memory of its own: a part of a joint projection of queries, keys and values is
    copied."""
    full = tensor.untyped_storage().nbytes()
    return tensor if full <= tensor.numel() * tensor.element_size() else tensor.clone()


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


class PagedRows:
    """Pages of device pools as rows of torch tensors, in the types of their elements. A row of a
    token is in the page of its position. A state is one row of a page."""

    def __init__(self, described: Described, table: PoolTable, device: torch.device) -> None:
        self.device, self.layers = device, described.layers
        self.positional = [name for name in described.components if name != STATE]
        pools = {
            pool.plan.pool.name: pool
            for component in described.components
            for pool in table.pools(Tier.DEVICE, component)
        }
        # by layer and rows: [part, page, row, head, element]
        self.of: list[dict[str, torch.Tensor]] = [{} for _ in self.layers]
        for number, layer in enumerate(self.layers):
            for rows in layer.rows:
                pool = pools[rows.pool.name]
                view = pool.view[pool.plan.pool.layers.index(number)]
                pages = view if isinstance(view, torch.Tensor) else torch.from_numpy(view)
                self.of[number][rows.name] = pages.view(rows.dtype).transpose(0, 1)


class RequestPages:
    """The device pages of one request. tables: by component; slots: of states."""

    def __init__(self, rows: PagedRows, tables: Sequence[Pages], slots: StateSlots | None) -> None:
        self._rows, self._slots = rows, slots
        self._tables = {
            name: torch.from_numpy(np.array(pages, dtype=np.int64)).to(rows.device)
            for name, pages in zip(rows.positional, tables, strict=True)
        }

    def read(self, tokens: int) -> list[Past]:
        """Copies of the rows of the first tokens that the next one needs, by layer."""
        result: list[Past] = []
        for layer, pools in zip(self._rows.layers, self._rows.of, strict=True):
            past = {}
            for row in layer.rows:
                pool = pools[row.name]
                if row.pool.component == STATE:
                    assert self._slots is not None, "a model with states has slots"
                    page = self._slots.source if self._slots.source >= 0 else self._slots.working
                    past[row.name] = pool[:, page].transpose(0, 1).clone()
                    continue
                first, per_page = row.first_needed(tokens), pool.shape[2]
                pages = self._tables[row.pool.component][first // per_page : -(-tokens // per_page)]
                rows, skipped = pool.index_select(1, pages).flatten(1, 2), first % per_page
                past[row.name] = rows[:, skipped : skipped + tokens - first].transpose(0, 1)
            result.append(past)
        return result

    def write(self, new: Sequence[New], begin: int, first: int, end: int) -> None:
        """Write rows of tokens first..end-1; those in pages that the request lacks (-1) are left
        out. new: rows from token `begin` on, by layer."""
        numbers = torch.arange(first, end, device=self._rows.device)
        for layer, pools, added in zip(self._rows.layers, self._rows.of, new, strict=True):
            for row in layer.rows:
                if row.name in added and len(numbers):
                    pool = pools[row.name]
                    into = self._tables[row.pool.component][numbers // pool.shape[2]]
                    there = into >= 0
                    rows = added[row.name][first - begin : end - begin][there]
                    pool[:, into[there], numbers[there] % pool.shape[2]] = rows.transpose(0, 1)

    def write_states(self, states: Sequence[New], page: int) -> None:
        """Write the states of all layers to one page."""
        for pools, added in zip(self._rows.of, states, strict=True):
            for name, row in added.items():
                pools[name][:, page] = row.transpose(0, 1)
