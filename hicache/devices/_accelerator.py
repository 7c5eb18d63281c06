"""All calls to torch.cuda and to the CUDA driver that a CUDA device makes: streams, events, pinned
memory, transfers of small arrays, batches of copies. It waits only where a caller asks for it."""

import ctypes
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hicache.core.errors import CallerError, CoreBug
from hicache.memory.runs import Offsets, Rows

# cuda.h: CU_MEMCPY_SRC_ACCESS_ORDER_STREAM, CU_POINTER_ATTRIBUTE_DEVICE_POINTER
_IN_STREAM_ORDER = 1
_DEVICE_POINTER = 3
# cuda.h: CU_MEMCPY_OPERAND_TYPE_POINTER
_BY_POINTER = 1
# cuda.h: the first driver version with cuMemcpyBatchAsync and cuMemcpy3DBatchAsync. Asking for the
# functions of this version fixes their arguments; later versions dropped one (failIdx).
_BATCH_SINCE = 12_080
# driver_types.h: cudaHostRegisterPortable | cudaHostRegisterMapped
_REGISTER = 3
# The memory was registered, but the device has it at another address: no code of CUDA.
_ELSEWHERE = -1
# driver_types.h: cudaErrorMemoryAllocation, cudaErrorHostMemoryAlreadyRegistered,
# cudaErrorNotSupported
_REFUSALS = {
    2: "returned 2; ask for fewer pages, or raise the limit on locked memory (ulimit -l)",
    712: "returned 712, because the memory is registered already; close the device that has it",
    801: "returned 801, because it cannot use registered memory of the host; take another device",
    _ELSEWHERE: "has it at another address than the host; hide the devices that cannot use host "
    "addresses (CUDA_VISIBLE_DEVICES), or take another device",
}
# c10/cuda/CUDAStream.cpp: torch has this many streams of a priority and hands them out in turn.
_STREAMS = 32

_OPERAND = (
    ("kind", np.uint32),
    ("address", np.uint64),
    ("step", np.uint64),
    ("rows", np.uint64),
    ("hint", (np.int32, 2)),
)
# CUDA_MEMCPY3D_BATCH_OP, with the pointers of its unions: each operand has a hint of (type, id).
_ROWS = np.dtype(
    [
        *((f"source_{name}", kind) for name, kind in _OPERAND),
        *((f"target_{name}", kind) for name, kind in _OPERAND),
        *((name, np.uint64) for name in ("width", "height", "depth")),
        *(("order", np.uint32), ("flags", np.uint32)),
    ],
    align=True,
)

_cuda: Any = torch.cuda  # for functions without type annotations


class _Attributes(ctypes.Structure):
    """CUmemcpyAttributes: source order, two location hints of (type, id), flags."""

    _fields_ = [
        ("order", ctypes.c_uint),
        ("source_hint", ctypes.c_int * 2),
        ("target_hint", ctypes.c_int * 2),
        ("flags", ctypes.c_uint),
    ]


_POINTER, _SIZE = ctypes.c_void_p, ctypes.c_size_t
_Copies = ctypes.CFUNCTYPE(
    *(ctypes.c_int, _POINTER, _POINTER, _POINTER, _SIZE),
    *(_POINTER, _POINTER, _SIZE, _POINTER, _POINTER),
)
_CopiesOfRows = ctypes.CFUNCTYPE(
    *(ctypes.c_int, _SIZE, _POINTER, _POINTER, ctypes.c_ulonglong, _POINTER)
)


class Accelerator:
    """Device `index` of this process. Raises CallerError if it cannot be used."""

    def __init__(self, index: int = 0) -> None:
        missing = unusable(index)
        if missing:
            raise CallerError(missing)
        self.place = torch.device("cuda", index)
        _cuda.init()
        # Creates the device's primary context, which the driver calls below need.
        torch.zeros(1, device=self.place)
        self._driver: Any = ctypes.CDLL("libcuda.so.1")
        self._streams: set[int] = set()
        self._batch = self._find("cuMemcpyBatchAsync", _Copies)
        self._batch_rows = self._find("cuMemcpy3DBatchAsync", _CopiesOfRows)
        # Whether the driver takes many copies in one call.
        self.batches = self._batch is not None and self._batch_rows is not None

    def attach(self) -> None:
        """Let the current thread call the driver for this device. A new thread has no context, and
        gets the one of torch. Raises CoreBug if the driver returns an error."""
        _cuda.set_device(self.place)
        handle, context = ctypes.c_int(), ctypes.c_void_p()
        driver = self._driver
        code = driver.cuDeviceGet(ctypes.byref(handle), self.place.index)
        code = code or driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), handle)
        code = code or driver.cuCtxSetCurrent(context)
        if code:
            raise CoreBug(f"cuCtxSetCurrent: driver error {code} for {self.place}")

    def stream(self) -> torch.cuda.Stream:
        """A stream that was not given out, though torch hands out its streams in turn. Raises
        CallerError if torch has none: two transfer queues on one stream would wait for each
        other."""
        for _ in range(_STREAMS):
            stream: torch.cuda.Stream = _cuda.Stream(device=self.place)
            if stream.cuda_stream not in self._streams:
                self._streams.add(stream.cuda_stream)
                return stream
        raise CallerError(f"stream: expected at most {_STREAMS} streams, as torch has; use fewer")

    def event(self, timed: bool) -> torch.cuda.Event:
        event: torch.cuda.Event = _cuda.Event(enable_timing=timed)
        return event

    def on(self, stream: torch.cuda.Stream) -> AbstractContextManager[object]:
        """A context manager: in its `with` block, torch and Triton issue work on the stream."""
        context: AbstractContextManager[object] = torch.cuda.stream(stream)
        return context

    def upload(self, words: NDArray[np.int64]) -> tuple[torch.Tensor, object]:
        """Upload an array on the current stream. Returns the tensor, and an object that must be
        kept until the upload has ended.

        The copy is from pinned memory, so the call does not wait for it.
        """
        staged = torch.empty(words.shape, dtype=torch.int64, pin_memory=True)
        staged.numpy()[...] = words
        return staged.to(self.place, non_blocking=True), staged

    def download(self, rows: torch.Tensor) -> torch.Tensor:
        """Queue a copy of the rows to pinned memory on the current stream, and return that memory.
        rows: contiguous."""
        arrived = torch.empty(rows.shape, dtype=rows.dtype, pin_memory=True)
        return arrived.copy_(rows, non_blocking=True)

    def finish(self) -> None:
        """Wait for all work on the device."""
        _cuda.synchronize(self.place)

    def free(self) -> int:
        """Bytes of device memory that torch can allocate: what is free, and what torch keeps for
        reuse, but not the rest of segments in use (`inactive_split_bytes`)."""
        free: int = _cuda.mem_get_info(self.place)[0]
        kept = _cuda.memory_stats(self.place)
        reserved, active, split = (
            int(kept.get(f"{name}.all.current", 0))
            for name in ("reserved_bytes", "active_bytes", "inactive_split_bytes")
        )
        return free + max(0, reserved - active - split)

    def register(self, address: int, size: int) -> int:
        """Pin host memory and map it to the device. Returns 0 or an error code. Kernels use host
        addresses, so it is a failure if the device has the memory at another one."""
        with _cuda.device(self.place):
            code = int(_cuda.cudart().cudaHostRegister(address, size, _REGISTER))
        if code:
            self._forget_error()
            return code
        mapped = ctypes.c_uint64()
        code = int(
            self._driver.cuPointerGetAttribute(
                ctypes.byref(mapped), _DEVICE_POINTER, ctypes.c_uint64(address)
            )
        )
        if code or mapped.value != address:
            self.unregister(address)
            return code or _ELSEWHERE
        return 0

    def unregister(self, address: int) -> int:
        """Unpin host memory. Returns 0 or an error code."""
        return int(_cuda.cudart().cudaHostUnregister(address))

    def refusal(self, code: int) -> str:
        """What the device did when `register` returned this code, and what to do about it."""
        known = _REFUSALS.get(code)
        return known or f"returned {code}, see cudaError_t; try another device, or the cpu device"

    def batch(self, targets: Offsets, sources: Offsets, lengths: Offsets) -> None:
        """Queue copies of `lengths` bytes between addresses on the current stream, in any order.

        The driver reads the three arrays only during the call. Raises CoreBug if it returns an
        error.
        """
        if not len(targets):
            return
        assert self._batch is not None, "the driver has no batches: ask `batches` first"
        attributes = _Attributes(order=_IN_STREAM_ORDER)
        first, failed = ctypes.c_size_t(0), ctypes.c_size_t(0)
        arrays = [np.ascontiguousarray(words, dtype=np.uint64) for words in (targets, sources)]
        sizes = np.ascontiguousarray(lengths, dtype=np.uint64)
        code = self._batch(
            arrays[0].ctypes.data,
            arrays[1].ctypes.data,
            sizes.ctypes.data,
            len(sizes),
            ctypes.addressof(attributes),
            ctypes.addressof(first),
            1,
            ctypes.addressof(failed),
            _cuda.current_stream(self.place).cuda_stream,
        )
        if code:
            raise CoreBug(
                f"cuMemcpyBatchAsync: driver error {code} at copy {failed.value} of {len(sizes)}"
            )

    def batch_rows(self, targets: Offsets, sources: Offsets, length: int, rows: Rows) -> None:
        """Queue a copy for each pair of addresses on the current stream, in any order. Each copies
        rows of `length` bytes. Raises CoreBug if the driver returns an error."""
        if not len(targets):
            return
        assert self._batch_rows is not None, "the driver has no batches: ask `batches` first"
        copies = np.zeros(len(targets), _ROWS)
        copies["source_kind"] = copies["target_kind"] = _BY_POINTER
        copies["source_address"], copies["target_address"] = sources, targets
        copies["source_step"], copies["target_step"] = rows.source, rows.target
        copies["source_rows"] = copies["target_rows"] = copies["height"] = rows.number
        copies["width"], copies["depth"], copies["order"] = length, 1, _IN_STREAM_ORDER
        failed = ctypes.c_size_t(0)
        code = self._batch_rows(
            len(copies),
            copies.ctypes.data,
            ctypes.addressof(failed),
            0,
            _cuda.current_stream(self.place).cuda_stream,
        )
        if code:
            raise CoreBug(
                f"cuMemcpy3DBatchAsync: driver error {code} at copy {failed.value} of {len(copies)}"
            )

    def _find(self, name: str, kind: Callable[[int], Callable[..., int]]) -> Any:
        """The driver's function of this name, with the arguments of its first version; None if the
        driver is older."""
        version = ctypes.c_int()
        if self._driver.cuDriverGetVersion(ctypes.byref(version)) or version.value < _BATCH_SINCE:
            return None
        entry, result = ctypes.c_void_p(), ctypes.c_int()
        code = self._driver.cuGetProcAddress_v2(
            name.encode(),
            ctypes.byref(entry),
            ctypes.c_int(_BATCH_SINCE),
            ctypes.c_uint64(0),
            ctypes.byref(result),
        )
        return None if code or not entry.value else kind(entry.value)

    def _forget_error(self) -> None:
        """Clear the runtime's last error. Otherwise the next kernel would report the registration
        that was refused."""
        try:
            torch.zeros(1, device=self.place).add_(1)
            _cuda.synchronize(self.place)
        except RuntimeError:
            return


def unusable(index: int = 0) -> str:
    """Why this process cannot use CUDA device `index`, in one line; empty if it can."""
    if torch.version.cuda is None:
        return (
            f"cuda: expected a torch built with CUDA, found torch {torch.__version__}; install one "
            f"from pytorch.org, or use the cpu device"
        )
    count = torch.cuda.device_count()
    if not torch.cuda.is_available() or index >= count:
        return (
            f"cuda: expected a CUDA device {index}, found {count} with torch {torch.__version__}; "
            f"check nvidia-smi and CUDA_VISIBLE_DEVICES, or use the cpu device"
        )
    return ""
