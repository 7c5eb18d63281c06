"""The states of linear attention and of convolutions as rows: each state is one row, and stands for
all tokens read so far."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import pad

from . import attention
from .base import STATE, New, Past, Positional, Rows, RowsOf, Seen, Span


class State(Positional):
    """A layer with states alone."""

    classes: tuple[str, ...] = ("LinearAttentionLayer",)

    def rows(self, layer: Any) -> RowsOf:
        return state_rows(layer)

    def put(self, layer: Any, rows: RowsOf, past: Past, tokens: int, tail: Any) -> None:
        put_states(layer, rows, past)

    def take(self, layer: Any, rows: RowsOf, seen: Seen, span: Span) -> New:
        return {}

    def state(self, layer: Any) -> New:
        return taken_states(layer)


class Hybrid(State):
    """States, and the keys and values of full attention or of a window, as the layer has them."""

    classes = (
        "LinearAttentionAndFullAttentionLayer",
        "LinearAttentionAndSlidingWindowAttentionLayer",
    )

    def rows(self, layer: Any) -> RowsOf:
        return (*_attention(layer).rows(layer), *super().rows(layer))

    def put(self, layer: Any, rows: RowsOf, past: Past, tokens: int, tail: Any) -> None:
        _attention(layer).put(layer, _without_states(rows), past, tokens, tail)
        put_states(layer, tuple(one for one in rows if one.component == STATE), past)

    def take(self, layer: Any, rows: RowsOf, seen: Seen, span: Span) -> New:
        return _attention(layer).take(layer, _without_states(rows), seen, span)


def _attention(layer: Any) -> attention.Full:
    return attention.Window() if getattr(layer, "is_sliding", False) else attention.Full()


def _without_states(rows: RowsOf) -> RowsOf:
    return tuple(one for one in rows if one.component != STATE)


KINDS = (State(), Hybrid())


def state_rows(layer: Any) -> tuple[Rows, ...]:
    """A row for each state that the layer has."""
    return tuple(
        Rows(name, STATE, "state", ("state",), 1, state.numel(), state.dtype, shape=state.shape)
        for name, state in _states(layer).items()
    )


def put_states(layer: Any, rows: RowsOf, past: Past) -> None:
    """Give a new layer its states, [1, 1, 1, elements] each. They are copied, since the layer
    writes to them."""
    for one in rows:
        name, _, digits = one.name.rpartition("_")
        number, state = int(digits), past[one.name].reshape(one.shape)
        layer.lazy_initialization(**{f"{name}_states": state, "state_idx": number})
        getattr(layer, f"{name}_states")[number].copy_(state)
        layer.has_previous_state[number] = True
        if layer.device is None:
            layer.device = state.device


def taken_states(layer: Any) -> New:
    """Copies of the layer's states."""
    return {
        name: state.detach().clone().reshape(1, 1, 1, -1) for name, state in _states(layer).items()
    }


def _states(layer: Any) -> dict[str, torch.Tensor]:
    """By name. A layer that can be cropped has more of what a convolution reads, or less than its
    kernel at the beginning of a text: those as wide as the kernel, with zeros before them."""
    found = {
        f"{name}_{number}": state
        for name in ("conv", "recurrent")
        for number, state in getattr(layer, f"{name}_states").items()
        if state is not None
    }
    for number, width in layer.conv_kernel_size.items():
        if (state := found.get(f"conv_{number}")) is not None:
            found[f"conv_{number}"] = pad(state, (width - state.shape[-1], 0))
    return found
