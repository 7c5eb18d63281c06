"""One pool as data, and the sizes that follow from its fields.

Lives here: the record, what a field may hold, bytes per row, page and token. Must not live here: a
branch on a pool's name or on a model; memory, page numbers and owners.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from hicache.core.errors import CallerError

DTYPE_BITS = {"fp32": 32, "bf16": 16, "fp16": 16, "fp8": 8, "fp4": 4}
KINDS = ("kv", "latent", "indexer", "state", "logical")


@dataclass(frozen=True, slots=True)
class PoolDescription:
    """One pool: `parts` x `heads` x `head_elements` elements per row in each of `layers`.

    name           of the pool, unique in its model.
    component      whose page numbers index it.
    kind           what a row is: kv (keys and values of heads), latent (one compressed row),
                   indexer (a key that chooses rows), state (what a recurrence carries on) or
                   logical (page numbers without bytes, for others to follow).
    layers         the model's layers that have it, ascending.
    parts          rows of a token that a layer keeps in separate places, in order.
    heads          what tensor parallelism divides. A latent is one head, thus never divided.
    head_elements  elements of one head of one part.
    dtype          of an element: fp32, bf16, fp16, fp8 or fp4.
    anchor         the pool whose page numbers a sidecar reuses; empty where it has its own.
    compression    tokens that share a row.
    page_rows      rows that a page number stands for, whatever the page's size; 0 where that is a
                   row per `compression` tokens. One slot of a recurrent state is 1.
    window         tokens before a boundary that a hit needs of this pool; 0 is all of them.
    interval       tokens between boundaries that get a state; 0 is every page boundary.
    scale_group    elements that share a scale; 0 where there is none.
    scale_bytes    bytes of a scale.
    tail_bytes     bytes of a head behind its scales: a rotary key of another dtype, padding.
    """

    name: str
    component: str
    kind: str
    layers: tuple[int, ...]
    parts: tuple[str, ...]
    heads: int
    head_elements: int
    dtype: str = "bf16"
    anchor: str = ""
    compression: int = 1
    page_rows: int = 0
    window: int = 0
    interval: int = 0
    scale_group: int = 0
    scale_bytes: int = 0
    tail_bytes: int = 0

    def __post_init__(self) -> None:
        """Raises CallerError that names the pool and the field."""
        logical = self.kind == "logical"
        for field, fine, expected in (
            ("name", bool(self.name), "a name"),
            ("component", bool(self.component), "a component's name"),
            ("kind", self.kind in KINDS, f"one of {', '.join(KINDS)}"),
            ("dtype", self.dtype in DTYPE_BITS, f"one of {', '.join(DTYPE_BITS)}"),
            (
                "layers",
                self.layers == tuple(sorted({layer for layer in self.layers if layer >= 0})),
                "layer numbers from 0, ascending",
            ),
            ("layers", not (logical and self.layers), "none, as a logical pool has no bytes"),
            ("parts", logical or bool(self.parts), "at least one part"),
            ("parts", len(set(self.parts)) == len(self.parts), "names that differ"),
            ("heads", self.heads >= 1, "at least 1"),
            ("head_elements", self.head_elements >= (not logical), "at least 1"),
            ("compression", self.compression >= 1, "at least 1"),
            ("page_rows", self.page_rows >= 0, "0 or more"),
            ("page_rows", not self.page_rows or self.compression == 1, "0 where rows compress"),
            ("window", self.window >= 0, "0 or more"),
            ("interval", self.interval >= 0, "0 or more"),
            ("interval", not self.interval or self.kind == "state", "0 but for a state"),
            ("scale_group", self.scale_group >= 0, "0 or more"),
            (
                "scale_bytes",
                self.scale_bytes >= 0 and bool(self.scale_bytes) == bool(self.scale_group),
                "above 0 where scale_group is, else 0",
            ),
            ("tail_bytes", self.tail_bytes >= 0, "0 or more"),
        ):
            if not fine:
                raise CallerError(
                    f"pool {self.name}: {field}: expected {expected}, found "
                    f"{getattr(self, field)!r}"
                )
        if self.head_elements * DTYPE_BITS[self.dtype] % 8:
            raise CallerError(
                f"pool {self.name}: head_elements: expected whole bytes of {self.dtype}, found "
                f"{self.head_elements}"
            )

    @property
    def head_bytes(self) -> int:
        """Bytes of one head's share of a row: elements, their scales, and the tail."""
        elements = self.head_elements * DTYPE_BITS[self.dtype] // 8
        scales = -(-self.head_elements // self.scale_group) if self.scale_group else 0
        return elements + scales * self.scale_bytes + self.tail_bytes

    def row_bytes(self, tp: int = 1) -> int:
        """Bytes of one row of one part in one layer, on each of `tp` ranks."""
        return heads_per_rank(self.heads, tp) * self.head_bytes

    def rows_per_page(self, page_size: int) -> int:
        """Rows of each part that one page number stands for in a layer.

        Raises CallerError for a page that would end inside a group of tokens that share a row.
        """
        if page_size < 1:
            raise CallerError(f"page_size: expected at least 1, found {page_size}")
        if self.page_rows:
            return self.page_rows
        if page_size % self.compression:
            raise CallerError(
                f"page_size: expected a multiple of {self.compression}, the tokens that share a "
                f"row of pool {self.name}, found {page_size}"
            )
        return page_size // self.compression

    def page_bytes(self, page_size: int, tp: int = 1) -> int:
        """Bytes of a page, or of a state, over all layers and parts, on each of `tp` ranks."""
        rows = self.rows_per_page(page_size)
        return len(self.layers) * len(self.parts) * rows * self.row_bytes(tp)

    def token_bytes(self, tp: int = 1) -> Fraction:
        """Bytes of one token over all layers and parts, on each of `tp` ranks; 0 where a page's
        rows do not grow with its tokens."""
        rows = 0 if self.page_rows else len(self.layers) * len(self.parts)
        return Fraction(rows * self.row_bytes(tp), self.compression)

    def trailing_pages(self, page_size: int) -> int:
        """Pages before a boundary that a storage hit needs of this pool; 0 is all of them."""
        return -(-self.window // page_size)


def heads_per_rank(heads: int, tp: int) -> int:
    """Heads that each of `tp` ranks holds: an equal share, or a copy of one where there are fewer.

    Raises CallerError where neither divides the other.
    """
    if tp < 1 or (heads % tp and tp % heads):
        raise CallerError(f"tp: expected a divisor or a multiple of {heads} heads, found {tp}")
    return max(1, heads // tp)
