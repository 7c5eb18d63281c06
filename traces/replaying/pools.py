"""The components of a replay, and the sizes of their pools on device and host.

Decides components, windows, intervals and page counts from the options, with defaults for what is
not given. Does not define what a component requires of a path; see hicache/core/components.

A running request owns a window of swa pages and three states (`OWN_STATES`). Besides those, one
cached prefix of 4,096 tokens takes one more window or state. A device whose size is not given is
divided in that proportion: full gets as many pages as leave room for the other components.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from itertools import zip_longest

import numpy as np

import hicache.models as models
from hicache.core import registry
from hicache.core.components.base import residency
from hicache.core.errors import CallerError
from hicache.memory.plan import plan_pools
from hicache.models import ModelDescription

from ..formats.base import Trace
from ..terminal.options import UNBOUNDED
from .options import BACKBONE, COMPONENTS, MODEL, Mode, ReplayOptions

HOST_RATIO: dict[Mode, Fraction] = {"timed": Fraction(2), "hits": Fraction(0)}
STAND_IN_WINDOW = 1024  # for a model without a window
OWN_STATES = 3
PREFIX_TOKENS = 4096


@dataclass(frozen=True, slots=True)
class Pools:
    """The pools of a replay.

    Per component, in order: the name, pages on each tier, and the rule behind each number.
    exchange: host pages kept for exchanges, a part of `host`; () without --exclusive.
    """

    components: tuple[str, ...]
    device: tuple[int, ...]
    host: tuple[int, ...]
    device_rules: tuple[str, ...]
    host_rules: tuple[str, ...]
    exchange: tuple[int, ...]
    window: int
    interval: int
    states_per_path: int


def model_of(options: ReplayOptions) -> ModelDescription:
    """The model that was named, or the default one with pools for the components asked for.

    Raises CallerError if the model lacks a pool for a component, or has one that was not asked for.
    """
    wanted = options.components
    if options.model is None:
        usual = models.get(MODEL)
        if wanted is None or len(wanted) == 1:
            _check_unused(options, (BACKBONE,))
            return usual
        _check_unused(options, wanted)
        return models.as_hybrid(
            usual, wanted, options.swa_window or STAND_IN_WINDOW, options.mamba_interval or 0
        )
    model = models.get(options.model)
    components = tuple(name for name in COMPONENTS if name in model.components)
    if len(components) < len(model.components) or BACKBONE not in components:
        raise CallerError(
            f"--model: expected pools of {', '.join(COMPONENTS)}, found those of {model.name} for "
            f"{', '.join(model.components)}; correct its components"
        )
    if wanted is not None and wanted != components:
        raise CallerError(
            f"--components: expected {','.join(components)}, for which {model.name} has pools, "
            f"found {','.join(wanted)}; name another --model (`hicache models` lists them) or none"
        )
    _check_unused(options, components)
    return model


def _check_unused(options: ReplayOptions, components: Sequence[str]) -> None:
    """Raises CallerError for an option of a component that the run does not have."""
    names = [field.name for field in fields(options)]
    for component in COMPONENTS:
        others = [name for name in names if name.startswith(f"{component}_")]
        used = [name for name in others if getattr(options, name)]
        if component not in components and used:
            raise CallerError(
                f"--{used[0].replace('_', '-')}: expected {component} among the components, found "
                f"{','.join(components)}; add it to --components or name a --model that has it"
            )


def resolve(options: ReplayOptions, model: ModelDescription, memory: int, trace: Trace) -> Pools:
    """The pools of a replay. Raises CallerError where a size cannot be resolved.

    memory: bytes of device memory for all pools of a rank; 0 or less if the weights fill it.
    """
    components = tuple(name for name in COMPONENTS if name in model.components)
    window = interval = 0
    for name in components:
        if residency(name) == "window":
            window = _option_of(options, name, "window") or model.window(name)
            if window < 1:
                raise CallerError(
                    f"--{name}-window: expected a window of 1 token or more, found none in "
                    f"{model.name}; give one"
                )
        elif residency(name) == "state":
            interval = _interval(options, model, name)
    plan = _Device(options, model, memory, window, interval)
    full, rule = plan.full(trace)
    device, rules = [full], [rule]
    for name in components[1:]:
        pages, rule = plan.other(name, full)
        device.append(pages)
        rules.append(rule)
    host, host_rule = _host(options, model, components, device)
    exchange = _exchange(options, components, host, plan.window_pages, trace)
    host_rules = [
        f"{host_rule}, and {pages:,} for exchanges" if pages else host_rule for pages in exchange
    ] or [host_rule] * len(components)
    return Pools(
        components,
        tuple(device),
        tuple(size + more for size, more in zip_longest(host, exchange, fillvalue=0)),
        tuple(rules),
        tuple(host_rules),
        exchange,
        window,
        interval,
        options.mamba_states_per_path,
    )


def _option_of(options: ReplayOptions, component: str, setting: str) -> int | None:
    """The value of a component's option; None if it was not given or does not exist."""
    value: int | None = getattr(options, f"{component}_{setting}", None)
    return value


def _exchange(
    options: ReplayOptions,
    components: Sequence[str],
    host: Sequence[int],
    window_pages: int,
    trace: Trace,
) -> tuple[int, ...]:
    """Host pages besides the pool, per component, for one load and the evictions that it needs.

    At most the longest prompt, a window, or a state. () without --exclusive. Raises CallerError if
    the write policy or the host pool rules it out.
    """
    if not options.exclusive:
        return ()
    policy = registry.load(registry.WRITE_POLICIES, options.write_policy).policy()
    if policy.contiguous or not policy.on_evict or not host[0]:
        what = f"--write-policy {options.write_policy}" if host[0] else "no host pool"
        raise CallerError(
            "--exclusive: expected a host pool and a write policy that copies on eviction, found "
            f"{what}; give --write-policy write_back and --host-ratio, --host-pages or --host-bytes"
        )
    longest = -(-int(trace.jobs.input_lengths.max(initial=1)) // options.page_size)
    most = {"path": longest, "window": window_pages + 1, "state": 1}
    sizes = zip(components, host, strict=True)
    return tuple(most[residency(name)] if size else 0 for name, size in sizes)


def _interval(options: ReplayOptions, model: ModelDescription, name: str) -> int:
    page, given = options.page_size, _option_of(options, name, "interval")
    if given is not None:
        if given % page:
            raise CallerError(
                f"--{name}-interval: expected a multiple of the page's {page} tokens, found {given}"
            )
        return given
    return max(1, -(-model.interval(name) // page)) * page


class _Device:
    """Page counts on device, of full and of the other components."""

    def __init__(
        self,
        options: ReplayOptions,
        model: ModelDescription,
        memory: int,
        window: int,
        interval: int,
    ) -> None:
        self._options = options
        self._model = model
        self._memory = memory
        self._page = options.page_size
        self.window_pages = -(-window // self._page)
        self._interval = interval
        self._least_window = self.window_pages + max(1, -(-interval // self._page))
        self._running = options.max_running if options.mode == "timed" else 1
        self._bytes = {
            name: model.bytes_per_page(name, self._page, options.tp) for name in model.components
        }
        self._limit: dict[str, int] = {}

    def full(self, trace: Trace) -> tuple[int, str]:
        """Pages of full, and the rule behind the number."""
        options, page = self._options, self._page
        if options.device_pages == UNBOUNDED:
            tokens = trace.jobs.input_lengths + trace.jobs.output_lengths
            pages = int((-(-tokens // page)).sum(dtype=np.int64))
            return pages, "unbounded: room for the whole trace"
        given = options.device_pages
        if options.device_tokens is not None:
            given = options.device_tokens // page
            if not given:
                raise CallerError(
                    f"--device-tokens: expected at least one page of {page} tokens, found "
                    f"{options.device_tokens}"
                )
        fitting = self._fitting()
        if given is not None:
            rule = "as given"
            if given > fitting:
                rule += f"; {options.hardware} fits {max(0, fitting):,}"
            self._limit.clear()
            return given, rule
        if fitting < 1:
            model = self._model
            weights = model.parameters * model.weight_bytes / options.tp
            raise CallerError(
                f"--model {model.name}: expected weights below "
                f"{(self._memory + weights) / 1e9:.0f} GB (90% of one {options.hardware}) and room "
                f"for a page of each pool, found {weights / 1e9:.0f} GB a rank; use a larger --tp "
                "or give --device-tokens"
            )
        return fitting, f"90% of {options.hardware} less the weights"

    def other(self, name: str, full: int) -> tuple[int, str]:
        """Pages of another component, given `full` pages of full, and the rule."""
        given = self._given(name)
        if given is not None:
            few = residency(name) == "state" and given < OWN_STATES
            rule = f"fewer than the {OWN_STATES} of a request: hardly any is left behind"
            return given, f"as given; {rule}" if few else "as given"
        if self._options.device_pages == UNBOUNDED:
            per_state = max(1, self._interval // self._page)
            states = residency(name) == "state"
            pages = full // per_state + OWN_STATES if states else full
            return pages, "unbounded: as much as full can use"
        what = f"a {residency(name)}"
        own = min(self._running, full)
        return (
            self._wanted(name, full),
            f"{own} running, {what} per {PREFIX_TOKENS:,} tokens",
        )

    def _given(self, name: str) -> int | None:
        if residency(name) == "state":
            return _option_of(self._options, name, "states")
        tokens = _option_of(self._options, name, "tokens")
        if tokens is None:
            return None
        least = self._least_window * self._page
        if tokens < least:
            raise CallerError(
                f"--{name}-tokens: expected at least {least}, a window in whole pages and what is "
                f"computed between two boundaries, which any request needs; found {tokens}"
            )
        return tokens // self._page

    def _wanted(self, name: str, full: int) -> int:
        """Pages or states of a component whose size was not given, beside `full` pages of full."""
        running = min(self._running, full)
        if residency(name) == "state":
            own = OWN_STATES * running
            own = min(own, self._limit.get(name, own))
            return max(OWN_STATES, own) + self._prefixes(full)
        own = running * self._least_window + -(-self._options.token_budget // self._page)
        own = min(own, self._limit.get(name, own))
        wanted = own + self.window_pages * self._prefixes(full)
        return max(self._least_window, min(full, wanted))

    def _prefixes(self, full: int) -> int:
        return -(-full * self._page // PREFIX_TOKENS)

    def _fitting(self) -> int:
        """The most pages of full that leave room for the other components; below 1 for none."""
        others = [name for name in self._model.components if name != BACKBONE]
        for name in others:  # running requests leave at least half of the memory to the cache
            self._limit[name] = max(0, self._memory) // (2 * len(others) * self._bytes[name])
        low, high = 0, max(0, self._memory) // self._bytes[BACKBONE] + 1
        while high - low > 1:
            middle = (low + high) // 2
            taken = self._bytes[BACKBONE] * middle
            for name in others:
                given = self._given(name)
                pages = self._wanted(name, middle) if given is None else given
                taken += self._bytes[name] * pages
            low, high = (middle, high) if taken <= self._memory else (low, middle)
        return low


def _host(
    options: ReplayOptions,
    model: ModelDescription,
    components: Sequence[str],
    device: Sequence[int],
) -> tuple[list[int], str]:
    if options.host_pages is not None:
        pages = options.host_pages
        if not pages:
            return [0] * len(components), "none"
        others = [max(1, pages * size // device[0]) for size in device[1:]]
        return [pages, *others], "as given" if len(components) == 1 else "as given for full"
    if options.host_bytes is not None:
        planned = plan_pools(
            model,
            options.page_size,
            dict(zip(components, device, strict=True)),
            total_bytes=options.host_bytes,
            tp=options.tp,
        )
        rule = f"{options.host_bytes / 1e9:g} GB on {options.tp} ranks"
        return [planned.pages[name] for name in components], rule
    ratio = options.host_ratio
    if ratio is None:
        ratio = HOST_RATIO[options.mode]
    if not ratio:
        return [0] * len(components), "none"
    # at least one page more than the device, so that a ratio of 1 can keep every evicted page
    return [max(int(size * ratio), size + 1) for size in device], f"{float(ratio):g} x device"
