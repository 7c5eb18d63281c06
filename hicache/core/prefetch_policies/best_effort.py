"""Best effort: an admission never waits; what has not arrived by then is computed."""

from __future__ import annotations


class BestEffort:
    name = "best_effort"
    waits = False
    limited = False


def policy() -> BestEffort:
    return BestEffort()
