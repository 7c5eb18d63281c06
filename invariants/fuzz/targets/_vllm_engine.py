"""What stands around vLLM's scheduler: its configuration, which a model and a command line would
make, and the parts of an engine that the cache does not need. Scripts copy definitions from here.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import KVCacheConfig

PAGE = 4096  # bytes of a chunk on host: one page of memory, the least that the engine maps


class Structured:
    """Stands in for the manager of structured output, of which there is none."""

    def accept_tokens(self, request: Any, tokens: Any) -> bool:
        return True

    def validate_tokens(self, request: Any, tokens: Any) -> Any:
        return tokens

    def should_advance(self, request: Any, new_token_ids: Any = ()) -> bool:
        return False

    def grammar_bitmask(self, *given: Any) -> None:
        return None


class Speculative:
    """Stands in for SpeculativeConfig: an EAGLE head, or n-grams of the prompt."""

    num_speculative_tokens_per_batch_size = None
    max_num_new_slots_for_drafting = 0
    parallel_drafting = disable_padded_drafter_batch = disable_eagle_block_drop = False
    disable_lookahead_block_hashes = True

    def __init__(self, drafts: int, eagle: bool) -> None:
        self.num_speculative_tokens = drafts
        self.method = "eagle" if eagle else "ngram"
        self.eagle = eagle

    def __getattr__(self, name: str) -> Any:
        if name in ("use_eagle", "use_eagle_block_drop", "needs_eagle_block_drop"):
            return lambda: self.eagle
        if name.startswith(("use_", "uses_")):
            return lambda: False
        raise AttributeError(name)


def engine_config(
    length: int,
    blocks: int,
    block: int,
    budget: int,
    requests: int,
    ahead: bool = False,
    policy: str = "fcfs",
    reserve: bool = False,
    events: bool = False,
    drafts: int = 0,
    eagle: bool = False,
    mode: str = "none",
    page: int = 0,
    connector: str = "",
    more: dict[str, Any] | None = None,
    recompute: bool = True,
    ranks: int = 1,
) -> Any:
    """Stands in for VllmConfig: what the scheduler and the offloading connector read of it. length:
    longest sequence. block: tokens of a block. budget: tokens of a step. ahead: asynchronous
    scheduling. mode: of Mamba layers. page: tokens of a block hash, if finer. more: settings of the
    connector. recompute: what becomes of a request whose load fails; otherwise it ends. ranks: of
    tensor parallelism.
    """
    batches = 2 if ahead else 1
    speculative = None
    if drafts:
        speculative = Speculative(drafts, eagle)
    transfer = None
    if connector:
        transfer = SimpleNamespace(
            kv_connector=connector,
            engine_id=f"hicache-peers-{os.getpid()}-{time.time_ns()}",
            kv_role="kv_both",
            is_kv_producer=True,
            is_kv_consumer=True,
            is_kv_transfer_instance=True,
            kv_connector_module_path=None,
            kv_load_failure_policy="recompute" if recompute else "fail",
            kv_connector_extra_config=dict(more or {}),
            get_from_extra_config=lambda key, default: (more or {}).get(key, default),
        )
    return SimpleNamespace(
        scheduler_config=SimpleNamespace(
            max_num_seqs=requests,
            max_num_active_seqs=None,
            max_num_partial_prefills=1,
            max_num_batched_tokens=budget,
            max_num_scheduled_tokens=budget,
            max_num_encoder_input_tokens=0,
            encoder_cache_size=0,
            long_prefill_token_threshold=0,
            long_prefill_token_threshold_adaptive=False,
            scheduler_reserve_full_isl=reserve,
            watermark=0.0,
            policy=policy,
            async_scheduling=ahead,
            enable_chunked_prefill=True,
            disable_hybrid_kv_cache_manager=False,
            disable_chunked_mm_input=False,
            prefill_schedule_interval=1,
        ),
        cache_config=SimpleNamespace(
            block_size=block,
            num_gpu_blocks=blocks,
            enable_prefix_caching=True,
            mamba_cache_mode=mode,
            mamba_block_size=block,
            hash_block_size=page or None,
            prefix_match_unit=page or None,
            prefix_cache_retention_interval=None,
            enable_mamba_shared_prefix_checkpoint=False,
            enable_mamba_fine_grained_prefix_cache=bool(page),
            cache_dtype="auto",
            kv_cache_layout=None,
            user_specified_block_size=True,
        ),
        model_config=SimpleNamespace(
            max_model_len=length,
            uses_mrope=False,
            uses_xdrope=False,
            uses_xdrope_dim=0,
            is_encoder_decoder=False,
            is_diffusion=False,
            is_hybrid=mode != "none",
            runner_type="generate",
            supports_multimodal_inputs=False,
            is_multimodal_model=False,
            enable_return_routed_experts=False,
            return_sampling_mask=False,
            use_mla=False,
            model="model",
            dtype=torch.float16,
            get_total_num_kv_heads=lambda: 1,
            hf_config=SimpleNamespace(to_dict=dict),
            quantization=None,
        ),
        parallel_config=SimpleNamespace(
            data_parallel_index=0,
            data_parallel_rank=0,
            data_parallel_rank_local=None,
            data_parallel_size=1,
            decode_context_parallel_size=1,
            prefill_context_parallel_size=1,
            pipeline_parallel_size=1,
            tensor_parallel_size=ranks,
            world_size=ranks,
            rank=0,
            nnodes_within_dp=1,
            distributed_executor_backend="uni",
        ),
        observability_config=SimpleNamespace(
            per_request_spec_decode_metrics="none",
            kv_cache_metrics=False,
            enable_mfu_metrics=False,
            enable_logging_iteration_details=False,
        ),
        speculative_config=speculative,
        kv_transfer_config=transfer,
        kv_events_config=SimpleNamespace(enable_kv_cache_events=events, publisher="null"),
        instance_id=transfer.engine_id if transfer is not None else "",
        ec_transfer_config=None,
        lora_config=None,
        attention_config=SimpleNamespace(hisparse_config=None),
        aux_output_config=SimpleNamespace(enabled=False),
        ec_manager_config=SimpleNamespace(get_encoder_cache_manager_obj=lambda: None),
        is_mm_encoder_only=False,
        is_encoder_only=False,
        num_hash_lookahead_tokens=0,
        use_v2_model_runner=False,
        max_concurrent_batches=batches,
        max_in_flight_tokens=batches * budget,
        num_speculative_tokens=drafts,
        num_lookahead_tokens=drafts if eagle else 0,
        num_prefill_lookahead_tokens=int(eagle),
    )


def make_scheduler(config: Any, cache: KVCacheConfig, block: int, page: int) -> Scheduler:
    """The engine's scheduler. block: tokens that hits are multiples of. page: of a block hash."""
    kind = AsyncScheduler if config.scheduler_config.async_scheduling else Scheduler
    return kind(
        vllm_config=config,
        kv_cache_config=cache,
        structured_output_manager=Structured(),
        block_size=block,
        log_stats=False,
        hash_block_size=page,
    )


def lent(scheduler: Any, kept: Sequence[Any] = ()) -> list[int]:
    """Blocks that are not free and that no request has: those of requests that ended while a step
    was under way."""
    waiting = [block for _, blocks in scheduler.deferred_frees for block in blocks]
    return [block.block_id for block in (*waiting, *kept) if not block.is_null]
