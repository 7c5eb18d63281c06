"""Shared code of bugs with repeated replies: a core that answers some of them with nothing.

Does not define a bug.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hicache.core.events import Reply


def swallowing(real: Any, same: Callable[[Any, Any], bool]) -> Any:
    """Returns `Core.handle` that ignores a reply that is the `same` as the last one."""
    last: list[Any] = [None, None]

    def handle(core: Any, event: Any) -> list[Any]:
        if isinstance(event, Reply) and last[0] is core and same(last[1], event):
            return []
        outcomes = real(core, event)
        if isinstance(event, Reply):
            last[:] = core, event
        return list(outcomes)

    return handle
