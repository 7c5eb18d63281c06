"""The pages of every component's device pool: as given, or a share of the accelerator's memory.

A running request owns a window of swa pages and three states (`OWN_STATES`). Besides those, one
cached prefix of 4,096 tokens takes one more window or state. A device whose size is not given is
divided in that proportion: full gets as many pages as leave room for the other components. Does not
size the host (see pools) or look at single requests (see fitting).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from hicache.core.components.base import residency
from hicache.core.errors import CallerError
from hicache.models import ModelDescription
from sim.hardware.profile import HardwareProfile
from sim.options import EngineOptions
from sim.times.base import stage_weight_bytes

from ..formats._jobs import Jobs
from ..terminal.options import UNBOUNDED
from .defaults import BACKBONE, HARDWARE, OWN_STATES, PREFIX_TOKENS
from .options import ReplayOptions

# the share of memory that engines give to weights and cache; activations and graphs take the rest
HBM_SHARE = Fraction(9, 10)
_WINDOW = "a window in whole pages and what is computed between two boundaries"


@dataclass(frozen=True, slots=True)
class Short:
    """A pool that is too small for any request.

    option, expected, found: of the message. component, tokens: the size of which pool would do.
    """

    option: str
    expected: str
    found: int
    component: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What the sizes follow from, besides the options.

    memory: bytes of device memory for weights and pools of a rank. page_size, window, interval: in
    tokens.
    """

    model: ModelDescription
    memory: int
    page_size: int
    window: int
    interval: int
    engine: EngineOptions


class DeviceSizes:
    """Page counts on device, of full and of the other components. shorts: pools too small for any
    request, filled by `full` and `other`. Groups of ranks that attend to requests of their own
    each hold other pages; the counts are of all groups together. All pipeline stages have the same
    counts: those of the stage with the least room."""

    def __init__(self, options: ReplayOptions, plan: Plan) -> None:
        self._options = options
        self._plan = plan
        self._page = plan.page_size
        ranks = options.parallelism
        self._groups = ranks.attention_dp
        weights = stage_weight_bytes(plan.model, ranks)
        self._weights = max(weights)
        self._rooms = [max(0, self._groups * (plan.memory - each)) for each in weights]
        self.window_pages = -(-plan.window // self._page)
        self._least_window = self.window_pages + max(1, -(-plan.interval // self._page))
        self._running = plan.engine.max_running if options.mode == "timed" else 1
        self._bytes = {
            name: [
                stage.bytes_per_page(name, self._page, ranks.attention_tp, ranks.dcp)
                for stage in plan.model.stages(ranks.pp)
            ]
            for name in plan.model.components
        }
        self._limit: dict[str, int] = {}
        self.shorts: list[Short] = []

    def full(self, jobs: Jobs) -> tuple[int, str]:
        """Pages of full, and the rule behind the number."""
        options, page = self._options, self._page
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
        fitting = self.hardware_pages()
        if given is not None:
            rule = "as given"
            if given > fitting:
                held = f"only {fitting:,} pages" if fitting else "no page beside the weights"
                rule += f", but {options.hardware or HARDWARE} holds {held}"
            self._limit.clear()
            return given, rule
        if fitting < 1:
            raise self._no_room()
        return fitting, f"90% of {options.hardware or HARDWARE} less the weights"

    def other(self, name: str, full: int) -> tuple[int, str]:
        """Pages of another component, given `full` pages of full, and the rule."""
        given = self._given(name)
        if given is not None:
            if residency(name) == "state":
                few = f"; fewer than the {OWN_STATES} of a request: hardly any is left behind"
                return given, "as given" + few * (given < OWN_STATES)
            self._check_given(name)
            return given, "as given"
        if self._options.device_pages == UNBOUNDED:
            per_state = max(1, self._plan.interval // self._page)
            states = residency(name) == "state"
            pages = full // per_state + OWN_STATES if states else max(full, self._least_window)
            return pages, "unbounded: as much as full can use"
        if residency(name) == "window" and self._least_window > full:
            expected = (
                f"a window that fits the {full * self._page} tokens of {BACKBONE} on device, with "
                "what is computed between two boundaries"
            )
            least = self._least_window * self._page
            self.shorts.append(
                Short(f"--{name}-window", expected, self._plan.window, BACKBONE, least)
            )
        own = min(self._running, full)
        return (
            self._wanted(name, full),
            f"{own} running, a {residency(name)} per {PREFIX_TOKENS:,} tokens",
        )

    def _given(self, name: str) -> int | None:
        if residency(name) == "state":
            states: int | None = option_of(self._options, name, "states")
            return states
        tokens = option_of(self._options, name, "tokens")
        return None if tokens is None else max(1, tokens // self._page)

    def _check_given(self, name: str) -> None:
        tokens, least = option_of(self._options, name, "tokens"), self._least_window * self._page
        if tokens is not None and tokens < least:
            expected = f"at least {least}, {_WINDOW}, which any request needs"
            self.shorts.append(Short(f"--{name}-tokens", expected, tokens, name, least))

    def _wanted(self, name: str, full: int) -> int:
        """Pages or states of a component whose size was not given, beside `full` pages of full."""
        running = min(self._running, full)
        if residency(name) == "state":
            own = OWN_STATES * running
            own = min(own, self._limit.get(name, own))
            return max(OWN_STATES, own) + self._prefixes(full)
        own = running * self._least_window + -(-self._plan.engine.token_budget // self._page)
        own = min(own, self._limit.get(name, own))
        wanted = own + self.window_pages * self._prefixes(full)
        return max(self._least_window, min(full, wanted))

    def _prefixes(self, full: int) -> int:
        return -(-full * self._page // PREFIX_TOKENS)

    def hardware_pages(self) -> int:
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

    def _given_bytes(self) -> Mapping[str, int]:
        """Bytes of the pools whose size was given, on a rank of the stage that has most."""
        others = ((name, self._given(name)) for name in self._bytes if name != BACKBONE)
        return {name: max(self._bytes[name]) * pages for name, pages in others if pages is not None}

    def _no_room(self) -> CallerError:
        options, plan = self._options, self._plan
        given = self._given_bytes()
        what = "weights" if not given else f"weights and the given {' and '.join(given)}"
        pools = "".join(f" and {size / 1e9:.1f} GB of {name}" for name, size in given.items())
        weights = self._weights / 1e9
        smaller = "smaller pools" if given else "a smaller --weight-dtype"
        runs = options.mode == "hits" or weights * 1e9 * float(HBM_SHARE) < plan.memory
        size = ", or give --device-tokens" if runs else ""
        return CallerError(
            f"--model {plan.model.name}: expected {what} below {plan.memory / 1e9:.0f} GB (90% of "
            f"one {options.hardware or HARDWARE}) and room for a page of each pool, found "
            f"{weights:.1f} GB of weights{pools} on each rank; use a larger --tp or --pp, other "
            f"--hardware or {smaller}{size}"
        )


def memory_of(profile: HardwareProfile) -> int:
    """Bytes of device memory for the weights and all pools of a rank."""
    return int(profile.hbm_bytes * HBM_SHARE)


def option_of(options: ReplayOptions, component: str, setting: str) -> int | None:
    """The value of a component's option; None if it was not given or does not exist."""
    value: int | None = getattr(options, f"{component}_{setting}", None)
    return value
