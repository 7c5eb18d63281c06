"""A store as the rest of the project uses it: opened by address, guarded and checked."""

from __future__ import annotations

from collections.abc import Callable

from .address import open_storage, shown
from .base import Address, StorageOptions
from .breaker import Breaker, BreakerOptions
from .verified import Verified


def open_store(
    address: Address,
    options: StorageOptions,
    now: Callable[[], float],
    notice: Callable[[str], None],
    breaker: BreakerOptions | None = None,
) -> Verified:
    """Open a store whose values are checked and whose outages are survived.

    now: seconds of a clock that never goes back. notice: gets a sentence when something is wrong
    with the store, when it stops answering, and when it answers again. Raises CallerError for what
    a person can mend."""
    store = open_storage(address, options)
    if wrong := store.troubles():
        notice(f"storage: {shown(address)}: {wrong}")
    return Verified(Breaker(store, shown(address), now, notice, breaker))
