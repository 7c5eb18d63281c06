"""Forward passes of a real model on pages: the core's `Prefill`, and single decode steps.

Every pass puts its past in place from pages, runs the model of the library, and writes what it
computed back to pages: rows, working states, and states at the checkpoints that the core asked for.
Between passes, a request keeps only its tail (see `layers.base`). Does not choose pages, feed the
core, or move pages between tiers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from hicache.core.actions import Prefill, StateSlots
from hicache.core.types import Pages
from hicache.memory.table import PoolTable

from .describing import Described, DescribedLayer
from .layers.base import STATE, Rows, Span
from .paged import PagedCache
from .rows import PagedRows, as_tables

Arrive = Callable[[int], None]


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
        self, model: Any, described: Described, table: PoolTable[Any], draft: Any = None
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
        logits_to_keep: int = 0,
    ) -> tuple[torch.Tensor, ...]:
        """Carry out a forward pass of the core. tokens: those of the request, at least up to the
        pass's end. arrive: called with a layer's number before its rows are read. logits_to_keep:
        of the last positions of each part between checkpoints; 0 for all.

        Returns the logits of each model, [positions, vocabulary].
        """
        slots = action.states[0] if action.states else None
        checkpoints = dict(slots.checkpoints) if slots is not None else {}
        span = Span(action.start_token, action.end_token, self._described.page_size)
        run = _Pass(self, sequence, span, action.tables, slots, arrive)
        return run.computed(tokens, checkpoints, logits_to_keep)

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
        return _Pass(self, sequence, span, tables, slots, arrive).computed(tokens, checkpoints, 0)


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
        self._models, self._rows = passes._models, passes._rows
        self._caches = passes._described.caches
        self._device = passes._device
        self._sequence, self._span, self._slots = sequence, span, slots
        self._arrive = arrive
        named = dict(zip(passes._positional, tables, strict=True))
        self._tables = as_tables(named, passes._device)

    def computed(
        self, tokens: Sequence[int], checkpoints: Mapping[int, int], logits_to_keep: int
    ) -> tuple[torch.Tensor, ...]:
        """Runs every model, and writes what it computed. checkpoints: pages by depth."""
        first, end, _ = self._span
        tails = self._sequence.tails if self._sequence.tokens == first else []
        kept: list[list[Any]] = []
        logits = []
        for at, model in enumerate(self._models):
            tail = tails[at] if tails else []
            cache = PagedCache(self._caches[at], partial(self._fill, at, tail) if first else None)
            if first:
                self._shape(at, cache, tail)
            ids = torch.tensor([tokens[first:end]], dtype=torch.long, device=self._device)
            with torch.inference_mode():
                logits.append(self._forward(at, model, cache, ids, checkpoints, logits_to_keep))
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
        logits_to_keep: int,
    ) -> torch.Tensor:
        """Runs the model from checkpoint to checkpoint, and stores the states there."""
        first, end, _ = self._span
        found: list[torch.Tensor] = []
        begin = first
        argument = self._caches[at].argument
        most = {"logits_to_keep": logits_to_keep} if logits_to_keep else {}
        for stop in sorted({*checkpoints, end}):
            if stop > begin:
                part = ids[:, begin - first : stop - first]
                out = model(part, **{argument: cache}, use_cache=True, **most)
                found.append(out.logits[0])
            if stop in checkpoints:
                self._store_states(at, cache, checkpoints[stop])
            begin = stop
        if not found:
            cache.arrive_all()
            return torch.empty((0, model.config.get_text_config().vocab_size), device=self._device)
        return torch.cat(found)

    # -- the past

    def _shape(self, at: int, cache: PagedCache, tails: list[Any]) -> None:
        """Gives the layers the lengths that they will have when their rows have arrived."""
        tokens = self._span.first
        for place, (described, layer) in enumerate(
            zip(self._caches[at].layers, cache.layers, strict=True)
        ):
            past = {
                one.name: torch.empty((), dtype=one.dtype, device=self._device).expand(
                    1 if _is_one(one) else tokens // one.tokens_per_row - one.first_needed(tokens),
                    len(one.parts),
                    one.heads,
                    one.head_elements,
                )
                for one in described.rows
            }
            tail = self._tail(tails, place)
            described.kind.put(layer, described.rows, past, tokens, tail)

    def _fill(self, at: int, tails: list[Any], place: int, layer: Any) -> None:
        """Puts the rows of a layer in place, which are on device from here on."""
        described = self._caches[at].layers[place]
        if self._arrive is not None:
            self._arrive(described.number)
        past = {one.name: self._read(described, one) for one in described.rows}
        tail = self._tail(tails, place)
        described.kind.put(layer, described.rows, past, self._span.first, tail)

    def _tail(self, tails: list[Any], place: int) -> Any:
        """The tail of a layer; None at the end of a page, where rows have everything."""
        return tails[place] if tails and self._span.first % self._span.page_size else None

    def _read(self, described: DescribedLayer, one: Rows) -> torch.Tensor:
        tokens = self._span.first
        if one.component == STATE:
            assert self._slots is not None, "a model with states has slots"
            slots = self._slots
            page = slots.source if slots.source >= 0 else slots.working
            return self._rows.read_page(described, one, page)
        pages = self._tables[one.component]
        if one.per_page:
            page = int(pages[tokens // self._span.page_size - 1])
            return self._rows.read_page(described, one, page)
        first = one.first_needed(tokens)
        return self._rows.read(described, one, pages, first, tokens // one.tokens_per_row)

    # -- what was computed

    def _write(self, at: int, cache: PagedCache) -> None:
        """Writes the rows of all layers and the working states."""
        first, end, size = self._span
        if self._slots is not None:
            self._store_states(at, cache, self._slots.working)
        if first == end:
            return
        for described, layer, seen in zip(
            self._caches[at].layers, cache.layers, cache.seen, strict=True
        ):
            new = described.kind.take(layer, described.rows, seen, self._span)
            for one in described.rows:
                if one.name in new:
                    begin = first // size if one.per_page else first // one.tokens_per_row
                    pages = self._tables[one.component]
                    self._rows.write(described, one, pages, begin, new[one.name])

    def _store_states(self, at: int, cache: PagedCache, page: int) -> None:
        """Stores the states of all layers in a page."""
        for described, layer in zip(self._caches[at].layers, cache.layers, strict=True):
            states = described.kind.state(layer)
            for one in described.rows:
                if one.name in states:
                    self._rows.write_page(described, one, page, states[one.name])


def _is_one(one: Rows) -> bool:
    """Whether a prefix needs one row of these, whatever its length."""
    return one.component == STATE or one.per_page
