"""What an engine makes of a seat: what it reused, how far to grow, and when it can never fit.

Lives here: arithmetic on what the core says of a request and its components. Must not live here:
when it is asked, or what follows from it (engine).
"""

from __future__ import annotations

from collections.abc import Sequence as Several

from hicache.core.actions import Admitted
from hicache.core.components.base import UNBOUNDED, Component
from hicache.core.errors import CallerError
from hicache.core.types import RequestId

from .sequence import Sequence


def count(
    sequence: Sequence, admitted: Admitted, components: Several[Component], page_size: int
) -> None:
    """Note what the request reused."""
    sequence.device_tokens = admitted.device_pages * page_size
    sequence.host_tokens = admitted.host_pages * page_size
    sequence.computed_tokens = admitted.tokens_to_compute
    sequence.depths = tuple(depth * page_size for depth in admitted.depths)
    sequence.loaded = admitted.loaded_pages
    sequence.capped = capped(admitted, components)


def capped(admitted: Admitted, components: Several[Component]) -> str:
    """See `RequestResult.capped`."""
    depths, reused = admitted.depths, admitted.device_pages + admitted.host_pages
    if not depths or reused >= depths[0]:
        return ""
    least = min(depths)
    return components[depths.index(least)].name if least < depths[0] else "load"


def stretch(components: Several[Component], page_size: int, wanted: int) -> int:
    """Tokens to ask for at a time while decoding. Pages ahead are pages that a window does not
    need: a component with one gets two of them, or an eighth of its window where that is more."""
    bounds = [
        each.window_pages
        for each in components
        if each.positional and each.window_pages < UNBOUNDED
    ]
    ahead = [max(2, window // 8) * page_size for window in bounds]
    return max(page_size, min(wanted, *ahead) if ahead else wanted)


def too_small(request: RequestId, component: str, needed: int, available: int) -> CallerError:
    """What to say where a request can never have the pages that it needs."""
    return CallerError(
        f"device pool of {component}: expected at least {needed} pages for request {request}, "
        f"found {available}; enlarge the pool or leave the request out"
    )
