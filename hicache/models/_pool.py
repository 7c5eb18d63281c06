"""One pool as data, and the sizes that follow from its fields: bytes per row, page and token.

Does not depend on a pool's name or model. For the memory of a pool see `hicache/memory/pools`.
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
    component      the component whose page numbers index the pool.
    kind           the content of a row: kv (keys and values of heads), latent (one compressed row),
                   indexer (a key that selects rows), state (the state of a recurrence) or logical
                   (page numbers without bytes, which other pools follow).
    layers         the layers of the model that have the pool, ascending.
    parts          the rows of a token that a layer stores separately, in order.
    heads          the heads, which tensor parallelism divides. A latent is one head, so it is never
                   divided.
    head_elements  elements of one head of one part.
    dtype          type of an element: fp32, bf16, fp16, fp8 or fp4.
    anchor         the pool whose page numbers a sidecar follows; empty if it is not a sidecar.
    compression    tokens that share a row.
    page_rows      rows per page number, for any page size; 0 for one row per `compression` tokens.
                   One slot of a recurrent state is 1.
    window         tokens before a boundary that a hit requires of this pool; 0 means all of them.
    interval       tokens between boundaries with a state; 0 means every page boundary.
    scale_group    elements that share a scale; 0 if there are no scales.
    scale_bytes    bytes of a scale.
    tail_bytes     bytes of a head after its scales: a rotary key of another dtype, or padding.
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
        """Raises CallerError, which names the pool and the field, for a value that is not legal."""
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
        """Bytes of one head in a row: elements, their scales, and the tail."""
        elements = self.head_elements * DTYPE_BITS[self.dtype] // 8
        scales = -(-self.head_elements // self.scale_group) if self.scale_group else 0
        return elements + scales * self.scale_bytes + self.tail_bytes

    @property
    def replicated(self) -> bool:
        """Whether all ranks of tensor parallelism have the same rows, however many they are."""
        return self.heads == 1

    def copies(self, tp: int) -> int:
        """Ranks of `tp` that have the same rows: more than one where there are more ranks than
        heads."""
        return tp * heads_per_rank(self.heads, tp) // self.heads

    def row_bytes(self, tp: int = 1) -> int:
        """Bytes of one row of one part in one layer, on each of `tp` ranks."""
        return heads_per_rank(self.heads, tp) * self.head_bytes

    def rows_per_page(self, page_size: int) -> int:
        """Rows per page number, for each part of a layer.

        Raises CallerError for a page size that is not a multiple of `compression`.
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

    def page_bytes(self, page_size: int, tp: int = 1, among: int = 1) -> int:
        """Bytes of a page, or of a state, over all layers and parts, on each of `tp` ranks. among:
        ranks that divide rows which they have alike; 0 for all that have them."""
        rows = len(self.layers) * len(self.parts) * self.rows_per_page(page_size)
        return -(-rows * self.row_bytes(tp) // (among or self.copies(tp)))

    def token_bytes(self, tp: int = 1) -> Fraction:
        """Bytes of one token over all layers and parts, on each of `tp` ranks; 0 if the rows of a
        page do not depend on its tokens."""
        rows = 0 if self.page_rows else len(self.layers) * len(self.parts)
        return Fraction(rows * self.row_bytes(tp), self.compression)

    def trailing_pages(self, page_size: int) -> int:
        """Pages before a boundary that a storage hit requires of this pool; 0 means all of them."""
        return -(-self.window // page_size)


def heads_per_rank(heads: int, tp: int) -> int:
    """Heads on each of `tp` ranks: an equal share, or a copy of one head if there are fewer heads
    than ranks.

    Raises CallerError if neither number divides the other.
    """
    if tp < 1 or (heads % tp and tp % heads):
        good = ", ".join(str(count) for count in range(1, heads + 1) if heads % count == 0)
        raise CallerError(
            f"tp: expected a divisor or a multiple of {heads} heads, found {tp}; use "
            f"{good} or {2 * heads}"
        )
    return max(1, heads // tp)
