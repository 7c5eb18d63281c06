"""`hicache peers`: engines that people run, under this harness. Does not define any action; see
traces/peers."""

from __future__ import annotations

from typing import Any

from hicache import registry

ACTIONS = "traces.peers"


def actions() -> dict[str, Any]:
    return {name: registry.load(ACTIONS, name) for name in registry.names(ACTIONS)}
