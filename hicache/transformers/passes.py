"""Forward passes of a real model on pages: the core's `Prefill`, and single decode steps.

Every pass puts its past in place from pages, runs the model of the library, and writes what it
computed back to pages: rows, working states, and states at the checkpoints that the core asked for.
Between passes, a request keeps only its tail (see `layers.base`). Does not choose pages, feed the
core, or move pages between tiers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch

from hicache.core.actions import Prefill, StateSlots
from hicache.core.types import Pages
from hicache.memory.pools import PoolTable

from .describing import Described
from .layers.base import STATE, Span
from .moving import (
    Arrive,
    PagedRows,
    RequestPages,
    fill,
    shape,
    states_of,
    taken,
    write,
    write_states,
)
from .paged import PagedCache


class RunningSequence:
    """What stays with a running request between its passes. tails: by model and layer, after
    `tokens` tokens."""

    __slots__ = ("tails", "tokens")

    def __init__(self) -> None:
        self.tokens = 0
        self.tails: list[list[Any]] = []


class Passes:
    """Runs a model, and its draft if it has one, on the device pools of a table."""

    def __init__(
        self, model: Any, described: Described, table: PoolTable, draft: Any = None
    ) -> None:
        self._models = (model,) if draft is None else (model, draft)
        self._described = described
        self._rows = PagedRows(described, table)
        self._device = model.device
        self._positional = [name for name in described.components if name != STATE]

    def sequence(self) -> RunningSequence:
        """The record of a request that begins or begins again."""
        return RunningSequence()

    def prefill(
        self,
        sequence: RunningSequence,
        tokens: Sequence[int],
        action: Prefill,
        arrive: Arrive | None = None,
    ) -> tuple[torch.Tensor, ...]:
        """Carry out a forward pass of the core. tokens: those of the request, at least up to the
        pass's end. arrive: called with a layer's number before its rows are read.

        Returns the logits of each model, [positions, vocabulary].
        """
        slots = action.states[0] if action.states else None
        checkpoints = dict(slots.checkpoints) if slots is not None else {}
        span = Span(action.start_token, action.end_token, self._described.page_size)
        run = _Pass(self, sequence, span, action.tables, slots, arrive)
        return run.computed(tokens, checkpoints)

    def decode(
        self,
        sequence: RunningSequence,
        tokens: Sequence[int],
        tables: Sequence[Pages],
        states: Sequence[StateSlots] = (),
        arrive: Arrive | None = None,
    ) -> tuple[torch.Tensor, ...]:
        """Compute the last of the tokens. Returns the logits of each model, [1, vocabulary]."""
        slots = states[0] if states else None
        if slots is not None:
            slots = slots._replace(source=-1)
        end = len(tokens)
        checkpoints: dict[int, int] = {}
        if slots is not None and end % slots.interval == 0:
            page = slots.checkpoint_slots[end // slots.interval % 2]
            checkpoints = {end: page} if page >= 0 else {}
        span = Span(end - 1, end, self._described.page_size)
        return _Pass(self, sequence, span, tables, slots, arrive).computed(tokens, checkpoints)


class _Pass:
    """One pass of all models."""

    def __init__(
        self,
        passes: Passes,
        sequence: RunningSequence,
        span: Span,
        tables: Sequence[Pages],
        slots: StateSlots | None,
        arrive: Arrive | None,
    ) -> None:
        self._models = passes._models
        self._caches = passes._described.caches
        self._device = passes._device
        self._sequence, self._span = sequence, span
        self._arrive = arrive
        positional = passes._positional
        self._pages = RequestPages(passes._rows, positional, tables, slots, passes._device)

    def computed(
        self, tokens: Sequence[int], checkpoints: Mapping[int, int]
    ) -> tuple[torch.Tensor, ...]:
        """Runs every model, and writes what it computed. checkpoints: pages by depth."""
        first, end, size = self._span
        inside = self._sequence.tokens == first and first % size != 0
        tails = self._sequence.tails if inside else []
        kept: list[list[Any]] = []
        logits = []
        for at, model in enumerate(self._models):
            tail = tails[at] if tails else []
            cache = PagedCache(self._caches[at], partial(self._fill, at, tail) if first else None)
            if first:
                shape(self._caches[at], cache, first, tail, self._device)
            ids = torch.tensor([tokens[first:end]], dtype=torch.long, device=self._device)
            with torch.inference_mode():
                logits.append(self._forward(at, model, cache, ids, checkpoints))
                self._write(at, cache)
            layers = zip(self._caches[at].layers, cache.layers, strict=True)
            kept.append([described.kind.tail(layer) for described, layer in layers])
        self._sequence.tails, self._sequence.tokens = kept, end
        return tuple(logits)

    def _forward(
        self,
        at: int,
        model: Any,
        cache: PagedCache,
        ids: torch.Tensor,
        checkpoints: Mapping[int, int],
    ) -> torch.Tensor:
        """Runs the model from checkpoint to checkpoint, and stores the states there."""
        first, end, _ = self._span
        found: list[torch.Tensor] = []
        begin = first
        argument = self._caches[at].argument
        for stop in sorted({*checkpoints, end}):
            if stop > begin:
                part = ids[:, begin - first : stop - first]
                out = model(part, **{argument: cache}, use_cache=True)
                found.append(out.logits[0])
            if stop in checkpoints:
                self._store_states(at, cache, checkpoints[stop])
            begin = stop
        if not found:
            cache.arrive_all()
            return torch.empty((0, model.config.get_text_config().vocab_size), device=self._device)
        return torch.cat(found)

    def _fill(self, at: int, tails: list[Any], place: int, layer: Any) -> None:
        """Puts the rows of a layer in place, which are on device from here on."""
        described = self._caches[at].layers[place]
        if self._arrive is not None:
            self._arrive(described.number)
        fill(self._pages, described, layer, self._span, tails[place] if tails else None)

    def _write(self, at: int, cache: PagedCache) -> None:
        """Writes the rows of all layers and the working states."""
        if self._pages.slots is not None:
            self._store_states(at, cache, self._pages.slots.working)
        if self._span.first < self._span.end:
            new = taken(self._caches[at], cache, self._span)
            write(self._pages, self._caches[at], new, self._span, self._span)

    def _store_states(self, at: int, cache: PagedCache, page: int) -> None:
        """Stores the states of all layers in a page."""
        write_states(self._pages, self._caches[at], states_of(self._caches[at], cache), page)
