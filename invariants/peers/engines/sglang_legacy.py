"""SGLang's caches whose nodes are objects: RadixCache, HiRadixCache with its HiCacheController,
SWARadixCache, MambaRadixCache, and UnifiedRadixCache before its tree core (up to 0.5.15).

The hand is that of the peer sglang: the calls of each release's scheduler. What callers must know
is at the head of its file; here, too:

- HiRadixCache and the old UnifiedRadixCache load nothing, or everything that hit on the host.
- Up to 0.5.14 each host pool must be larger than its device pool (HostKVCache.__init__).
- sanity_check of SWARadixCache and MambaRadixCache asks that nothing is locked, so it is called as
  the scheduler does, when nothing runs (Scheduler.self_check_during_idle).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from sglang.srt.mem_cache.hicache_storage import PoolName
from torch._C._distributed_c10d import HashStore

from invariants.fuzz.draws import Draws

from ..base import Can, Config, Unfit
from ..script import Recorder
from ._sglang_draws import drawn, simpler
from ._sglang_legacy_world import CACHES, LegacyWorld, UnifiedRadixCache, caches_of_release
from ._sglang_names import is_there
from .sglang import SGLang

LIKE = "sglang"
RELEASES = ("0.5.11", "0.5.12", "0.5.13", "0.5.14", "0.5.15", "0.5.19", "0.5.20", "0.5.23")
DOUBLES = (
    "_sglang_names.py",
    "_sglang_copies.py",
    "_sglang_threads.py",
    "_sglang_storage.py",
    "_sglang_legacy_world.py",
    "_sglang_doubles.py",
    "_sglang_state.py",
    "_sglang_events.py",
)
HAVE = caches_of_release()
OF_WINDOWS = ("full+swa",) if hasattr(PoolName, "SWA") else ()
TIERED = ("hiradix", "unified") if hasattr(UnifiedRadixCache, "init_hicache") else ("hiradix",)

if not torch.distributed.is_initialized():  # HiRadixCache asks how many ranks there are
    torch.distributed.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)


LARGE_HOST = not is_there("mem_cache.pure_swa_radix_cache")  # 0.5.15
UNKNOWN = ("core", "storage", "prefetch", "prefetch_from", "prefix_keys")
PAIRS = (("host", "pages"), ("host_swa", "swa_pages"), ("host_mamba", "mamba"))


class SGLangLegacy(SGLang):
    can: ClassVar[Can] = SGLang.can
    TAKES: ClassVar[dict[str, tuple[Any, ...]]] = {
        "cache": tuple(CACHES),
        **{name: values for name, values in SGLang.TAKES.items() if name not in UNKNOWN},
        "at_once": (True, False),
    }
    WORLD = LegacyWorld
    LONE_PARTS = False

    def __init__(self, config: Config, recorder: Recorder) -> None:
        small = [
            host for host, device in PAIRS if config[device] and config[host] <= config[device]
        ]
        if config["host"] and LARGE_HOST and small:
            raise Unfit(f"{', '.join(small)}: up to 0.5.14 it must be larger than on the device")
        super().__init__(config, recorder)

    @classmethod
    def draw(cls, draws: Draws, fixed: Config) -> Config:
        kind = str(fixed.get("cache") or draws.one(HAVE))
        parts = CACHES[kind][2] or draws.one(("full", "full", "full+mamba", *OF_WINDOWS))
        given: Config = {"cache": kind, "core": "python", "components": parts} | fixed
        given |= {"storage": "none"}
        if kind not in TIERED:
            given |= {"host": 0}
        found = drawn(draws, given)
        if kind == "hiradix" and not found["host"]:
            found["host"] = draws.between(4, 50)
        for host, device in PAIRS if found["host"] and LARGE_HOST else ():
            found[host] = max(found[host], found[device] + draws.between(1, 9))
        more = {"events": False, "states": -1, "at_once": draws.chance(30)}
        return found | more | fixed

    @classmethod
    def simpler(cls, config: Config) -> Sequence[Config]:
        kept = "host" if config["cache"] == "hiradix" else ""
        parts = config["components"] if config["cache"] != "unified" else ""
        return [
            one
            for one in simpler(config)
            if (not kept or one[kept]) and (not parts or one["components"] == parts)
        ]

    def evict(self, pool: str, slots: int) -> int:
        if pool not in self.plain.pools or "host" not in pool or self.config["cache"] == "unified":
            return super().evict(pool, slots)
        host = self.plain.pools[pool]
        before = host.available_size()
        self.cache.evict_host(slots)
        return int(host.available_size() - before)

    def self_check(self) -> None:
        cache = self.plain.cache
        if not hasattr(cache, "sanity_check") or self.running or self.world.busy():
            return
        cache.sanity_check()


PEER = SGLangLegacy
