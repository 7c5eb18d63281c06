"""Shared code of bugs of requests with a running pass: a handler that does not see the pass.

Does not define a bug.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Handler = Callable[[Any, Any], None]


def blind_to_its_pass(handler: Handler) -> Handler:
    """Returns the handler with the request's pass hidden while it runs."""

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
