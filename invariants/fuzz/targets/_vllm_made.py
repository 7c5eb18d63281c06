"""How vLLM's scheduler, its connector and a worker are made from a configuration. They are played
in vllm.py.
"""

from __future__ import annotations

import logging
import tempfile
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1 import KVConnectorRole
from vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector import OffloadingConnector
from vllm.v1.kv_offload.tiering import async_lookup
from vllm.v1.kv_offload.tiering.fs import thread_pool

from hicache.core.errors import CallerError
from invariants.fuzz.records import Job
from invariants.fuzz.script import Recorder, raw
from invariants.fuzz.target import Config, Peer, Unfit
from invariants.fuzz.targets._vllm_doubles import Mirror, cache_config
from invariants.fuzz.targets._vllm_engine import PAGE, engine_config, make_scheduler
from invariants.fuzz.targets._vllm_models import groups_of, sizes_of
from invariants.fuzz.targets._vllm_moves import Moves
from invariants.fuzz.targets._vllm_ours import Ranks, ours
from invariants.fuzz.targets._vllm_remote import Arrivals, RemoteConnector, remote
from invariants.fuzz.targets._vllm_settings import OURS, longest
from invariants.fuzz.targets._vllm_shelf import shelf
from invariants.fuzz.targets._vllm_tiers import IDLE, Files
from invariants.fuzz.targets._vllm_worker import Host, MappedHost, Mover, Worker
from invariants.watch import Watch

logging.disable(logging.CRITICAL)
async_lookup.threading = thread_pool.threading = IDLE


@contextmanager
def fitting() -> Iterator[None]:
    """Turns a refusal of the engine, or of the connector, into Unfit."""
    try:
        yield
    except (AssertionError, ValueError, NotImplementedError, CallerError) as error:
        raise Unfit(str(error)) from error


class Made(Peer):
    """A peer whose parts are made."""

    def __init__(self, config: Config, recorder: Recorder) -> None:
        super().__init__(config, recorder)
        self.folder = ""
        self.steps, self.emptied = 0, -1  # planned, also when the host was emptied last
        self.judged = -1  # changes of host pages after which they were judged last
        self.groups = groups_of(config)
        self.whole, self.page = sizes_of(self.groups, int(config["hash"]))
        self.budget = max(int(config["budget"]), (1 + int(config["spec"])) * self.slots)
        self.depth = 2 if config["ahead"] else 1
        self.length = longest(config, self.groups, self.depth * self.budget)
        states = any(one.kind in ("align", "all") for one in self.groups)
        if config["connector"] == "remote" and (states or config["spec"]):
            raise Unfit("the connector of our own has no states, and no drafts")
        if self.length < 2 or (config["connector"] and config["model"] == "align"):
            raise Unfit("no sequence fits")
        blocks = int(config["pages"]) + 1
        mine = config["connector"] == OURS
        cache = recorder.make("cache", cache_config, blocks, self.groups, 2 if mine else 1)
        modes = [one.kind for one in self.groups if one.kind in ("align", "all")]
        named: dict[str, Any] = {
            "length": self.length,
            "blocks": blocks,
            "block": self.groups[0].block,
            "budget": self.budget,
            "requests": self.slots,
            "ahead": bool(config["ahead"]),
            "policy": config["policy"],
            "reserve": bool(config["reserve"]),
            "events": bool(config["events"]),
            "drafts": int(config["spec"]),
            "eagle": bool(config["eagle"]),
            "mode": modes[0] if modes else "none",
            "page": int(config["hash"]) and self.page,
        }
        kinds = {"": None, "remote": RemoteConnector, OURS: Ranks}
        kind: Any = kinds.get(config["connector"], OffloadingConnector)
        if kind is RemoteConnector:
            entire = bool(config.get("entire", True))
            settings = recorder.make("settings", remote, self.whole, bool(config["ahead"]), entire)
            named |= {"connector": "Remote", "more": settings}
            named["recompute"] = bool(config.get("recompute", True))
        elif mine:
            ranks, store = int(config.get("ranks", 1)), bool(config.get("store"))
            with fitting():
                more = (int(config["host"]), ranks, store, int(config.get("wait", 5)))
                settings = recorder.make("settings", ours, cache, *more)
            named |= {"connector": "HicacheConnector", "more": settings, "ranks": ranks}
        elif kind is not None:
            named |= {"connector": "OffloadingConnector", "more": self._settings()}
        made = recorder.make("config", engine_config, **named)
        with fitting():
            self.scheduler = recorder.make(
                "scheduler", make_scheduler, made, cache, self.whole, self.page
            )
            self.half: Any = None
            if kind is not None:
                self.half = recorder.make("half", kind, made, KVConnectorRole.WORKER, raw(cache))
        self.worker = recorder.make("worker", Worker, self.groups, made, self.half)
        self.follows = bool(config.get("follow", True))
        if not self.follows:
            self.worker.memory.judged = False
        self.mover: Any = None
        self.files: Any = None
        if kind is RemoteConnector:
            self.mover = recorder.make(
                "mover", Arrivals, self.worker.memory, int(config.get("loses", 0))
            )
            self.half.mover = self.mover
        elif mine:
            form = str(config.get("form", "plain"))
            self.mover = recorder.make("mover", Moves, self.worker.memory, self.half, form)
            self.mover.listen(self.scheduler)
            if config.get("watch"):  # the core's own checks, and its specification
                raw(self.scheduler).connector._decider.driver.observers += (Watch(most_pages=64),)
        elif self.half is not None:
            self.mover = recorder.make(
                "mover", Mover, self.worker.memory, self._host(recorder), self.factor
            )
            self.half.connector_worker.worker = self.mover
        self.mirror = recorder.make("mirror", Mirror)
        self.scheduler.kv_event_publisher = self.mirror
        self.queue: deque[Any] = deque()
        self.jobs: dict[str, Job] = {}
        self.requests: dict[str, Any] = {}

    def _host(self, recorder: Recorder) -> Any:
        """Host memory: our own, or what the engine shares with its file tier."""
        if self.config["connector"] == "cpu":
            return recorder.make("host", Host)
        manager = self.scheduler.connector.connector_scheduler.manager
        if self.config["connector"] == "files":
            self.files = recorder.make("files", Files, manager)
        else:
            self.files = manager.secondary_tiers[0]
        view = manager.primary_tier.get_kv_memoryview()
        return recorder.make("host", MappedHost, view, self.factor)

    @property
    def slots(self) -> int:
        return int(self.config["requests"])

    @property
    def factor(self) -> int:
        return int(self.config["factor"])

    def _settings(self) -> dict[str, Any]:
        """Settings of the offloading connector."""
        config = self.config
        size = max(one.block for one in self.groups) * 2 * 2 * 4  # bytes of a block, see _spec
        total = len(self.groups) * size * self.factor
        chunk = -(-total // PAGE) * PAGE
        settings: dict[str, Any] = {
            "cpu_bytes_to_use": int(config["host"]) * chunk,
            "eviction_policy": config["order"],
            "offload_prompt_only": bool(config["prompts"]),
        }
        if config["connector"] == "files":
            self.folder = tempfile.mkdtemp(prefix="hicache-peers-")
            tier = {
                "type": "fs",
                "root_dir": self.folder,
                "n_read_threads": 1,
                "n_write_threads": 1,
            }
            settings |= {"spec_name": "TieringOffloadingSpec", "secondary_tiers": [tier]}
        if config["connector"] == "shelf":
            made = self.recorder.make("tier", shelf, int(config.get("loses", 0)))
            settings |= {"spec_name": "TieringOffloadingSpec", "secondary_tiers": [made]}
        if self.factor > 1:
            settings["block_size"] = self.factor * self.groups[0].block
        return settings
