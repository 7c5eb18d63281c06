"""Drawn sequences on the connector under the stand-in for vLLM, with every invariant checked."""

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from hicache.runtime.storage import Rank
from hicache.storage.address import open_store, parse
from hicache.storage.base import StorageOptions
from hicache.storage.keys import Context
from hicache.vllm.groups import FULL, STATE, WINDOW, groups_of
from hicache.vllm.scheduler import ConnectorScheduler
from hicache.vllm.worker import ConnectorWorker, Watching, digest_of
from invariants.checker import Checker

from .engine import ROW, Engine, Lora, Request, Worker, cache_config

KINDS = {
    "full": [(FULL, 4)],
    "window": [(FULL, 4), (WINDOW, 4), (WINDOW, 4)],
    "uneven": [(FULL, 4), (WINDOW, 8)],
    "small_window": [(FULL, 8), (WINDOW, 4)],
    "state": [(STATE, 8), (FULL, 8)],
    "small_state": [(STATE, 4), (FULL, 8), (STATE, 4)],
    "all": [(WINDOW, 8), (STATE, 8), (FULL, 8)],
}
LONGEST = 90  # tokens of a prompt
WORDS = 3  # different tokens of which shared beginnings are made


@dataclass
class Setting:
    """One engine with its connector. store: a folder, or none. form: of vLLM's tensors (`formed`).
    faults: see `Engine`. adapters: a folder for them, or none."""

    kinds: str = "full"
    blocks: int = 60
    host_pages: int = 40
    chunk: int = 24
    window: int = 11
    ranks: int = 1
    store: Path | None = None
    form: str = "plain"
    faults: float = 0.0
    weights: str = "1"
    adapters: Path | None = None
    check: tuple[str, str] = ("", "")


def written(folder: Path, number: int, draw: random.Random) -> Lora:
    """An adapter, one of few that there are: two of a name, and what changes may be the rank and
    alpha alone."""
    place = folder / str(number)
    place.mkdir(parents=True, exist_ok=True)
    (place / "adapter_model.safetensors").write_text(draw.choice("ab"))
    (place / "adapter_config.json").write_text(f'{{"lora_alpha": {draw.choice([16, 64])}}}')
    return Lora(f"tenant{number // 2}", number, str(place))


def formed(form: str, blocks: int, component: str, block: int) -> tuple[Any, torch.Tensor]:
    """A layer's memory, as vLLM registers it and as [block, position, bytes] (of a state without
    position).

    plain: blocks come first. split: kernels have blocks of half the size. planes: keys and values
    apart. A state is two tensors of one block each, as those of a convolution and a recurrence.
    """
    if component == STATE:
        full = torch.zeros((blocks, 2, ROW // 2), dtype=torch.uint8)
        return [full[:, 0], full[:, 1]], full
    if form == "planes":
        planes = torch.zeros((2, blocks, block, ROW // 2), dtype=torch.uint8)
        return planes, planes.permute(1, 2, 0, 3)
    full = torch.zeros((blocks, block, ROW), dtype=torch.uint8)
    view = full.view(2 * blocks, block // 2, ROW) if form == "split" else full
    return view, full


class Playing:
    """Opens it, plays requests, and closes it."""

    def __init__(self, setting: Setting) -> None:
        config = cache_config(KINDS[setting.kinds], setting.blocks, setting.window)
        groups = groups_of(config)
        host = dict.fromkeys(groups.components, setting.host_pages)
        core = groups.config(host, 200, setting.store is not None)
        self.checker = Checker(seed=0)
        self.notices: list[str] = []
        self.scheduler = ConnectorScheduler(
            groups,
            core,
            setting.ranks,
            time.perf_counter,
            5.0,
            lambda item: digest_of(item.lora_path, self.notices.append),
            [] if setting.check[0] else [self.checker],
            self.notices.append,
            setting.check,
        )
        self.setting, self.worker = setting, Worker()
        self.workers, tensors = [], []
        for rank in range(setting.ranks):
            both = {
                layer: formed(setting.form, setting.blocks, group.component, group.block)
                for group in groups.groups
                for layer in group.layers
            }
            tensors.append({layer: seen.numpy() for layer, (_, seen) in both.items()})
            values = {layer: item for layer, (item, _) in both.items()}
            worker = ConnectorWorker(groups, values, setting.blocks, host, Watching(self.worker))
            if setting.store is not None:
                address = parse(f"file:{setting.store}")
                store = open_store(address, StorageOptions(), time.perf_counter, print)
                context = Context("stand-in", setting.weights, groups.page, "tokens", ())
                mine = Rank(rank, setting.ranks)
                worker.use_store(store, context, mine, time.perf_counter)
            self.workers.append(worker)
        self.engine = Engine(
            config,
            self.scheduler,
            self.workers,
            tensors,
            chunk=setting.chunk,
            window=setting.window,
            worker=self.worker,
            faults=setting.faults,
        )
        self.number = 0

    def request(
        self,
        tokens: Sequence[int],
        wanted: int = 1,
        salt: str | None = None,
        lora: Lora | None = None,
    ) -> Request:
        self.number += 1
        request = Request(str(self.number), list(tokens), len(tokens), wanted, salt)
        request.lora_request = lora
        self.engine.send(request)
        return request

    def settle(self, most: int = 100_000) -> None:
        """Step until nothing is under way. Threads get time to work where there is no pass."""
        for _ in range(most):
            if not self.engine.busy:
                break
            if not self.engine.step():
                time.sleep(0.0005)
        else:
            raise AssertionError("the engine does not come to rest")
        engine, view = self.engine, self.scheduler.driver.core.view
        assert not self.scheduler.orders.held_blocks
        assert not self.scheduler.remembered, "something is remembered of a request that has ended"
        assert len(engine.pool.free) == len(engine.pool.blocks) - 1, "a block has leaked"
        self.scheduler.message()
        if self.scheduler.driver.detached:
            return
        counts = self.scheduler.counts
        result = (counts["host_tokens"] + counts["storage_tokens"], counts["saved_pages"])
        assert result == (engine.arrived, engine.saved), "counters: not what arrived"
        assert not view.requests
        assert not view.transfers
        assert all(pool.free == pool.capacity for pool in view.pools(0)), "a device page is left"

    def close(self) -> None:
        for worker in self.workers:
            worker.close()


def change(draw: random.Random, playing: Playing, loras: list[Lora]) -> None:
    """The files of an adapter change, which vLLM may load again. Mostly its own cache is emptied
    then. Those that it has not loaded stay while a request has rows of them: nobody can tell."""
    manager, number = playing.worker.lora_manager, draw.randrange(len(loras))
    using = [*playing.engine.running, *playing.engine.arriving.values()]
    if number in manager.loaded or all(item.lora_request != loras[number] for item in using):
        lora = written(Path(loras[0].lora_path).parent, number, draw)
        if draw.random() < 0.6:
            manager.add_adapter(replace(lora, load_inplace=True))
    if draw.random() < 0.8:
        playing.engine.empty()


def drawn(
    seed: int, playing: Playing, requests: int, resets: float = 0.0, changes: float = 0.0
) -> None:
    """Send, step, abort and drop at random until so many requests have been sent. resets: the share
    of requests before which all caches are to be emptied. changes: before which an adapter
    changes."""
    draw = random.Random(seed)
    folder = playing.setting.adapters
    loras = [] if folder is None else [written(folder, number, draw) for number in range(3)]
    alive: list[Request] = []
    beginnings: list[list[int]] = [[]]
    for _ in range(requests):
        if resets and draw.random() < resets:
            playing.engine.reset()
        if changes and draw.random() < changes:
            change(draw, playing, loras)
        begun = draw.choice(beginnings)
        cut = draw.randint(0, min(len(begun), LONGEST - 1))
        more = [draw.randrange(WORDS) for _ in range(draw.randint(1, LONGEST - cut))]
        prompt = begun[:cut] + more
        beginnings = [*beginnings[-6:], prompt]
        salt = draw.choice([None, None, None, "salt"])
        lora = draw.choice([None, *loras])
        if lora and draw.random() < 0.1:
            lora = replace(lora, load_inplace=True)
        alive.append(playing.request(prompt, draw.randint(1, 12), salt, lora))
        for _ in range(draw.choice([0, 0, 1, 3, 10])):
            playing.engine.step()
        alive = [request for request in alive if not request.ended]
        if alive and draw.random() < 0.1:
            playing.engine.end(alive.pop(draw.randrange(len(alive))))
        if not playing.engine.running and draw.random() < 0.3:
            playing.settle()
            playing.engine.pool.forget()
    playing.settle()
