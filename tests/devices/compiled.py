"""Prints the global accesses of the copy kernel, compiled for sm_90, for pools of several models.

A program of its own: compiling needs Triton without its interpreter. `ld.global.b64` alone is the
page number.
"""

from __future__ import annotations

import re

import torch
import triton
from triton.backends.compiler import GPUTarget

from hicache.devices import _kernel as kernel
from hicache.devices._traffic import route
from hicache.memory.layouts import axes
from hicache.memory.pools import Pool, PoolPlan
from hicache.models import ModelDescription, get
from hicache.models.base import PoolDescription

from .cases import grouped

_POINTERS = {8: "*i64", 4: "*i32", 2: "*i16", 1: "*u8"}


def main() -> None:
    print(f"triton {triton.__version__}")
    llama, four = get("llama-3.1-8b"), get("deepseek-v4-flash")
    for name, pool, page_size, layout in (
        ("llama-3.1-8b page_first_direct", llama.pools[0], 64, "page_first_direct"),
        ("llama-3.1-8b page_first", llama.pools[0], 64, "page_first"),
        ("llama-3.1-8b page_head", llama.pools[0], 64, "page_head"),
        ("deepseek-v3 page_first", get("deepseek-v3").pools[0], 64, "page_first"),
        ("rows of 584 bytes, 16 a page", _named(four, "c4"), 64, "page_first"),
        ("rows of 584 bytes, 2 a page", _named(four, "c128"), 256, "page_first"),
        ("rows of 584 bytes, 1 a page", _named(four, "c128"), 128, "page_first"),
        ("rows of 12 bytes", grouped(3).pools[0], 2, "page_first"),
    ):
        print(f"{name}: {' '.join(accesses(pool, page_size, layout))}")


def accesses(pool: PoolDescription, page_size: int, layout: str) -> list[str]:
    """Instructions of a copy from the host's layout to the device's."""
    source, target = (_pool(pool, page_size, one) for one in (layout, "layer_first"))
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


def _named(model: ModelDescription, name: str) -> PoolDescription:
    return next(pool for pool in model.pools if pool.name == name)


def _pool(pool: PoolDescription, page_size: int, layout: str) -> Pool:
    plan = PoolPlan.of("test", pool, 2, page_size, layout)
    made = torch.empty(plan.total_bytes + 16, dtype=torch.uint8)
    start = -made.data_ptr() % 16
    flat = made[start : start + plan.total_bytes]
    return Pool(plan, flat, flat.view(plan.shape).permute(axes(layout)), 0)


if __name__ == "__main__":
    main()
