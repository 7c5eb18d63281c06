"""Properties of the core that do not need sequences of events: legal configurations, keys,
components, free lists, policies, and refused events. Each is implemented again by brute force and
compared on small cases. Does not contain events (see refusals) or properties that need more than
one event.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from hashlib import sha256
from itertools import product
from typing import Any

import numpy as np

from hicache import registry
from hicache.core.components import full, mamba, swa
from hicache.core.components.base import Shape, settings_for
from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.errors import CallerError
from hicache.core.eviction_policies.base import (
    EvictionPolicy,
    Facts,
    SecondChance,
    asks_for_marks,
    before,
    second_chance_of,
)
from hicache.core.ledger import Pool
from hicache.core.radix.node import Node, set_pages
from hicache.core.types import NO_PAGES, Key, Tier
from hicache.core.write_policies.base import WritePolicy

from ..contracts import eviction_policies
from ..orders import key_of_facts
from .refusals import holds as refusals

PACKAGE = "hicache.core"
Settings = dict[str, Any]


def broken(module: str) -> str:
    """Returns the first property of a module that does not hold, or ""."""
    for name, parts, holds in PROMISES:
        if module.removeprefix(f"{PACKAGE}.") in parts and not holds():
            return name
    return ""


# -- configurations

_BASES: tuple[Settings, ...] = (
    {"components": ("full",), "device_pages": (6,), "host_pages": (4,)},
    {
        "components": ("full", "swa"),
        "device_pages": (9, 4),
        "host_pages": (4, 3),
        "swa_window": 5,
        "page_size": 2,
    },
    {
        "components": ("full", "mamba"),
        "device_pages": (9, 1),
        "host_pages": (4, 0),
        "mamba_interval": 4,
        "page_size": 2,
    },
    {
        "components": ("full", "swa", "mamba"),
        "device_pages": (9, 5, 2),
        "host_pages": (4, 3, 2),
        "swa_window": 5,
        "mamba_interval": 4,
        "mamba_states_per_path": 1,
        "page_size": 2,
    },
)
_VALUES: dict[str, tuple[Any, ...]] = {
    "page_size": (-1, 0, 1, 2, 3, 4),
    "components": ((), ("full", "full"), ("swa", "full"), ("mamba",), ("full", "base"), ("none",)),
    "device_pages": (
        (0,), (1,), (6, 6), (9, 0), (9, 1), (1, 3), (9, 3), (9, 4), (0, 4), (9, 5, 1), (9, 4, 2),
        (9, 5, 0), (9, 2), (9, 5),
    ),
    "host_pages": ((0,), (1,), (-1,), (0, 0), (0, 1), (4, -1), (4, 1), (0, 0, 1), (4, 0, 0)),
    "write_policy": ("write_back", "write_through_selective", "base", "none"),
    "eviction_policy": ("lru_path", "write_back", "none"),
    "exchange_pages": (
        (0,), (1,), (3,), (4,), (-1,), (0, 0), (0, 1), (3, 2), (4, 2), (3, 3), (3, 2, 1), (3, 2, 2),
    ),
    "load_threshold_pages": (-1, 0, 1),
    "load_quota_pages": (-1, 0, 1),
    "max_backups": (-1, 0, 1),
    "swa_window": (-1, 0, 1, 2, 3),
    "mamba_interval": (-1, -2, 0, 1, 2, 3, 6),
    "mamba_states_per_path": (-1, 0, 1),
}  # fmt: skip
_COUNTS = (
    "load_threshold_pages",
    "load_quota_pages",
    "max_backups",
    "swa_window",
    "mamba_interval",
    "mamba_states_per_path",
)


_ODD: tuple[Settings, ...] = (
    {"components": (), "device_pages": (), "host_pages": ()},
    {"components": ("full", "full"), "device_pages": (6, 6), "host_pages": (4, 4)},
    {
        "components": ("full", "swa", "swa"),
        "device_pages": (9, 9, 9),
        "host_pages": (4, 4, 4),
        "swa_window": 2,
    },
)


def _settings() -> Iterator[Settings]:
    for odd in _ODD:
        yield {"page_size": 1, **odd}
    for base in _BASES:
        yield {"page_size": 1, **base}
        for name, values in _VALUES.items():
            for value in values:
                yield {"page_size": 1, **base, name: value}
        for value in _VALUES["exchange_pages"]:
            both = {"write_policy": "write_back", "exchange_pages": value}
            yield {"page_size": 1, **base, **both}
        for size, one in product((1, 2, 3, 4), (1, 2, 3, 4)):
            yield {**base, "page_size": size, "mamba_interval": one * size}


def _is_legal(settings: Settings) -> bool:
    names, size = settings["components"], settings["page_size"]
    known = all(name in ("full", "swa", "mamba") for name in names)
    if not names or not known or names[0] != "full" or len({*names}) < len(names) or size < 1:
        return False
    if any(settings.get(name, 0) < 0 for name in _COUNTS):
        return False
    window, interval = settings.get("swa_window", 0), settings.get("mamba_interval", 0)
    if ("swa" in names) != (window > 0) or interval % size:
        return False
    if "mamba" not in names and (interval or settings.get("mamba_states_per_path", 0)):
        return False
    between = max(interval, size) // size - 1
    least = {"full": 1, "mamba": 1, "swa": -(-window // size) + 1 + between}
    device, host = settings["device_pages"], settings["host_pages"]
    if not len(device) == len(host) == len(names) or min(host) < 0:
        return False
    if not host[0] and any(host):
        return False
    spare = settings.get("exchange_pages", ())
    if spare and (
        len(spare) != len(names)
        or not all(0 <= pages <= max(0, most - 1) for pages, most in zip(spare, host, strict=True))
        or settings.get("write_policy") != "write_back"
    ):
        return False
    policies = settings.get("write_policy", "write_back") in _WRITES
    policies = policies and settings.get("eviction_policy", "lru") in ("lru", "lru_path")
    return policies and all(have >= least[name] for name, have in zip(names, device, strict=True))


def _config(settings: Settings) -> Config:
    """Builds a configuration; the settings of components have their names as prefixes, as in a
    tape.
    """
    given = dict(settings)
    window = given.pop("swa_window", 0)
    states = (given.pop("mamba_interval", 0), given.pop("mamba_states_per_path", 0))
    made: list[Any] = [swa.Settings(window)] if window else []
    made += [mamba.Settings(*states)] if any(states) else []
    return Config(**given, settings=tuple(made))


def _told() -> bool:
    """Component settings may come in any order, once per existing component; default settings are
    dropped.
    """
    sizes: Settings = {"device_pages": (9, 5, 2), "host_pages": (4, 3, 2)}
    made = functools.partial(Config, 1, components=("full", "swa", "mamba"), **sizes)
    window, states = swa.Settings(2), mamba.Settings(2)
    both = made(settings=(window, states))
    if both.settings != (window, states) or made(settings=(states, window)) != both:
        return False
    if made(settings=(mamba.Settings(), window)).settings != (window,):
        return False
    if both.settings_of(mamba.Settings) is not states or made().settings_of(swa.Settings):
        return False
    for wrong in ((window, window), (window, states, states)):
        try:
            made(settings=wrong)
        except CallerError:
            continue
        return False
    try:
        Config(1, (9, 5), (4, 3), ("full", "swa"), settings=(window, states))
    except CallerError:
        return True
    return False


_WRONG_TYPES: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("page_size", *_COUNTS[:3]), ("1", 1.5, None)),
    **dict.fromkeys(("write_policy", "eviction_policy"), (1, None, ("lru",))),
    **dict.fromkeys(("device_pages", "host_pages", "exchange_pages"), ([4], 4, None, ("4",))),
    "components": (["full"], "full", None, (1,)),
    "settings": ([], None, (1,)),
}


def _refuses_types() -> bool:
    """A value of another type than the declared one is refused by the name of its setting."""
    for name, values in _WRONG_TYPES.items():
        for value in values:
            try:
                Config(**{"page_size": 1, **_BASES[0], name: value})
            except CallerError as error:
                if str(error).startswith(f"{name}: expected "):
                    continue
            return False
    return True


def _configurations() -> bool:
    for settings in _settings():
        try:
            config = _config(settings)
            core = Core(config)
        except CallerError:
            if _is_legal(settings):
                return False
            continue
        if not _is_legal(settings) or config.has_host != (settings["host_pages"][0] > 0):
            return False
        if core.view.config is not config or list(core.view.nodes()) or core.view.tick:
            return False
    return _told() and _refuses_types()


# -- keys


def _keys() -> bool:
    tokens = [3, 1 << 40, -5, 7, 7, 0, 2, 9, 11]
    for count, size, pairs in product(range(10), (1, 2, 4), (False, True)):
        key = Key.from_tokens(tokens[:count], size, "a", pairs)
        positions = [tokens[at : at + 1 + pairs] for at in range(count - pairs)]
        rows = [positions[at : at + size] for at in range(0, len(positions), size)]
        raw = [_row(row) for row in rows if len(row) == size]
        if not _is_key(key, raw, 8 * size * (1 + pairs)):
            return False
    plain = Key.from_tokens(tokens, 1)
    ids = Key.from_page_ids(tokens, "a")
    named = plain.namespace == Key.from_page_ids(tokens).namespace == ""
    return named and _is_key(ids, [_row([[one]]) for one in tokens], 8) and _refuses()


def _row(positions: list[list[int]]) -> bytes:
    return b"".join(
        one.to_bytes(8, "little", signed=True) for position in positions for one in position
    )


def _is_key(key: Key, rows: list[bytes], stride: int) -> bool:
    digests, above = [], sha256(b"hicache\0a").digest()
    for row in rows:
        above = sha256(above + row).digest()
        digests.append(above)
    same = (key.raw, key.stride, key.namespace) == (b"".join(rows), stride, "a")
    firsts = all(
        key.first(count) == Key(b"".join(rows[:count]), stride, "a")
        for count in range(len(rows) + 2)
    )
    return same and firsts and key.pages == len(rows) and key.page_digests() == digests


def _refuses() -> bool:
    """Keys refuse a page size below 1 and two-dimensional tokens."""
    cases: tuple[tuple[Any, int], ...] = (([1], 0), ([1], -1), ([[1, 2]], 1))
    for tokens, size in cases:
        try:
            Key.from_tokens(tokens, size)
        except CallerError:
            continue
        return False
    return True


# -- components

_SPANS = [spans for most in range(5) for spans in product((1, 2, 3), repeat=most)]


def _components() -> bool:
    return all(
        _component(*one)
        for size, window, interval in ((1, 1, 1), (2, 3, 4), (1, 3, 2), (2, 4, 0), (4, 1, 8))
        for one in _made(size, window, interval)
    )


def _made(size: int, window: int, interval: int) -> Iterator[tuple[Any, int, int, int]]:
    """Yields components with their need, number of slots, and interval."""
    names = ("full", "swa", "mamba")
    told = settings_for(names, Shape(window, interval))
    config = Config(size, (9, 9, 9), (0, 0, 0), names, settings=told)
    yield full.component(config), 1 << 30, 0, size
    yield swa.component(config), -(-window // size), 0, size
    yield mamba.component(config), 1, 3, interval or size


def _component(one: Any, need: int, slots: int, interval: int) -> bool:
    pages = np.arange(4, dtype=np.int64)
    halves = (pages[:3], pages[3:]) if one.positional else (None, pages)
    told = all(
        got is want if want is None else np.array_equal(got, want)
        for got, want in zip(one.split(pages, 3), halves, strict=True)
    )
    told = told and (one.slots, one.interval) == (slots, interval)
    return told and all(_walks(one, need, spans) for spans in _SPANS)


def _walks(one: Any, need: int, spans: tuple[int, ...]) -> bool:
    """Checks which nodes of a path with these spans the boundary at its end requires."""
    ends = [sum(spans[: at + 1]) for at in range(len(spans))]
    whole = ends[-1] if ends else 0
    wanted = [at for at, end in enumerate(ends) if end > whole - need]
    if list(one.required(spans)) != wanted:
        return False
    return all((whole - end < one.window_pages) == (at in wanted) for at, end in enumerate(ends))


# -- free lists


def _free_list() -> bool:
    """The free list of a pool ends with the page that it gives next, and is a copy."""
    pool = Pool(Tier.DEVICE, "full", 5)
    listed = pool.free_pages()
    before = listed.tolist()
    listed[:] = 0
    taken = pool.take(2, 7).tolist()
    found: list[list[int]] = [before, taken, pool.free_pages().tolist()]
    return found == [[4, 3, 2, 1, 0], [0, 1], [4, 3, 2]]


# -- policies

_Rank = Callable[[Facts], tuple[int, ...]]
_TICKS = 1 << 48  # of an age, what is below is a tick
_ORDERS: dict[str, tuple[bool, _Rank]] = {
    "cost_aware": (
        False,
        lambda one: (one.age // _TICKS + (1 + one.visits) * one.cost, one.last_use),
    ),
    "fifo": (False, lambda one: (one.inserted,)),
    "lfu": (False, lambda one: (one.hits, one.last_use)),
    "lru": (False, lambda one: (one.last_use,)),
    "lru_path": (True, lambda one: (one.last_use, one.depth)),
    "priority": (False, lambda one: (one.priority, one.last_use)),
    "sieve": (False, lambda one: (_lap(one), one.inserted)),
    "slru": (False, lambda one: (int(one.hits > 1), one.last_use)),
}
_QUEUES = {"s3_fifo": SecondChance(10, 2, 3, 90)}  # two queues instead of an order
_WRITES = {
    "write_back": (0, True, False),
    "write_through": (1, False, True),
    "write_through_selective": (2, False, True),
}
_FACTS = [
    Facts(last_use, inserted, hits, priority, depth=depth)
    for last_use in (0, 3, 1 << 40)
    for inserted in (0, 9)
    for hits in (1, 2, 3)
    for priority in (-1, 0, 4)
    for depth in (0, 5)
]
_MARKED = [
    Facts(last_use, inserted, 2, 0, visits, age, cost, earlier)
    for last_use in (3, 1 << 40)
    for inserted, earlier in ((4, 0), (9, 7))
    for visits in (0, 1, 4)
    for age in (0, 7, _TICKS + 8, 2 * _TICKS)
    for cost in (1, 900)
]


def _lap(one: Facts) -> int:
    """The lap of the hand of SIEVE in which the copy goes."""
    lap, hand = divmod(one.age, _TICKS)
    if one.visits:
        return lap + (1 if one.inserted > hand else 2)
    return lap + (1 if one.age and hand >= one.earlier else 0)


def _policies() -> bool:
    """Each policy has the expected declarations, and ranks as it declares."""
    for name, (whole_path, key) in _ORDERS.items():
        order: EvictionPolicy = registry.load(registry.EVICTION_POLICIES, name).policy()
        declared = key_of_facts(order)
        if (order.name, order.whole_path) != (name, whole_path) or declared is None:
            return False
        facts = [*_FACTS, *_MARKED] if asks_for_marks(order) else _FACTS
        alike = all(
            (key(one) < key(other)) == (declared(one) < declared(other))
            for one in facts
            for other in facts
        )
        if not alike or eviction_policies.wrong(order):
            return False
    for name, queues in _QUEUES.items():
        two: EvictionPolicy = registry.load(registry.EVICTION_POLICIES, name).policy()
        if (two.name, two.whole_path, second_chance_of(two)) != (name, False, queues):
            return False
    for name, told in _WRITES.items():
        write: WritePolicy = registry.load(registry.WRITE_POLICIES, name).policy()
        if (write.name, write.threshold, write.on_evict, write.contiguous) != (name, *told):
            return False
    return before(-1, 5) < before(0, 0) < before(0, 1 << 47) < before(1, 0)


# -- words


def _says() -> bool:
    """The text of a node in asserts: its copies by tier and component, and its last uses."""
    node = Node(7, None, b"", b"", 3, 2)
    new = repr(node)
    set_pages(node, Tier.DEVICE, 0, NO_PAGES)
    set_pages(node, Tier.HOST, 1, NO_PAGES)
    return (new, repr(node)) == (
        "<node 7 ..3 ---- use [0, 0]>",
        "<node 7 ..3 D--H use [0, 0]>",
    )


_POLICIES = (
    "eviction_policies.base",
    *(f"eviction_policies.{name}" for name in registry.stems(registry.EVICTION_POLICIES)),
    *(f"write_policies.{name}" for name in registry.stems(registry.WRITE_POLICIES)),
)
PROMISES: tuple[tuple[str, tuple[str, ...], Callable[[], bool]], ...] = (
    (
        "CONFIG",
        ("config", "core", "components.full", "components.mamba", "components.swa", "view"),
        _configurations,
    ),
    ("KEYS", ("types",), _keys),
    ("COMPONENTS", ("components.full", "components.mamba", "components.swa"), _components),
    ("FREE-LIST", ("ledger",), _free_list),
    ("POLICIES", _POLICIES, _policies),
    ("WORDS", ("radix.node",), _says),
    ("REFUSALS", ("admission", "core", "flights", "transfers", "validation"), refusals),
)
