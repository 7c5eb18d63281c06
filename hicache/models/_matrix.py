"""One matrix that the layers of a model multiply with, as data: its shape, and who holds it.

Also the matrices of the parts that families share: attention, MLP and routed experts. What only one
family has is in the file of that family. The output head is not among them: its size is vocabulary
x hidden size.
"""

from __future__ import annotations

from dataclasses import dataclass

from hicache.core.errors import CallerError

SPLITS = ("outputs", "inputs", "whole")
PARTS = ("attention", "mlp", "experts", "router", "other")
DTYPES = ("bf16", "fp8", "fp8-block", "nvfp4", "mxfp4", "int4")


@dataclass(frozen=True, slots=True)
class Matrix:
    """One matrix product of a layer: rows of `inputs` elements become rows of `outputs` elements.

    name       what engines call it, fused as engines fuse it: qkv, gate_up.
    inputs     elements of a row before the product, on all ranks together (k of a GEMM).
    outputs    elements of a row after it, on all ranks together (n of a GEMM).
    layers     how many layers have it.
    split      how tensor parallelism divides it: by outputs (column parallel), by inputs (row
               parallel, an all-reduce follows), or whole on every rank.
    part       attention, mlp (and shared experts), experts, or what stays in bf16 whatever the
               type of the weights: router and other. Of experts it is the matrix of one routed
               expert; a token uses `experts_per_token` of them in a layer.
    dtype      how the weights are stored: bf16, fp8 (a scale per tensor), fp8-block (a scale for
               128 x 128), nvfp4, mxfp4 or int4.
    count      separate products of this shape in a layer, such as one for each group of heads;
               where it is split, ranks share them.
    expands    prefill multiplies it with the row of every token of the context, cached ones too,
               and not with the new tokens alone: the expansion of MLA's latents.
    """

    name: str
    inputs: int
    outputs: int
    layers: int
    split: str = "outputs"
    part: str = "mlp"
    dtype: str = "bf16"
    count: int = 1
    expands: bool = False

    def __post_init__(self) -> None:
        """Raises CallerError, which names the matrix and the field, for a value that is not
        legal."""
        for field, fine, expected in (
            ("name", bool(self.name), "a name"),
            ("inputs", self.inputs >= 1, "at least 1"),
            ("outputs", self.outputs >= 1, "at least 1"),
            ("layers", self.layers >= 1, "at least 1"),
            ("split", self.split in SPLITS, f"one of {', '.join(SPLITS)}"),
            ("part", self.part in PARTS, f"one of {', '.join(PARTS)}"),
            ("dtype", self.dtype in DTYPES, f"one of {', '.join(DTYPES)}"),
            ("count", self.count >= 1, "at least 1"),
        ):
            if not fine:
                raise CallerError(
                    f"matrix {self.name}: {field}: expected {expected}, found "
                    f"{getattr(self, field)!r}"
                )

    @property
    def routed(self) -> bool:
        """Whether it is the matrix of one routed expert."""
        return self.part == "experts"

    @property
    def parameters(self) -> int:
        """In one layer; of one expert, if it is routed."""
        return self.count * self.inputs * self.outputs


# The parts that families share. Engines fuse what has the same input, so query, key and value are
# one product, and so are gate and up of an MLP.
def attention(
    layers: int, hidden: int, heads: int, kv_heads: int, head: int, *, gated: bool = False
) -> tuple[Matrix, ...]:
    """gated: queries come with a gate of the same width for the output."""
    queries = heads * head
    out = (1 + gated) * queries + 2 * kv_heads * head
    return (
        Matrix("qkv", hidden, out, layers, "outputs", "attention"),
        Matrix("o", queries, hidden, layers, "inputs", "attention"),
    )


def mlp(layers: int, hidden: int, inner: int, name: str = "", part: str = "mlp") -> list[Matrix]:
    """A gated MLP; nothing without layers or width."""
    if not layers * inner:
        return []
    return [
        Matrix(f"{name}gate_up", hidden, 2 * inner, layers, "outputs", part),
        Matrix(f"{name}down", inner, hidden, layers, "inputs", part),
    ]


def experts(
    layers: int, hidden: int, inner: int, count: int, *, shared: int = 0
) -> tuple[Matrix, ...]:
    """The router, one of `count` routed experts, and an expert of width `shared` that all tokens
    use; an MLP if there are no experts."""
    if not count:
        return tuple(mlp(layers, hidden, inner))
    return (
        Matrix("router", hidden, count, layers, "whole", "router"),
        *mlp(layers, hidden, inner, "expert_", "experts"),
        *mlp(layers, hidden, shared, "shared_"),
    )
