"""What pages on disk belong to: the model's configuration, its weights, and how it computes.

The text that this file makes is the revision in the keys of stored pages, so that a store never
gives a model the pages of another one. Does not make keys; see `hicache/storage/keys`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import torch

_SAMPLE = 1024  # elements of each tensor
# Keys of a configuration that say where the model came from, and not what it computes.
_ORIGIN = ("_name_or_path", "name_or_path", "transformers_version", "architectures", "use_cache")


def revision_of(models: Sequence[Any], given: str) -> str:
    """The revision of a model and its draft: what the user gave, and a digest of configurations,
    attention implementations and samples of all weights and buffers."""
    digest = hashlib.sha256()
    for model in models:
        digest.update(_text_of(model.config))
        digest.update(str(model.config._attn_implementation).encode())
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(_sample(tensor))
    found = digest.hexdigest()[:32]
    return f"{given} {found}" if given else found


def _text_of(config: Any) -> bytes:
    known = {name: one for name, one in config.to_dict().items() if name not in _ORIGIN}
    return json.dumps(known, sort_keys=True, default=str).encode()


def _sample(tensor: torch.Tensor) -> bytes:
    """Some elements of a tensor, evenly spaced, and the last one."""
    flat = tensor.detach().reshape(-1)
    if not flat.numel():
        return b""
    chosen = torch.linspace(0, flat.numel() - 1, min(_SAMPLE, flat.numel()), dtype=torch.float64)
    found = flat[chosen.long().to(flat.device)].contiguous().cpu()
    return bytes(found.view(torch.uint8).numpy().tobytes())
