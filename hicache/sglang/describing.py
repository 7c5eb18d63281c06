"""What two servers must have in common to share the pages of a pool: the contexts of keys.

A context's revision is a digest of all that decides what the bytes of a page mean: the weights and
what goes with them, and the form of the pool's pages. SGLang's own keys are digests of tokens,
with the namespace of the request (LoRA name, salt). Imports nothing of SGLang.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hicache.core.errors import CallerError
from hicache.models.base import PoolDescription
from hicache.storage.keys import Context
from hicache.storage.weights import digest_of_files

_ARGUMENTS = (
    *("dtype", "quantization", "quantization_param_path", "kv_cache_dtype"),
    *("json_model_override_args", "weight_version"),
)
_DUMMY = "dummy"  # SGLang's load format of random weights


def weights_of(
    args: Any, named: str, folder_of: Callable[[str, str | None], str | None]
) -> dict[str, Any]:
    """What the weights of a server are called in keys. args: SGLang's `ServerArgs`, or None. named:
    by the person. folder_of: where the files of a model that was downloaded are.

    Raises CallerError where nothing says it."""
    found: dict[str, Any] = {name: str(getattr(args, name, None)) for name in _ARGUMENTS}
    if named:
        return found | {"weights": named}
    model = getattr(args, "model_path", None)
    if not model:
        raise CallerError(
            'weights: expected the path of the model among SGLang\'s arguments, or "weights", '
            "found neither; name them"
        )
    if getattr(args, "load_format", None) == _DUMMY:
        seed = getattr(args, "random_seed", None)
        return found | {"weights": f"{_DUMMY} weights of seed {seed}", "config": _config(model)}
    place = _folder(model, getattr(args, "revision", None), folder_of)
    whole = found | {"weights": digest_of_files(place, "weights"), "config": _config(place)}
    draft = getattr(args, "speculative_draft_model_path", None)
    if draft:
        revision = getattr(args, "speculative_draft_model_revision", None)
        place = _folder(draft, revision, folder_of)
        whole["draft"] = digest_of_files(place, "weights of the draft model")
    whole["adapters"] = [
        [name, digest_of_files(_folder(path, None, folder_of), "adapter")]
        for name, path in _adapters(getattr(args, "lora_paths", None))
    ]
    return whole


def context_of(
    model: str, weights: Mapping[str, Any], form: Mapping[str, Any], ranks: int
) -> Context:
    """The context of one pool. model: its name. form: of `HostPages`."""
    document = {"weights": weights, "form": form, "ranks": ranks, "engine": "sglang"}
    text = json.dumps(document, sort_keys=True, default=str)
    pool = PoolDescription(
        name=form["pool"],
        component=form["pool"],
        kind="state",
        layers=(0,),
        parts=("page",),
        heads=1,
        head_elements=form["page_bytes"],
        dtype="fp8",  # of one byte
        page_rows=1,
    )
    digest = hashlib.sha256(text.encode()).hexdigest()
    name = "".join(one for one in model if one.isprintable())[-200:] or "model"
    return Context(name, digest, form["page_size"], "tokens", (pool,))


def _folder(model: str, revision: str | None, folder_of: Callable[..., str | None]) -> str:
    place = model if Path(model).exists() else folder_of(model, revision)
    if place is None:
        raise CallerError(
            f"weights: expected the files of {model!a} on this machine, found none; give them a "
            'name with "weights"'
        )
    return place


def _config(place: str) -> str:
    """A digest of the model's configuration beside its weights; empty without one."""
    file = Path(place) / "config.json"
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""


def _adapters(given: Any) -> list[tuple[str, str]]:
    """Names and paths of the adapters that a server starts with: records, "NAME=PATH", or paths."""
    found = []
    for one in given.items() if isinstance(given, dict) else given or ():
        if isinstance(one, tuple):
            name, path = one
        elif isinstance(one, str):
            name, _, path = one.rpartition("=")
        elif isinstance(one, dict):
            name, path = one.get("lora_name", ""), one["lora_path"]
        else:
            name, path = one.lora_name, one.lora_path
        found.append((str(name), str(path)))
    return sorted(found)
