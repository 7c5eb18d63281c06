"""Swarm configuration: draws the core's configuration, operations and faults of each sequence.

Each sequence gets a random subset of features, and pools are small. A feature that is always on
hides failures that occur without it, and with all features possible, extreme mixtures are rare.
Method: swarm testing (Groce et al., ISSTA 2012).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations

from hicache import registry
from hicache.core.config import Config
from invariants.books.kinds import KNOWN
from invariants.fuzz.draws import Draws
from invariants.fuzz.hicache.configs import (
    LARGE,
    LEAST,
    SIZES,
    draw_config,
    with_storage,
    with_wants,
)
from invariants.fuzz.hicache.executors import REPLIES, draw_device
from invariants.fuzz.hicache.faults.base import names


def _lateness(name: str) -> tuple[bool, int]:
    """Sort key of a write policy: later backups come later."""
    policy = registry.load(registry.WRITE_POLICIES, name).policy()
    return policy.on_evict, policy.threshold


COMPONENTS = tuple(
    (KNOWN[0], *others) for count in range(len(KNOWN)) for others in combinations(KNOWN[1:], count)
)
POLICIES = tuple(sorted(registry.stems(registry.WRITE_POLICIES), key=_lateness))
ORDERS = tuple(registry.stems(registry.EVICTION_POLICIES))
# The orders that the first draw has. Those that came later have a draw of their own, so that the
# sequence of a seed stays the same where it has none of them.
_FIRST = ("fifo", "lfu", "lru", "lru_path", "priority", "slru")
_LATER = tuple(name for name in ORDERS if name not in _FIRST)
MARKED, WANTED = 30, 35  # percent of the sequences with one of these orders, and with pins or a TTL
WANTED_STORED = 40  # percent of the others with a storage that have pins or a TTL too
OF_WANTS = (("age", 4), ("pin", 5), ("unpin", 2))
USUAL = ("lru", "lru")  # the usual policy is drawn more often than the others
FAULTS = names()
LEAST_HOST = 8  # minimum host pages of each component with a device
RANKS = ((1, 14), (2, 1), (3, 1))
MORE_RANKS = ((3, 2), (4, 1), (8, 1))  # instead of 3, by a later draw; the others stay the same
PASSES = ((1, 12), (2, 2), (4, 2))  # of one request in flight: stages of a pipeline
MOST_PASSES = 64
LONGER = 3
# Percent of the sequences that can have a storage. Little of what least pools hold is ever stored.
STORED, STORED_IN_LEAST = 60, 20
SHORT = 50  # percent of those in which a fetch often ends short
HELD_BACK = 35  # percent of those that hold back one kind of reply from the storage
# With a storage: the weights of operations, beside those that say their own.
OF_STORAGE = (("warm", 80), ("limit", 4), ("attach", 6), ("mistaken", 1), ("outage", 24))
STORAGE_FAULTS = names(of_storage=True)
PROFILES = ("prompt", "steady", "heavy", "starve")


@dataclass(frozen=True)
class Swarm:
    """The configuration of a sequence. weights: of the enabled operations. faults: percent of
    actions, for each enabled kind. profile: distribution of delays. polled: percent of entries
    before which the host polls. ranks: number of cores. executor: see executors. pairs: whether
    keys hold token pairs. longer: factor of the number of entries.
    """

    config: Config
    order: str
    weights: tuple[tuple[str, int], ...]
    faults: tuple[tuple[str, int], ...]
    profile: str
    polled: int
    ranks: int = 1
    executor: str = REPLIES
    pairs: bool = False
    longer: int = 1


def draw_swarm(
    seed: int,
    weights: dict[str, int],
    components: tuple[str, ...] = (),
    policy: str = "",
    ranks: int = 0,
    executor: str = "",
    eviction: str = "",
    wanted: bool = False,
    passes: int = 0,
) -> Swarm:
    """Draws a swarm. Given components, policy, ranks, executor, eviction and passes are fixed.
    wanted: with pins or copies that expire."""
    draws = Draws(seed, "swarm")
    chosen_components = components or draws.one(COMPONENTS)
    pools = Draws(seed, "pools").weighted(SIZES)
    config = draw_config(
        draws,
        chosen_components,
        policy or draws.one(POLICIES),
        eviction or draws.one((*USUAL, *_FIRST)),
        pools,
    )
    wants = Draws(seed, "wants")
    if not eviction and wants.chance(MARKED):
        config = replace(config, eviction_policy=wants.one(_LATER))
    if wants.chance(WANTED) or wanted:
        config = with_wants(wants, config)
    some = Draws(seed, "ranks")
    drawn = 1 if executor not in ("", REPLIES) else some.weighted(RANKS)
    if drawn == max(size for size, _ in RANKS):
        drawn = Draws(seed, "more ranks").weighted(MORE_RANKS)
    size = ranks or drawn
    chosen = _draw_executor(seed, executor) if max(size, drawn) == 1 else REPLIES
    if chosen != REPLIES:
        config, weights = _copying(config, weights)
    needed = ("arrive", "admit", "wait")
    on = tuple(
        (name, weight * draws.one((1, 1, 2)))
        for name, weight in weights.items()
        if weight and (name in needed or draws.chance(80))
    )
    faults = tuple((name, draws.one((2, 5, 20))) for name in FAULTS if draws.chance(10))
    if chosen != REPLIES and "torn" not in dict(faults):  # only copies can fail this way
        faults += (("torn", Draws(seed, "torn").one((5, 20, 40))),)
    order = _draw_order(draws)
    profile, polled = draws.one(PROFILES), draws.one((100, 80, 40))
    stored = Draws(seed, "storage")
    share = STORED_IN_LEAST if pools == LEAST else STORED
    if config.has_host and chosen == REPLIES and stored.chance(share):
        if stored.chance(HELD_BACK):
            order = f"starve:{stored.between(3, 6)}:{stored.one((1, 4, 64))}"
        config = with_storage(stored, config, LEAST_HOST if stored.chance(80) else 0)
        if not (config.ttl_periods or config.pin_pages) and wants.chance(WANTED_STORED):
            config = with_wants(wants, config)
        on += tuple(
            (name, weight) for name, weight in OF_STORAGE if name in weights and stored.chance(90)
        )
        faults += tuple(
            (name, stored.one((2, 5, 20))) for name in STORAGE_FAULTS if stored.chance(14)
        )
        if stored.chance(SHORT):
            faults = (("fetched in part", stored.one((40, 80))), *faults)
    if config.ttl_periods or config.pin_pages:
        on += tuple((name, weight) for name, weight in OF_WANTS if name in weights)
    if size > 1:
        of_ranks = names(of_ranks=True)
        faults += tuple((name, some.one((2, 5, 20))) for name in of_ranks if some.chance(40))
    config = replace(config, passes=passes or Draws(seed, "passes").weighted(PASSES))
    if config.passes > 1:
        on = tuple((name, weight * (1 + 3 * (name == "prefill"))) for name, weight in on)
    pairs = draws.chance(15) and chosen == REPLIES  # content on devices is computed from tokens
    longer = LONGER if pools == LARGE else 1
    return Swarm(config, order, on, faults, profile, polled, size, chosen, pairs, longer)


def _draw_executor(seed: int, kind: str) -> str:
    """Draws an executor: a device for one sequence in six, unless a kind is given."""
    draws = Draws(seed, "executor")
    device = draws.below(6) == 0 if not kind else kind != REPLIES
    return draw_device(draws) if device else REPLIES


def _copying(config: Config, weights: dict[str, int]) -> tuple[Config, dict[str, int]]:
    """Adjusts a configuration for a device: enough host pages, and more revisits, so that copies
    occur.
    """
    sizes = tuple(max(LEAST_HOST, size) for size in config.host_pages)
    more = {name: weight * (4 if name == "revisit" else 1) for name, weight in weights.items()}
    return replace(config, host_pages=sizes), more


def _draw_order(draws: Draws) -> str:
    """Draws a schedule and its parameters."""
    name = draws.weighted(
        (("time", 40), ("priority", 20), ("pct", 20), ("starve", 10), ("heavy", 10))
    )
    if name == "pct":
        return f"pct:{draws.below(1 << 16)}:{draws.between(1, 4)}:{draws.one((16, 64, 256))}"
    return f"starve:{draws.below(3)}:{draws.one((1, 2, 3, 4, 6, 64))}" if name == "starve" else name
