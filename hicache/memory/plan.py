"""The size of every pool of a host tier, on all ranks that share the machine.

It plans a whole model for given TP and PP, from a ratio to the device or from a total of bytes over
all ranks. The arithmetic is exact. The total covers all pools of all components on all ranks that
share the machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from hicache.core.errors import CallerError
from hicache.models.base import ModelDescription


def by_ratio(device_pages: Mapping[str, int], ratio: Fraction) -> dict[str, int]:
    """Host pages per component: the device's pages times the ratio, rounded down, but at least one
    page, and from a ratio of 1 on at least one page more than the device.

    A host tier of the device's size could hold no more than copies of the device's pages. A smaller
    one is possible: it keeps pages that the device evicted before it keeps such copies. Raises
    CallerError for a ratio of 0 or less.
    """
    if ratio <= 0:
        raise CallerError(f"host_ratio: expected more than 0, found {ratio}")
    more = int(ratio >= 1)
    return {
        name: max(1, more * (pages + 1), int(pages * ratio)) for name, pages in device_pages.items()
    }


def by_total(
    stages: Sequence[ModelDescription],
    page_size: int,
    device_pages: Mapping[str, int],
    total_bytes: int,
    tp: int = 1,
    among: int = 1,
) -> dict[str, int]:
    """Host pages per component, in proportion to the device's pages. The bytes of all ranks
    together are at most `total_bytes`.

    stages: one description per pipeline stage on this machine, with the layers of that stage; `tp`
    ranks have each stage. among: ranks that divide rows which they have alike; 0 for all that have
    them. Raises CallerError if the total has no room for one page of each component.
    """
    each = {
        name: tp * sum(stage.bytes_per_page(name, page_size, tp, among) for stage in stages)
        for name in device_pages
    }
    whole = sum(each[name] * pages for name, pages in device_pages.items())
    least = sum(each.values())
    if total_bytes < least or not whole:
        ranks = tp * len(stages)
        raise CallerError(
            f"host_bytes: expected at least one page of {' and '.join(device_pages)} on {ranks} "
            f"rank{'s' * (ranks > 1)} ({least:,} bytes), found {total_bytes} bytes; give "
            "more, or no host memory"
        )
    share = Fraction(total_bytes, whole)
    pages = {name: max(1, int(count * share)) for name, count in device_pages.items()}
    # A component that was rounded up to one page takes more than its share from the others.
    while sum(each[name] * count for name, count in pages.items()) > total_bytes:
        most = max(pages, key=lambda name: (pages[name] > 1, each[name] * pages[name]))
        over = sum(each[name] * count for name, count in pages.items()) - total_bytes
        pages[most] = max(1, pages[most] - max(1, -(-over // each[most])))
    return pages


@dataclass(frozen=True, slots=True)
class Plan:
    """pages: by component, the same on every rank. bytes: for each stage, the bytes of each pool on
    one rank, or its part of what ranks divide. total_bytes: of all pools on all ranks together."""

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
    among: int = 1,
) -> Plan:
    """The host pools of `tp` x `pp` ranks on one machine, in proportion to the device's pages.
    among: as in `by_total`.

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
        pages = by_ratio(device_pages, ratio)
    else:
        assert total_bytes is not None
        pages = by_total(stages, page_size, device_pages, total_bytes, tp, among)
    found = tuple(
        {
            pool.name: pages[pool.component] * pool.page_bytes(page_size, tp, among)
            for pool in stage.pools
        }
        for stage in stages
    )
    return Plan(pages, found, tp * sum(sum(stage.values()) for stage in found))
