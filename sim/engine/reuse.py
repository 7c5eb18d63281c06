"""Computes the reuse of an admitted request, and how many tokens to grow at a time.

Does not ask the core, and does not act on the result (see prefill and growth).
"""

from __future__ import annotations

from collections import abc

from hicache.core.actions import Admitted
from hicache.core.components.base import UNBOUNDED, Component

from .sequence import Sequence


def note_reuse(
    sequence: Sequence, admitted: Admitted, components: abc.Sequence[Component], page_size: int
) -> None:
    """Stores on the sequence how much it reused, in tokens."""
    stored = from_storage(admitted, *sequence.prefetched)
    sequence.device_tokens = admitted.device_pages * page_size
    sequence.host_tokens = (admitted.host_pages - stored) * page_size
    sequence.storage_tokens = stored * page_size
    sequence.computed_tokens = admitted.tokens_to_compute
    sequence.depths = tuple(depth * page_size for depth in admitted.depths)
    sequence.loaded = admitted.loaded_pages
    sequence.capped = capped(admitted, components)


def from_storage(admitted: Admitted, first_page: int, fetched_pages: int) -> int:
    """Returns how many of the reused host pages the request's own prefetch had brought."""
    begin = max(first_page, admitted.device_pages)
    end = min(first_page + fetched_pages, admitted.device_pages + admitted.host_pages)
    return max(0, end - begin)


def capped(admitted: Admitted, components: abc.Sequence[Component]) -> str:
    """See `RequestResult.capped`."""
    depths, reused = admitted.depths, admitted.device_pages + admitted.host_pages
    if not depths or reused >= depths[0]:
        return ""
    least = min(depths)
    return components[depths.index(least)].name if least < depths[0] else "load"


def growth_tokens(components: abc.Iterable[Component], page_size: int, wanted: int) -> int:
    """Returns the tokens to request at a time while decoding.

    Pages requested in advance are held besides those of the window. With a window the stretch is at
    most two pages, or an eighth of the window if that is more.
    """
    bounds = [
        each.window_pages
        for each in components
        if each.positional and each.window_pages < UNBOUNDED
    ]
    ahead = [max(2, window // 8) * page_size for window in bounds]
    return max(page_size, min(wanted, *ahead) if ahead else wanted)
