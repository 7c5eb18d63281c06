"""torch.cuda and the CUDA driver as far as the accelerator calls them, as their documentation says.

Sources: docs.pytorch.org (mem_get_info, memory_stats), c10/cuda/CUDAStream.cpp (32 streams of a
priority, handed out in turn), the CUDA driver API (cuDeviceGetAttribute, cuPointerGetAttribute,
cuDevicePrimaryCtxRetain, cuCtxSetCurrent, cuMemcpy3DBatchAsync of 12.8) and the CUDA runtime API
(cudaHostRegister, cudaHostGetDevicePointer).
"""

from __future__ import annotations

import ctypes
import threading
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hicache.devices import _accelerator
from hicache.devices._accelerator import Accelerator

POOL = 32
_CONTEXT = 0x2000


class Operand(ctypes.Structure):
    """CUmemcpy3DOperand of a pointer. location: CUmemLocation (type, id)."""

    _fields_ = [
        ("kind", ctypes.c_int),
        ("address", ctypes.c_uint64),
        ("row_length", ctypes.c_size_t),
        ("layer_height", ctypes.c_size_t),
        ("location", ctypes.c_int * 2),
    ]


class Rows(ctypes.Structure):
    """CUDA_MEMCPY3D_BATCH_OP."""

    _fields_ = [
        ("source", Operand),
        ("target", Operand),
        ("width", ctypes.c_size_t),
        ("height", ctypes.c_size_t),
        ("depth", ctypes.c_size_t),
        ("order", ctypes.c_int),
        ("flags", ctypes.c_uint),
    ]


_BATCH = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_size_t,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_ulonglong,
    ctypes.c_void_p,
)


class Driver:
    """clock_khz: 0 if the driver does not know it. offset: between the addresses of registered
    memory on the device and on the host; not 0 where a visible device cannot use host addresses.
    version: 12,040 has no batches of copies. code: what a batch of rows returns."""

    def __init__(self, version: int = 12_040) -> None:
        self.clock_khz = 1_980_000
        self.offset = 0
        self.version = version
        self.code = 0
        self.streams: list[int] = []
        self._contexts = {threading.get_ident(): _CONTEXT}  # torch makes one for its own thread
        self._entries = {
            "cuMemcpyBatchAsync": ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 1),
            "cuMemcpy3DBatchAsync": _BATCH(self._rows),
        }

    def cuDriverGetVersion(self, version: Any) -> int:  # noqa: N802
        version._obj.value = self.version
        return 0

    def cuGetProcAddress_v2(  # noqa: N802
        self, name: bytes, entry: Any, version: Any, flags: Any, found: Any
    ) -> int:
        assert version.value == 12_080, "the version that fixes the arguments"
        entry._obj.value = ctypes.cast(self._entries[name.decode()], ctypes.c_void_p).value
        return 0

    def _rows(self, count: int, first: int, failed: int, flags: int, stream: int) -> int:
        """Copies at once."""
        if self._contexts.get(threading.get_ident()) != _CONTEXT:
            return 201  # CUDA_ERROR_INVALID_CONTEXT
        self.streams.append(stream)
        ctypes.c_size_t.from_address(failed).value = 1 if self.code else 0
        for one in (Rows * count).from_address(first):
            assert (one.source.kind, one.target.kind) == (1, 1), "CU_MEMCPY_OPERAND_TYPE_POINTER"
            assert one.order == 1, "CU_MEMCPY_SRC_ACCESS_ORDER_STREAM"
            assert (one.depth, one.flags, flags) == (1, 0, 0)
            for row in range(one.height):
                ctypes.memmove(
                    one.target.address + row * one.target.row_length,
                    one.source.address + row * one.source.row_length,
                    one.width,
                )
        return self.code

    def cuDeviceGet(self, handle: Any, ordinal: int) -> int:  # noqa: N802
        handle._obj.value = ordinal
        return 0

    def cuDevicePrimaryCtxRetain(self, context: Any, device: Any) -> int:  # noqa: N802
        assert device.value == 0
        context._obj.value = _CONTEXT
        return 0

    def cuCtxSetCurrent(self, context: Any) -> int:  # noqa: N802
        self._contexts[threading.get_ident()] = context.value
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

    def set_device(self, place: torch.device) -> None:
        assert place.index == 0

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

    def current_stream(self, place: torch.device) -> Any:
        return SimpleNamespace(cuda_stream=0x1000)

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


def accelerator(
    monkeypatch: pytest.MonkeyPatch, version: int = 12_040
) -> tuple[Accelerator, Cuda, Driver]:
    """An accelerator over these two, as if this machine had one CUDA device."""
    cuda, driver = Cuda(), Driver(version)
    zeros = torch.zeros
    monkeypatch.setattr(_accelerator, "unusable", lambda index=0: "")
    monkeypatch.setattr(_accelerator, "_cuda", cuda)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver)
    monkeypatch.setattr(torch, "zeros", lambda *given, device: zeros(*given))
    return Accelerator(), cuda, driver
