"""`hicache store`: what stores hold. Does not define any action; see traces/storing."""

from __future__ import annotations

from typing import Any

from hicache import registry

ACTIONS = "traces.storing"


def actions() -> dict[str, Any]:
    return {name: registry.load(ACTIONS, name) for name in registry.names(ACTIONS)}
