"""What holds a device pool that is larger than the chosen hardware: a smaller type of cached rows,
more ranks, or other hardware.

Only what does hold it is named. Does not check requests (see fitting) or divide the memory (see
device_sizes).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from hicache.core.errors import CallerError
from sim.hardware import profile as hardware
from sim.options import EngineOptions

from .defaults import HARDWARE
from .device_sizes import DeviceSizes, Plan, memory_of
from .options import ReplayOptions
from .pools import Pools, model_of

_SMALL_KV = "fp8"
_RANKS = (2, 4, 8, 16)


@dataclass(frozen=True, slots=True)
class Holding:
    """How many pages of full the hardware of some options holds. sizes: of the pools that were
    chosen, for window and interval."""

    options: ReplayOptions
    page_size: int
    sizes: Pools
    engine: EngineOptions

    def pages(self) -> int:
        """The most pages of full beside the weights and the other pools; 0 for none, and for
        options that cannot be."""
        options, sizes = self.options, self.sizes
        try:
            model = model_of(options)
            memory = memory_of(hardware.get(options.hardware or HARDWARE))
            plan = Plan(model, memory, self.page_size, sizes.window, sizes.interval, self.engine)
            return DeviceSizes(options, plan).hardware_pages()
        except CallerError:
            return 0

    def ways(self, pages: int) -> list[str]:
        """The changes that hold so many pages: single ones, or else two together."""
        options = self.options
        found = [*self._that_hold(_single(options), pages)]
        if found:
            return found
        small = f"--kv-dtype {_SMALL_KV} and "
        both = ((small + way, more) for way, more in _single(replace(options, kv_dtype=_SMALL_KV)))
        return [*self._that_hold(both, pages)]

    def _that_hold(self, changes: Iterable[tuple[str, ReplayOptions]], pages: int) -> Iterator[str]:
        """The first change of each option that holds the pages."""
        done = set()
        for way, options in changes:
            option = way.rpartition(" ")[0]
            if option not in done and replace(self, options=options).pages() >= pages:
                done.add(option)
                yield way


def _single(options: ReplayOptions) -> Iterator[tuple[str, ReplayOptions]]:
    """One change each, the smaller first."""
    if options.kv_dtype != _SMALL_KV:
        yield f"--kv-dtype {_SMALL_KV}", replace(options, kv_dtype=_SMALL_KV)
    for ranks in _RANKS:
        if ranks > options.tp:
            yield f"--tp {ranks}", replace(options, tp=ranks)
    known = [hardware.get(name) for name in hardware.names()]
    for name in (
        one.name for one in sorted(known, key=lambda one: (one.hbm_bytes, -one.flops_per_s))
    ):
        if name != (options.hardware or HARDWARE):
            yield f"--hardware {name}", replace(options, hardware=name)
