"""The pools of a replay: pages of every component on device and host, as given or by rule.

A running request owns a window of swa pages and three states (`OWN_STATES`). Besides those, one
cached prefix of 4,096 tokens takes one more window or state. A device whose size is not given is
divided in that proportion: full gets as many pages as leave room for the other components. Groups
of ranks that attend to requests of their own each hold other pages; the counts are of all groups
together. All pipeline stages have the same counts: those of the stage with the least room.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import zip_longest
from math import ceil

from hicache import models, registry
from hicache.core.components import residency
from hicache.core.errors import CallerError
from hicache.core.write_policies import WritePolicy
from hicache.memory.pools import by_ratio, by_total
from hicache.models import ModelDescription
from sim.hardware import HardwareProfile
from sim.options import EngineOptions
from sim.times.base import stage_weight_bytes

from ..formats.base import Paged, Trace
from .options import (
    BACKBONE,
    COMPONENTS,
    HARDWARE,
    MODEL,
    OWN_STATES,
    PREFIX_TOKENS,
    WRITE_POLICY,
    ReplayOptions,
    Unread,
)

# the share of memory that engines give to weights and cache; activations and graphs take the rest
HBM_SHARE = Fraction(9, 10)
_HOST_RATIO = 2  # with a clock
_STAND_IN_WINDOW = 1024  # for a model without a window
_BLOCK = 16  # tokens, of which a page of vLLM's has a multiple
# The shadow state of a page take about 30 bytes of this machine's memory, and more with checks.
MOST_PAGES = 1 << 26
_BARE_NUMBER = 100_000  # fewer bytes than any page: gigabytes without their unit


@dataclass(frozen=True, slots=True)
class Pools:
    """Per component, in order: the name, pages on each tier, and the rule behind each number.

    exchange: host pages kept for exchanges, a part of `host`; () without --exclusive. window,
    interval: in tokens. branch_states: see Config. most_pages: those of full that the hardware
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
    most_pages: int


class TooLarge(CallerError):
    """The weights or a request do not fit in the device of this run."""


def memory_of(profile: HardwareProfile) -> int:
    """Bytes of device memory for the weights and all pools of a rank."""
    return int(profile.hbm_bytes * HBM_SHARE)


def model_of(options: ReplayOptions) -> ModelDescription:
    """The model that was named, or the default one with pools for the components asked for; with
    the type of rows that was named.

    Raises CallerError if the model lacks a pool for a component, or has one that was not asked for.
    """
    pools = options.components
    wanted = None if pools is None else tuple(pool.name for pool in pools)
    model = models.get(options.model or MODEL)
    components = tuple(name for name in COMPONENTS if name in model.components)
    if options.model is None and wanted is not None and len(wanted) > 1:
        model, components = models.as_hybrid(model, wanted, _STAND_IN_WINDOW, 0), wanted
    if len(components) < len(model.components) or BACKBONE not in components:
        raise CallerError(
            f"--model: expected pools of {', '.join(COMPONENTS)}, found those of {model.name} for "
            f"{', '.join(model.components)}; correct its components"
        )
    if wanted not in (None, components):
        raise CallerError(
            f"--components: expected {','.join(components)}, for which {model.name} has pools, "
            f"found {','.join(wanted or ())}; name another --model or none"
        )
    return model if options.kv_dtype is None else models.cached_as(model, options.kv_dtype)


class Sizes:
    """The sizes of a replay's pools.

    memory: bytes of device memory for the weights and all pools of a rank. most_pages: those of
    full beside the weights and the other pools; 0 for none. Raises CallerError where a size cannot
    be resolved.
    """

    def __init__(
        self,
        options: ReplayOptions,
        model: ModelDescription,
        memory: int,
        page_size: int,
        engine: EngineOptions,
    ) -> None:
        self._options, self._model, self._memory = options, model, memory
        self._page, self._engine = page_size, engine
        self._names = tuple(name for name in COMPONENTS if name in model.components)
        self._window = self._interval = 0
        self._branch_states = True
        for name in self._names:
            if residency(name) == "window":
                self._window = model.window(name)
            elif residency(name) == "state":
                self._interval = self._distance(name)
        ranks = options.parallelism
        weights = stage_weight_bytes(model, ranks)
        self._weights = max(weights)
        self._budgets = [max(0, ranks.attention_dp * (memory - each)) for each in weights]
        self._window_pages = -(-self._window // page_size)
        self._least_window = self._window_pages + max(1, -(-self._interval // page_size))
        self._running = engine.max_running if options.mode == "timed" else 1
        self._bytes = {  # of a page, by stage
            name: [
                stage.bytes_per_page(name, page_size, ranks.attention_tp, ranks.dcp)
                for stage in model.stages(ranks.pp)
            ]
            for name in model.components
        }
        others = self._names[1:]
        # running requests leave at least half of the memory to the cache
        self._limit = {name: self._most(name) // (2 * len(others)) for name in others}
        self.most_pages = self._fitting()
        if options.device_tokens is not None or options.device_pages is not None:
            self._limit = {}

    def pools(self, trace: Trace) -> Pools:
        device = {BACKBONE: self._full()}
        device |= {name: self._other(name, device[BACKBONE][0]) for name in self._names[1:]}
        pages = {name: count for name, (count, _) in device.items()}
        host, host_rules = self._host(pages)
        exchange = self._exchange(host, trace)
        if exchange:
            more = [f", and {number:,} for exchanges" if number else "" for number in exchange]
            host_rules = [rule + text for rule, text in zip(host_rules, more, strict=True)]
        pools = Pools(
            self._names,
            tuple(pages.values()),
            tuple(size + number for size, number in zip_longest(host, exchange, fillvalue=0)),
            tuple(rule for _, rule in device.values()),
            tuple(host_rules),
            exchange,
            self._window,
            self._interval,
            self._branch_states,
            self.most_pages,
        )
        if max(*pools.device, *pools.host) > MOST_PAGES:
            raise CallerError(
                f"pools: expected at most {MOST_PAGES} pages each, found "
                f"{max(*pools.device, *pools.host)}; give fewer, or a larger --page-size"
            )
        return pools

    def _distance(self, name: str) -> int:
        """Tokens between two states; says whether prompts that part leave others."""
        options, model, ranks = self._options, self._model, self._options.parallelism
        tokens = model.interval(name)  # 0: a stand-in, which keeps one at every page
        in_pages = self._engine.profile.states == "page"
        if tokens and in_pages and (options.mode == "timed" or options.engine):
            # a page of attention that has at least as many bytes as a state, layer for layer
            state, token = (
                Fraction(
                    model.bytes_per_page(text, 1, ranks.attention_tp, ranks.dcp),
                    len({layer for pool in model.pools_of(text) for layer in pool.layers}),
                )
                for text in (name, BACKBONE)
            )
            tokens, self._branch_states = ceil(state / (token * _BLOCK)) * _BLOCK, False
        return max(1, -(-tokens // self._page)) * self._page

    def _full(self) -> tuple[int, str]:
        """Pages of full, and the rule behind the number."""
        options, named = self._options, self._options.hardware or HARDWARE
        device_pages = options.device_pages
        if options.device_tokens is not None:
            device_pages = options.device_tokens // self._page
            if not device_pages:
                raise CallerError(
                    f"--device-tokens: expected at least one page of {self._page} tokens, found "
                    f"{options.device_tokens}"
                )
        if device_pages is None:
            if not self.most_pages:
                raise self._no_room()
            return self.most_pages, f"90% of {named} less the weights"
        if device_pages <= self.most_pages:
            return device_pages, "as given"
        text = (
            f"only {self.most_pages:,} pages" if self.most_pages else "no page beside the weights"
        )
        return device_pages, f"as given, but {named} holds {text}"

    def _other(self, name: str, full: int) -> tuple[int, str]:
        """Pages of another component, given `full` pages of full, and the rule."""
        value, is_state = self._given(name), residency(name) == "state"
        least = self._least_window * self._page
        if value is not None:
            if not is_state and value < self._least_window:
                pools = [self._options.pool_of(byte) for byte in self._bytes]
                pools = [
                    pool._replace(device=least) if pool.name == name else pool for pool in pools
                ]
                raise CallerError(
                    f"--components {name}: expected at least {least}, a window in whole pages and "
                    f"what is computed between two boundaries, found {value * self._page}; give "
                    f"--components {','.join(map(str, pools))}"
                )
            few = f"; fewer than the {OWN_STATES} of a request: hardly any is left behind"
            return value, "as given" + few * (is_state and value < OWN_STATES)
        if not is_state and self._least_window > full:
            raise CallerError(
                f"device pool: expected room for a window of {self._window} tokens, which takes "
                f"{least}, found {full * self._page}; "
                f"{_larger(self._options, self.most_pages, self._least_window, self._page)}"
            )
        running = min(self._running, full)
        rule = f"{running} running, a {residency(name)} per {PREFIX_TOKENS:,} tokens"
        return self._wanted(name, full), rule

    def _given(self, name: str) -> int | None:
        device = self._options.pool_of(name).device
        return device if residency(name) == "state" or device is None else device // self._page

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
        low, high = 0, self._most(BACKBONE) + 1
        while high - low > 1:
            middle = (low + high) // 2
            pages = {BACKBONE: middle}
            for name in self._names[1:]:
                value = self._given(name)
                pages[name] = self._wanted(name, middle) if value is None else value
            fits = all(
                sum(self._bytes[name][stage] * count for name, count in pages.items()) <= budget
                for stage, budget in enumerate(self._budgets)
            )
            low, high = (middle, high) if fits else (low, middle)
        return low

    def _most(self, name: str) -> int:
        """Pages of a component that would fit without the others."""
        sizes = zip(self._budgets, self._bytes[name], strict=True)
        return min(budget // size for budget, size in sizes if size)

    def _no_room(self) -> TooLarge:
        named = self._options.hardware or HARDWARE
        others = ((name, self._given(name)) for name in self._bytes if name != BACKBONE)
        values = {name: max(self._bytes[name]) * pages for name, pages in others if pages}
        pools = "".join(f" and {size / 1e9:.1f} GB of {name}" for name, size in values.items())
        runs = self._options.mode == "hits" or self._weights * HBM_SHARE < self._memory
        return TooLarge(
            f"--model {self._model.name}: expected weights and a page of each pool within "
            f"{self._memory / 1e9:.0f} GB (90% of one {named}), found {self._weights / 1e9:.1f} GB "
            f"of weights{pools} on each rank; use a larger --tp or --pp, other --hardware or "
            f"{'smaller pools' if values else 'a --model with smaller weights'}"
            f"{', or give --device-tokens' * runs}"
        )

    def _host(self, device: Mapping[str, int]) -> tuple[list[int], list[str]]:
        """Pages on host and the rule behind each number. device: pages of each component."""
        pages, rules = [0] * len(device), ["none"] * len(device)
        full, options = device[BACKBONE], self._options
        ranks = options.parallelism
        if options.host_pages is not None:
            if count := options.host_pages:
                others = [*device.values()][1:]
                pages = [count, *(max(1, count * number // full) for number in others)]
                rules = ["as given"] * len(device)
        elif options.host_bytes is not None:
            if total := options.host_bytes:
                tp, pp, among = ranks.attention_tp, ranks.pp, ranks.dcp
                try:
                    shares = by_total(self._model.stages(pp), self._page, device, total, tp, among)
                except CallerError as error:
                    hint = f"; did you mean {total}GB?" if total < _BARE_NUMBER else ""
                    raise CallerError(f"{error}{hint}") from None
                pages = [*shares.values()]
                alone = len(device) == 1
                rules = ["as given" if alone else "its share of --host-bytes"] * len(device)
        else:
            ratio = options.host_ratio
            if ratio is None:  # storage is behind host memory, so there is some
                ratio = Fraction(_HOST_RATIO * bool(options.storage or options.mode == "timed"))
            if ratio and full * ratio < 1:
                raise CallerError(
                    f"--host-ratio: expected at least a page of host for the {full} pages on "
                    f"device, found {float(ratio):g}; give a larger one, or 0 for no host"
                )
            if ratio:
                pages = [*by_ratio(device, ratio).values()]
                rules = [f"{float(ratio):g} x device"] * len(device)
        for place, name in enumerate(device):
            states = options.pool_of(name).host
            if states is not None and (options.host_bytes is not None or not pages[0]):
                text = "--host-bytes, which all pools share" if options.host_bytes else "none"
                raise CallerError(
                    f"--components {options.pool_of(name)}: expected a host pool by --host-ratio "
                    f"or --host-pages, found {text}; give another, or leave out :{states}"
                )
            if states is not None:
                pages[place], rules[place] = states, "as given"
        return pages, rules

    def _exchange(self, host: Sequence[int], trace: Trace) -> tuple[int, ...]:
        """Host pages besides the pool, per component, for one load and the evictions that it needs:
        at most the longest prompt, a window, or a state. () without --exclusive. Raises CallerError
        if the write policy or the host pool rules it out."""
        options, size = self._options, self._page
        if not options.exclusive:
            return ()
        if not host[0]:
            raise Unread("--exclusive: expected a host pool, found none; give one", "exclusive")
        named = options.write_policy or WRITE_POLICY
        policy: WritePolicy = registry.load(registry.WRITE_POLICIES, named)()
        if policy.contiguous or not policy.on_evict:
            raise CallerError(
                f"--exclusive: expected a write policy that copies on eviction, found {named}; "
                "give --write-policy write_back"
            )
        longest = -(-int(trace.jobs.input_lengths.max(initial=1)) // size)
        most = {"path": longest, "window": self._window_pages + 1, "state": 1}
        each = zip(self._names, host, strict=True)
        return tuple(most[residency(name)] if pages else 0 for name, pages in each)


def check_fit(trace: Trace, paged: Paged, options: ReplayOptions, pools: Pools) -> None:
    """Raises TooLarge if a request is too large for the device."""
    page_size, jobs = paged.page_size, trace.jobs
    with_output = options.mode == "timed" or paged.knows_output
    tokens = jobs.input_lengths + (jobs.output_lengths - 1) * with_output
    pages = -(-tokens // page_size)
    most, large = int(pages.max(initial=0)), int((pages > pools.device[0]).sum())
    if large:
        largest = int(tokens.argmax())
        raise TooLarge(
            f"{trace.path}:{trace.line_numbers[largest]}: expected a request of at most "
            f"{pools.device[0]} pages of {page_size} tokens (the device pool of {BACKBONE}), found "
            f"request {largest} with {most} pages, the largest of {large} that do not fit; "
            f"{_larger(options, pools.most_pages, most, page_size)}"
        )


def _larger(options: ReplayOptions, most_pages: int, pages: int, page_size: int) -> str:
    """What to give for a device of so many pages of full. most_pages: what the hardware holds."""
    if pages <= most_pages and options.device_pages is None:
        return f"give --device-tokens {pages * page_size}"
    if pages <= most_pages:
        return f"give --device-pages {pages}"
    named = options.hardware or HARDWARE
    return f"{named} holds {most_pages:,} beside the weights; use a larger --tp or other --hardware"
