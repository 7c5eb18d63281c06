"""The connector's settings, and what two engines must have in common to share pages in a store.

The weights with all that says how they are read (`belonging`), and the form of the pages
(`context_of`). Imports nothing of vLLM.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hicache.core.errors import CallerError
from hicache.storage import identity
from hicache.storage.address import StoreSettings, bytes_of
from hicache.storage.keys import Context

from .groups import Groups
from .worker import block_axis

_LEFT_OUT = ("_name_or_path", "transformers_version", "_attn_implementation", "torch_dtype")
# Fields of vLLM's configurations that change no row, or that are described elsewhere. Every other
# field counts, also of later releases; but of the cache's, whose sizes differ from start to start.
_MODEL = {
    *("model", "runner", "tokenizer", "tokenizer_mode", "trust_remote_code", "seed", "hf_config"),
    *("hf_text_config", "hf_config_path", "hf_overrides", "config_format", "hf_token", "revision"),
    *("allowed_local_media_path", "allowed_media_domains", "code_revision", "tokenizer_revision"),
    *("max_model_len", "spec_target_max_model_len", "original_max_model_len", "enforce_eager"),
    *("return_sampling_mask", "max_logprobs", "logprobs_mode", "use_fp64_gumbel"),
    *("enable_trace_replay", "skip_tokenizer_init", "served_model_name", "generation_config"),
    *("override_generation_config", "enable_sleep_mode", "sleep_preserve_parameter_names"),
    *("sleep_mode_backend", "sleep_mode_offload_cudagraph", "enable_nccl_comm_suspend"),
    *("enable_cumem_allocator", "logits_processors", "io_processor_plugin"),
    *("renderer_num_workers", "pooler_config", "multimodal_config", "disable_cascade_attn"),
}
_LOAD = {
    *("download_dir", "device", "use_tqdm_on_load", "pt_load_map_location"),
    *("safetensors_load_strategy", "safetensors_prefetch_num_threads"),
    "safetensors_prefetch_block_size",
}
_ADAPTERS = {"max_loras", "max_cpu_loras", "max_lora_rank", "specialize_active_lora"}
_DRAFT = {
    *("model", "revision", "code_revision", "target_model_config", "target_parallel_config"),
    *("draft_model_config", "draft_parallel_config", "draft_load_config", "max_model_len"),
}
_CACHE = (
    *("cache_dtype", "sliding_window", "kv_cache_dtype_skip_layers", "kv_cache_layout"),
    *("mamba_cache_dtype", "mamba_ssm_cache_dtype", "mamba_cache_mode", "use_replayssm"),
    *("replayssm_buffer_len", "use_kda_recoverssm", "kv_sharing_fast_prefill"),
)
_OTHERS = ("attention_config", "mamba_config", "engram_config", "additional_config")


_WHERE = "kv_connector_extra_config"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(StoreSettings):
    """What `kv_connector_extra_config` of vLLM's `--kv-transfer-config` says (docs/vllm.md)."""

    host: int  # of all ranks together
    wait_s: float = 5.0
    check: str = ""
    check_dir: str = ""

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Settings:
        """Raises CallerError for what is unknown, missing, or of another form."""
        if "host" not in values:
            raise CallerError(f'{_WHERE}: expected "host", bytes of host memory such as "64GB"')
        made = cls.read({**values, "host": bytes_of(values["host"], "host")}, _WHERE)
        if type(made.wait_s) not in (int, float) or not 0 <= made.wait_s < 1e6:
            raise CallerError(f"wait_s: expected 0 or more seconds, found {made.wait_s!r:.40}")
        return made


def belonging(config: Any, named: str, models: Iterable[Any]) -> dict[str, Any]:
    """What rows follow from, beside tokens, salt and adapter. config: vLLM's `VllmConfig`. named:
    what the person calls the weights. models: as vLLM has loaded them, also a draft.

    Raises CallerError where nothing says what the weights are."""
    model = _model(config.model_config, config.load_config, named, "weights")
    adapters = getattr(config, "lora_config", None)
    result: dict[str, Any] = {
        "release": identity.release_of("vllm"),
        "model": model,
        "modules": identity.code_of_modules(models, "vllm"),
        "cache": identity.fields_of(config.cache_config, _CACHE.__contains__),
        "adapters": adapters and identity.fields_of(adapters, lambda name: name not in _ADAPTERS),
        "others": identity.fields_of(config, _OTHERS.__contains__),
    }
    speculative = getattr(config, "speculative_config", None)
    draft = getattr(speculative, "draft_model_config", None)
    if draft is not None:
        what = "weights of the draft model"
        load = getattr(speculative, "draft_load_config", None) or config.load_config
        result["draft"] = _model(draft, load, named, what)
        result["speculative"] = identity.fields_of(speculative, lambda name: name not in _DRAFT)
    return result


def context_of(
    config: Any, groups: Groups, tensors: Mapping[str, Any], blocks: int, belongs: Mapping[str, Any]
) -> Context:
    """The context of one engine. tensors: those of its cache, by layer. blocks: of its pool, which
    do not matter. belongs: see `belonging`."""
    document = {
        **belongs,
        "groups": [tuple(group) for group in groups.groups],
        "tensors": {
            layer: [
                (_form(item, blocks), str(item.dtype))
                for item in (tensor if isinstance(tensor, list | tuple) else [tensor])
            ]
            for layer, tensor in tensors.items()
        },
    }
    name = "+".join(getattr(config.model_config.hf_config, "architectures", None) or ["model"])
    return identity.context_of(name, document, groups.page, groups.page_bytes)


def _model(model: Any, load: Any, named: str, what: str) -> dict[str, Any]:
    weights = named or identity.digest_of_weights(
        model.model, model.revision, what, load.load_format, model.seed
    )
    described = {
        name: value for name, value in model.hf_config.to_dict().items() if name not in _LEFT_OUT
    }
    code_revision = getattr(model, "code_revision", None)
    code = identity.code_of(described, model.model, model.revision, code_revision)
    result = {"weights": weights, "config": described, "code": code}
    if "longrope" in json.dumps(described, default=str):  # vLLM then chooses the angles by it
        result["max_model_len"] = model.max_model_len
    if not named:
        result["load"] = identity.fields_of(load, lambda name: name not in _LOAD)
    return result | {"fields": identity.fields_of(model, lambda name: name not in _MODEL)}


def _form(tensor: Any, blocks: int) -> tuple[int, ...]:
    """The shape of a tensor for one block."""
    axis = block_axis(tensor, blocks)
    return tuple(size // blocks if at == axis else size for at, size in enumerate(tensor.shape))
