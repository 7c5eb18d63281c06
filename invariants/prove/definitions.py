"""Wrong definitions: what is taken for something else, and the families whose logits show it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from hicache.memory.arena import Arena
from hicache.memory.layouts import copy_kernel
from hicache.transformers import moving, passes
from hicache.transformers.describing import Described, kinds
from hicache.transformers.layers import attention, compressed, states

from ..planted.base import Patch
from .wrong import wrong

kinds()  # a file that is first imported while something is planted would keep it

STATES = ("qwen3-next", "nemotron-h", "falcon-h1", "mamba2")
_config = Described.config
_put_attention = attention.put_attention
_taken_attention = attention.taken_attention
_put_states = states.put_states
_taken_states = states.taken_states
_put_compressed = compressed.Compressed.put
_tail = compressed.Compressed.tail
_take_compressed = compressed.Compressed.take
_decode = passes.Passes.decode
_forward = passes._Pass._forward
_write = passes._Pass._write
_of = moving.PagedRows._of
_read = moving.PagedRows.read
_write_rows = moving.PagedRows.write
_put_window = attention.Window.put
_take_window = attention.Window.take


@wrong(Arena, "copy", families=("draft", "deepseek-v32", "deepseek-v4"))
def sidecar_does_not_follow(
    self: Arena, component: str, source: Any, target: Any, layers: tuple[int, int]
) -> None:
    """What accompanies the rows of a layer is not copied to host and back with them."""
    ends = (self.pools(source[0], component), self.pools(target[0], component))
    for read, written in zip(*ends, strict=True):
        if not read.plan.pool.anchor:
            chosen = read.plan.layers_in(*layers)
            copy_kernel(read.view, source[1], written.view, target[1], chosen)


@wrong(Described, "config", families=("gemma3", "gpt-oss", "deepseek-v4"))
def window_is_a_page_short(self: Described, *args: Any, **fields: Any) -> Any:
    """The core is told a window that is a page too short."""
    less = max(1, self.window_tokens - self.page_size)
    return _config(replace(self, window_tokens=less), *args, **fields)


@wrong(Described, "config", families=("gemma3", "gpt-oss"))
def window_is_a_token_short(self: Described, *args: Any, **fields: Any) -> Any:
    """The core is told a window that misses one of the tokens that a layer keeps."""
    # A layer keeps a token less than the window, which counts the token that attends. So the core
    # needs no more than that, and it is told one less.
    return _config(replace(self, window_tokens=self.window_tokens - 2), *args, **fields)


@wrong(attention, "put_attention", families=("llama", "gemma3", "gpt-oss", "draft"))
def values_are_keys(layer: Any, rows: Any, past: Any) -> None:
    """The two parts of a row are taken for each other."""
    _put_attention(layer, rows, past)
    layer.keys, layer.values = layer.values, layer.keys


@wrong(attention, "taken_attention", families=("llama", "deepseek-v3", "gemma3", "gpt-oss"))
def keys_are_half_as_precise(rows: Any, seen: Any) -> Any:
    """Pages have half the precision of the model."""
    return {
        name: new.bfloat16().to(new.dtype) for name, new in _taken_attention(rows, seen).items()
    }


@wrong(attention, "taken_attention", families=("deepseek-v3", "deepseek-v32"))
def latent_has_no_rotary_key(rows: Any, seen: Any) -> Any:
    """A page of latents has no rotary keys."""
    new = _taken_attention(rows, seen)
    for one in rows:
        if one.widths:
            new[one.name][..., one.widths[0] :] = 0
    return new


@wrong(states, "put_states", families=STATES)
def convolutions_are_no_state(layer: Any, rows: Any, past: Any) -> None:
    """A boundary has the recurrent states, and the inputs of the convolutions are forgotten."""
    _put_states(layer, rows, past)
    for state in layer.conv_states.values():
        state.zero_()


@wrong(states, "put_states", families=STATES)
def state_does_not_count(layer: Any, rows: Any, past: Any) -> None:
    """A layer with a state from a page begins as if it had none."""
    _put_states(layer, rows, past)
    layer.has_previous_state = dict.fromkeys(layer.has_previous_state, False)


@wrong(states, "taken_states", families=STATES)
def states_are_half_as_precise(layer: Any) -> Any:
    """Recurrent states are kept in half precision."""
    return {name: state.bfloat16().to(state.dtype) for name, state in _taken_states(layer).items()}


@wrong(compressed.Compressed, "put", families=("deepseek-v4",))
def groups_begin_anew(self: Any, layer: Any, rows: Any, past: Any, tokens: int, tail: Any) -> None:
    """After a boundary, groups are counted from zero again."""
    _put_compressed(self, layer, rows, past, tokens, tail)
    layer.entry_count = dict.fromkeys(layer.entry_count, 0)


@wrong(compressed.Compressed, "put", families=("deepseek-v4",))
def overlap_is_left_out(
    self: Any, layer: Any, rows: Any, past: Any, tokens: int, tail: Any
) -> None:
    """At a boundary, the share that the next group has in the last one is forgotten."""
    _put_compressed(self, layer, rows, past, tokens, tail)
    if tail is None and hasattr(layer, "overlap_kv"):
        layer.overlap_kv = dict.fromkeys(layer.overlap_kv)
        layer.overlap_gate = dict.fromkeys(layer.overlap_gate)


@wrong(compressed.Compressed, "tail", families=("deepseek-v4",))
def open_groups_are_dropped(self: Any, layer: Any) -> Any:
    """A pass that ends inside a group forgets what is in that group."""
    tail = _tail(self, layer)
    empty = {
        name: (torch.zeros_like(kv), torch.zeros_like(gate))
        for name, (kv, gate) in tail.buffers.items()
    }
    return tail._replace(buffers=empty)


@wrong(compressed.Compressed, "take", families=("deepseek-v4",))
def groups_are_one_early(self: Any, layer: Any, rows: Any, seen: Any, span: Any) -> Any:
    """A page has the compressed entries of the groups before its own."""
    new = _take_compressed(self, layer, rows, seen, span)
    for one in rows:
        if one.tokens_per_row > 1:
            new[one.name] = new[one.name].roll(1, 0)
    return new


@wrong(passes.Passes, "decode", families=STATES)
def decoded_state_is_a_token_late(
    self: Any, sequence: Any, tokens: Any, tables: Any, states: Any = (), *more: Any
) -> Any:
    """A state that is stored while a request decodes has one token too many."""
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


@wrong(passes._Pass, "_forward", families=STATES)
def state_is_a_page_early(
    self: Any, at: int, model: Any, cache: Any, ids: Any, checkpoints: Any
) -> Any:
    """A checkpoint has the state of the checkpoint before it."""
    depths = sorted(checkpoints)
    sooner = [max(self._span.first, depth - self._span.page_size) for depth in depths]
    moved = {new: checkpoints[depth] for new, depth in zip(sooner, depths, strict=True)}
    return _forward(self, at, model, cache, ids, moved)


@wrong(passes._Pass, "_forward", families=STATES)
def state_is_that_of_the_end(
    self: Any, at: int, model: Any, cache: Any, ids: Any, checkpoints: Any
) -> Any:
    """Every checkpoint of a pass has the state at the end of the pass."""
    logits = _forward(self, at, model, cache, ids, {})
    for page in checkpoints.values():
        self._store_states(at, cache, page)
    return logits


@wrong(passes._Pass, "_write", families=STATES)
def working_state_stays_behind(self: Any, at: int, cache: Any) -> None:
    """The state after a single step is not kept for the next one."""
    first, end, _ = self._span
    slots = self._pages.slots
    if end == first + 1:
        self._pages.slots = None
    _write(self, at, cache)
    self._pages.slots = slots


@wrong(moving.PagedRows, "_of", families=("draft",))
def draft_has_no_pages(self: Any, layer: Any, one: Any) -> Any:
    """The draft has no pages of its own, so its past is empty rows."""
    found = _of(self, layer, one)
    if layer.pools[one.name].startswith("draft_"):
        return torch.zeros_like(found)
    return found


@wrong(moving.PagedRows, "_of", families=STATES)
def state_is_shared_by_layers(self: Any, layer: Any, one: Any) -> Any:
    """A state is one for the model, and not one for each layer."""
    if one.component == "mamba":
        name = layer.pools[one.name]
        return self._pools[name][0]
    return _of(self, layer, one)


@wrong(moving.PagedRows, "read", families=("deepseek-v32",))
def indexer_reads_other_pages(
    self: Any, layer: Any, one: Any, pages: Any, first: int, end: int
) -> Any:
    """The keys of the indexer are read from the pages of other positions."""
    if one.name == "indexer":
        whole = end // self._page_size
        pages = pages.clone()
        pages[:whole] = pages[:whole].flip(0)
    return _read(self, layer, one, pages, first, end)


@wrong(families=STATES)
def states_are_not_copied(patch: Patch) -> None:
    """A pass goes on in the cached state itself, and not in a copy."""

    def view(self: Any, layer: Any, one: Any, page: int) -> Any:
        return self._of(layer, one)[:, page].transpose(0, 1)

    def kept(layer: Any, rows: Any, past: Any) -> None:
        _put_states(layer, rows, past)
        for one in rows:
            name, _, number = one.name.rpartition("_")
            getattr(layer, f"{name}_states")[int(number)] = past[one.name].view(one.shape)

    patch(moving.PagedRows, "read_page", view)
    patch(states, "put_states", kept)


@wrong(moving.PagedRows, "write", families=("deepseek-v32",))
def indexer_is_a_token_late(
    self: Any, layer: Any, one: Any, pages: Any, first: int, new: Any
) -> None:
    """The keys of the indexer are those of the token before."""
    _write_rows(self, layer, one, pages, first, new.roll(1, 0) if one.name == "indexer" else new)


@wrong(moving.PagedRows, "write", families=("llama", "deepseek-v3", "draft"))
def partial_page_is_not_written(
    self: Any, layer: Any, one: Any, pages: Any, first: int, new: Any
) -> None:
    """The tokens behind the last whole page are not in any page."""
    per_page = self._of(layer, one).shape[2]
    whole = (first + len(new)) // per_page * per_page
    _write_rows(self, layer, one, pages, first, new[: max(0, whole - first)])


@wrong(attention.Window, "put", families=("gemma3", "gpt-oss"))
def window_forgets_its_place(
    self: Any, layer: Any, rows: Any, past: Any, tokens: int, tail: Any
) -> None:
    """A window that comes from pages counts only the tokens that it still has."""
    _put_window(self, layer, rows, past, min(tokens, layer.sliding_window - 1), tail)


@wrong(attention.Window, "take", families=("gemma3", "gpt-oss"))
def window_rows_are_those_left(self: Any, layer: Any, rows: Any, seen: Any, span: Any) -> Any:
    """Of a pass, only the rows that are left in the window are stored."""
    new = _take_window(self, layer, rows, seen, span)
    for there in new.values():
        there[: -layer.sliding_window + 1] = 0
    return new
