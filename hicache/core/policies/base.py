"""The two kinds of policy: which leaf is evicted first, and when a node is backed up."""

from __future__ import annotations

from typing import Protocol

from ..radix.node import Node


class EvictionPolicy(Protocol):
    """Orders what a pool could lose. The lowest rank goes first, of equal ones the deeper node.

    A node's rank may only grow between two evictions (the queues rely on it, see lru).
    whole_path: whether a hit counts as a use of the whole path, or of what its boundary requires.
    """

    @property
    def name(self) -> str: ...

    @property
    def whole_path(self) -> bool: ...

    def rank(self, node: Node, component: int) -> int: ...


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
