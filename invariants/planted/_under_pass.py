"""What bugs of requests with a pass under way share: a handler that does not see the pass.

Must not live here: an entry.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Handler = Callable[[Any, Any], None]


def blind_to_its_pass(handler: Handler) -> Handler:
    """The handler, told that the event's request has no pass; the pass is noted again behind it."""

    def blindly(state: Any, event: Any) -> None:
        request = state.running.get(event.request)
        flight = request.prefill if request is not None else 0
        if flight:
            request.prefill = 0
        try:
            handler(state, event)
        finally:
            if flight and not request.prefill:
                request.prefill = flight

    return blindly
