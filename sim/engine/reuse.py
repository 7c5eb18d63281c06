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
    sequence.device_tokens = admitted.device_pages * page_size
    sequence.host_tokens = admitted.host_pages * page_size
    sequence.computed_tokens = admitted.tokens_to_compute
    sequence.depths = tuple(depth * page_size for depth in admitted.depths)
    sequence.loaded = admitted.loaded_pages
    sequence.capped = capped(admitted, components)


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
