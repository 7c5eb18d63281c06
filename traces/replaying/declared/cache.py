"""The options of a replay for the cache: sizes, policies, and the pools of components."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from fractions import Fraction

from hicache import registry
from hicache.core.types import Tier

from ...outside.entries import entry, spelled_out
from ...terminal import options as read
from ...terminal.options import (
    COUNT,
    COUNT_OR_0,
    TIME,
    TOKENS,
    OptionRecord,
    Unbounded,
    at_least,
    byte_size,
    ratio,
)
from ...terminal.rows import option
from ..defaults import (
    BACKBONE,
    COMPONENTS,
    MODEL,
    OWN_STATES,
    PREFIX_TOKENS,
    STAND_IN_WINDOW,
    WRITE_POLICY,
    Pin,
    Pins,
)
from .needs import Need


def _pins(text: str) -> Pins:
    found = []
    for one in text.split(","):
        prefix, at, tier = one.partition("@")
        request, colon, tokens = prefix.partition(":")
        if not colon or (at and tier not in ("host", "device")):
            raise argparse.ArgumentTypeError(
                f"expected REQUEST:TOKENS, such as 17:4096 or 17:4096@host, found {one!r}"
            )
        where = Tier.HOST if tier == "host" else Tier.DEVICE
        found.append(Pin(read.request_number(request), at_least(1)(tokens), where))
    return Pins(found)


def _components(text: str) -> tuple[str, ...]:
    """Parses a list such as full,mamba; returns it in the project's order."""
    names = [name.strip() for name in text.split(",")]
    wrong = [name for name in names if name not in COMPONENTS]
    if wrong or BACKBONE not in names or len(set(names)) < len(names):
        raise argparse.ArgumentTypeError(
            f"expected {BACKBONE}, and each of {', '.join(COMPONENTS[1:])} at most once, "
            f"separated by commas, found {text!r}"
        )
    return tuple(name for name in COMPONENTS if name in names)


@dataclass(frozen=True)
class HostOptions(OptionRecord):
    """The size of one host pool."""

    HEADING = "host memory"

    host_ratio: Fraction | None = option(
        "host pages for each device page, such as 2 or 0.5; 0 for no host (default: 2 in timed "
        "mode, 0 in hits mode)",
        ratio,
        "R",
        common=True,
        excludes="host",
    )
    host_bytes: int | None = option(
        "host memory of all GPUs together, such as 512GB; 0 for none",
        byte_size,
        "B",
        common=True,
        excludes="host",
        tried="10GB",
    )
    host_pages: int | None = option("host pool in pages", *COUNT_OR_0, excludes="host")


@dataclass(frozen=True)
class CacheOptions(OptionRecord):
    """ttl: nanoseconds."""

    HEADING = "cache"

    page_size: int | None = option(
        "tokens per page (default: the model's own, 64 for most)", *TOKENS, common=True, keys=True
    )
    device_tokens: int | None = option(
        "device pool in tokens (default: 90% of the hardware's memory less the weights)",
        *COUNT,
        common=True,
        excludes="device",
        tried="64K",
    )
    device_pages: int | Unbounded | None = option(
        "device pool in pages, or unbounded", read.device_pages, "N", excludes="device"
    )
    write_policy: str | None = option(
        lambda: (
            f"when pages are copied to host: {spelled_out(registry.WRITE_POLICIES)} (default: "
            f"{WRITE_POLICY})"
        ),
        entry(registry.WRITE_POLICIES),
        "POLICY",
        common=True,
        needs=(Need.HOST,),
    )
    exclusive: bool = option(
        "a page that was loaded back gives up its host copy, so that both tiers together hold as "
        "much as one of their summed size (needs --write-policy write_back)",
        default=False,
    )
    eviction: str = option(
        lambda: f"eviction order: {spelled_out(registry.EVICTION_POLICIES)}",
        entry(registry.EVICTION_POLICIES),
        "POLICY",
        default="lru",
        common=True,
    )
    ttl: int | None = option(
        "copies that were not used for this time go, from device and host, such as 10m",
        *TIME,
        needs=(Need.ALONE,),
    )
    pin: Pins | None = option(
        "the first tokens of a request's prompt stay on device, or on host, such as 17:4096; "
        "several separated by commas",
        _pins,
        "REQUEST:TOKENS[@host]",
        commas=True,
        needs=(Need.ALONE,),
        tried="0:512",
    )


@dataclass(frozen=True)
class ComponentOptions(OptionRecord):
    """An option whose name begins with that of a component needs that component."""

    HEADING = "components (pools besides full attention's; --model sets all of these)"

    components: tuple[str, ...] | None = option(
        f"some of {', '.join(COMPONENTS)}, separated by commas (default: the model's); without "
        f"--model, the layers of {MODEL} are divided among them in turn",
        _components,
        "LIST",
        commas=True,
        keys=True,
        tried="full,swa",
    )
    swa_window: int | None = option(
        f"window of swa (default: the model's, {STAND_IN_WINDOW:,} without a model)",
        *TOKENS,
        keys=True,
    )
    swa_tokens: int | None = option(
        "device pool of swa in tokens (default: a window for each running request, one chunk, and "
        f"a window per {PREFIX_TOKENS:,} tokens of full; at most as many as full)",
        *COUNT,
        tried="8K",
    )
    mamba_states: int | None = option(
        f"device pool of mamba in states (default: {OWN_STATES} for each running request and one "
        f"per {PREFIX_TOKENS:,} tokens of full)",
        *COUNT,
    )
