"""Runs PyTorch's stream sanitizer on a small case, with all waits and without one.

It must report nothing in the first case, and a race in the second. An environment variable of the
process enables it, so each case runs this file in a process of its own. The sanitizer identifies
tensors by their first address, so the case uses page 0, whose first layer begins where the pool
begins. It sees only torch's calls, and only those of one thread, so pages are copied one at a time,
and the device's own thread issues none.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from hicache.devices.base import CopyJob, Direction, Touch

from . import _bench
from .base import Figure, Outcome

ORDERED, UNORDERED = "ordered", "unordered"


def run() -> Outcome:
    faults = []
    for case in (ORDERED, UNORDERED):
        done = subprocess.run(
            [sys.executable, "-m", __name__, case],
            cwd=Path(__file__).parents[3],
            env={**os.environ, "TORCH_CUDA_SANITIZER": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        reported = "data race" in done.stdout + done.stderr
        if case == ORDERED and (done.returncode or reported):
            message = (done.stderr.strip().splitlines() or ["no output"])[-1]
            faults.append(f"{case}: expected no report, found: {message}")
        if case == UNORDERED and not reported:
            faults.append(f"{case}: expected a report of the data race, found none")
    return Outcome([Figure("cases", 2)], faults)


def program(case: str) -> None:
    """Writes a page, backs it up and loads it, each on its own stream, one after another."""
    page, all_layers = np.zeros(1, dtype=np.int64), _bench.ALL_LAYERS
    with _bench.small("direct", 2, batched=False, few=1000) as device:
        compute, write, load = (device.stream(name) for name in ("compute", "write", "load"))
        device.touch(compute, Touch("full", page, "w", all_layers, "prefill"))
        if case == ORDERED:
            device.wait(write, device.record(compute))
        device.copy(
            write, CopyJob(Direction.DEVICE_TO_HOST, "full", page, page, all_layers, "backup")
        )
        device.wait(load, device.record(write))
        device.copy(load, CopyJob(Direction.HOST_TO_DEVICE, "full", page, page, all_layers, "load"))
        device.wait(compute, device.record(load))
        device.touch(compute, Touch("full", page, "r", all_layers, "prefill"))
        device.synchronize(device.record(compute))


if __name__ == "__main__":
    program(sys.argv[1])
