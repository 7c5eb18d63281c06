"""How fast all bytes of weights are read: `python -m tests.bench.identity`."""

from __future__ import annotations

import time

import torch

from hicache.transformers.identity.contents import Contents, version_of

ELEMENTS, TENSORS, ROUNDS = 1 << 28, 4, 8
PARAMETERS_8B_BYTES = 16.06e9  # in bf16

if __name__ == "__main__":
    tensors = [torch.empty(ELEMENTS, dtype=torch.bfloat16) for _ in range(TENSORS)]
    for one in tensors:
        one.view(torch.int16).random_()
    contents, speeds = Contents(), []
    for _ in range(ROUNDS):
        began, before = time.perf_counter(), contents.read_bytes
        contents.digests(tensors, [version_of("", one) for one in tensors], again=True)
        speeds.append((contents.read_bytes - before) / (time.perf_counter() - began))
    for name, speed in (("median", sorted(speeds)[ROUNDS // 2]), ("best", max(speeds))):
        print(f"{name}: {speed / 1e9:.1f} GB/s, {PARAMETERS_8B_BYTES / speed:.1f} s for 8B in bf16")
