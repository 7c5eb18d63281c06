"""What can be bought: accelerators, how many ranks share the model, replicas side by side, and host
memory of each; what it costs an hour, which of two is stronger, what each can do without a replay.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from hicache.core.errors import CallerError
from sim import hardware as profile
from sim.times.base import step_ns

from ..curves import Curve, Curves, curves_of
from ..formats.base import Trace
from ..replaying.config import ReplayConfig, resolve
from ..replaying.options import OPTIONS, Need, ReplayOptions, StorageOptions, that_need
from ..reporting import gigabytes
from ..terminal import options as read
from ..terminal.options import OptionRecord, option, rows

MOST_SIZES = 4
NEARLY_ALL = Fraction(19, 20)  # of the hits of an unbounded cache
LITTLE = 0.01  # of all prompt tokens: a size that adds less is not tried
SAME = 0.001  # of all prompt tokens: host memory that adds fewer hits changes nothing
STORAGE = tuple(row.name for row in rows(StorageOptions))
_OF_HOST = tuple(name for name in that_need(Need.HOST) if name not in STORAGE)
_HOST_OF_A_GPU = 256 * 10**9  # bytes; a DGX H100 has 2 TB for eight, says its data sheet
_HOSTS = 3  # sizes of host memory beside none
_RANKS = (1, 2, 4, 8, 16, 32)
_GB = 1e9
_CONTEXT = 32_768  # tokens; the time of a chunk is a line over the tokens before it
# (prefill chunks, decoding sequences, their context): passes by which two machines are compared
_PASSES = (
    (((0, 512),), 0, 0),
    (((0, 8192),), 0, 0),
    (((32_768, 40_960),), 0, 0),
    ((), 1, 4_096),
    ((), 64, 262_144),
    ((), 256, 524_288),
    (((4_096, 8_192),), 64, 262_144),
)

Machine = tuple[str, int]  # accelerator, tensor ranks
Numbers = np.ndarray[Any, Any]
_TODAY = "2xh100,tp=2,host=512GB"
_MACHINE = re.compile(
    r"(?:(\d{1,3})x)?([a-z][\w.-]*)(?:,tp=(\d{1,3}))?(?:,host=(\w+))?", re.ASCII | re.IGNORECASE
)
_HARDWARE = next(option.parse for option in OPTIONS if option.name == "hardware")
_MOST_VALUES = 16


# -- prices


_GIVEN = "the prices that were given"


@dataclass(frozen=True, slots=True)
class Prices:
    """per_hour: of `gpu`, an accelerator or a gigabyte of `host`; a thing without a price costs
    nothing. source: where they are from. currency: empty for any."""

    per_hour: dict[str, float] = field(default_factory=dict)
    source: str = _GIVEN
    currency: str = ""

    def of_gpu(self, hardware: str) -> float | None:
        """An hour of one accelerator; None without a price."""
        return self.per_hour.get(hardware, self.per_hour.get("gpu"))


LIST_PRICES = Prices(
    {
        # hyperstack.cloud/gpu-pricing, read on 2026-08-26: on demand, USD for an hour of one GPU
        "a100": 1.60,
        "b200": 6.00,
        "h100": 3.20,
        "h100-pcie": 2.50,
        "h200": 3.99,
        "rtx-pro-6000": 1.85,
        # Google Compute Engine, us-central1, 2018-07-06: n1-highmem-2 (13 GB, 0.1184 USD an hour)
        # less n1-standard-2 (7.5 GB, 0.0950), for a gigabyte
        "host": 0.00425,
    },
    "list prices of 2026-08-26 (accelerators: Hyperstack) and 2018-07-06 (memory: Google)",
    "USD",
)
_PRICE = re.compile(r"([\w.-]+)=(\d{1,9}(?:\.\d{1,9})?)(/GB)?(/h)?", re.ASCII)
_YEARS, _HOURS = 4.0, 365 * 24


def read_prices(text: str, hardware: Collection[str] = ()) -> Prices:
    """hardware: accelerators that may have a price of their own. Raises ValueError for a text that
    is no list of prices."""
    priced: dict[str, tuple[float, bool]] = {}
    for part in text.split(","):
        match = _PRICE.fullmatch(part.strip())
        name, amount, unit, rent = match.groups() if match else ("", "", None, None)
        known = name in ("gpu", "host", "years", *hardware) and name not in priced
        wrong = name == "years" and (rent or not 0 < float(amount) < 100)
        if not known or wrong or (unit is not None) != (name == "host"):
            raise ValueError(
                "expected prices of gpu, host or an accelerator, each once, such as "
                f"h100=3.2/h,gpu=30000,host=3/GB,years=4, found {part.strip()!r}"
            )
        priced[name] = float(amount), rent is None
    years, _ = priced.pop("years", (_YEARS, True))
    per_hour = {
        name: amount / (years * _HOURS) if once else amount
        for name, (amount, once) in priced.items()
    }
    paid = [name for name, (_, once) in priced.items() if once]
    if not paid:
        return Prices(per_hour)
    message = f"{', '.join(paid)} paid once, over {years:g} years; a rent ends with /h"
    return Prices(per_hour, f"{_GIVEN} ({message})")


# -- candidates


@dataclass(frozen=True, slots=True)
class Candidate:
    """tp: ranks that share the model. replicas: side by side. host_bytes: of one replica."""

    hardware: str
    tp: int
    replicas: int
    host_bytes: int = 0

    @property
    def gpus(self) -> int:
        return self.tp * self.replicas

    @property
    def machine(self) -> Machine:
        """What a replica runs on."""
        return self.hardware, self.tp

    @property
    def label(self) -> str:
        """What is bought, in words that name every total once."""
        ranks = f"tp {self.tp}" * (self.tp > 1)
        split = f" ({ranks})" if ranks else ""
        if self.replicas > 1:
            split = f" ({self.replicas} replicas{f', each {ranks}' if ranks else ''})"
        text = f"{self.gpus} x {self.hardware}{split}"
        if self.host_bytes:
            text += f" with {gigabytes(self.host_bytes)} of host memory"
            if self.replicas > 1:
                text += f" each, {gigabytes(self.host_bytes * self.replicas)} in all"
        return text

    def options(self, base: ReplayOptions) -> ReplayOptions:
        """Those of its replay. base: with the load and the limits."""
        values: dict[str, Any] = {"host_bytes": self.host_bytes}
        if not self.host_bytes:
            values = dict.fromkeys(_OF_HOST) | {"host_ratio": Fraction(0), "exclusive": False}
        if self.replicas > 1:
            values["replicas"] = self.replicas
        else:
            values["router"] = None
        return replace(base, hardware=self.hardware, tp=self.tp, **values)


def machine(text: str) -> Candidate:
    """Raises ValueError for what is no machine."""
    match = _MACHINE.fullmatch(text)
    gpus, tp = (int(match[place] or 1) for place in (1, 3)) if match else (0, 1)
    if match is None or not tp or gpus < tp or gpus % tp:
        raise ValueError(
            f"expected a machine such as {_TODAY} (GPUs in groups of tp), not {text!r}"
        )
    host = read.byte_size(match[4] or "0")
    return Candidate(read.choice(profile.names())(match[2]), tp, gpus // tp, host)


def cost_of(candidate: Candidate, prices: Prices) -> float:
    """For an hour. Raises CallerError for an accelerator without a price."""
    each = prices.of_gpu(candidate.hardware)
    if each is None:
        raise CallerError(
            f"--price: expected a price of {candidate.hardware}, found none; add "
            f"{candidate.hardware}=2.5/h, or gpu=2.5/h for any accelerator"
        )
    host = candidate.host_bytes * candidate.replicas / _GB
    return candidate.gpus * each + prices.per_hour.get("host", 0.0) * host


class Demand:
    """What the trace asks for. duration_s: from the first arrival to the last one, at the load that
    is played; 0 where requests wait for others, so that there is no fixed time. lengths: tokens of
    each prompt. arrivals_s: of each request; empty without a fixed time."""

    def __init__(self, trace: Trace, speed: Fraction | None) -> None:
        """trace: with its load. speed: at which its times are played; None if they are not read."""
        jobs = trace.jobs
        fixed = bool((jobs.afters < 0).all()) and jobs.sender is None and speed is not None
        self.lengths: Numbers = jobs.input_lengths.astype(np.int64)
        self.arrivals_s = jobs.arrivals_ns / 1e9 / float(speed or 1) if fixed else np.zeros(0)
        self.requests, self.input_tokens = len(jobs), int(self.lengths.sum())
        self.output_tokens = int(jobs.output_lengths.astype(np.int64).sum())
        self.duration_s = float(np.ptp(self.arrivals_s)) if fixed else 0.0
        self.requests_per_s = self.requests / self.duration_s if self.duration_s else 0.0


def odds(part: float) -> float:
    return part / max(1e-6, 1 - part)


class Machines:
    """The machines that one replica may be, each resolved once, and what candidates can do.

    curve: None for a trace of lengths only, and before it is known.
    """

    def __init__(self, base: ReplayOptions, trace: Trace, demand: Demand) -> None:
        self.demand = demand
        self.curve: Curve | None = None
        self._base, self._trace = base, trace
        self.settings = cache(self._settings)
        self._slower = cache(self._is_slower)
        self._times = cache(lambda machine: self.settings(*machine).time_model)
        self.in_time = cache(self._in_time)
        self.likely = cache(self._likely)

    def _settings(self, hardware: str, tp: int) -> ReplayConfig:
        """Of a replica without host memory. Raises CallerError for one that cannot serve it."""
        return resolve(Candidate(hardware, tp, 1).options(self._base), self._trace)[0]

    def weaker(self, candidate: Candidate, other: Candidate) -> bool:
        """Whether `candidate` has at most what `other` has, of everything, and so serves no more.

        Fewer replicas are not weaker: each has a cache of its own, so that more of them hit less.
        """
        return (
            (candidate.tp, candidate.replicas) == (other.tp, other.replicas)
            and candidate.host_bytes <= other.host_bytes
            and self._slower(candidate.machine, other.machine)
        )

    def _is_slower(self, machine: Machine, other: Machine) -> bool:
        """With as many ranks."""
        if machine == other:
            return True
        first, second = self.settings(*machine), self.settings(*other)
        if first.core.device_pages > second.core.device_pages:
            return False
        if first.hardware.reached_link_bytes_per_s > second.hardware.reached_link_bytes_per_s:
            return False
        profiles = first.engine.profile, second.engine.profile
        names = [each.name for each in fields(profiles[0]) if each.name.endswith("_ns")]
        pairs = [tuple(getattr(each, name) for each in profiles) for name in names]
        times = self._times(machine), self._times(other)
        pairs += [tuple(step_ns(each, *what) for each in times) for what in _PASSES]
        return all(slow >= fast for slow, fast in pairs)

    def pages(self, candidate: Candidate) -> int:
        """Pages that all replicas hold together, where host memory has what the device has."""
        settings = self.settings(*candidate.machine)
        host = candidate.host_bytes // (settings.page_bytes[0] * settings.page_ranks)
        device = settings.core.device_pages[0]
        return candidate.replicas * (host + device if self._base.exclusive else max(host, device))

    def same_hits(self, less: Candidate, more: Candidate) -> bool:
        """Whether host memory is all that differs, and adds no hits that would be seen.

        What one cache keeps, a replica that gets a part of the requests keeps, too: two uses of a
        page are no further apart there.
        """
        alike = (less.machine, less.replicas) == (more.machine, more.replicas)
        if not alike or self.curve is None:
            return False
        hits, most = (
            self.curve.hit_tokens(self.pages(replace(each, replicas=1))) for each in (less, more)
        )
        if less.replicas > 1:
            most = self.curve.unbounded
        return most - hits < SAME * self.demand.input_tokens

    def _in_time(self, candidate: Candidate, optimism: float = 1.0) -> float:
        """The part of the requests whose first token comes within the limit of TTFT, if prompts are
        computed in the order in which they arrive, on all replicas together as one that is so many
        times as fast, which hits as one cache and does nothing else: about as many as can keep the
        limits. Where requests have no fixed times, if each is alone. optimism: by how much work is
        less than that."""
        slo, demand = self._base.slo, self.demand
        if slo is None or slo.ttft_ns is None:
            return 1.0
        work_s = self._work_s(candidate) / optimism
        limit_s = slo.ttft_ns / 1e9
        if not len(demand.arrivals_s):
            return float(np.mean(work_s <= limit_s))
        order = np.argsort(demand.arrivals_s, kind="stable")
        columns = (each[order].tolist() for each in (demand.arrivals_s, work_s))
        queue_s, last_s, late = 0.0, 0.0, 0
        for at_s, own_s in zip(*columns, strict=True):
            queue_s = max(0.0, queue_s - (at_s - last_s))
            late += queue_s + own_s > limit_s
            queue_s, last_s = queue_s + own_s / candidate.replicas, at_s
        return 1 - late / demand.requests

    def _work_s(self, candidate: Candidate) -> Numbers:
        """Seconds that a replica computes each prompt for, if it hits what one cache with the pages
        of all replicas hits."""
        demand, settings = self.demand, self.settings(*candidate.machine)
        times, budget = self._times(candidate.machine), settings.engine.token_budget
        hits = np.zeros(demand.requests, dtype=np.int64)
        if self.curve is not None:
            lru = settings.core.eviction_policy == "lru"
            pages = self.pages(candidate) if lru else self.curve.working_set
            hits = np.minimum(hits_of(self.curve, demand.requests, pages), demand.lengths - 1)
        layers = times.layers / budget / 1e9
        first, later = (
            times.layer_ns([(start, start + budget)], 0, 0) * layers for start in (0, _CONTEXT)
        )
        computed = demand.lengths - hits
        before = np.maximum(hits + (computed - budget) / 2, 0)  # tokens, at the middle of them
        numbers: Numbers = computed * (first + (later - first) / _CONTEXT * before)
        return numbers

    def _likely(self, candidate: Candidate) -> float:
        """How likely it is to serve, as odds: that prompts are in time, on a machine that has time
        for answers, too."""
        settings, demand = self.settings(*candidate.machine), self.demand
        busy = 0.0
        if demand.duration_s:
            times = self._times(candidate.machine)
            each = (demand.input_tokens + demand.output_tokens) // max(1, demand.requests)
            fitting = settings.core.device_pages[0] * settings.core.page_size // max(1, each)
            batch = max(1, min(settings.engine.max_running, fitting))
            token_ns = times.layer_ns([], batch, batch * each) * times.layers / batch
            work_s = float(self._work_s(candidate).sum()) + demand.output_tokens * token_ns / 1e9
            busy = min(1.0, work_s / candidate.replicas / demand.duration_s)
        return odds(self.in_time(candidate) * (1 - busy * busy))


def hits_of(curve: Curve, requests: int, pages: int) -> Numbers:
    """Prompt tokens of each request that hit in an LRU cache of so many pages."""
    runs = curve.runs
    hit = np.clip(pages - curve.distance, 0, runs.pages)
    tokens = hit * curve.page_size - np.where(hit == runs.pages, curve.short, 0)
    result = np.zeros(requests, dtype=np.int64)
    np.add.at(result, runs.request, tokens)
    return result


# -- what is offered


@dataclass(frozen=True)
class Purchase(OptionRecord):
    """What may be bought, and how it is judged. hosts: bytes of host memory; None to choose
    them."""

    hardware: tuple[str, ...] | None = option(
        "accelerators to choose from (default: those with a price)",
        read.listed(_HARDWARE, _MOST_VALUES),  # type: ignore[arg-type]
        "LIST",
        common=True,
    )
    tp: tuple[int, ...] | None = option(
        "accelerators that share the model (default: powers of two)",
        read.listed(read.at_least(1), _MOST_VALUES),
        "LIST",
        common=True,
    )
    replicas: tuple[int, ...] | None = option(
        "replicas behind a router, each with the device and the host memory of the other options "
        "(default: up to --most-gpus)",
        read.listed(read.at_least(1), _MOST_VALUES),
        "LIST",
    )
    hosts: tuple[int, ...] | None = option(
        "sizes of host memory of a replica, of all its GPUs together (default: powers of two, from "
        "what adds hits to what brings nearly all)",
        read.listed(read.byte_size, _MOST_VALUES),
        "LIST",
        named="--host-bytes",
    )
    price: Prices | None = option(
        "prices, such as gpu=2.5/h,host=4/GB or h100=3.2/h,b200=6/h (docs/sizing.md; default: list "
        "prices)",
        lambda text: read_prices(text, profile.names()),
        "LIST",
    )
    most_gpus: int = option(
        "accelerators of a machine at most", read.between(1, 64), "N", default=8
    )
    attain: Fraction = option(
        "the part of the requests that must keep every limit",
        read.part,
        "PART",
        default=Fraction(9, 10),  # as DistServe (OSDI 2024) counts
    )
    today: Candidate | None = option(
        f"the machine that you have, such as {_TODAY}; the answer says what it lacks",
        machine,
        "MACHINE",
    )


class Offer:
    """The candidates, the cheapest first, with their costs. refused: by reason, the machines that
    cannot run the model. same_as: candidates whose host memory adds no hits to a cheaper one that
    is the same otherwise, by that one: they are not worth a replay. settings: of the machine with
    the least device memory that fits. Raises CallerError if none does."""

    def __init__(self, base: ReplayOptions, purchase: Purchase, trace: Trace) -> None:
        self.attain, self.prices = purchase.attain, purchase.price or LIST_PRICES
        speed = None if base.concurrency else base.speed or Fraction(1)
        self.demand = Demand(trace, speed)
        self.machines = Machines(base, trace, self.demand)
        self.refused: dict[str, list[str]] = {}
        fit = self._that_fit(purchase)
        hardware, least = min(fit, key=lambda pair: (self._device_pages(pair), pair[1], pair[0]))
        self.settings = self.machines.settings(hardware, least)
        self.paged = trace.paged(self.settings.core.page_size)
        self.curves: Curves | None = None
        hosts = purchase.hosts or (0,)
        if trace.identity:
            page_bytes = self.settings.page_bytes[0] * self.settings.page_ranks
            device = self._device_pages((hardware, least))
            each = page_bytes // self.paged.page_size
            self.curves = curves_of(trace, self.paged, bytes_per_token=each)
            self.machines.curve = curve = self.curves.lru
            if purchase.hosts is None:
                tokens = self.demand.input_tokens
                steps = ladder(curve, tokens, page_bytes, device, bool(base.exclusive))
                hosts = _hosts(steps, _HOST_OF_A_GPU * least)
        candidates = [
            Candidate(name, tp, count, host)
            for name, tp in fit
            for count in purchase.replicas or range(1, max(1, purchase.most_gpus // tp) + 1)
            for host in hosts
        ]
        if purchase.today is not None and purchase.today not in candidates:
            self.machines.settings(*purchase.today.machine)
            candidates.append(purchase.today)
        self.costs = costs = {item: cost_of(item, self.prices) for item in candidates}
        # of several at one cost, the one that is likeliest to serve comes first
        likely = self.machines.likely
        candidates.sort(key=lambda item: (costs[item], -likely(item), item.label))
        self.candidates = candidates
        self.same_as = self._same_hits()

    def _device_pages(self, machine: Machine) -> int:
        return self.machines.settings(*machine).core.device_pages[0]

    def _that_fit(self, purchase: Purchase) -> list[Machine]:
        """The machines that can serve the trace; with a price of any GPU, those of the list."""
        own = [name for name in self.prices.per_hour if name not in ("gpu", "host")]
        listed = [name for name in LIST_PRICES.per_hour if name != "host"]
        machines: list[Machine] = []
        refused: CallerError | None = None
        for name in purchase.hardware or sorted(own or listed):
            for tp in purchase.tp or [tp for tp in _RANKS if tp <= purchase.most_gpus]:
                try:
                    self.machines.settings(name, tp)
                    machines.append((name, tp))
                except CallerError as error:
                    refused = error
                    self.refused.setdefault(str(error), []).append(f"{tp} x {name}")
        if refused is not None and not machines:
            raise refused
        return machines

    def serves(self, result: Mapping[str, Any]) -> bool:
        """Whether a replay came to its end and kept the limits. result: its document."""
        return "stopped" not in result and result["slo"]["attained_rate"] >= float(self.attain)

    def used_prices(self) -> dict[str, float]:
        """The prices of what the candidates have; of host memory 0 without one."""
        names = {candidate.hardware for candidate in self.candidates}
        used = {name: self.prices.of_gpu(name) or 0.0 for name in names}
        if any(candidate.host_bytes for candidate in self.candidates):
            used["host"] = self.prices.per_hour.get("host", 0.0)
        return used

    def price_and_host(self, place: int) -> tuple[float, int]:
        candidate = self.candidates[place]
        return self.costs[candidate], candidate.host_bytes

    def _same_hits(self) -> dict[int, int]:
        known, result = self.candidates, dict[int, int]()
        ascending = sorted(range(len(known)), key=lambda place: known[place].host_bytes)
        for at, more in enumerate(ascending):
            for less in ascending[:at]:
                if less not in result and self.machines.same_hits(known[less], known[more]):
                    result[more] = less
                    break
        return result


def ladder(
    curve: Curve, input_tokens: int, page_bytes: int, device_pages: int, exclusive: bool = False
) -> tuple[int, ...]:
    """Sizes of host memory in powers of two, ascending, from what adds hits to what brings nearly
    all; none where the device alone does. page_bytes: of all ranks. exclusive: whether host memory
    adds to the device; otherwise less of it than the device has holds nothing more."""
    if curve.unbounded - curve.hit_tokens(device_pages) < LITTLE * input_tokens:
        return ()
    top = max(1, curve.pages_for(NEARLY_ALL * curve.unbounded))
    low = curve.pages_for(curve.hit_tokens(device_pages) + LITTLE * input_tokens)
    if exclusive:
        low, top = max(0, low - device_pages), max(1, top - device_pages)
    low = max(1 if exclusive else device_pages, min(low or top, top))
    known = [scale << power for scale in (10**6, 10**9, 10**12, 10**15) for power in range(10)]
    last = len(known) - 1
    high, first = (
        next((place for place, size in enumerate(known) if size >= pages * page_bytes), last)
        for pages in (top, low)
    )
    places = range(first, max(first, high) + 1)
    step = max(1.0, (len(places) - 1) / (MOST_SIZES - 1))
    chosen = {places[round(index * step)] for index in range(min(MOST_SIZES, len(places)))}
    return tuple(known[place] for place in sorted(chosen))


def _hosts(steps: Sequence[int], most: int) -> tuple[int, ...]:
    """None, and sizes of the ladder up to what a server has for so many ranks."""
    sizes = [size for size in steps if size <= most]
    if steps and len(sizes) < _HOSTS:
        sizes = sorted({*sizes, most // 4, most // 2, most})
    return (0, *sizes[-_HOSTS:])
