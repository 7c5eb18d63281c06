"""Kinds of cache layers of the library: which rows each keeps, and how they go in and come out.

Rows are tensors [rows, parts, heads, elements]: a row is a token, or a whole state. To add a kind,
write a class and name it in `KINDS`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import pad

from hicache.models.base import ModelDescription, PoolDescription

from . import UnsupportedModelError

FULL, WINDOW, STATE = ORDER = "full", "swa", "mamba"
# Types of elements by the names of pools.
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
_NAMES = {dtype: name for name, dtype in DTYPES.items()}


@dataclass(frozen=True, slots=True)
class Rows:
    """One kind of rows that a layer keeps.

    name    of the rows, unique in the layer.
    pool    that has them. Layers whose rows have the same name and shape share one. FULL: a prefix
            requires every row. WINDOW: those of its last tokens. STATE: one row, after its last
            token.
    dtype   of an element, as torch calls it.
    widths  elements of the tensors that stand side by side in a head; () for one tensor.
    shape   of the library's tensor of a state.
    """

    name: str
    pool: PoolDescription
    dtype: torch.dtype
    widths: tuple[int, ...] = ()
    shape: tuple[int, ...] = ()

    def first_needed(self, tokens: int) -> int:
        """The first row that a prefix of `tokens` tokens needs."""
        return max(0, tokens - self.pool.window + 1) if self.pool.component == WINDOW else 0


RowsOf = tuple[Rows, ...]
Past = Mapping[str, torch.Tensor]  # rows by name: those from `Rows.first_needed` on
New = dict[str, torch.Tensor]  # rows by name: those of the tokens of a pass
Seen = tuple[list[torch.Tensor], list[torch.Tensor]]  # keys and values of a layer's updates


class Empty:
    """A layer that keeps nothing: one without attention, or that reads another layer's cache. The
    base of all kinds. rows: what a layer of this place keeps."""

    rows: RowsOf = ()

    def __init__(self, layer: Any) -> None:
        """layer: an object of the library, here and below; it has seen some tokens."""

    def put(self, layer: Any, past: Past, tokens: int) -> None:
        """Make a new layer one that has seen `tokens` tokens, whole pages, at least one."""

    def take(self, seen: Seen) -> New:
        """The rows that passes have added, but for states."""
        return {}

    def state(self, layer: Any) -> New:
        """The states after the last token; empty if the layer has none."""
        return {}


class Full(Empty):
    """Keys and values of every token, or a latent and its rotary key.

    Keys and values of the same shape are two parts of a row. With other widths they stand side by
    side in one part."""

    name, component = "kv", FULL

    def __init__(self, layer: Any) -> None:
        keys, values = layer.keys, layer.values
        if keys is None or keys.shape[1] != values.shape[1]:
            raise UnsupportedModelError(
                f"cache layer {type(layer).__name__}: expected keys and values of as many heads "
                f"after a pass, found {'none' if keys is None else 'others'}"
            )
        width, value_width = keys.shape[-1], values.shape[-1]
        widths = () if keys.shape == values.shape else (width, value_width)
        kind, parts = ("latent", ("latent",)) if widths else ("kv", ("k", "v"))
        form = kind, (), parts, keys.shape[1], sum(widths) or width
        dtype = torch.promote_types(keys.dtype, values.dtype)  # under torch.autocast they differ
        window = layer.sliding_window if self.component == WINDOW else 0
        pool = PoolDescription(self.name, self.component, *form, _name(dtype), window=window)
        self.rows = (Rows(self.name, pool, dtype, widths),)

    def put(self, layer: Any, past: Past, tokens: int) -> None:
        [item] = self.rows
        both = past[item.name].unbind(1)
        if item.widths:
            both = torch.split(both[0], list(item.widths), dim=-1)
        keys, values = (tensor.transpose(0, 1).unsqueeze(0) for tensor in both)
        layer.lazy_initialization(keys, values)
        layer.keys, layer.values = keys, values

    def take(self, seen: Seen) -> New:
        [item] = self.rows
        keys, values = (
            (tensors[0] if len(tensors) == 1 else torch.cat(tensors, dim=2))[0]
            .transpose(0, 1)
            .to(item.dtype)
            for tensors in seen
        )
        if item.widths:
            return {item.name: torch.cat((keys, values), dim=-1).unsqueeze(1)}
        return {item.name: torch.stack((keys, values), dim=1)}


class Window(Full):
    """Keys and values of the last tokens.

    The library keeps one token less than the window, which is what the next token attends to beside
    itself. The layer drops those that leave its window, so rows are taken from what it is given."""

    name, component = "window", WINDOW

    def put(self, layer: Any, past: Past, tokens: int) -> None:
        super().put(layer, past, tokens)
        layer.cumulative_length = tokens


class State(Empty):
    """The states of linear attention and of convolutions. Each is one row, and stands for all
    tokens read so far."""

    def __init__(self, layer: Any) -> None:
        for name, state in _states(layer).items():
            form = ("state", (), ("state",), 1, state.numel(), _name(state.dtype))
            pool = PoolDescription(name, STATE, *form, page_rows=1, window=1)
            self.rows += (Rows(name, pool, state.dtype, shape=state.shape),)

    def put(self, layer: Any, past: Past, tokens: int) -> None:
        """They are copied, since the layer writes to them."""
        for row in self.rows:
            if row.pool.component == STATE:
                name, _, digits = row.name.rpartition("_")
                number, state = int(digits), past[row.name].reshape(row.shape)
                layer.lazy_initialization(**{f"{name}_states": state, "state_idx": number})
                getattr(layer, f"{name}_states")[number].copy_(state)
                layer.has_previous_state[number] = True
                if layer.device is None:
                    layer.device = state.device

    def state(self, layer: Any) -> New:
        """Copies, [1, 1, 1, elements] each."""
        return {
            name: state.detach().clone().reshape(1, 1, 1, -1)
            for name, state in _states(layer).items()
        }


class Hybrid(State):
    """States, and the keys and values of full attention or of a window, as the layer has them."""

    def __init__(self, layer: Any) -> None:
        super().__init__(layer)
        self._attention = (Window if getattr(layer, "is_sliding", False) else Full)(layer)
        self.rows = (*self._attention.rows, *self.rows)

    def put(self, layer: Any, past: Past, tokens: int) -> None:
        self._attention.put(layer, past, tokens)
        super().put(layer, past, tokens)

    def take(self, seen: Seen) -> New:
        return self._attention.take(seen)


def _name(dtype: torch.dtype) -> str:
    """Of a type of elements. Raises UnsupportedModelError for one that pools do not have."""
    if dtype not in _NAMES:
        raise UnsupportedModelError(
            f"model: expected a cache of {', '.join(DTYPES)}, found one of {dtype}; load it "
            "with one of these types"
        )
    return _NAMES[dtype]


def _states(layer: Any) -> dict[str, torch.Tensor]:
    """By name. A layer that can be cropped has more of what a convolution reads, or less than its
    kernel at the beginning of a text: those as wide as the kernel, with zeros before them."""
    result = {
        f"{name}_{number}": state
        for name in ("conv", "recurrent")
        for number, state in getattr(layer, f"{name}_states").items()
        if state is not None
    }
    for number, width in layer.conv_kernel_size.items():
        if (state := result.get(f"conv_{number}")) is not None:
            result[f"conv_{number}"] = pad(state, (width - state.shape[-1], 0))
    return result


# By the names of the library's classes.
KINDS: dict[str, type[Empty]] = {
    "DummyLayer": Empty,
    "DynamicLayer": Full,
    "DynamicSlidingWindowLayer": Window,
    "LinearAttentionLayer": State,
    "LinearAttentionAndFullAttentionLayer": Hybrid,
    "LinearAttentionAndSlidingWindowAttentionLayer": Hybrid,
}


@dataclass(frozen=True, slots=True)
class Described:
    """The cache of one model. model: its pools. template: its layers, as the library makes them,
    never used. argument: of the model's pass. longest: tokens of a prompt whose rows depend on its
    tokens alone."""

    model: ModelDescription
    template: Sequence[Any]
    layers: tuple[Empty, ...]
    argument: str
    longest: int

    @property
    def components(self) -> tuple[str, ...]:
        return tuple(name for name in ORDER if name in self.model.components)

    @property
    def window_tokens(self) -> int:
        """Of the widest window; 0 without one."""
        pools = [pool for pool in self.model.pools if pool.component == WINDOW]
        return max((pool.window for pool in pools), default=0)
