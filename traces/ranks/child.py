"""One rank of a replay, in a process of its own: a core, a CPU device, a store, real bytes.

It replays the whole trace as its orders say, and leaves its figures or its error in the folder that
the ranks share (see folder). Does not know the other ranks but as a group.

python -m traces.ranks.child FOLDER RANK
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

from hicache.core.errors import HicacheError
from hicache.core.types import Key, RequestId
from hicache.devices.base import DeviceOptions
from hicache.devices.cpu import CpuDevice
from hicache.memory.stored import stored_pools
from hicache.runtime.agreement import agree_on_settings
from hicache.runtime.controller import TransferController
from hicache.runtime.executors import TieredExecutor
from hicache.runtime.gloo_group import GlooGroup, join, leave
from hicache.runtime.group import MissingRank, alone
from hicache.runtime.storage.attachment import StorageExecutor
from hicache.runtime.storage.pages import Rank, StoredPages
from hicache.runtime.storage.workers import WorkerOptions, Workers
from hicache.storage.address import open_store, parse
from hicache.storage.base import StorageOptions
from hicache.storage.breaker import BreakerOptions
from hicache.storage.keys import Context
from sim.engine.accesses import Accesses
from sim.engine.sequence import final_length

from ..devices.recording_on_sim import layer_bytes
from ..devices.stopwatch import Stopwatch
from ..formats.base import Paged
from ..outside import entries
from ..replaying import modes
from ..replaying.builtin import opened
from ..replaying.playing import Moving
from ..replaying.settings import Settings, load_components, resolve
from .content import Content
from .folder import REFUSED, Folder, Orders, Said, tell
from .together import Together


class Rig:
    """What one rank has beside its core. Close it to end its threads."""

    def __init__(self, settings: Settings, paged: Paged, group: GlooGroup, folder: Folder) -> None:
        wait_s, shared = folder.orders.wait_s, folder.orders.store
        core, stages = settings.core, settings.parallelism.pp
        rank = place(group.rank, settings.tp, stages)._replace(own_store=shared is None)
        model = settings.model.stages(stages)[rank.stage]  # with the layers of its own
        self._device = device = CpuDevice(
            model,
            core.page_size,
            dict(zip(core.components, core.device_pages, strict=True)),
            dict(zip(core.components, core.host_pages, strict=True)),
            DeviceOptions(tp=rank.ranks, timer=time.perf_counter_ns),
        )
        self._watch = Stopwatch(device, layer_bytes(model, core.page_size, rank.ranks))
        # a call that takes long is no outage here: what it brings is a decision
        store = open_store(
            parse(shared or folder.store(group.rank)),
            StorageOptions(timeout_s=wait_s),
            time.monotonic,
            _notice,
            BreakerOptions(slow_s=wait_s),
        )
        # nobody else, and no other replay, has pages of this revision
        context = Context(model.name, folder.path.name, core.page_size, "ids", settings.model.pools)
        self._workers = Workers(
            store,
            StoredPages(context, stored_pools(device.arena), rank),
            time.monotonic,
            _notice,
            WorkerOptions(call_s=wait_s, every_boundary=True),
        )
        storage = StorageExecutor()
        storage.use(self._workers)
        self.content = Content(
            device,
            model,
            core,
            rank,
            Accesses(core, load_components(core)),
            partial(_whole_key, paged, settings.passes),
        )
        file = folder.telling(group.rank)
        self.together = Together(
            TieredExecutor(TransferController(self._watch), storage),
            group,
            {
                name: model.bytes_per_page(name, core.page_size, rank.ranks)
                for name in core.components
            },
            wait_s,
            lambda *said: tell(file, Said(*said)),
        )

    @property
    def moving(self) -> Moving:
        """What replaces the executors that move nothing."""
        return Moving(self.together, (self.together, self.content))

    def figures(self) -> dict[str, Any]:
        """What moved and was compared."""
        moved = Counter(self.together.moved)
        for copy in self._watch.settle(lambda: time.sleep(0)):
            moved[copy.direction.value] += copy.bytes
        return {
            "moved": dict(moved),
            "compared": self.content.compared,
            "exchanges": [one._asdict() for one in self.together.exchanges],
        }

    def close(self) -> None:
        self._workers.close()
        self._workers.store.close()
        self._device.close()


def place(rank: int, tp: int, stages: int) -> Rank:
    """A rank of the group: those of the first stage are the first."""
    return Rank(rank % tp, tp, rank // tp, stages)


def _whole_key(paged: Paged, passes: bool, request: RequestId) -> Key:
    """The key of a request with all that it generates, as far as the replay keeps that."""
    job = paged.jobs[request]
    if passes or paged.knows_output:
        return paged.key(job, final_length(job))
    return paged.prompt_key(job)


def _notice(text: str) -> None:
    print(text, file=sys.stderr)


def _silent(label: str, total: int) -> AbstractContextManager[Callable[[int], None]]:
    """No progress: the process that started the ranks shows it."""
    return nullcontext(lambda done: None)


def replay(folder: Folder, rank: int, orders: Orders) -> dict[str, Any]:
    """Replay the trace as this rank. Returns its figures."""
    entries.load(orders.outside)
    options, trace = opened(orders.options)
    settings, paged = resolve(replace(options, check="off"), trace)
    group = join(folder.address, rank, orders.ranks, timedelta(seconds=orders.wait_s))
    core = alone(agree_on_settings(settings.core, group))
    settings = replace(settings, core=core)
    rig = Rig(settings, paged, group, folder)
    begun = time.perf_counter()
    found = modes.run(trace, paged, settings, None, begun, shown=_silent, moving=rig.moving)
    wall_s = time.perf_counter() - begun
    figures = rig.figures()
    rig.close()  # after an error, the end of the process closes it, so that the others soon know
    leave()
    return {"digest": found.digest, "wall_s": wall_s, **figures}


def main(path: str, rank: int) -> int:
    folder = Folder(path)
    try:
        folder.end(rank, replay(folder, rank, folder.orders))
    except HicacheError as error:
        missing = list(error.missing) if isinstance(error, MissingRank) else None
        code = getattr(error, "exit_code", REFUSED)
        folder.end(rank, {"error": str(error), "code": code, "missing": missing})
        return int(code)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
