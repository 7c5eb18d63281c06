"""Prints the global accesses of the copy kernel, compiled for sm_90, for pools of several models.

A program of its own: compiling needs Triton without its interpreter. `ld.global.b64` alone is the
page number.
"""

from __future__ import annotations

import re

import torch
import triton
from triton.backends.compiler import GPUTarget

from hicache.devices._movers import kernel
from hicache.devices._movers.base import route
from hicache.memory.layouts import axes
from hicache.memory.pools import PoolPlan
from hicache.memory.torch_arena import TorchPool
from hicache.models import ModelDescription, get

from .cases import grouped

_POINTERS = {8: "*i64", 4: "*i32", 2: "*i16", 1: "*u8"}


def main() -> None:
    for model, page_size, layout, name in (
        (get("llama-3.1-8b"), 64, "page_first_direct", ""),
        (get("llama-3.1-8b"), 64, "page_first", ""),
        (get("llama-3.1-8b"), 64, "page_head", ""),
        (get("deepseek-v3"), 64, "page_first", ""),
        (grouped(3), 2, "page_first", "rows of 12 bytes"),
    ):
        print(f"{name or f'{model.name} {layout}'}: {' '.join(accesses(model, page_size, layout))}")


def accesses(model: ModelDescription, page_size: int, layout: str) -> list[str]:
    """Instructions of a copy from the host's layout to the device's."""
    source, target = (_pool(model, page_size, one) for one in (layout, "layer_first"))
    _, constants = kernel.plan(route(source, target), 2, range(1))
    pointer = _POINTERS[constants.pop("word_bytes")]
    constants["block"] = kernel.BLOCK
    names = kernel.move.arg_names
    kinds = {"source": pointer, "target": pointer, "numbers": "*i64"}
    signature = {
        name: "constexpr" if name in constants else kinds.get(name, "i32") for name in names
    }
    aligned = {
        (names.index(name),): [["tt.divisibility", 16]] for name in ("source", "target", "numbers")
    }
    made = triton.compile(
        triton.compiler.ASTSource(
            fn=kernel.move,
            signature=signature,
            constexprs={(names.index(name),): value for name, value in constants.items()},
            attrs=aligned,
        ),
        target=GPUTarget("cuda", 90, 32),
        options={"num_warps": kernel.WARPS},
    )
    return sorted(set(re.findall(r"(?:ld|st)\.global[.\w]*", made.asm["ptx"])))


def _pool(model: ModelDescription, page_size: int, layout: str) -> TorchPool:
    plan = PoolPlan.of("test", model.pools[0], 2, page_size, layout)
    made = torch.empty(plan.total_bytes + 16, dtype=torch.uint8)
    start = -made.data_ptr() % 16
    flat = made[start : start + plan.total_bytes]
    return TorchPool(plan, flat, flat.view(plan.shape).permute(axes(layout)), 0)


if __name__ == "__main__":
    main()
