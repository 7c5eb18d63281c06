"""Wait for completion: a request is admitted when its prefetch has ended."""

from __future__ import annotations


class WaitComplete:
    name = "wait_complete"
    waits = True
    limited = False


def policy() -> WaitComplete:
    return WaitComplete()
