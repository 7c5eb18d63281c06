"""torch.cuda and the CUDA driver as far as the accelerator calls them, as their documentation says.

Sources: docs.pytorch.org (mem_get_info, memory_stats), c10/cuda/CUDAStream.cpp (32 streams of a
priority, handed out in turn), the CUDA driver API (cuDeviceGetAttribute, cuPointerGetAttribute) and
the CUDA runtime API (cudaHostRegister, cudaHostGetDevicePointer).
"""

from __future__ import annotations

import ctypes
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hicache.devices import _accelerator
from hicache.devices._accelerator import Accelerator

POOL = 32


class Driver:
    """clock_khz: 0 if the driver does not know it. offset: between the addresses of registered
    memory on the device and on the host; not 0 where a visible device cannot use host addresses."""

    def __init__(self) -> None:
        self.clock_khz = 1_980_000
        self.offset = 0

    def cuDriverGetVersion(self, version: Any) -> int:  # noqa: N802
        version._obj.value = 12_040  # older than cuMemcpyBatchAsync
        return 0

    def cuDeviceGet(self, handle: Any, ordinal: int) -> int:  # noqa: N802
        handle._obj.value = ordinal
        return 0

    def cuDeviceGetAttribute(self, value: Any, attribute: int, device: int) -> int:  # noqa: N802
        assert attribute == 13, "CU_DEVICE_ATTRIBUTE_CLOCK_RATE"
        if not self.clock_khz:
            return 1  # CUDA_ERROR_INVALID_VALUE
        value._obj.value = self.clock_khz
        return 0

    def cuPointerGetAttribute(self, value: Any, attribute: int, address: Any) -> int:  # noqa: N802
        assert attribute == 3, "CU_POINTER_ATTRIBUTE_DEVICE_POINTER"
        value._obj.value = address.value + self.offset
        return 0


class Cuda:
    """free: bytes. stats: of the allocator. codes: what cudaHostRegister returns, in turn."""

    def __init__(self) -> None:
        self.free = 1 << 30
        self.stats: dict[str, int] = {}
        self.codes: list[int] = []
        self.registered: dict[int, int] = {}
        self.slept: list[int] = []
        self.streams = 0

    def init(self) -> None:
        """Nothing to do."""

    def synchronize(self, place: torch.device) -> None:
        """Nothing is ever under way."""

    def Stream(self, device: torch.device) -> Any:  # noqa: N802
        self.streams += 1
        return SimpleNamespace(cuda_stream=0x1000 + (self.streams - 1) % POOL)

    def device(self, place: torch.device) -> AbstractContextManager[None]:
        return nullcontext()

    def stream(self, stream: Any) -> AbstractContextManager[None]:
        return nullcontext()

    def _sleep(self, cycles: int) -> None:
        self.slept.append(cycles)

    def mem_get_info(self, place: torch.device) -> tuple[int, int]:
        return self.free, 1 << 34

    def memory_stats(self, place: torch.device) -> dict[str, int]:
        return {f"{name}.all.current": value for name, value in self.stats.items()}

    def cudart(self) -> Any:
        return self

    def cudaHostRegister(self, address: int, size: int, flags: int) -> int:  # noqa: N802
        code = self.codes.pop(0) if self.codes else 0
        if not code:
            self.registered[address] = size
        return code

    def cudaHostUnregister(self, address: int) -> int:  # noqa: N802
        del self.registered[address]
        return 0


def accelerator(monkeypatch: pytest.MonkeyPatch) -> tuple[Accelerator, Cuda, Driver]:
    """An accelerator over these two, as if this machine had one CUDA device."""
    cuda, driver = Cuda(), Driver()
    zeros = torch.zeros
    monkeypatch.setattr(_accelerator, "unusable", lambda index=0: "")
    monkeypatch.setattr(_accelerator, "_cuda", cuda)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver)
    monkeypatch.setattr(torch, "zeros", lambda *given, device: zeros(*given))
    return Accelerator(), cuda, driver
