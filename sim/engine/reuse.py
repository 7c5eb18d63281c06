"""Arithmetic on what the core says of a request and its components.

Lives here: what a request reused, and how far to grow at a time. Must not live here: when it is
asked, or what follows from it (engine).
"""

from __future__ import annotations

from collections import abc

from hicache.core.actions import Admitted
from hicache.core.components.base import UNBOUNDED, Component

from .sequence import Sequence


def note_reuse(
    sequence: Sequence, admitted: Admitted, components: abc.Sequence[Component], page_size: int
) -> None:
    """Note on the sequence what it reused."""
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
    """Tokens to ask for at a time while decoding. Pages ahead are pages that a window does not
    need: a component with one gets two of them, or an eighth of its window where that is more."""
    bounds = [
        each.window_pages
        for each in components
        if each.positional and each.window_pages < UNBOUNDED
    ]
    ahead = [max(2, window // 8) * page_size for window in bounds]
    return max(page_size, min(wanted, *ahead) if ahead else wanted)
