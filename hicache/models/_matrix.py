"""One matrix that the layers of a model multiply with, as data: its shape, and who holds it.

Does not list the matrices of a model; see the file of each family. The output head is not among
them: its size is vocabulary x hidden size.
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
