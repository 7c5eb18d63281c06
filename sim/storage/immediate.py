"""An executor of storage without a clock: every action ends at the next poll.

For replays that count hits. Does not model time; see timed.
"""

from __future__ import annotations

from hicache.core.actions import Delete, Fetch, Lookup, Store
from hicache.core.events import StorageReply

from .answers import values
from .executor import StoreExecutor


class ImmediateStore(StoreExecutor):
    """See the module."""

    def poll(self) -> list[StorageReply]:
        for action in list(self._open.values()):
            if type(action) is Lookup:
                self._looked_up(action)
            elif type(action) is Fetch:
                self._fetched(action, values(action))
            elif type(action) is Store:
                self._stored(action, values(action))
            elif type(action) is Delete:
                self._deleted(action)
        return super().poll()
