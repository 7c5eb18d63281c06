"""Write policies: when the pages of a node are copied to host. Data only: the core acts on it, and
the checks verify that it does."""

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


class WriteThrough:
    """Back up a node at its first use, as soon as it is in the tree."""

    name = "write_through"
    threshold = 1
    on_evict = False
    contiguous = not on_evict


class WriteThroughSelective:
    """Back up a node when a second request uses it."""

    name = "write_through_selective"
    threshold = 2
    on_evict = False
    contiguous = not on_evict


class WriteBack:
    """Back up a node only when its device pages are wanted."""

    name = "write_back"
    threshold = 0
    on_evict = True
    contiguous = not on_evict


PLUGINS = {kind.name: kind for kind in (WriteThrough, WriteThroughSelective, WriteBack)}
