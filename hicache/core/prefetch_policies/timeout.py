"""Timeout: a request is admitted when its prefetch has ended or has taken too long."""

from __future__ import annotations


class Timeout:
    name = "timeout"
    waits = True
    limited = True


def policy() -> Timeout:
    return Timeout()
