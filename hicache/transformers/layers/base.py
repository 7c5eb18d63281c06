"""What a kind of cache layer says of itself: which rows it keeps, and how they go in and come out.

Rows are tensors [rows, parts, heads, elements]: a row is a token, a group of tokens, or a whole
state. Does not know pages or pools: `describing` makes pools of rows, and `moving` has the pages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import torch

FULL, WINDOW, STATE = "full", "swa", "mamba"


@dataclass(frozen=True, slots=True)
class Rows:
    """One kind of rows that a layer keeps.

    name           of the rows, unique in the layer. Layers whose rows have the same name and shape
                   share a pool.
    component      FULL: a prefix requires every row. WINDOW: those of its last tokens. STATE: one
                   row, after its last token.
    kind           as in `PoolDescription`.
    parts, heads, head_elements  the shape of a row.
    widths         elements of the tensors that stand side by side in a head; () for one tensor.
    dtype          of an element, as torch calls it.
    follows        rows of the same layer that these accompany; empty if they need not.
    tokens_per_row tokens that share a row.
    per_page       whether a page has one row, at its end, instead of one for each token.
    window_tokens  for WINDOW: tokens that a token attends to, with itself.
    shape          of the library's tensor of a state.
    """

    name: str
    component: str
    kind: str
    parts: tuple[str, ...]
    heads: int
    head_elements: int
    dtype: torch.dtype
    widths: tuple[int, ...] = ()
    follows: str = ""
    tokens_per_row: int = 1
    per_page: bool = False
    window_tokens: int = 0
    shape: tuple[int, ...] = ()

    def first_needed(self, tokens: int) -> int:
        """The first row that a prefix of `tokens` tokens needs."""
        return max(0, tokens - self.window_tokens + 1) if self.component == WINDOW else 0


RowsOf = tuple[Rows, ...]
Past = Mapping[str, torch.Tensor]  # rows by name: those from `Rows.first_needed` on
New = dict[str, torch.Tensor]  # rows by name: those of the tokens of a pass


class Span(NamedTuple):
    """Tokens first..end-1 of a pass, and the page size."""

    first: int
    end: int
    page_size: int


@dataclass(slots=True)
class Seen:
    """What a layer was given in one pass, in order: arguments of its updates."""

    keys: list[torch.Tensor] = field(default_factory=list)
    values: list[torch.Tensor] = field(default_factory=list)
    indexer: list[torch.Tensor] = field(default_factory=list)


class LayerKind(Protocol):
    """One kind of layer. `layer` is an object of the library, of a class named in `classes`."""

    classes: tuple[str, ...]

    def prepare(self, layer: Any) -> None:
        """Called for every new layer, before anything else."""

    def rows(self, layer: Any) -> tuple[Rows, ...]:
        """What the layer keeps, from the tensors of a layer that has seen some tokens."""

    def put(self, layer: Any, rows: RowsOf, past: Past, tokens: int, tail: Any) -> None:
        """Make a new layer one that has seen `tokens` tokens, at least 1. rows: what `rows`
        returned for a layer of this place. tail: what `tail` returned after exactly these tokens,
        or None at the end of a page."""

    def take(self, layer: Any, rows: RowsOf, seen: Seen, span: Span) -> New:
        """The rows that the tokens of the span have added, but for states."""

    def state(self, layer: Any) -> New:
        """The states after the last token; empty if the layer has none."""

    def tail(self, layer: Any) -> Any:
        """What the layer keeps of tokens that end inside a row or page, and no row has; or None."""


class Positional:
    """A kind without states and tail."""

    def prepare(self, layer: Any) -> None:
        pass

    def state(self, layer: Any) -> New:
        return {}

    def tail(self, layer: Any) -> Any:
        return None
