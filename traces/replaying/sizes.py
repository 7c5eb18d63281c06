"""The pools of a replay: pages of every component on device and host, as given or by rule.

A running request owns a window of swa pages and three states (`OWN_STATES`). Besides those, one
cached prefix of 4,096 tokens takes one more window or state. A device whose size is not given is
divided in that proportion: full gets as many pages as leave room for the other components. Groups
of ranks that attend to requests of their own each hold other pages; the counts are of all groups
together. All pipeline stages have the same counts: those of the stage with the least room.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import zip_longest
from math import ceil

import numpy as np
from numpy.typing import NDArray

from hicache import models, registry
from hicache.core.components.base import residency
from hicache.core.errors import CallerError
from hicache.core.write_policies.base import WritePolicy
from hicache.memory.plan import by_ratio, plan_pools
from hicache.models import ModelDescription
from sim.engine.sequence import final_length
from sim.hardware.profile import HardwareProfile
from sim.options import EngineOptions
from sim.times.base import Parallelism, stage_weight_bytes
from sim.workload import Job

from ..formats.base import Jobs, Paged, PagesWithJobs, Trace
from ..terminal.options import UNBOUNDED
from .defaults import (
    BACKBONE,
    COMPONENTS,
    HARDWARE,
    HOST_RATIO,
    MODEL,
    OWN_STATES,
    PREFIX_TOKENS,
    STAND_IN_WINDOW,
    WRITE_POLICY,
)
from .options import ReplayOptions, Unread, check_components

# the share of memory that engines give to weights and cache; activations and graphs take the rest
HBM_SHARE = Fraction(9, 10)
_BLOCK = 16  # tokens, of which a page of vLLM's has a multiple
# The books of a page take about 30 bytes of this machine's memory, and more with checks.
MOST_PAGES = 1 << 26
_BARE_NUMBER = 100_000  # fewer bytes than any page: gigabytes without their unit


@dataclass(frozen=True, slots=True)
class Pools:
    """Per component, in order: the name, pages on each tier, and the rule behind each number.

    exchange: host pages kept for exchanges, a part of `host`; () without --exclusive. window,
    interval: in tokens. branch_states: see Config. held: the most pages of full that the hardware
    holds.
    """

    components: tuple[str, ...]
    device: tuple[int, ...]
    host: tuple[int, ...]
    device_rules: tuple[str, ...]
    host_rules: tuple[str, ...]
    exchange: tuple[int, ...]
    window: int
    interval: int
    branch_states: bool
    held: int


def memory_of(profile: HardwareProfile) -> int:
    """Bytes of device memory for the weights and all pools of a rank."""
    return int(profile.hbm_bytes * HBM_SHARE)


def model_of(options: ReplayOptions) -> ModelDescription:
    """The model that was named, or the default one with pools for the components asked for; with
    the types of weights and rows that were named.

    Raises CallerError if the model lacks a pool for a component, or has one that was not asked for.
    """
    model = _described(options)
    if options.weight_dtype is not None:
        model = models.stored(model, options.weight_dtype)
    if options.kv_dtype is not None:
        model = models.cached_as(model, options.kv_dtype)
    return model


def _described(options: ReplayOptions) -> ModelDescription:
    wanted = options.components
    if options.model is None:
        usual = models.get(MODEL)
        check_components(options, wanted or (BACKBONE,))
        if wanted is None or len(wanted) == 1:
            return usual
        return models.as_hybrid(usual, wanted, options.swa_window or STAND_IN_WINDOW, 0)
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
    check_components(options, components)
    return model


def pools_of(
    options: ReplayOptions,
    model: ModelDescription,
    memory: int,
    page_size: int,
    engine: EngineOptions,
    trace: Trace,
) -> Pools:
    """The pools of a replay. Raises CallerError where a size cannot be resolved.

    memory: bytes of device memory for the weights and all pools of a rank.
    """
    components = tuple(name for name in COMPONENTS if name in model.components)
    window = interval = 0
    timed, branch_states = options.mode == "timed", True
    for name in components:
        if residency(name) == "window":
            window = _option(options, name, "window") or model.window(name)
            if window < 1:
                raise CallerError(
                    f"--{name}-window: expected a window of 1 token or more, found none in "
                    f"{model.name}; give one"
                )
        elif residency(name) == "state":
            tokens = model.interval(name)  # 0: a stand-in, which keeps one at every page
            if tokens and engine.profile.states == "page" and (timed or options.engine):
                tokens, branch_states = _state_page(model, name, options.parallelism), False
            interval = max(1, -(-tokens // page_size)) * page_size
    sizes = _Device(options, model, memory, page_size, window, interval, engine)
    device = {BACKBONE: sizes.full(trace.jobs)}
    full = device[BACKBONE][0]
    device |= {name: sizes.other(name, full) for name in components[1:]}
    pages = {name: count for name, (count, _) in device.items()}
    host, host_rules = _host(options, model, page_size, pages)
    exchange = _exchange(options, components, host, window, page_size, trace)
    if exchange:
        host_rules = [
            f"{rule}, and {more:,} for exchanges" if more else rule
            for rule, more in zip(host_rules, exchange, strict=True)
        ]
    found = Pools(
        components,
        tuple(pages.values()),
        tuple(size + more for size, more in zip_longest(host, exchange, fillvalue=0)),
        tuple(rule for _, rule in device.values()),
        tuple(host_rules),
        exchange,
        window,
        interval,
        branch_states,
        sizes.held,
    )
    for tier, counts in (("device", found.device), ("host", found.host)):
        if max(counts) > MOST_PAGES:
            raise CallerError(
                f"{tier} pool: expected at most {MOST_PAGES} pages, found {max(counts)}; give "
                "fewer, or a larger --page-size"
            )
    return found


def _state_page(model: ModelDescription, name: str, ranks: Parallelism) -> int:
    """Tokens of a page of attention that has at least as many bytes as a state, layer for layer."""
    state, token = (
        Fraction(
            model.bytes_per_page(one, 1, ranks.attention_tp, ranks.dcp),
            len({layer for pool in model.pools_of(one) for layer in pool.layers}),
        )
        for one in (name, BACKBONE)
    )
    return ceil(state / (token * _BLOCK)) * _BLOCK


def _option(options: ReplayOptions, component: str, setting: str) -> int | None:
    """The value of a component's option; None if it was not given or does not exist."""
    value: int | None = getattr(options, f"{component}_{setting}", None)
    return value


class _Device:
    """Page counts on device. held: the most pages of full beside the weights and the other pools; 0
    for none."""

    def __init__(
        self,
        options: ReplayOptions,
        model: ModelDescription,
        memory: int,
        page_size: int,
        window: int,
        interval: int,
        engine: EngineOptions,
    ) -> None:
        self._options, self._model, self._memory = options, model, memory
        self._page, self._window, self._engine = page_size, window, engine
        ranks = options.parallelism
        weights = stage_weight_bytes(model, ranks)
        self._weights = max(weights)
        self._rooms = [max(0, ranks.attention_dp * (memory - each)) for each in weights]
        self._window_pages = -(-window // page_size)
        self._per_state = max(1, -(-interval // page_size))
        self._least_window = self._window_pages + self._per_state
        self._running = engine.max_running if options.mode == "timed" else 1
        self._bytes = {  # of a page, by stage
            name: [
                stage.bytes_per_page(name, page_size, ranks.attention_tp, ranks.dcp)
                for stage in model.stages(ranks.pp)
            ]
            for name in model.components
        }
        self._limit: dict[str, int] = {}
        self.held = 0

    def full(self, jobs: Jobs) -> tuple[int, str]:
        """Pages of full, and the rule behind the number."""
        options, page, named = self._options, self._page, self._options.hardware or HARDWARE
        if options.device_pages == UNBOUNDED:
            tokens = jobs.input_lengths + jobs.output_lengths
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
        self.held = self._fitting()
        if given is None:
            if not self.held:
                raise self._no_room()
            return self.held, f"90% of {named} less the weights"
        rule = "as given"
        if given > self.held:
            held = f"only {self.held:,} pages" if self.held else "no page beside the weights"
            rule += f", but {named} holds {held}"
        self._limit.clear()
        return given, rule

    def other(self, name: str, full: int) -> tuple[int, str]:
        """Pages of another component, given `full` pages of full, and the rule."""
        given, is_state, page = self._given(name), residency(name) == "state", self._page
        least = self._least_window * page
        if given is not None:
            few = f"; fewer than the {OWN_STATES} of a request: hardly any is left behind"
            tokens = _option(self._options, name, "tokens")
            if tokens is not None and tokens < least:
                raise CallerError(
                    f"--{name}-tokens: expected at least {least}, a window in whole pages and what "
                    f"is computed between two boundaries, which any request needs, found {tokens}; "
                    f"give --{name}-tokens {least}"
                )
            return given, "as given" + few * (is_state and given < OWN_STATES)
        if self._options.device_pages == UNBOUNDED:
            states = full // self._per_state + OWN_STATES
            pages = states if is_state else max(full, self._least_window)
            return pages, "unbounded: as much as full can use"
        if not is_state and self._least_window > full:
            larger = _larger(self._options, self.held, self._least_window, page)
            raise CallerError(
                f"--{name}-window: expected a window that fits the {full * page} tokens of "
                f"{BACKBONE} on device, with what is computed between two boundaries, found "
                f"{self._window}; {larger}"
            )
        running = min(self._running, full)
        rule = f"{running} running, a {residency(name)} per {PREFIX_TOKENS:,} tokens"
        return self._wanted(name, full), rule

    def _given(self, name: str) -> int | None:
        if residency(name) == "state":
            return _option(self._options, name, "states")
        tokens = _option(self._options, name, "tokens")
        return None if tokens is None else max(1, tokens // self._page)

    def _wanted(self, name: str, full: int) -> int:
        """Pages or states of a component whose size was not given, beside `full` pages of full."""
        running, prefixes = min(self._running, full), -(-full * self._page // PREFIX_TOKENS)
        if residency(name) == "state":
            own = OWN_STATES * running
            return max(OWN_STATES, min(own, self._limit.get(name, own))) + prefixes
        own = running * self._least_window + -(-self._engine.token_budget // self._page)
        own = min(own, self._limit.get(name, own))
        wanted = own + self._window_pages * prefixes
        return max(self._least_window, min(full, wanted))

    def _fitting(self) -> int:
        """The most pages of full that leave room for the other components; 0 for none."""
        others = [name for name in self._bytes if name != BACKBONE]
        for name in others:  # running requests leave at least half of the memory to the cache
            self._limit[name] = self._most(name) // (2 * len(others))
        low, high = 0, self._most(BACKBONE) + 1
        while high - low > 1:
            middle = (low + high) // 2
            pages = {BACKBONE: middle}
            for name in others:
                given = self._given(name)
                pages[name] = self._wanted(name, middle) if given is None else given
            fits = all(
                sum(self._bytes[name][stage] * count for name, count in pages.items()) <= room
                for stage, room in enumerate(self._rooms)
            )
            low, high = (middle, high) if fits else (low, middle)
        return low

    def _most(self, name: str) -> int:
        """Pages of a component that would fit without the others."""
        sizes = zip(self._rooms, self._bytes[name], strict=True)
        return min(room // size for room, size in sizes if size)

    def _no_room(self) -> CallerError:
        named = self._options.hardware or HARDWARE
        others = ((name, self._given(name)) for name in self._bytes if name != BACKBONE)
        given = {name: max(self._bytes[name]) * pages for name, pages in others if pages}
        pools = "".join(f" and {size / 1e9:.1f} GB of {name}" for name, size in given.items())
        runs = self._options.mode == "hits" or self._weights * HBM_SHARE < self._memory
        return CallerError(
            f"--model {self._model.name}: expected weights and a page of each pool within "
            f"{self._memory / 1e9:.0f} GB (90% of one {named}), found {self._weights / 1e9:.1f} GB "
            f"of weights{pools} on each rank; use a larger --tp or --pp, other --hardware or "
            f"{'smaller pools' if given else 'a smaller --weight-dtype'}"
            f"{', or give --device-tokens' * runs}"
        )


# -- host memory


def _host(
    options: ReplayOptions, model: ModelDescription, page_size: int, device: dict[str, int]
) -> tuple[list[int], list[str]]:
    """Pages on host and the rule behind each number. device: pages of each component."""
    pages, rules = [0] * len(device), ["none"] * len(device)
    alone, ratio = len(device) == 1, options.host_ratio
    if options.host_pages is not None:
        if full := options.host_pages:
            others = [max(1, full * size // device[BACKBONE]) for size in [*device.values()][1:]]
            pages = [full, *others]
            rules = ["as given" if alone else f"as given for {BACKBONE}"] * len(device)
    elif options.host_bytes is not None:
        if options.host_bytes:
            pages = _planned(options, model, page_size, device, options.host_bytes)
            rules = ["as given" if alone else "its share of --host-bytes"] * len(device)
    else:
        if ratio is None:  # storage is behind host memory, so there is some
            ratio = HOST_RATIO["timed" if options.storage else options.mode]
        if ratio:
            if device[BACKBONE] * ratio < 1:
                raise CallerError(
                    f"--host-ratio: expected at least a page of host for the {device[BACKBONE]} "
                    f"pages on device, found {float(ratio):g}; give a larger one, or 0 for no host"
                )
            pages = [*by_ratio(device, ratio).values()]
            extra = [
                size - int(on_device * ratio)
                for size, on_device in zip(pages, device.values(), strict=True)
            ]
            rules = [
                f"{float(ratio):g} x device" + f" and {more} more" * bool(more) for more in extra
            ]
    named = options.write_policy or WRITE_POLICY
    if 0 < pages[0] <= device[BACKBONE] + 1 and not _policy(named).on_evict:
        rules[0] += f"; with {named} mostly copies of the device's pages"
    return pages, rules


def _planned(
    options: ReplayOptions,
    model: ModelDescription,
    page_size: int,
    device: dict[str, int],
    total: int,
) -> list[int]:
    """Pages of each component in `total` bytes. The error for a bare number suggests a unit."""
    ranks = options.parallelism
    tp, pp, among = ranks.attention_tp, ranks.pp, ranks.among_on_host
    try:
        pages = plan_pools(
            model, page_size, device, total_bytes=total, tp=tp, pp=pp, among=among
        ).pages
    except CallerError as error:
        hint = f"; did you mean {total}GB?" if total < _BARE_NUMBER else ""
        raise CallerError(f"{error}{hint}") from None
    return [pages[name] for name in device]


def _exchange(
    options: ReplayOptions,
    components: tuple[str, ...],
    host: list[int],
    window: int,
    page_size: int,
    trace: Trace,
) -> tuple[int, ...]:
    """Host pages besides the pool, per component, for one load and the evictions that it needs.

    At most the longest prompt, a window, or a state. () without --exclusive. Raises CallerError if
    the write policy or the host pool rules it out.
    """
    if not options.exclusive:
        return ()
    named = options.write_policy or WRITE_POLICY
    policy = _policy(named)
    if policy.contiguous or not policy.on_evict or not host[0]:
        what = f"--write-policy {named}" if host[0] else "no host pool"
        why = (
            "--exclusive: expected a host pool and a write policy that copies on eviction, found "
            f"{what}; give --write-policy write_back and --host-ratio, --host-pages or --host-bytes"
        )
        raise CallerError(why) if host[0] else Unread(why, "exclusive")
    longest = -(-int(trace.jobs.input_lengths.max(initial=1)) // page_size)
    most = {"path": longest, "window": -(-window // page_size) + 1, "state": 1}
    each = zip(components, host, strict=True)
    return tuple(most[residency(name)] if size else 0 for name, size in each)


def _policy(name: str) -> WritePolicy:
    policy: WritePolicy = registry.load(registry.WRITE_POLICIES, name).policy()
    return policy


# -- requests that do not fit


@dataclass(frozen=True, slots=True)
class Skipped:
    """Requests that are too large: their numbers in the trace, and their prompt tokens."""

    requests: frozenset[int] = frozenset()
    input_tokens: int = 0


def check_fit(
    trace: Trace, paged: Paged, options: ReplayOptions, pools: Pools
) -> tuple[Skipped, Skipped]:
    """The requests to leave out, and those to compute without the cache. In `hits` mode, where no
    engine has to run it, a request that the device cannot hold is one of the latter unless
    --skip-too-large was given.

    Raises CallerError if the device holds none of them, and in `timed` mode if a request is too
    large for it and --skip-too-large was not given.
    """
    page_size, jobs = paged.page_size, trace.jobs
    with_output = options.mode == "timed" or paged.knows_output
    tokens = jobs.input_lengths + (jobs.output_lengths - 1) * with_output
    large = np.flatnonzero(tokens > pools.device[0] * page_size)
    uncached = options.mode == "hits" and not options.skip_too_large and len(large) < len(jobs)
    if not len(large):
        return Skipped(), Skipped()
    if uncached:
        return Skipped(), _of_numbers(jobs, large)
    if not options.skip_too_large:
        largest = int(tokens.argmax())
        pages = -(-int(tokens[largest]) // page_size)
        larger = _larger(options, pools.held, pages, page_size)
        raise CallerError(
            f"{trace.path}:{trace.line_numbers[largest]}: expected a request of at most "
            f"{pools.device[0]} pages of {page_size} tokens (the device pool of {BACKBONE}), "
            f"found request {largest} with {pages} pages ({_of(jobs[largest], with_output)}), the "
            f"largest of {len(large)} that do not fit; {larger}, or --skip-too-large"
        )
    out = np.zeros(len(jobs), dtype=np.bool_)
    out[large] = True
    afters = jobs.afters
    for number in np.flatnonzero(afters >= 0).tolist():  # a request follows an earlier one
        out[number] |= out[afters[number]]  # whose history is never computed
    if out.all():
        raise CallerError(
            f"--skip-too-large: expected a request that fits {pools.device[0]} pages of "
            f"{page_size} tokens, found none in {len(out)}; enlarge the device pool"
        )
    return _of_numbers(jobs, np.flatnonzero(out)), Skipped()


def _of_numbers(jobs: Jobs, numbers: NDArray[np.intp]) -> Skipped:
    tokens = int(jobs.input_lengths[numbers].sum(dtype=np.int64))
    return Skipped(frozenset(numbers.tolist()), tokens)


def _of(job: Job, with_output: bool) -> str:
    if not with_output:
        return f"{job.input_length} prompt tokens"
    return f"{final_length(job)} tokens, {job.input_length} of them prompt"


def _larger(options: ReplayOptions, held: int, pages: int, page_size: int) -> str:
    """What to give for a device of so many pages of full. held: what the hardware holds."""
    if options.device_pages is not None and pages <= held:
        return f"give --device-pages {pages}"
    if pages <= held:
        return f"give --device-tokens {pages * page_size}"
    return (
        f"{options.hardware or HARDWARE} holds {held:,} pages of {BACKBONE} beside the weights, "
        f"{pages:,} are needed; use a larger --tp, --kv-dtype fp8 or other --hardware"
    )


class Kept(PagesWithJobs):
    """A trace in pages, without some requests. The others keep their numbers."""

    def __init__(self, paged: Paged, skipped: Skipped) -> None:
        out = np.fromiter(skipped.requests, np.int64, len(skipped.requests))
        super().__init__(paged, paged.jobs.only(np.setdiff1d(paged.jobs.numbers, out)))
