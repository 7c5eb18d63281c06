"""The backend's settings, and what two servers must have in common to share the pages of a pool.

A context's revision is a digest of all that decides what the bytes of a page mean: the weights and
what goes with them, and the form of the pool's pages. SGLang's own keys are digests of tokens,
with the namespace of the request (LoRA name, salt). Imports nothing of SGLang.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hicache import clock
from hicache.core.errors import CallerError
from hicache.storage.address import StoreSettings
from hicache.storage.identity import (
    code_of,
    context_of,
    digest_of_adapter,
    digest_of_weights,
    fields_of,
    place_of,
    release_of,
)
from hicache.storage.keys import Context

# SGLang's arguments that may change rows, by parts of their names, so that those of later releases
# count also; the others are addresses, sizes, logs and schedules.
_COUNTS = re.compile(
    "a2a|attention|checkpoint|config_file|config_parser|context_length|cp_|dcp|deterministic|dllm|"
    "dsa_|dsv4|dtype|embedding|expert_location|fp4|hisparse|hooks|indexer|kt_|linear|lora|mamba|"
    "model_impl|moe_runner|override|precis|quant|reduce|rl_|rope|sharding|speculative|swa_|tf32|"
    "torchao|weight_version"
)
_NOT = re.compile(
    "^max_|adaptive|draft_load_format|eviction|memory|model_path|model_revision|lora_paths|_ratio"
)
# Which of the weights' files are read.
_LOAD = re.compile("load_format|loader")
_WHERE = "hicache-storage-backend-extra-config"
_OF_SGLANG = (
    *("backend_name", "module_path", "class_name", "interface_v1", "prefetch_threshold"),
    *("prefetch_timeout_base", "prefetch_timeout_per_ki_token"),
    *("hicache_storage_pass_prefix_keys", "tp_lcm_size"),
)


def settings_of(values: Mapping[str, Any]) -> StoreSettings:
    """What `--hicache-storage-backend-extra-config` says (docs/sglang.md) beside SGLang's own.

    Raises CallerError for what is unknown, missing, or of another form."""
    own = {name: value for name, value in values.items() if name not in _OF_SGLANG}
    if "storage" not in own:
        raise CallerError(f'{_WHERE}: expected "storage", such as "file:/data/kv"')
    if not values.get("interface_v1"):
        raise CallerError(f'{_WHERE}: expected "interface_v1": 1 with hicache')
    return StoreSettings.read(own, _WHERE, " and SGLang's own")


def weights_of(args: Any, named: str, loaded: dict[str, str]) -> dict[str, Any]:
    """What the weights of a server are called in keys. args: SGLang's, resolved, or None. named: by
    the person. loaded: digests of adapters by path, as they were when the server was started; those
    of new ones are added.

    Raises CallerError where nothing says it."""
    result: dict[str, Any] = {"release": release_of("sglang")}
    if args is not None:
        result |= fields_of(args, lambda name: bool(_COUNTS.search(name)) and not _NOT.search(name))
    model = getattr(args, "model_path", None)
    if not model and not named:
        raise CallerError('weights: expected the path of a model, or "weights"; name them')

    revision = getattr(args, "revision", None)
    result["config"], described = _config(model, revision) if model else ("", {})
    result["code"] = code_of(described, str(model), revision)
    draft = getattr(args, "speculative_draft_model_path", None)
    draft_revision = getattr(args, "speculative_draft_model_revision", None)
    if draft:
        result["draft_config"] = _config(draft, draft_revision)[0]
    form = getattr(args, "load_format", "auto")
    if not named:
        result |= fields_of(args, lambda name: bool(_LOAD.search(name)))
    seed = getattr(args, "random_seed", None)
    result["weights"] = named or digest_of_weights(str(model), revision, "weights", form, seed)
    if draft and not named and form != "dummy":
        what = "weights of the draft model"
        form = getattr(args, "speculative_draft_load_format", None) or form
        result["draft"] = digest_of_weights(draft, draft_revision, what, form, seed)
    for name, path in _adapters(getattr(args, "lora_paths", None)):
        if path not in loaded:
            until_s = clock.started_s() if Path(path).exists() else math.inf
            loaded[path] = digest_of_adapter(place_of(path, None) or path, until_s)
        result.setdefault("adapters", []).append([name, loaded[path]])
    return result


def form_of(model: str, weights: Mapping[str, Any], form: Mapping[str, Any], ranks: int) -> Context:
    """The context of one pool. model: its name. form: of `HostPages`."""
    document = {"weights": weights, "form": form, "ranks": ranks, "engine": "sglang"}
    return context_of(model, document, form["page_size"], {form["pool"]: form["page_bytes"]})


def _config(model: str, revision: str | None) -> tuple[str, dict[str, Any]]:
    """The model's configuration beside its weights, with a digest; empty without one."""
    file = Path(place_of(model, revision) or model) / "config.json"
    if not file.is_file():
        return "", {}
    value = file.read_bytes()
    return hashlib.sha256(value).hexdigest(), json.loads(value)


def _adapters(values: Any) -> list[tuple[str, str]]:
    """Names and paths of the adapters that a server starts with: records, "NAME=PATH", or paths."""
    pairs = []
    for item in values.items() if isinstance(values, dict) else values or ():
        if isinstance(item, tuple):
            name, path = item
        elif isinstance(item, str):
            name, _, path = item.rpartition("=")
        elif isinstance(item, dict):
            name, path = item.get("lora_name", ""), item["lora_path"]
        else:
            name, path = item.lora_name, item.lora_path
        pairs.append((str(name), str(path)))
    return sorted(pairs)
