"""What the accelerator asks of torch and of the driver, against both as they are documented.

Nothing here has run on a GPU: the fake is as good as the documents that it follows.
"""

from __future__ import annotations

import mmap
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from hicache.core.errors import CallerError, CoreBug
from hicache.memory.host import allocate
from hicache.memory.runs import Rows
from hicache.memory.segments import Registration, Segment

from .fake_cuda import POOL, accelerator


def test_a_hold_asks_the_driver_for_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """cudaDeviceProp has no clockRate from CUDA 13 on, and not every torch passes it on; the
    attribute CU_DEVICE_ATTRIBUTE_CLOCK_RATE (in kHz) stays."""
    device, cuda, driver = accelerator(monkeypatch)
    device.hold(device.stream(), 1_000_000)
    assert cuda.slept == [1_980_000]
    driver.clock_khz = 0
    with pytest.raises(CallerError, match=r"^hold: expected .* clock of cuda:0, found it unknown"):
        device.hold(device.stream(), 1_000_000)


def test_memory_that_torch_would_reuse_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.cuda.memory_stats: `inactive_split_bytes` is inactive, non-releasable memory."""
    device, cuda, _ = accelerator(monkeypatch)
    cuda.free = 100
    assert device.free() == 100, "torch has allocated nothing yet"
    cuda.stats = {"reserved_bytes": 1000, "active_bytes": 300, "inactive_split_bytes": 50}
    assert device.free() == 100 + 650


def test_two_lanes_never_share_a_stream_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch hands out the first of its 32 streams again after the last, whoever took them."""
    device, cuda, _ = accelerator(monkeypatch)
    first = device.stream()
    for _ in range(POOL - 1):
        cuda.Stream(device.place)
    second = device.stream()
    assert second.cuda_stream != first.cuda_stream
    for _ in range(POOL - 2):
        device.stream()
    with pytest.raises(CallerError, match="expected at most 32 streams"):
        device.stream()


def test_a_driver_older_than_batches_is_not_asked_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not accelerator(monkeypatch)[0].batches


def test_a_batch_of_rows_is_what_the_driver_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    device, _, driver = accelerator(monkeypatch, 12_080)
    assert device.batches
    source = np.arange(400, dtype=np.uint8)
    target = np.zeros(400, dtype=np.uint8)
    here, there = np.array([0, 7]), np.array([200, 100])
    device.batch_rows(target.ctypes.data + there, source.ctypes.data + here, 5, Rows(3, 60, 5))
    expected = np.zeros(400, dtype=np.uint8)
    for first, goal in ((0, 200), (7, 100)):
        expected[goal : goal + 15] = [first + 60 * row + at for row in range(3) for at in range(5)]
    assert np.array_equal(target, expected)
    assert driver.streams == [0x1000]
    device.batch_rows(here[:0], here[:0], 5, Rows(3, 60, 5))
    assert len(driver.streams) == 1, "no copies are no call"
    driver.code = 700
    with pytest.raises(CoreBug, match=r"^cuMemcpy3DBatchAsync: driver error 700 at copy 1 of 2$"):
        device.batch_rows(target.ctypes.data + there, source.ctypes.data + here, 5, Rows(3, 60, 5))


def test_another_thread_can_copy_when_it_has_the_context(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CUDA driver API: a context is current to one thread, and a new thread has none."""
    device, _, driver = accelerator(monkeypatch, 12_080)
    words = np.zeros(2, dtype=np.uint8)
    at = np.array([words.ctypes.data])

    def copy(attached: bool) -> None:
        if attached:
            device.attach()
        device.batch_rows(at + 1, at, 1, Rows(1, 1, 1))

    with ThreadPoolExecutor(1) as other:
        with pytest.raises(CoreBug, match="driver error 201"):
            other.submit(copy, False).result()
        other.submit(copy, True).result()
    assert len(driver.streams) == 1


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (2, r"returned 2; ask for fewer pages, .*ulimit -l"),
        (712, "returned 712, because the memory is registered already"),
        (801, "returned 801, because it cannot use registered memory"),
        (304, "returned 304, see cudaError_t"),
    ],
)
def test_the_advice_fits_the_error(monkeypatch: pytest.MonkeyPatch, code: int, said: str) -> None:
    device, cuda, _ = accelerator(monkeypatch)
    buffer = allocate("test", 4 * mmap.PAGESIZE)
    halves = (Segment(0, 2 * mmap.PAGESIZE), Segment(2 * mmap.PAGESIZE, 2 * mmap.PAGESIZE))
    cuda.codes = [0, code]
    with pytest.raises(CallerError, match=f"segment 2 of 2, .* but the device {said}") as error:
        Registration("host pool kv", buffer, halves, device)
    assert ("ulimit" in str(error.value)) == (code == 2)
    assert not cuda.registered


def test_memory_at_another_address_of_the_device_is_no_lack_of_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """cudaHostGetDevicePointer: if a visible device has 0 for
    cudaDevAttrCanUseHostPointerForRegisteredMem, the two pointers do not match."""
    device, cuda, driver = accelerator(monkeypatch)
    driver.offset = 1 << 40
    whole = (Segment(0, mmap.PAGESIZE),)
    with pytest.raises(
        CallerError, match=r"another address than the host, .*CUDA_VISIBLE"
    ) as error:
        Registration("host pool kv", allocate("test", mmap.PAGESIZE), whole, device)
    assert "ulimit" not in str(error.value)
    assert not cuda.registered
