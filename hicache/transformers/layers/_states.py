"""The states of linear attention and of convolutions as rows: each state is one row."""

from __future__ import annotations

from typing import Any

import torch

from .base import STATE, New, Past, Rows, RowsOf


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
    return {
        f"{name}_{number}": state
        for name in ("conv", "recurrent")
        for number, state in getattr(layer, f"{name}_states").items()
        if state is not None
    }
