"""How vLLM's scheduler is set up: what a configuration may have, and how it is drawn and made
simpler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from invariants.fuzz.draws import Draws
from invariants.fuzz.target import Config
from invariants.fuzz.targets._vllm_doubles import Group
from invariants.fuzz.targets._vllm_models import ALL, MODELS, draw_model, simpler_models

LONGEST = 400  # tokens of a sequence
OFFLOADS = ("cpu", "files", "shelf")
OURS = "hicache"  # this project's own connector
FORMS = ("plain", "split", "planes")
MODELS_OF_OURS = (
    *("full", "full+window", "full2+window", "full+window2", "full+full", "full+all"),
    *("full+align", "full+align+align", "full+window+align", "full+full+full"),
    *("full+full+full", "full+window2+align"),
)
TAKES: dict[str, tuple[Any, ...]] = {
    "model": tuple(ALL),
    **dict.fromkeys(("page", "pages", "reach", "spec", "hash", "budget", "requests"), ()),
    **dict.fromkeys(("eagle", "events", "reserve", "ahead", "prompts"), (False, True)),
    **dict.fromkeys(("recompute", "entire", "midway", "follow"), (False, True)),
    "connector": ("", *OFFLOADS, "remote", OURS),
    "policy": ("fcfs", "priority"),
    "order": ("lru", "arc"),
    **dict.fromkeys(("host", "factor", "loses", "ranks", "wait"), ()),
    **dict.fromkeys(("store", "watch"), (False, True)),
    "form": FORMS,
}


def longest(config: Config, groups: Sequence[Group], flight: int) -> int:
    """The longest sequence that the pool can hold, beside the blocks of a step with drafts. flight:
    tokens of the steps under way."""
    pages, spec = int(config["pages"]), int(config["spec"])
    if spec:
        pages -= sum(-(-(1 + 2 * spec) // one.block) for one in groups)
    for length in range(LONGEST, 1, -1):
        blocks = 0
        for one in groups:
            whole = -(-length // one.block)
            if one.kind in ("window", "chunk"):
                whole = min(whole, -(-(one.reach + flight) // one.block) + 2)
            elif one.kind == "align":
                whole = min(whole, 1) + 2
            blocks += whole + one.spare
        if blocks <= pages:
            return length
    return 0


def drawn(draws: Draws, fixed: Config) -> Config:
    """Draws a configuration."""
    mine = fixed.get("connector") == OURS
    found = draw_model(draws, fixed, MODELS_OF_OURS if mine else tuple(MODELS))
    page = int(found["page"])
    if page == 1 and "page" not in fixed:  # a prompt of one token is then loaded for ever
        found["page"] = page = 2
    found |= {
        "pages": draws.between(4, 24) * len(ALL[str(found["model"])]),
        "budget": draws.one((2 * page, 4 * page, 8 * page, 16 * page, LONGEST)),
        "requests": draws.one((1, 2, 4, 6)),
        "ahead": draws.chance(45),
        "reserve": draws.chance(50),
        "policy": draws.one(("fcfs", "fcfs", "priority")),
        "connector": draws.one(("", "cpu", "cpu", "files", "shelf", "remote")),
        "order": draws.one(("lru", "arc")),
        "host": draws.one((4, 8, 16, 40, 100)),
        "factor": draws.one((1, 1, 2)),
        "prompts": draws.chance(30),
        "loses": draws.one((0, 3, 5)),
        "recompute": draws.chance(75),
        "entire": draws.chance(50),
    }
    if mine:
        found |= {
            "ranks": draws.one((1, 1, 2)),
            "store": draws.chance(50),
            "wait": draws.one((5, 20, 60)),
            "form": draws.one(FORMS),
            "watch": draws.chance(25),
        }
    found |= fixed
    if found["connector"] == "remote" and "spec" not in fixed:
        found |= {"spec": 0, "eagle": False}
    return found


def simpler(config: Config) -> Sequence[Config]:
    """Configurations that are one step simpler."""
    plain: dict[str, Any] = {
        "ahead": False,
        "reserve": False,
        "policy": "fcfs",
        "connector": "" if config["connector"] == "cpu" else "cpu",
        "order": "lru",
        "factor": 1,
        "prompts": False,
        "loses": 0,
    }
    if not config["connector"]:
        del plain["connector"]
    if config["connector"] == OURS:
        plain |= {"connector": OURS, "ranks": 1, "store": False, "wait": 5, "form": "plain"}
        plain["watch"] = False
    found = [config | {key: value} for key, value in plain.items() if config.get(key) != value]
    for key, least in (("requests", 1), ("budget", 2), ("host", 1)):
        value = int(config[key])
        found += [config | {key: new} for new in (least, value // 2) if least <= new < value]
    found += simpler_models(config)
    return [one for one in found if one["page"] > 1 or not one["connector"]]
