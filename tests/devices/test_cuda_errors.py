"""What the CUDA device refuses, and how it ends when the device or the memory fails.

Without CUDA, on an accelerator that acts at once.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import hicache.models as models
from hicache.core.errors import CallerError
from hicache.core.types import Tier
from hicache.devices.base import Area, CopyJob, DeviceOptions, Direction
from hicache.devices.cpu import CpuDevice
from hicache.devices.cuda import CudaDevice
from hicache.memory.torch_arena import Place, TorchArena

from .at_once import AtOnce
from .cases import D2H, DEVICE_PAGES, H2D, HOST_PAGES, LAYERS, grouped, pages
from .test_cuda import PAGE_SIZE, make

ALL = (0, LAYERS)


@pytest.mark.parametrize("where", ["construction", "close"])
def test_a_device_that_fails_unregisters_its_memory(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory that goes while the device has it registered is written to by nobody knows whom."""
    accelerator = AtOnce()

    def fail() -> None:
        raise RuntimeError("the device is gone")

    if where == "construction":
        monkeypatch.setattr(accelerator, "finish", fail)
        with pytest.raises(RuntimeError):
            make(accelerator)
    else:
        device = make(accelerator)
        assert accelerator.registered
        monkeypatch.setattr(accelerator, "finish", fail)
        with pytest.raises(RuntimeError):
            device.close()
    assert not accelerator.registered


@pytest.mark.parametrize("inside", [False, True])
def test_the_first_error_of_a_device_is_the_one_that_is_raised(
    inside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The CUDA runtime API: after a sticky error every later call returns that error, also
    cudaHostUnregister."""
    accelerator = AtOnce()
    tried: list[int] = []

    def fail() -> None:
        raise RuntimeError("the device is gone")

    def refuse(address: int) -> int:
        tried.append(address)
        return 700

    def work() -> None:
        with CudaDevice(
            models.get("deepseek-v4-flash"), 128, one, one, chosen, accelerator=accelerator
        ):
            monkeypatch.setattr(accelerator, "finish", fail)
            monkeypatch.setattr(accelerator, "unregister", refuse)
            if inside:
                raise ValueError("the first of all")

    one = dict.fromkeys(models.get("deepseek-v4-flash").components, 2)
    chosen = DeviceOptions(layout="page_first_direct", io_backend="direct")
    expected = ValueError if inside else RuntimeError
    with pytest.raises(expected, match="the first of all" if inside else "the device is gone") as e:
        work()
    assert any("expected to unregister" in note for note in e.value.__notes__)
    assert sorted(tried) == sorted(accelerator.registered), "every pool is tried"


@pytest.mark.parametrize("direction", [D2H, H2D])
@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_a_page_that_is_a_target_twice_is_refused(kind: str, direction: Direction) -> None:
    """Of two copies of one job to the same page, either could be the last on CUDA."""
    device = CpuDevice(grouped(), PAGE_SIZE, DEVICE_PAGES, HOST_PAGES) if kind == "cpu" else None
    with device or make(AtOnce()) as opened:
        job = CopyJob(direction, "full", pages(1, 2, 3), pages(4, 7, 4), ALL, "test")
        with pytest.raises(CallerError, match="every target page once, found page 4 of full twice"):
            opened.copy(opened.stream("copy"), job)
        opened.copy(opened.stream("copy"), replace(job, source=pages(1, 1), target=pages(4, 7)))


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("upload", torch.OutOfMemoryError("CUDA out of memory. Tried to allocate\nmore")),
        ("download", RuntimeError("CUDA error: out of memory\nCompile with ...")),
    ],
)
def test_memory_that_torch_cannot_get_is_one_line(
    call: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch.OutOfMemoryError is that of device memory; a refused cudaHostAlloc is a RuntimeError
    with CUDA's own words."""
    accelerator = AtOnce()

    def refuse(_: object) -> None:
        raise error

    with make(accelerator) as device:
        stream = device.stream("look")
        monkeypatch.setattr(accelerator, call, refuse)
        with pytest.raises(
            CallerError,
            match=r"^memory: expected room to move 2 pages of full, found CUDA .*out",
        ) as caught:
            device.peek(stream, Area(Tier.DEVICE, "full", pages(1, 2), ALL), lambda _: None)
        assert "\n" not in str(caught.value)


def test_scratch_memory_that_torch_cannot_get_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object, **options: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    with make(AtOnce()) as device:
        monkeypatch.setattr(torch, "empty", refuse)
        with pytest.raises(CallerError, match="room to move 1 pages of full"):
            device.peek(
                device.stream("look"), Area(Tier.HOST, "full", pages(1), ALL), lambda _: None
            )


def test_a_refused_registration_is_reported_and_undone() -> None:
    accelerator = AtOnce(refuses=3)
    with pytest.raises(CallerError, match=r"segment 4 of 14, .* returned 2; ask for fewer"):
        CudaDevice(
            grouped(64),
            64,
            DEVICE_PAGES,
            HOST_PAGES,
            DeviceOptions(layout="layer_first", io_backend="direct", segment_bytes=1 << 17),
            accelerator=accelerator,
        )
    assert not accelerator.registered


@pytest.mark.parametrize("tier", [Tier.DEVICE, Tier.HOST])
def test_too_little_memory_is_reported_in_numbers(tier: Tier) -> None:
    sizes = {Tier.DEVICE: {"full": 2}, Tier.HOST: {"full": 2}}
    sizes[tier] = {"full": 10**12}
    free = 1 << 20
    place = Place(torch.device("cpu"), lambda: free)
    with pytest.raises(CallerError, match=r"room for 192\d{9,} bytes .*; ask for fewer pages"):
        TorchArena(grouped(), 1, sizes, place, layout="layer_first", backend="direct")
