"""The two kinds of policy: which leaf is evicted first, and when a node is backed up."""

from __future__ import annotations

from typing import Protocol

from ..node import Node


class EvictionPolicy(Protocol):
    """Orders the leaves of a tier. Ranks are unique integers; the lowest goes first.

    A node's rank may only grow between two evictions (the queues rely on it, see lru).
    """

    @property
    def name(self) -> str: ...

    def rank(self, node: Node) -> int: ...


class WritePolicy(Protocol):
    """When a node's pages are copied to host.

    threshold: hits at which a node is backed up while in use; 0 means never.
    on_evict: whether an unbacked leaf is copied to host before its device pages are freed.
    contiguous: whether a host copy requires the parent's host copy.
    """

    @property
    def name(self) -> str: ...

    @property
    def threshold(self) -> int: ...

    @property
    def on_evict(self) -> bool: ...

    @property
    def contiguous(self) -> bool: ...
