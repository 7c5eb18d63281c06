"""Which caches a model has: the groups of layers of vLLM's cache, drawn from few names."""

from __future__ import annotations

import math
from collections.abc import Sequence

from invariants.fuzz.draws import Draws
from invariants.fuzz.target import Config
from invariants.fuzz.targets._vllm_doubles import Group

# By name of a model, its groups: kind, and how many times the smallest block theirs is.
MODELS: dict[str, tuple[tuple[str, int], ...]] = {
    "full": (("full", 1),),
    "window": (("window", 1),),
    "full+window": (("full", 1), ("window", 1)),
    "full+window+window": (("full", 1), ("window", 1), ("window", 1)),
    "full2+window": (("full", 2), ("window", 1)),
    "full+window2": (("full", 1), ("window", 2)),
    "full+full": (("full", 1), ("full", 1)),
    "chunk": (("chunk", 1),),
    "full+chunk": (("full", 1), ("chunk", 1)),
    "all": (("all", 1),),
    "full+all": (("full", 1), ("all", 1)),
    "align": (("align", 1),),
    "full+align": (("full", 1), ("align", 1)),
    "full+align+align": (("full", 1), ("align", 1), ("align", 1)),
    "full+window+align": (("full", 1), ("window", 1), ("align", 1)),
}
# Of these a connector has pages of several blocks, some of which others get before the rest.
OTHERS: dict[str, tuple[tuple[str, int], ...]] = {
    "full+full+full": (("full", 1), ("full", 1), ("full", 1)),
    "full+window2+align": (("full", 1), ("window", 2), ("align", 1)),
}
ALL = MODELS | OTHERS


def groups_of(config: Config) -> list[Group]:
    """The groups of a configuration's model. The second window is twice as long as the first."""
    page, reach, made = int(config["page"]), int(config["reach"]), []
    for kind, times in ALL[str(config["model"])]:
        block = page * times
        if kind == "chunk":
            reach = -(-reach // block) * block
        spare = int(config["spec"]) if kind in ("align", "all") else 0
        made.append(Group(kind, block, reach if kind in ("window", "chunk") else 0, spare))
        if kind == "window":
            reach *= 2
    return made


def sizes_of(groups: Sequence[Group], asked: int = 0) -> tuple[int, int]:
    """Tokens that hits are multiples of, and tokens of a block hash, as the engine resolves them
    (v1/core/kv_cache_utils.py, resolve_kv_cache_block_sizes). asked: finer hashes than it would
    choose (`prefix_match_unit`)."""
    blocks = [group.block for group in groups]
    if len(groups) == 1:
        return blocks[0], blocks[0]
    whole = math.lcm(*blocks)
    if any(group.kind == "all" for group in groups):
        return whole, whole
    page = math.gcd(*blocks)
    return whole, asked if asked and not page % asked else page


def draw_model(draws: Draws, fixed: Config, names: Sequence[str] = tuple(MODELS)) -> Config:
    """Draws a model, with the keys that all peers of vLLM share."""
    model = str(fixed.get("model", draws.one(names)))
    page = draws.one((1, 2, 2, 4, 4, 8))
    states = "align" in model or "all" in model
    drawn: Config = {
        "model": model,
        "page": page,
        "pages": draws.between(6, 40),
        "reach": draws.one((2, 3, page + 1, 2 * page, 3 * page + 1, 4 * page)),
        "spec": 0 if "all" in model or draws.chance(65) else draws.between(1, 3),
        "hash": draws.one((0, 0, 1, 2)) if states else 0,
        "events": draws.chance(30),
        "eagle": False,
    }
    if "chunk" not in model:
        drawn["eagle"] = bool(drawn["spec"]) and draws.chance(50)
    drawn |= fixed
    if "align" in model and drawn["spec"] >= drawn["page"]:
        drawn |= {"page": 4} | fixed
    return drawn


def simpler_models(config: Config) -> list[Config]:
    """Configurations with a simpler model, or with less of what is optional."""
    groups = len(ALL[str(config["model"])])
    names = [name for name, parts in MODELS.items() if len(parts) < groups]
    found = [config | {"model": name} for name in names]
    less = {"spec": 0, "hash": 0, "eagle": False, "events": False}
    found += [config | {key: value} for key, value in less.items() if config[key] != value]
    for key, least in (("page", 1), ("pages", 2), ("reach", 2), ("spec", 0)):
        value = int(config[key])
        found += [config | {key: new} for new in (least, value // 2, value - 1) if new < value]
    return [one for one in found if one["page"] and one["pages"] > 1 and one["reach"] > 1]
