"""A store as the rest of the project uses it: opened by address, guarded and checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from .address import open_storage, shown
from .base import Address, StorageOptions
from .breaker import Breaker, BreakerOptions
from .verified import Verified

_NEARLY = 0.9  # of a time-out: clocks differ


def open_store(
    address: Address,
    options: StorageOptions,
    now: Callable[[], float],
    notice: Callable[[str], None],
    breaker: BreakerOptions | None = None,
) -> Verified:
    """Open a store whose values are checked and whose outages are survived.

    now: seconds of a clock that never goes back. notice: gets a sentence when something is wrong
    with the store, and for each change of its health. Raises CallerError for what a person can
    mend."""
    store = open_storage(address, options)
    if wrong := store.troubles():
        notice(f"storage: {shown(address)}: {wrong}")
    patience_s = options.timeout_s * _NEARLY
    breaker = replace(breaker or BreakerOptions(), patience_s=patience_s)
    return Verified(Breaker(store, shown(address), now, notice, breaker))
