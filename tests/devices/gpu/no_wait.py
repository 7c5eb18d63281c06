"""Checks that no call on the hot path waits for the device.

torch raises an error for a call that would wait. The device is kept busy meanwhile, and the calls
must return before it is idle. Only one layer of content is written meanwhile: the driver takes
about 1,000 kernels on a stream and then waits, and the content of all layers takes 2,700.
"""

import numpy as np
import torch

from hicache.core.errors import HicacheError
from hicache.devices.base import Access, CopyJob, Direction
from hicache.devices.cuda import CudaDevice

from . import _bench
from ._bench import ALL_LAYERS as _ALL
from ._bench import Figure, Outcome

_HELD_NS = 2_000_000_000
_WARM = 4


def run() -> Outcome:
    faults = []
    for backend in ("direct", "kernel"):
        with _bench.small(backend, 16) as device:
            # the first use may wait: it compiles kernels and allocates pinned memory
            for _ in range(_WARM):
                _calls(device)
                for name in ("compute", "write", "load"):
                    device.synchronize(device.record(device.stream(name)))
            _bench.hold(device, device.stream("compute"), _HELD_NS)
            before = torch.cuda.get_sync_debug_mode()
            torch.cuda.set_sync_debug_mode("error")
            try:
                reached = _calls(device)
            except (RuntimeError, HicacheError) as error:  # of this thread, or of the device's
                faults.append(f"{backend}: {str(error).splitlines()[0]}")
            else:
                if reached:
                    faults.append(f"{backend}: the calls came back after the stream that was held")
            finally:
                torch.cuda.set_sync_debug_mode(before)
    return Outcome([Figure("backends tried", 2)], faults)


def _calls(device: CudaDevice) -> bool:
    """Makes one call of each kind on three streams; returns whether the last ended at once."""
    compute, write, load = (device.stream(name) for name in ("compute", "write", "load"))
    pages, others = np.arange(8, dtype=np.int64), np.arange(8, 16, dtype=np.int64)
    device.access(compute, Access("full", pages, "w", (0, 1), "prefill"))
    device.wait(write, device.record(compute))
    device.copy(write, CopyJob(Direction.DEVICE_TO_HOST, "full", pages, others, _ALL, "backup"))
    device.wait(load, device.record(write))
    for layer in range(device.layers):
        group = (layer, layer + 1)
        device.copy(load, CopyJob(Direction.HOST_TO_DEVICE, "full", others, others, group, "load"))
        device.wait(compute, device.record(load))
        device.access(compute, Access("full", others, "r", group, "prefill"))
    return device.query(device.record(compute))
