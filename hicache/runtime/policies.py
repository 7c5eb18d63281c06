"""Policies of the program that uses the library: made known to cores by their name.

Checks that a policy has what its interface asks for. `invariants.Watch` compares its victims with
its declared order during a run.
"""

from collections.abc import Callable
from typing import Any

from hicache import registry
from hicache.core.errors import CallerError
from hicache.core.eviction_policies import EvictionPolicy
from hicache.core.prefetch_policies import PrefetchPolicy
from hicache.core.write_policies import WritePolicy


def add_eviction_policy(maker: Callable[[], EvictionPolicy]) -> str:
    """Make an eviction policy known for the life of this process. maker: its class, or a function
    without arguments that returns a new policy for each core.

    Returns the name for `Config.eviction_policy`. Raises CallerError if the policy lacks a part of
    its interface, or if its name is not legal or is that of a built-in policy."""
    return _add(registry.EVICTION_POLICIES, maker, ("whole_path", "order", "rank"))


def add_write_policy(maker: Callable[[], WritePolicy]) -> str:
    """Make a write policy known; see `add_eviction_policy`. Returns the name for
    `Config.write_policy`."""
    return _add(registry.WRITE_POLICIES, maker, ("threshold", "on_evict", "contiguous"))


def add_prefetch_policy(maker: Callable[[], PrefetchPolicy]) -> str:
    """Make a prefetch policy known; see `add_eviction_policy`. Returns the name for
    `Config.prefetch_policy`."""
    return _add(registry.PREFETCH_POLICIES, maker, ("waits", "limited"))


def _add(package: str, maker: Callable[[], Any], parts: tuple[str, ...]) -> str:
    policy = maker()
    for part in ("name", *parts):
        if not hasattr(policy, part):
            raise CallerError(
                f"{type(policy).__name__}: expected a policy with {', '.join(('name', *parts))}, "
                f"found none of the name {part!r}; docs/library.md says what each means"
            )
    name = policy.name
    if not isinstance(name, str):
        raise CallerError(f"{type(policy).__name__}: expected a name as text, found {name!r}")
    registry.add(package, name, maker)
    return name
