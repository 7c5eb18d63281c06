"""What stands around vLLM's scheduler: requests, the configuration that a model and a command line
would make, and the parts of an engine that the cache can do without. Scripts copy definitions from
here."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from vllm.utils.hashing import sha256
from vllm.v1 import kv_cache_interface as layout
from vllm.v1.core import kv_cache_utils
from vllm.v1.core.kv_cache_utils import get_request_block_hasher
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request

PARALLEL = ("data", "decode_context", "prefill_context", "pipeline")


class Settings(SimpleNamespace):
    """Part of a configuration: what is not named is not set."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("_"):
            raise AttributeError(name)


def make_request(name: str, tokens: list[int], salt: str, page: int, more: int) -> Request:
    """A request for `more` tokens. page: tokens of a block hash."""
    if not hasattr(kv_cache_utils, "NONE_HASH"):
        kv_cache_utils.init_none_hash(sha256)
    sampling = Settings(max_tokens=more, min_tokens=0, stop_token_ids=())
    sampling.all_stop_token_ids = frozenset()
    return Request(
        request_id=name,
        prompt_token_ids=tokens,
        sampling_params=sampling,
        pooling_params=None,
        cache_salt=salt or None,
        block_hasher=get_request_block_hasher(page, sha256),
    )


class Group(NamedTuple):
    """One group of layers. kind: "full"; "window" or "chunk" of `reach` tokens; "align" or "all",
    the two ways in which states of Mamba layers are cached. block: tokens of a block. spare: blocks
    for the states of drafted tokens."""

    kind: str
    block: int
    reach: int = 0
    spare: int = 0

    def first(self, start: int) -> int:
        """The first position that the token at `start` reads."""
        if self.kind == "window":
            return max(0, start - self.reach + 1)
        return start // self.reach * self.reach if self.kind == "chunk" else 0

    @property
    def validated(self) -> bool:
        """Whether it is known what blocks hold: not of states of mode "all" with drafts."""
        return not (self.kind == "all" and self.spare)


def cache_config(blocks: int, groups: Sequence[Group], layers: int = 1) -> layout.KVCacheConfig:
    """The cache of a model with these groups. layers: of the second group and every other one
    behind it; the others have one."""
    # This function is in a module that is a stub here, since the rest of that needs a GPU.
    layout.get_dtype_size = lambda dtype: dtype.itemsize
    made = [
        layout.KVCacheGroupSpec(
            [f"layer {at}" + f" {part}" * (layers > 1) for part in range(layers if at % 2 else 1)],
            _spec(group),
        )
        for at, group in enumerate(groups)
    ]
    return layout.KVCacheConfig(num_blocks=blocks, kv_cache_tensors=[], kv_cache_groups=made)


def _spec(group: Group) -> Any:
    if group.kind in ("align", "all"):
        return layout.MambaSpec(
            block_size=group.block,
            shapes=((8 * group.block,),),
            dtypes=(torch.float16,),
            mamba_cache_mode=group.kind,
            num_speculative_blocks=group.spare,
        )
    values: dict[str, Any] = {"num_kv_heads": 1, "head_size": 4, "dtype": torch.float16}
    values["block_size"] = group.block
    if group.kind == "window":
        return layout.SlidingWindowSpec(**values, sliding_window=group.reach)
    if group.kind == "chunk":
        return layout.ChunkedLocalAttentionSpec(**values, attention_chunk_size=group.reach)
    return layout.FullAttentionSpec(**values)


class Speculative(Settings):
    """Stands in for SpeculativeConfig: an EAGLE head, or n-grams of the prompt."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("use_", "uses_", "needs_")):
            eagle = name.endswith(("_eagle", "_eagle_block_drop")) and self.method == "eagle"
            return lambda: eagle
        return super().__getattr__(name)


def engine_config(
    config: dict[str, Any],
    groups: Sequence[Group],
    length: int,
    budget: int,
    connector: str,
    settings: dict[str, Any],
) -> Any:
    """Stands in for VllmConfig: what the scheduler and a connector read of it. config: as it was
    drawn. length: longest sequence. budget: tokens of a step."""
    modes = [group.kind for group in groups if group.kind in ("align", "all")]
    batches, ranks, drafts = 1 + bool(config["ahead"]), config.get("ranks", 1), config["spec"]
    transfer = speculative = None
    if drafts:
        speculative = Speculative(
            method="eagle" if config["eagle"] else "ngram",
            max_num_new_slots_for_drafting=0,
        )
    if connector:
        transfer = Settings(
            kv_connector=connector,
            engine_id=f"hicache-fuzz-{os.getpid()}-{time.time_ns()}",
            is_kv_consumer=True,
            kv_load_failure_policy="recompute" if config.get("recompute", True) else "fail",
            kv_connector_extra_config=settings,
        )
    return Settings(
        scheduler_config=Settings(
            max_num_seqs=config["requests"],
            max_num_batched_tokens=budget,
            long_prefill_token_threshold=0,
            scheduler_reserve_full_isl=config["reserve"],
            watermark=0.0,
            policy=config["policy"],
            async_scheduling=config["ahead"],
            enable_chunked_prefill=True,
        ),
        cache_config=Settings(
            block_size=groups[0].block,
            num_gpu_blocks=config["pages"] + 1,
            enable_prefix_caching=True,
            mamba_cache_mode=modes[0] if modes else "none",
        ),
        model_config=Settings(
            max_model_len=length,
            model="model",
            dtype=torch.float16,
            get_total_num_kv_heads=lambda: 1,
            hf_config=SimpleNamespace(to_dict=dict),
        ),
        parallel_config=Settings(
            **{f"{kind}_parallel_size": 1 for kind in PARALLEL},
            tensor_parallel_size=ranks,
            world_size=ranks,
            rank=0,
        ),
        observability_config=Settings(per_request_spec_decode_metrics="none"),
        speculative_config=speculative,
        kv_transfer_config=transfer,
        aux_output_config=Settings(),
        ec_manager_config=Settings(get_encoder_cache_manager_obj=lambda: None),
        max_concurrent_batches=batches,
        max_in_flight_tokens=batches * budget,
        num_speculative_tokens=drafts,
        num_lookahead_tokens=drafts if config["eagle"] else 0,
        num_prefill_lookahead_tokens=int(config["eagle"]),
    )


def make_scheduler(config: Any, cache: layout.KVCacheConfig, block: int, page: int) -> Scheduler:
    """The engine's scheduler. block: tokens that hits are multiples of. page: of a block hash."""
    kind = AsyncScheduler if config.scheduler_config.async_scheduling else Scheduler
    return kind(
        vllm_config=config,
        kv_cache_config=cache,
        structured_output_manager=Settings(
            accept_tokens=lambda request, tokens: True,
            validate_tokens=lambda request, tokens: tokens,
        ),
        block_size=block,
        hash_block_size=page,
    )
