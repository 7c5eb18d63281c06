"""LMCache: its engine with the local backends, CPU memory and disk, stored whole or by layer.

The hand does what vLLM's connector does (lmcache/integration/vllm/vllm_v1_adapter.py): it looks a
prompt up and pins what was found, loads it, unpins it, and stores each chunk that was computed. A
look-up may wait long before its load, since a request that gets no GPU blocks keeps its answer and
its pins (`get_num_new_matched_tokens`).

Notes on its contract, which are no bugs:

- A look-up asks each backend once, in their order, for what the ones before have not: chunks on CPU
  behind chunks on disk are not found (`StorageManager.batched_contains`).
- A pinned entry may be removed by a call from outside, which releases its pins
  (`LocalCPUBackend.remove`); what was looked up before then comes short.
- Where memory is short, less is stored (`LMCacheEngine.store`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np

from invariants.fuzz.draws import Draws
from invariants.fuzz.ops.requests import pack, unpack
from invariants.fuzz.records import Job
from invariants.fuzz.tapes.schema import PROMPT, REQUEST, Schema, number, word

from ..base import Broken, Can, Config, Fetch, Hit, Peer, PoolState, Store, Transfer, need
from ..hand import Hand
from ..ops import Arguments, Operation, prompt
from ..script import Recorder, raw
from ._lmcache_doubles import LAYERS, Gpu, Rig, Stuck
from ._lmcache_state import check_counts, pools_of

DISTRIBUTION = "lmcache"
RELEASES = ("0.5.6",)
NEEDS = (
    "sortedcontainers==2.4.0",
    "prometheus-client==0.24.1",
    "msgspec==0.20.0",
    "pyyaml==6.0.4",
    "psutil==7.2.2",
    "pyzmq==27.1.0",
    "cachetools==6.2.2",
)
STUBS = (
    # compilers and profilers of GPU code
    "numba",
    "nvtx",
    # other machines: clients, encryption, traces of requests, reports of usage
    "aiofile",
    "cryptography",
    "opentelemetry",
    "requests",
    "lmcache.usage_telemetry",
    # a tokenizer, for blending
    "transformers",
)
BARE = ()
UNUSED = ("lmcache/cuda_ops*.so", "lmcache/lmcache_fs*.so", "lmcache/lmcache_redis*.so", "*.png")
DOUBLES = ("_lmcache_doubles.py", "_lmcache_state.py")

POLICIES = ("LRU", "LFU", "FIFO", "MRU")
_TAG = "lmcache.tag.tenant"  # of a key, so that tenants share nothing


class LmcachePeer(Peer):
    can = Can(host=True, fails=True, namespaces=True)
    TAKES: ClassVar[dict[str, tuple[Any, ...]]] = {
        "policy": POLICIES,
        "disk": (),
        "hot": (True, False),
        "unfull": (True, False),
        "layerwise": (True, False),
        "decode": (True, False),
        "early": (True, False),
        "ahead": (True, False),
        "local": (),
        "align": (64, 4096),
        "fails": (True, False),
        "clears": (True, False),
        "loses": (True, False),
        "page": (),
        "pages": (),
    }
    REACHES = (
        *("hit on host", "hit on disk", "looked up early", "loaded late"),
        *("store began", "evicted from cpu", "evicted from disk", "emptied"),
    )

    def __init__(self, config: Config, recorder: Recorder) -> None:
        super().__init__(config, recorder)
        self.rig = recorder.make(
            "rig",
            Rig,
            chunk=config["page"],
            cpu=units_of(config) * config["pages"],
            disk=units_of(config) * config["disk"],
            policy=config["policy"],
            hot=config["hot"],
            unfull=config["unfull"],
            layerwise=config["layerwise"],
            ahead=config["ahead"],
            align=config["align"],
        )
        self.real: Rig = raw(self.rig)
        self.gpus: dict[int, Any] = {}
        self.saved: dict[int, int] = {}  # tokens that the connector takes to be stored
        self.looked: dict[int, int | None] = {}  # found by look-ups that were not loaded yet
        self.bounds: dict[int, tuple[int, int]] = {}  # what these may find
        self.gone: set[int] = set()  # requests that ended while the engine loaded ahead
        self.excused: set[int] = set()  # look-ups of which something was removed from outside
        self.lost = False  # whether a file of the disk was removed by somebody else
        self.begun = 0
        self.let = False

    @classmethod
    def draw(cls, draws: Draws, fixed: Config) -> Config:
        pages = draws.between(4, 20)
        disk = draws.one((0, pages, 2 * pages, 3))
        layerwise = draws.chance(25)
        drawn = {
            "page": draws.one((1, 2, 4, 4)),
            "pages": pages,
            "disk": disk,
            "policy": draws.one(POLICIES),
            "hot": not disk or draws.chance(85),
            "unfull": draws.chance(30),
            "layerwise": layerwise,
            "decode": draws.chance(30),
            "early": draws.chance(60),
            "ahead": not layerwise and draws.chance(30),
            "local": draws.one((0, 0, 1, 2)),
            "align": draws.one((4096, 4096, 64)),
            "fails": draws.chance(30),
            "clears": draws.chance(20),
            "loses": draws.chance(10),
        }
        return drawn | fixed

    @classmethod
    def simpler(cls, config: Config) -> Sequence[Config]:
        plain = {"policy": "LRU", "hot": True, "align": 4096, "disk": 0}
        found = [config | {key: value} for key, value in plain.items() if config[key] != value]
        for key in ("unfull", "layerwise", "decode", "early", "ahead", "fails", "clears", "loses"):
            found += [config | {key: False}] * bool(config[key])
        for key in ("page", "pages", "disk", "local"):
            found += [config | {key: less} for less in (1, config[key] - 1) if less < config[key]]
        return [
            one
            for one in found
            if one["page"] > 0 and one["pages"] > 0 and min(one["disk"], one["local"]) >= 0
        ]

    # -- the verbs

    def match(self, job: Job) -> Hit:
        with self.engine_runs():
            found = self.rig.engine.lookup(job.tokens, request_configs=configs_of(job.namespace))
        least, most = self.reference(job)
        text = f"expected {least} to {most} tokens, found {found}"
        need(least <= found <= most, "MATCH", text, "look-up")
        return Hit(0, found)

    def look_up(self, job: Job) -> int | None:
        """The scheduler asks, and what is found stays pinned until it is loaded. None: the engine
        still loads, ahead."""
        if job.id not in self.looked:
            least, most = self.reference(job)
            found = self.ask(job)
            self.looked[job.id] = found
            self.bounds[job.id] = least, most
        found = self.looked[job.id]
        if found is None:
            found = self.looked[job.id] = self.real.answers.get(str(job.id))
        if found is not None and job.id in self.bounds:
            least, most = self.bounds.pop(job.id)
            text = f"expected {least} to {most} tokens, found {found}"
            need((self.config["ahead"] or least <= found) and found <= most, "MATCH", text, "pin")
        return found

    def ask(self, job: Job) -> int | None:
        configs = configs_of(job.namespace)
        with self.engine_runs():
            if self.config["ahead"]:
                self.rig.look_ahead(job.tokens, str(job.id), configs)
                return None
            found: int = self.rig.engine.lookup(
                job.tokens, lookup_id=str(job.id), pin=True, request_configs=configs
            )
            return found

    def admit(self, job: Job) -> Hit | None:
        self.counts["loaded late"] += job.id in self.looked
        found = self.look_up(job)
        if found is None:
            return None
        self.counts["hit on disk"] += "LocalDiskBackend" in self.real.engine.lookup_pins.get(
            str(job.id), ()
        )
        skip = min(self.config["local"], len(job.tokens) // self.config["page"])
        skip *= self.config["page"]
        gpu = self.recorder.make("gpu", Gpu, job.tokens, job.namespace, skip)
        came = 0
        with self.engine_runs():
            if found > skip:
                came = self.rig.retrieve(
                    gpu, job.tokens[:found], skip, str(job.id), configs_of(job.namespace)
                )
            else:
                self.rig.engine.lookup_unpin(str(job.id))
        del self.looked[job.id]
        self.real.answers.pop(str(job.id), None)
        want = max(0, found - skip)
        text = f"the look-up found {want} tokens and pinned them, the load has {came}"
        need(came == want or job.id in self.excused or self.lost, "MATCH", text, "load")
        self.excused.discard(job.id)
        self.read(gpu, skip + came)
        self.gpus[job.id] = gpu
        self.saved[job.id] = found
        job.computed = min(skip + came, len(job.tokens) - 1)
        return Hit(0, came)

    def prefill(self, job: Job, until: int) -> bool:
        self.write(job, until)
        self.store(job, until, until >= job.prompt)
        return True

    def decode(self, job: Job, tokens: Sequence[int]) -> bool:
        grown = [*job.tokens, *tokens]
        gpu = self.recorder.make("gpu", Gpu, grown, job.namespace, len(grown))
        self.gpus[job.id] = gpu
        if self.config["decode"]:
            self.store(Job(job.id, grown, job.namespace, job.prompt), len(grown), True)
        return True

    def write(self, job: Job, until: int) -> None:
        """The GPU computes the prompt up to there."""
        self.gpus[job.id] = self.recorder.make("gpu", Gpu, job.tokens, job.namespace, until)

    def store(self, job: Job, until: int, last: bool) -> None:
        """As the connector does: the chunks that it takes not to be stored yet
        (`ReqMeta.from_request_tracker`, `wait_for_save`)."""
        chunk, saved = self.config["page"], self.saved[job.id]
        boundary = (saved // chunk + 1) * chunk
        if saved > 0 and until < boundary:
            return
        end = until if last and self.config["unfull"] else until // chunk * chunk
        self.saved[job.id] = end
        if saved >= end:
            return
        memory, disk = self.real.cpu, self.real.disk
        before = set(memory.hot_cache), set(disk.dict if disk else ())
        with self.engine_runs():
            self.rig.store(
                self.gpus[job.id],
                job.tokens[:end],
                saved // chunk * chunk,
                configs_of(job.namespace),
            )
        self.counts["evicted from cpu"] += not before[0] <= memory.hot_cache.keys()
        self.counts["evicted from disk"] += bool(disk) and not before[1] <= disk.dict.keys()

    def finish(self, job: Job, keep: bool) -> None:
        self.abort(job)

    def retract(self, job: Job) -> None:
        self.abort(job)

    def abort(self, job: Job) -> None:
        self.gpus.pop(job.id, None)
        self.saved.pop(job.id, None)
        if job.id in self.looked:
            self.forget(job.id)

    def forget(self, request: int) -> None:
        """A request ended before its load. One that loads ahead is cleaned up when it has loaded
        (`LMCacheAsyncLookupClient.cancel_lookup`)."""
        del self.looked[request]
        self.bounds.pop(request, None)
        if self.config["ahead"]:
            self.gone.add(request)
            self.poll()
        else:
            self.rig.engine.lookup_unpin(str(request))

    def poll(self) -> None:
        for request in sorted(self.gone):
            if self.real.answers.pop(str(request), None) is not None:
                self.gone.discard(request)
                self.rig.engine.cleanup_memory_objs(str(request))

    def reset(self) -> bool:
        for request in list(self.looked):  # the hand has ended them all
            self.forget(request)
        with self.engine_runs():
            self.rig.engine.clear()
        return not self.real.cpu.hot_cache

    def clear(self, tokens: list[int], namespace: str) -> None:
        """A call from outside removes a prompt (the API of the engine, or its controller)."""
        self.excused.update(self.looked)
        with self.engine_runs():
            self.rig.engine.clear(tokens, request_configs=configs_of(namespace))

    def lose(self, which: int) -> None:
        """A file of the disk is removed by somebody else."""
        if self.real.disk is not None and self.real.disk.dict:
            entries = list(self.real.disk.dict.values())
            self.lost = True
            path = entries[which % len(entries)].path
            if os.path.exists(path):
                self.recorder.make("gone", os.remove, path)

    # -- transfers

    def transfers(self) -> Sequence[Transfer]:
        threads = self.real.threads
        new = threads.jobs[len(threads.jobs) - (threads.begun - self.begun) :]
        self.begun = threads.begun
        return [Store(job) if "memory_obj" in job.named else Fetch(job) for job in new]

    def answer(self, transfer: Transfer, fault: str) -> None:
        jobs = self.real.threads.jobs
        if transfer.what in jobs:  # it may have run while somebody waited
            at = jobs.index(transfer.what)
            with self.engine_runs():
                self.rig.threads.run_at(at, fault if self.config["fails"] else "")

    # -- the state

    def pools(self) -> Sequence[PoolState]:
        found: Sequence[PoolState] = self.recorder.pure(pools_of, self.rig)
        return found[:1] if self.let else found

    def laws(self) -> None:
        with lawful("LOCK-BAL"):
            self.recorder.check(check_counts, self.rig, sorted(map(str, self.excused)))

    def let_go(self) -> None:
        """Clears the memory. The disk has no such call, so it is judged no more."""
        self.let = True
        with self.engine_runs():
            self.rig.engine.clear()

    def close(self) -> None:
        self.real.close()

    def read(self, gpu: Any, end: int) -> None:
        with lawful("BYTES", "load"):
            gpu.check(0, end)

    def reference(self, job: Job) -> tuple[int, int]:
        """The fewest and most tokens that a look-up may find: each backend once, and the longest
        prefix of which every chunk is somewhere."""
        engine, memory, disk = self.real.engine, self.real.cpu.hot_cache, self.real.disk
        configs = configs_of(job.namespace)
        files = {} if disk is None else disk.dict
        least = most = 0
        turned = broken = False
        for _, end, key in engine.token_database.process_tokens(
            job.tokens, request_configs=configs
        ):
            keys = key.split_layers(LAYERS) if self.config["layerwise"] else [key]
            at = [[one in memory for one in keys], [one in files for one in keys]]
            if not any(all(one) for one in at):
                break
            most = end
            turned = turned or not all(at[0])
            here = at[1] if turned and not self.config["layerwise"] else at[0]
            clear = all(at[0]) or (not any(at[0]) and all(at[1]))
            broken = broken or not (clear if self.config["layerwise"] else all(here))
            if not broken:
                least = end
        return least, most

    @contextmanager
    def engine_runs(self) -> Iterator[None]:
        """The engine runs. One that waits for what nobody does hangs."""
        try:
            yield
        except Stuck as error:
            waiting = (
                "lock"
                if "lock" in str(error)
                else "others' pins"
                if len(self.looked) > 1
                else "alone"
            )
            told = Broken("HANG", str(error), waiting)
            raise told.with_traceback(error.__traceback__) from None


@contextmanager
def lawful(law: str, kind: str = "") -> Iterator[None]:
    """An AssertionError in the block is a broken law. kind: what its text begins with, if that is
    empty."""
    try:
        yield
    except Broken:
        raise
    except AssertionError as error:
        text = str(error)
        raise Broken(law, text, kind or text.partition(":")[0][:60]) from error


def units_of(config: Config) -> int:
    """Units of memory that a full chunk takes."""
    parts = LAYERS if config["layerwise"] else 1
    size = config["page"] * 2 * LAYERS * np.dtype(np.int64).itemsize // parts
    return int(parts * -(-size // config["align"]))


def configs_of(namespace: str) -> dict[str, str] | None:
    """How a request says whose its keys are."""
    return {_TAG: namespace} if namespace else None


# -- operations of its own


def _draw_look(hand: Hand, draws: Draws) -> Arguments | None:
    if not hand.config["early"]:
        return None
    jobs = [job for job in hand.pick("waiting") if job.id not in _peer(hand).looked]
    return {"request": draws.one(jobs).id} if jobs else None


def _look(hand: Hand, args: Arguments) -> None:
    """The scheduler looks a waiting request up, and has no room for it yet."""
    job = hand.job(int(args["request"]), "waiting")
    if job is not None and hand.config["early"]:
        hand.said(host=_peer(hand).look_up(job) or 0)
        hand.counts["looked up early"] += 1


def _draw_abort(hand: Hand, draws: Draws) -> Arguments | None:
    jobs = hand.pick("waiting", "idle", "decoding")
    return {"request": draws.one(jobs).id} if jobs else None


def _abort(hand: Hand, args: Arguments) -> None:
    """Ends a request at any stage, with the pins of its look-up."""
    job = hand.job(int(args["request"]), "waiting", "idle", "decoding")
    if job is not None:
        hand.peer.abort(job)
        hand.end(job)


def _draw_clear(hand: Hand, draws: Draws) -> Arguments | None:
    if not hand.config["clears"]:
        return None
    return {"tokens": pack(prompt(hand, draws)), "space": draws.one(("", "", "a"))}


def _clear(hand: Hand, args: Arguments) -> None:
    if hand.config["clears"]:
        _peer(hand).clear(unpack(args["tokens"]), str(args["space"]))


def _draw_lose(hand: Hand, draws: Draws) -> Arguments | None:
    return {"which": draws.between(0, 40)} if hand.config["loses"] else None


def _lose(hand: Hand, args: Arguments) -> None:
    if hand.config["loses"]:
        _peer(hand).lose(int(args["which"]))


def _peer(hand: Hand) -> LmcachePeer:
    assert isinstance(hand.peer, LmcachePeer)
    return hand.peer


_OF_REQUEST: Schema = {"request": REQUEST}
_OF_PROMPT: Schema = {"tokens": PROMPT, "space": word()}
LmcachePeer.OPERATIONS = {
    "abort": Operation(3, _OF_REQUEST, _draw_abort, _abort),
    "clear": Operation(4, _OF_PROMPT, _draw_clear, _clear),
    "look": Operation(8, _OF_REQUEST, _draw_look, _look),
    "lose": Operation(3, {"which": number()}, _draw_lose, _lose),
}
PEER = LmcachePeer
