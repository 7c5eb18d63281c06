"""How many pages a host tier has: by a ratio to the device, or by a total of bytes.

Lives here: the arithmetic, exact. A total is the total: over every pool of every component, over
every rank that shares the machine. Must not live here: what a command line looks like.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from hicache.core.errors import CallerError
from hicache.models.base import ModelDescription


def by_ratio(device_pages: Mapping[str, int], ratio: Fraction) -> dict[str, int]:
    """Host pages per component: the ratio of the device's, rounded down, and at least one more.

    A host tier that is no larger than the device holds nothing but copies of it.
    """
    if ratio <= 0:
        raise CallerError(f"host_ratio: expected more than 0, found {ratio}")
    return {name: max(pages + 1, int(pages * ratio)) for name, pages in device_pages.items()}


def by_total(
    stages: Sequence[ModelDescription],
    page_size: int,
    device_pages: Mapping[str, int],
    total_bytes: int,
    tp: int = 1,
) -> dict[str, int]:
    """Host pages per component in proportion to the device's, all ranks together within the total.

    stages: one description per pipeline stage on this machine, each with its own layers, each held
    by `tp` ranks. Raises CallerError where the total has no room for a page of each component.
    """
    each = {
        name: tp * sum(stage.bytes_per_page(name, page_size, tp) for stage in stages)
        for name in device_pages
    }
    whole = sum(each[name] * pages for name, pages in device_pages.items())
    least = sum(each.values())
    if total_bytes < least or not whole:
        raise CallerError(
            f"host_bytes: expected at least {least}, a page of each of {', '.join(device_pages)} "
            f"on {tp * len(stages)} ranks, found {total_bytes}; ask for more, or leave the tier out"
        )
    share = Fraction(total_bytes, whole)
    pages = {name: max(1, int(count * share)) for name, count in device_pages.items()}
    # A component rounded up to its one page took what is another's.
    while sum(each[name] * count for name, count in pages.items()) > total_bytes:
        most = max(pages, key=lambda name: (pages[name] > 1, each[name] * pages[name]))
        over = sum(each[name] * count for name, count in pages.items()) - total_bytes
        pages[most] = max(1, pages[most] - max(1, -(-over // each[most])))
    return pages
