"""What a write policy is: when a node's pages are copied to host.

An entry of this folder defines `policy()`, which makes one. A write policy is data: the core acts
on these properties, and the checks hold it to them.
"""

from __future__ import annotations

from typing import Protocol


class WritePolicy(Protocol):
    """threshold: uses at which a node is backed up while it is in use; 0 means never.
    on_evict: whether an unbacked leaf is copied to host before its device pages are freed.
    contiguous: whether a host copy requires the parent's host copy. Not possible with `on_evict`,
    which backs up leaves before what is above them.
    """

    @property
    def name(self) -> str: ...

    @property
    def threshold(self) -> int: ...

    @property
    def on_evict(self) -> bool: ...

    @property
    def contiguous(self) -> bool: ...
