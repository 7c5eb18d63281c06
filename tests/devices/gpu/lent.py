"""Checks that pages of another engine's tensors are copied right: what its kernels have just
written, in the layouts that vLLM's tensors have, to host and back to other blocks.

No stream is waited for between the engine's writes and the copy, nor between the landing of a load
and the engine's reads, beyond what the connector itself does.
"""

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from hicache.core.actions import Backup, Copy, Load
from hicache.vllm.groups import Groups, groups_of
from hicache.vllm.orders import Message
from hicache.vllm.worker import ConnectorWorker

from ._bench import Figure, Outcome

_BLOCKS, _LAYERS, _ROUNDS, _PAGES = 512, 8, 20, 64
_BLOCK, _HEADS, _SIZE = 16, 8, 128
_CYCLES = 20_000_000

_UNCHANGED = SimpleNamespace(stamp=0, changed=False, look=lambda: 0, has=lambda adapters: True)
_sleep: Any = torch.cuda._sleep


def run() -> Outcome:
    draw = np.random.default_rng(0)
    faults: list[str] = []
    copied = 0
    for form in (
        "a block is contiguous",
        "keys and values apart",
        "all layers of a block together",
    ):
        groups = _groups()
        tensors = _tensors(form)
        worker = ConnectorWorker(groups, tensors, _BLOCKS, {"full": 2 * _PAGES}, _UNCHANGED)
        slot = groups.groups[0].slot(0)
        transfer = 0
        for number in range(_ROUNDS):
            source, target, host = (
                draw.permutation(size)[:_PAGES].astype(np.int64)
                for size in (_BLOCKS, _BLOCKS, 2 * _PAGES)
            )
            kept = {}
            fresh = {
                layer: torch.randn(tensor.shape, device=tensor.device, dtype=tensor.dtype)
                for layer, tensor in tensors.items()
            }
            for layer, item in fresh.items():
                kept[layer] = _by_block(form, item)[torch.from_numpy(source)].clone()
            _sleep(_CYCLES)  # so that a copy which does not wait for the writes comes too early
            for layer, value in tensors.items():
                value.copy_(fresh[layer])
            transfer += 2
            worker.save(Message(backups=[Backup(transfer, (Copy(slot, source, host),))]))
            _wait(worker, transfer)
            for element in tensors.values():
                element.zero_()
            worker.load(Message(loads=[Load(transfer + 1, 1, (Copy(slot, host, target),))]))
            _wait(worker, transfer + 1)
            for layer, member in tensors.items():
                result = _by_block(form, member)[torch.from_numpy(target)]
                if not torch.equal(result, kept[layer]):
                    faults.append(f"{form}: round {number}: other bytes in {layer}")
            copied += _PAGES
        worker.close()
    return Outcome([Figure("pages copied both ways", copied)], faults)


def _groups() -> Groups:
    kind = type("FullAttentionSpec", (SimpleNamespace,), {})
    spec = kind(block_size=_BLOCK, page_size_bytes=2 * _BLOCK * _HEADS * _SIZE * 2)
    names = [f"layer{number}" for number in range(_LAYERS)]
    group = SimpleNamespace(layer_names=names, kv_cache_spec=spec)
    return groups_of(SimpleNamespace(kv_cache_groups=[group]))


def _tensors(form: str) -> dict[str, torch.Tensor]:
    place = torch.device("cuda")
    inner = (_BLOCK, _HEADS, _SIZE)
    if form == "all layers of a block together":
        full: Any = torch.empty((_BLOCKS, _LAYERS, 2, *inner), dtype=torch.bfloat16, device=place)
        return {f"layer{number}": full[:, number] for number in range(_LAYERS)}
    apart = form == "keys and values apart"
    shape = (2, _BLOCKS, *inner) if apart else (_BLOCKS, 2, *inner)
    return {
        f"layer{number}": torch.empty(shape, dtype=torch.bfloat16, device=place)
        for number in range(_LAYERS)
    }


def _by_block(form: str, tensor: torch.Tensor) -> torch.Tensor:
    return tensor.transpose(0, 1) if form == "keys and values apart" else tensor


def _wait(worker: ConnectorWorker, transfer: int) -> None:
    """Poll until a copy has ended."""
    while True:
        for number, done in worker.poll().answer.done:
            if number == transfer:
                assert done, f"copy {transfer} failed"
                return
