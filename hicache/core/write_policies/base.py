"""The interface of a write policy: it says when the pages of a node are copied to host.

An entry of this folder defines `policy()`, which returns a policy. A write policy is data only. The
core acts on its properties, and the checks verify that it does.
"""

from __future__ import annotations

from typing import Protocol


class WritePolicy(Protocol):
    """threshold: the hit count from which on a node is backed up when it is used; 0 means never.
    on_evict: whether a copy that is not on host is copied there before its device pages are freed.
    contiguous: whether a host copy requires the parent's host copy. Not possible with `on_evict`,
    which backs up leaves before the nodes above them.
    """

    @property
    def name(self) -> str: ...

    @property
    def threshold(self) -> int: ...

    @property
    def on_evict(self) -> bool: ...

    @property
    def contiguous(self) -> bool: ...
