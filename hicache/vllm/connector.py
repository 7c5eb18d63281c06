"""`HicacheConnector`: vLLM's interface of a KV connector, over the two halves of this one.

vLLM makes one in the process of its scheduler and one in each worker. The first has a `Decider`,
the others a `Mover`; this file passes calls on and turns vLLM's types into theirs.
"""

from __future__ import annotations

import logging
from functools import cache
from typing import Any

import vllm
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
    KVConnectorTransferResults,
    KVConnectorWorkerMetadata,
    SupportsHMA,
)
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import (
    KVConnectorPromMetrics,
    KVConnectorStats,
)
from vllm.v1.request import RequestStatus

from hicache.clock import Clock
from hicache.core.errors import CallerError
from hicache.runtime.storage import Rank
from hicache.storage.changes import caller

from . import register
from .describing import Settings, belonging, context_of
from .groups import groups_of
from .orders import Answer, Message
from .scheduler import METRICS, ConnectorScheduler
from .worker import Adapters, ConnectorWorker, Watching

KNOWN = ("0.32",)
_WELL = (RequestStatus.FINISHED_STOPPED, RequestStatus.FINISHED_LENGTH_CAPPED)
_log = logging.getLogger("vllm.hicache")  # vLLM shows what is logged under its own name
register()  # also where vLLM's plugins are off


class Orders(KVConnectorMetadata):
    """What the scheduler side tells the workers."""

    def __init__(self, message: Message) -> None:
        self.message = message


class Answers(KVConnectorWorkerMetadata):
    """What workers answer; of several ranks, all answers."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer

    def aggregate(self, other: Any) -> Answers:
        return Answers(self.answer.with_other(other.answer))


class Stats(KVConnectorStats):
    """data: numbers by name of `METRICS`, since the last look."""

    def reset(self) -> None:
        self.data: dict[str, Any] = {}

    def aggregate(self, other: Any) -> Stats:
        for name, number in other.data.items():
            self.data[name] = self.data.get(name, 0) + number
        return self

    def reduce(self) -> dict[str, int | float]:
        return dict(self.data)

    def is_empty(self) -> bool:
        return not any(self.data.values())


@cache
def _counter(kind: Any, name: str, *labels: str) -> Any:
    """Made once: a later engine of this process counts on, since no name is registered twice."""
    return kind(name=f"hicache:{name}", documentation=METRICS[name], labelnames=labels)


class PromMetrics(KVConnectorPromMetrics):
    """A counter for each name, `hicache:NAME`."""

    def __init__(self, config: Any, kinds: Any, labels: list[str], values: Any) -> None:
        super().__init__(config, kinds, labels, values)
        self._counters = {name: _counter(self._counter_cls, name, *labels) for name in METRICS}

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        for name, number in transfer_stats_data.items():
            if name in self._counters and number > 0:
                self._counters[name].labels(*self.per_engine_labelvalues[engine_idx]).inc(number)


class HicacheConnector(KVConnectorBase_V1, SupportsHMA):
    """Raises CallerError, one line, for settings and models that it cannot carry."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        self._config = vllm_config
        self._settings = Settings.of(self._kv_transfer_config.kv_connector_extra_config or {})
        _check(vllm_config)
        self._groups = groups_of(kv_cache_config, vllm_config.speculative_config)
        self._blocks = kv_cache_config.num_blocks
        self._ranks = vllm_config.parallel_config.world_size
        self._host_pages = self._groups.host_pages(self._settings.host // self._ranks)
        self._clock = Clock()
        self._before: dict[str, int] = {}
        self._requests: dict[str, Any] = {}
        self._failed: set[str] = set()
        self._scheduler: Any = None
        self._worker: Any = None
        self._answer = Answer()
        if role == KVConnectorRole.SCHEDULER:
            longest, store = vllm_config.model_config.max_model_len, bool(self._settings.storage)
            self._scheduler = ConnectorScheduler(
                self._groups,
                self._groups.config(self._host_pages, longest, store),
                self._ranks,
                self._clock.now_s,
                self._settings.wait_s,
                Adapters(_log.warning).digest,
                notice=_log.warning,
                check=(self._settings.check, self._settings.check_dir),
            )

    @property
    def requires_kv_delivery(self) -> bool:
        """False: a page that is not saved is computed again."""
        return False

    # -- the scheduler side

    def bind_kv_cache_manager(self, kv_cache_manager: Any) -> None:
        self._manager = kv_cache_manager
        self._scheduler.orders.use(kv_cache_manager.block_pool)

    def on_new_request(self, request: Any) -> None:
        self._requests[request.request_id] = request

    def get_num_new_matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        result = self._scheduler.matched_tokens(request, num_computed_tokens)
        return result, bool(result)

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        self._scheduler.after_alloc(request, blocks.blocks, num_external_tokens)

    def build_connector_meta(self, scheduler_output: Any) -> Orders:
        for name in scheduler_output.preempted_req_ids or ():
            self._scheduler.preempted(name)
        for name, tokens in scheduler_output.num_scheduled_tokens.items():
            request = self._requests.get(name)
            if request is not None:
                before = request.num_computed_tokens
                blocks = self._manager.get_blocks(name).blocks
                full = before < request.num_prompt_tokens
                self._scheduler.save(request, before + tokens, blocks, all_of_it=full)
        return Orders(self._scheduler.message())

    def update_connector_output(self, connector_output: Any) -> None:
        answers = connector_output.kv_connector_worker_meta
        if answers is not None:
            self._failed |= self._scheduler.carry_on(answers.answer)
        for name in self._failed.intersection(connector_output.finished_recving or ()):
            self._failed.discard(name)
            request = self._requests.get(name)
            if request is not None:
                # It is computed, whatever `kv_load_failure_policy` says: inside MultiConnector
                # that is a setting for all connectors, of which this one sees nothing.
                request.num_computed_tokens = 0
                self._manager.free(request)

    def request_finished(
        self, request: Any, block_ids: list[int]
    ) -> tuple[bool, dict[str, Any] | None]:
        return self.request_finished_all_groups(request, (block_ids,))

    def request_finished_all_groups(
        self, request: Any, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        """The blocks may go: those that are copied are held on their own."""
        self._requests.pop(request.request_id, None)
        blocks = self._manager.get_blocks(request.request_id).blocks
        self._scheduler.ended(request, blocks, request.status in _WELL)
        return False, None

    def has_pending_push_work(self) -> bool:
        """Whether steps are needed though there is no request: copies and stores go on."""
        return bool(self._scheduler.orders.busy)

    def reset_cache(self) -> bool | None:
        return bool(self._scheduler.reset())

    # -- the worker side

    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        watched, settings = watching(), self._settings
        self._worker = ConnectorWorker(
            self._groups, kv_caches, self._blocks, self._host_pages, watched
        )
        if settings.storage:
            belongs = belonging(self._config, settings.weights, watched.models)
            context = context_of(self._config, self._groups, kv_caches, self._blocks, belongs)
            mine = Rank(self._config.parallel_config.rank, self._ranks)
            store = settings.open(self._clock.now_s, _log.warning)
            self._worker.use_store(store, context, mine, self._clock.now_s)

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        if self._worker is not None:
            self._worker.load(self._get_connector_metadata().message)

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Nothing to wait for: a request runs when its load has landed."""

    def save_kv_layer(
        self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any
    ) -> None:
        """Nothing to do: a step's pages are saved after it."""

    def wait_for_save(self) -> None:
        if self._worker is not None:
            self._worker.save(self._get_connector_metadata().message)

    def get_transfer_results(self, finished_req_ids: set[str]) -> Any:
        loaded = set()
        if self._worker is not None:
            self._answer, loaded = self._worker.poll()
        return KVConnectorTransferResults(finished_recving=loaded)

    def build_connector_worker_meta(self) -> Answers | None:
        return None if self._answer == Answer() else Answers(self._answer)

    def shutdown(self) -> None:
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    # -- figures

    def get_kv_connector_stats(self) -> Stats | None:
        """What has been counted since the last call."""
        mine = self._worker.figures if self._worker is not None else self._before
        now = mine if self._scheduler is None else dict(self._scheduler.counts)
        new = {name: number - self._before.get(name, 0) for name, number in now.items()}
        self._before = now
        return Stats(data=new) if any(new.values()) else None

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> Stats:
        return Stats(data=data or {})

    @classmethod
    def build_prom_metrics(cls, *args: Any) -> PromMetrics:
        return PromMetrics(*args)


def watching() -> Watching:
    """Of the worker that makes this connector. Raises CallerError if there is none."""
    worker = caller(lambda item: any(base.__name__ == "WorkerBase" for base in type(item).__mro__))
    if worker is None:
        raise CallerError("vllm: expected to be made by a worker, whose weights are known")
    return Watching(worker)


def _check(config: Any) -> None:
    """Raises CallerError for releases and settings of vLLM that are unknown here."""
    if ".".join(vllm.__version__.split(".")[:2]) not in KNOWN:
        raise CallerError(f"vllm: expected {', '.join(KNOWN)}, found {vllm.__version__}")
    parallel, cache = config.parallel_config, config.cache_config
    for name, result, expected in (
        ("pipeline_parallel_size", parallel.pipeline_parallel_size, 1),
        ("decode_context_parallel_size", parallel.decode_context_parallel_size, 1),
        ("prefill_context_parallel_size", parallel.prefill_context_parallel_size, 1),
        ("enable_prefix_caching", bool(cache.enable_prefix_caching), True),
        ("calculate_kv_scales", bool(getattr(cache, "calculate_kv_scales", False)), False),
    ):
        if result != expected:
            raise CallerError(f"{name}: expected {expected} with hicache, found {result}")
