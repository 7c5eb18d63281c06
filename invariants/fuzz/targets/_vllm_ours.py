"""This project's own connector under vLLM's scheduler, with one rank or several, and its laws.

Real are `HicacheConnector` with both its halves, the core, the copies of the CPU device, the keys
of a store, and vLLM's aggregation of ranks. Stand-ins are the clock, the threads, and the store
(_vllm_moves.py). Scripts copy definitions from here.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.v1.outputs import KVConnectorOutput

from hicache.core.types import Tier
from hicache.vllm.groups import STATE, groups_of
from invariants.fuzz.target import need
from invariants.fuzz.targets._vllm_doubles import Memory
from invariants.fuzz.targets._vllm_moves import SPOILT, Held, Moves

CONNECTOR = "hicache.vllm.connector"


class Ticks:
    """Stands in for the clock: each look is a second after the one before."""

    def __init__(self) -> None:
        self.looks = 0

    def now_s(self) -> float:
        self.looks += 1
        return float(self.looks)


class Raising:
    """Stands in for the log: an error that the connector survives is raised."""

    def exception(self, *said: Any) -> None:
        error = sys.exc_info()[1]
        assert error is not None
        raise error

    def warning(self, *said: Any) -> None:
        """Nobody reads it."""


class Inline:
    """Stands in for a stream of the CPU device, and for its thread: a job is done at once."""

    def __init__(self, name: str, run: Any) -> None:
        self.failed, self.run, self.next = False, run, [None]
        self.jobs = self.worker = self

    def put(self, job: Any) -> None:
        self.next = [None, job]
        self.run(self)

    def get(self) -> Any:
        return self.next.pop()

    def join(self) -> None:
        """There is no thread."""


def ours(cache: Any, pages: int, ranks: int, store: bool, wait: int) -> dict[str, Any]:
    """The settings of the connector, which vLLM then knows by its name. pages: of host memory, on
    each rank. wait: looks at the clock for which a request waits for the store."""
    module = import_module(CONNECTOR)
    KVConnectorFactory._registry["HicacheConnector"] = lambda: module.HicacheConnector
    vars(module).update(Clock=Ticks, _log=Raising(), watching=lambda rank: None)
    vars(import_module("hicache.devices.cpu"))["_Line"] = Inline
    host = pages * ranks * sum(groups_of(cache).page_bytes.values())
    settings = {"host": host, "wait_s": wait, "weights": "none"}
    return settings | ({"storage": "file:nowhere"} if store else {})


class Ranks:
    """The worker halves of all ranks, called in the order of kv_connector_model_runner_mixin.py."""

    def __init__(self, config: Any, role: Any, cache: Any) -> None:
        module = import_module("vllm.distributed.kv_transfer.kv_connector.utils")
        ranks = config.parallel_config.world_size
        self.aggregator = module.KVOutputAggregator(ranks)
        self.saves_last = bool(config.num_speculative_tokens)  # after the drafts
        transfer = SimpleNamespace(**vars(config.kv_transfer_config))
        extra = transfer.kv_connector_extra_config
        transfer.kv_connector_extra_config = {
            name: value for name, value in extra.items() if name != "storage"
        }
        self.halves = []
        for rank in range(ranks):
            mine = SimpleNamespace(**vars(config))
            mine.kv_transfer_config = transfer
            mine.parallel_config = SimpleNamespace(**vars(config.parallel_config) | {"rank": rank})
            self.halves.append(import_module(CONNECTOR).HicacheConnector(mine, role, cache))

    def handle_preemptions(self, metadata: Any) -> None:
        for half in self.halves:
            half.handle_preemptions(metadata)

    def bind_connector_metadata(self, metadata: Any) -> None:
        for half in self.halves:
            half.bind_connector_metadata(metadata)

    def start_load_kv(self, context: Any) -> None:
        for half in self.halves:
            half.start_load_kv(context)

    def moved(self, finished: set[str]) -> KVConnectorOutput:
        """What has ended since the last step."""
        said = []
        for half in self.halves:
            if not self.saves_last:
                half.wait_for_save()
            found = half.get_transfer_results(finished)
            output = KVConnectorOutput(
                finished_sending=found.finished_sending,
                finished_recving=found.finished_recving,
                failed_recving=found.failed_recving,
                invalid_block_ids=half.get_block_ids_with_load_errors(),
                kv_connector_stats=half.get_kv_connector_stats(),
                kv_connector_worker_meta=half.build_connector_worker_meta(),
            )
            said.append(SimpleNamespace(kv_connector_output=output))
            if self.saves_last:
                half.wait_for_save()
            half.clear_connector_metadata()
        return self.aggregator.aggregate(said).kv_connector_output

    def shutdown(self) -> None:
        for half in self.halves:
            half.shutdown()


def kept_blocks(scheduler: Any) -> list[Any]:
    """The blocks that the connector holds for its copies."""
    orders = scheduler.connector._decider.orders
    return [block for sent in orders._sent.values() for block in sent.blocks]


def audit_pages(scheduler: Any, moves: Moves) -> None:
    """Raises Broken unless every host page that the core knows has what its key stands for."""
    decider = scheduler.connector._decider
    view, groups = decider.driver.core.view, decider.groups
    chains: dict[int, list[int]] = {}
    for node in view.nodes():
        for at, component in enumerate(groups.components):
            pages = node.pages[Tier.HOST][at]
            if pages is None:
                continue
            chain = _chain(node, chains, moves.memory)
            for place, page in enumerate(pages.tolist(), node.end_page - len(pages)):
                for rank in moves.ranks:
                    _audit_page(rank, groups, component, page, place, chain)


def _chain(node: Any, chains: dict[int, list[int]], memory: Memory) -> list[int]:
    """The digests of the tokens from the beginning of a prompt to the end of a node."""
    if node.parent is None:
        return []
    if node.id not in chains:
        chain = list(_chain(node.parent, chains, memory))
        last: Any = chain[-1] if chain else None
        if node.parent.parent is None:
            size = len(node.key) // (node.end_page - node.parent.end_page)
            name = node.label[:-size].rstrip(b"\0").decode()
            last = name.split(":")[1] if name else None
        for token in np.frombuffer(node.key, "<i8").tolist():
            last = memory._known.get((last, token), 0)
            chain.append(last)
        chains[node.id] = chain
    return chains[node.id]


def _audit_page(
    rank: Held, groups: Any, component: str, page: int, place: int, chain: list[int]
) -> None:
    there = rank.page(component, page)
    for slot in rank.lent.slots:
        if slot.host != component:
            continue
        group = rank.group[slot.name]
        at = place * groups.page // group.block + int(slot.name.rpartition(".")[2])
        if component == STATE:  # it stands at the end of a page
            at = (place + 1) * groups.page // group.block - 1
        end = (at + 1) * group.block
        if not groups.reads(group, at, (place + 1) * groups.page):
            continue
        rows = chain[end - 1 : end] if component == STATE else chain[end - group.block : end]
        if rank.on_host(slot, there) != (group.number, tuple(rows)):
            text = f"host page {page} of {component} is known for {end} tokens of group"
            held = "is being written" if (there == SPOILT).all() else "holds something else"
            need(False, "BYTES", f"{text} {group.number}, and {held}", f"host {component}")


def audit_emptied(scheduler: Any) -> None:
    """Raises Broken if something is on host after a reset that was not refused."""
    view = scheduler.connector._decider.driver.core.view
    known = [pages for node in view.nodes() for pages in node.pages[Tier.HOST]]
    need(not any(one is not None for one in known), "RESET", "after a reset something is on host")


def renewed(scheduler: Any) -> bool:
    """Whether what runs is preempted and all caches are emptied. vLLM refuses that while a copy
    has blocks, or a request that was loaded and does not run, or a step for one that ended."""
    try:
        done = scheduler.reset_prefix_cache(reset_running_requests=True, reset_connector=True)
    except RuntimeError:
        held = scheduler.kv_holding_waiting or kept_blocks(scheduler) or scheduler.deferred_frees
        text = "nothing holds a block, and the device cannot be emptied"
        need(bool(held), "RESET", text, "running")
        return False
    need(done, "RESET", "the device is empty, and the connector cannot be emptied", "running")
    audit_emptied(scheduler)
    return True


def audit_rest(scheduler: Any) -> None:
    """Raises Broken if the connector remembers or holds something while nothing is under way."""
    decider = scheduler.connector._decider
    view = decider.driver.core.view
    for name, left in (
        ("blocks", decider.orders.held_blocks),
        ("requests of the core", len(view.requests)),
        ("flights of the core", len(view.flights)),
        ("requests", decider.remembered),
    ):
        text = f"{left} {name} are left in the connector, and nothing is under way"
        need(not left, "QUIESCENCE", text, f"connector {name}")
