"""The size of every pool of a host tier, on all ranks that share the machine.

It plans a whole model for given TP and PP, from a ratio to the device or from a total of bytes over
all ranks. Does not divide the total between components; see `sizes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from hicache.core.errors import CallerError
from hicache.models.base import ModelDescription

from . import sizes


@dataclass(frozen=True, slots=True)
class Plan:
    """pages: by component, the same on every rank. bytes: for each stage, the bytes of each pool on
    one rank. total_bytes: of all pools on all ranks together."""

    pages: Mapping[str, int]
    bytes: tuple[Mapping[str, int], ...]
    total_bytes: int


def plan_pools(
    model: ModelDescription,
    page_size: int,
    device_pages: Mapping[str, int],
    *,
    total_bytes: int | None = None,
    ratio: Fraction | None = None,
    tp: int = 1,
    pp: int = 1,
) -> Plan:
    """The host pools of `tp` x `pp` ranks on one machine, in proportion to the device's pages.

    Raises CallerError unless exactly one of total_bytes and ratio is given, for components that are
    not the model's, and if the total has no room for one page of each component.
    """
    if (total_bytes is None) == (ratio is None):
        raise CallerError("host size: expected a ratio or a total, found both or neither")
    if set(device_pages) != set(model.components):
        raise CallerError(
            f"device pages: expected sizes for {', '.join(model.components)}, "
            f"found {', '.join(device_pages) or 'none'}"
        )
    stages = model.stages(pp)
    if ratio is not None:
        pages = sizes.by_ratio(device_pages, ratio)
    else:
        assert total_bytes is not None
        pages = sizes.by_total(stages, page_size, device_pages, total_bytes, tp)
    found = tuple(
        {pool.name: pages[pool.component] * pool.page_bytes(page_size, tp) for pool in stage.pools}
        for stage in stages
    )
    return Plan(pages, found, tp * sum(sum(stage.values()) for stage in found))
