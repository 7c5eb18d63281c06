"""Draws the sequence of a seed: its configuration, the operations and faults that are on, and each
entry from the state that the entries before it have led to.

Each sequence gets a random subset of features (sampled configuration testing, Groce et al., ISSTA
2012), and pools are small, so that pages are short. Some or all device pools of a *least* one are
minimal.
"""

from dataclasses import dataclass, replace
from importlib import import_module
from itertools import combinations

from hicache import registry
from hicache.core.components import known, residency, settings_for
from hicache.core.config import UNBOUNDED, Config
from hicache.core.core import Core
from hicache.core.errors import CallerError
from hicache.core.plugins import Shape
from invariants.fuzz.draws import Draws
from invariants.fuzz.hicache.operations import OPERATIONS, PLANS
from invariants.fuzz.hicache.player import KINDS, Player
from invariants.fuzz.sequence import DEVICE, FILES, MOST_TOKENS, REPLIES, Act, Entry, FuzzSequence

KNOWN = known()
COMPONENTS = tuple(
    (KNOWN[0], *others) for count in range(len(KNOWN)) for others in combinations(KNOWN[1:], count)
)


def _shipped(package: str) -> tuple[str, ...]:
    """Without what a user has added by now: a seed draws the same with it."""
    return tuple(sorted(import_module(package).PLUGINS))


POLICIES = _shipped(registry.WRITE_POLICIES)
ORDERS = _shipped(registry.EVICTION_POLICIES)
PREFETCHES = _shipped(registry.PREFETCH_POLICIES)
MOST_PASSES = 64
REAL_STORES = 30  # percent of the sequences with a storage, at whose end a real one is played
USUAL, LEAST = "usual", "least"
TRIES = 8
ACTS = 3  # at least; with more ranks one for each, or some would always be alike
WEIGHTS = {name: op.weight for name, op in OPERATIONS.items()} | {
    name: weight for name, (weight, _) in PLANS.items()
}
OF_STORAGE = (("warm", 40), ("stock", 6), ("limit", 4), ("attach", 6))
OF_PINS = (("age", 5), ("pin", 6), ("unpin", 5))


@dataclass(frozen=True)
class ConfigSample:
    """What is drawn of a sequence before its entries. sequence: has none yet. weights: of the
    enabled operations and plans. faults: percent of actions, for each enabled kind. polled: percent
    of entries before which the host polls."""

    sequence: FuzzSequence
    weights: tuple[tuple[str, int], ...]
    faults: tuple[tuple[str, int], ...]
    polled: int = 80


def sample_config(
    seed: int,
    components: tuple[str, ...] = (),
    policy: str = "",
    ranks: int = 0,
    executor: str = "",
    eviction: str = "",
    passes: int = 0,
) -> ConfigSample:
    """Draws a sampled configuration. What is given is fixed."""
    draws = Draws(seed, "swarm")
    size = draws.weighted(((USUAL, 86), (LEAST, 14)))
    few = COMPONENTS[draws.below(2) :]
    names, order = components or draws.choice(few), draws.choice(("lru", *ORDERS))
    writes = policy or draws.choice((*POLICIES, "write_back"))  # it has more states
    config = draw_config(draws, names, writes, eviction or order, size)
    if not ranks:
        ranks = 1 if executor else draws.weighted(((1, 28), (2, 2), (3, 1), (4, 1), (8, 1)))
    if ranks == 1 and executor != REPLIES and (executor or draws.below(6) == 0):
        chosen = _draw_device(draws)
    else:
        chosen = REPLIES
    weights = {
        name: weight * draws.choice((1, 1, 2))
        for name, weight in WEIGHTS.items()
        if weight and (name in ("arrive", "admit", "wait") or draws.chance(80))
    }
    weights |= {"stride": 24} if residency(names[-1]) == "state" else {}
    kinds, schedule = dict.fromkeys(KINDS[""], 10), _draw_schedule(draws)
    if chosen != REPLIES:  # copies must occur, and only they can fail in part
        config = replace(config, host_pages=tuple(max(8, pages) for pages in config.host_pages))
        weights["revisit"], kinds["torn"] = 4 * WEIGHTS["revisit"], 100
    elif config.has_host and draws.chance(30 if size == LEAST else 72):
        # little of what least pools hold is ever stored
        config = _with_storage(draws, config)
        weights |= {name: weight for name, weight in OF_STORAGE if draws.chance(90)}
        kinds |= dict.fromkeys(KINDS["storage"], 14)
        if draws.chance(35):
            schedule = f"starve:{draws.choice((1, 3, 4, 5, 6))}:{draws.choice((1, 4, 64))}"
    faults = {name: draws.choice((2, 5, 20)) for name, odds in kinds.items() if draws.chance(odds)}
    if config.storage and draws.chance(50):
        faults = {"fetched in part": draws.choice((40, 80)), **faults}
    if config.storage and ranks == 1 and not executor and draws.chance(REAL_STORES):
        chosen = FILES
    if draws.chance(55):
        config = _with_pins(draws, config)
        weights |= dict(OF_PINS)
    config = replace(config, passes=passes or draws.weighted(((1, 12), (2, 2), (4, 2))))
    if config.passes > 1 and "prefill" in weights:
        weights["prefill"] *= 4
    polled = draws.choice((100, 80, 40))
    pairs = draws.chance(15) and chosen == REPLIES  # contents on devices come from tokens
    sequence = FuzzSequence(config, (), seed, schedule, ranks=ranks, executor=chosen, pairs=pairs)
    return ConfigSample(sequence, tuple(weights.items()), tuple(faults.items()), polled)


def _draw_device(draws: Draws) -> str:
    """Slow or fast, with a deep or a shallow queue."""
    layers, depth = draws.choice((1, 2, 2, 3)), draws.choice((1, 2, 8))
    return f"{DEVICE}:{layers}:{draws.choice((1, 1, 4, 20))}:{draws.choice((0, 2, 20))}:{depth}"


def _draw_schedule(draws: Draws) -> str:
    pct = f"pct:{draws.below(1 << 16)}:{draws.between(1, 4)}:{draws.choice((16, 64, 256))}"
    starve = f"starve:{draws.below(3)}:{draws.choice((1, 2, 3, 4, 6, 64))}"
    return draws.weighted((("time", 40), ("priority", 20), (pct, 20), (starve, 10), ("heavy", 10)))


# -- configurations


def draw_config(
    draws: Draws, components: tuple[str, ...], policy: str, order: str, size: str = USUAL
) -> Config:
    for _ in range(100):
        try:
            config = _draw_config(draws, components, policy, order, size)
            Core(config)
            return config
        except CallerError:
            continue  # an illegal combination: draw again
    raise AssertionError("no legal configuration in a hundred draws")


def _draw_config(
    draws: Draws, components: tuple[str, ...], policy: str, order: str, size: str
) -> Config:
    page = draws.choice((1, 1, 1, 2, 2, 4, 4, 16))
    window = max(
        1, draws.choice((page // 4, page, page * 3 // 2, 2 * page, 3 * page + 1, 8 * page))
    )
    interval = page * draws.choice((1, 1, 1, 2, 3))
    per_path = draws.choice((0, 0, 1, 2)) if "mamba" in components else 0
    pages = {
        "path": draws.choice((6, 8, 12, 16, 20, 30, 48, 64)),
        "window": -(-window // page) + interval // page + draws.choice((0, 1, 3, 8, 20)),
        "state": draws.choice((2, 3, 4, 4, 5, 6, 8, 12, 30)),
    }
    device = tuple(pages[residency(name)] for name in components)
    if size == LEAST and draws.chance(60):
        host = (draws.below(2),) * len(device)
    elif draws.chance(40):  # much larger than the device, or loads are rare
        host = tuple(pages * draws.choice((2, 4, 8)) for pages in device)
    else:
        host = tuple(draws.choice((0, 1, 2, 4, 8, 12, 30)) for _ in device)
    host = host if host[0] else (0,) * len(device)
    on_evict = registry.load(registry.WRITE_POLICIES, policy)().on_evict
    exclusive = host[0] > 0 and on_evict and draws.chance(60)
    config = Config(
        page,
        device,
        host,
        components=components,
        write_policy=policy,
        eviction_policy=order,
        load_threshold_pages=draws.choice((1, 1, 1, 2)),
        load_quota_pages=draws.choice((0, 0, 6)),
        max_backups=draws.choice((4096, 4096, 2, 1)),
        exchange_pages=tuple(pages // 2 for pages in host) if exclusive else (),
        kv_events=draws.chance(30),
        settings=settings_for(components, Shape(window, interval, per_path)),
    )
    if size == LEAST:
        few, least = draws.choice((0, 1, len(device) - 1)), least_device_pages(config)
        config = replace(config, device_pages=(*device[:few], *least[few:]))
    return config


def least_device_pages(config: Config) -> tuple[int, ...]:
    """Returns the smallest device pool of each component that the core accepts."""
    made = Core(config).view.components
    between = max(component.interval for component in made) // config.page_size - 1
    windows = (item.positional and item.window_pages < UNBOUNDED for item in made)
    pairs = zip(made, windows, strict=True)
    return tuple(item.least_pages + between * is_window for item, is_window in pairs)


def _with_storage(draws: Draws, config: Config) -> Config:
    """The configuration with a storage, which in some sequences is attached later."""
    page, least = config.page_size, draws.choice((8, 8, 8, 4, 2, 0))
    most = draws.between(8, 16) if draws.chance(45) else MOST_TOKENS
    host = tuple(min(most, max(least, pages)) for pages in config.host_pages)
    return replace(
        config,
        host_pages=host,
        exchange_pages=tuple(pages // 2 for pages in host) if config.exchange_pages else (),
        storage=draws.chance(90),
        prefetch_policy=draws.choice(PREFETCHES),
        prefetch_threshold_tokens=draws.choice((0, 0, 0, 0, page, page + 1)),
        prefetch_budget_tokens=draws.choice((0, 0, 0, 4 * page, 20 * page)),
        max_stores=draws.choice((64, 64, 2, 1)),
        store_tries=draws.choice((3, 3, 1, 2)),
    )


def _with_pins(draws: Draws, config: Config) -> Config:
    """The configuration with what a user may want beside requests: copies that expire, and pins."""
    config = replace(config, ttl_periods=draws.choice((0, 0, 0, 1, 1, 2, 4)))
    pairs = zip(config.device_pages, least_device_pages(config), strict=True)
    device = tuple(size - fewest - draws.below(1 + size - fewest) // 2 for size, fewest in pairs)
    host = tuple(
        size - draws.below(1 + size) // draws.choice((1, 2, 2)) for size in config.host_pages
    )
    return replace(config, pin_pages=device, pin_host_pages=host if config.has_host else ())


# -- entries


def next_entry(player: Player, sample: ConfigSample, index: int) -> Entry | None:
    """Returns entry `index` of the sequence of a sample, or None if no operation is possible.
    Within a plan, nothing comes between."""
    for turn in range(TRIES):
        draws = Draws(sample.sequence.seed, "entry", index, turn)
        step = next(player.plan, None)
        planned = step is not None
        if step is None:
            name = draws.weighted(sample.weights)
            if name in PLANS:
                player.plan = PLANS[name][1](player, draws)
                step = next(player.plan, None)
            elif (args := OPERATIONS[name].draw(player, draws)) is not None:
                step = name, args
        if step is not None:
            acts = tuple(_draw_act(sample, draws) for _ in range(max(ACTS, sample.sequence.ranks)))
            gap = 0 if planned else draws.choice((0, 1, 1, 5, 40))
            return Entry(*step, gap, not planned and draws.chance(sample.polled), acts)
    return None


def _draw_act(sample: ConfigSample, draws: Draws) -> Act:
    delay = draws.choice((draws.below(3), draws.between(1, 20), 1 << draws.below(10)))
    faults = (fault for fault, percent in sample.faults if draws.chance(percent))
    return Act(delay, draws.below(4), next(faults, ""))
