"""The CUDA device without CUDA: everything but its streams, on an accelerator that acts at once."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import hicache.models as models
from hicache.core.errors import CallerError
from hicache.core.types import Tier
from hicache.devices import _traffic
from hicache.devices._accelerator import unusable
from hicache.devices.base import MOST, Access, Area, CopyJob, DeviceOptions, Direction
from hicache.devices.cpu import CpuDevice
from hicache.devices.cuda import FEW, CudaDevice
from hicache.memory.layouts import legal
from hicache.memory.torch_arena import Place, TorchArena
from hicache.models import ModelDescription
from tests.tiny import pages

from .at_once import AtOnce
from .cases import (
    D2H,
    DEVICE_PAGES,
    H2D,
    HOST_PAGES,
    LAYERS,
    THREE,
    digests,
    grouped,
    latent,
    page_size,
    program,
    shallow,
    tour,
)

ALL = (0, LAYERS)
PAGE_SIZE = 2
NO_CUDA = torch.version.cuda is None or not torch.cuda.is_available()


def make(accelerator: AtOnce, few: int = FEW, **options: Any) -> CudaDevice:
    chosen = DeviceOptions(**{"layout": "page_first_direct", "io_backend": "direct", **options})
    sizes = (grouped(), PAGE_SIZE, DEVICE_PAGES, HOST_PAGES)
    return CudaDevice(*sizes, chosen, few=few, accelerator=accelerator)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from([grouped(), latent()]),
    st.sampled_from(["layer_first", "page_first_direct"]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([1, 4096, 1 << 20]),
    st.sampled_from([1, 256]),
    st.sampled_from([0, 64]),
    st.integers(0, 2**32),
)
def test_agrees_with_the_cpu_device_byte_for_byte(
    model: ModelDescription,
    layout: str,
    batches: bool,
    late: bool,
    segment: int,
    many: int,
    few: int,
    seed: int,
) -> None:
    """many: pieces of a layer, above which a copy goes to the driver layer by layer. Content is
    written in as small parts, too. few: pieces, above which a thread issues a copy."""
    sizes = (model, PAGE_SIZE, DEVICE_PAGES, HOST_PAGES)
    chosen = DeviceOptions(layout=layout, io_backend="direct", segment_bytes=segment)
    with (
        pytest.MonkeyPatch.context() as patch,
        CpuDevice(*sizes, chosen) as cpu,
        CudaDevice(*sizes, chosen, few=few, accelerator=AtOnce(batches, late)) as cuda,
    ):
        patch.setattr(_traffic, "_MANY", many)
        patch.setattr(_traffic, "_WRITTEN_BYTES", many * 2048)
        assert program(cpu, seed) == program(cuda, seed)
        assert digests(cpu) == digests(cuda)


@pytest.mark.parametrize("name", models.names())
def test_every_pool_of_every_model_arrives_in_every_layout(name: str) -> None:
    """With the CPU device's ways to copy, and by the CUDA device's calls to the driver."""
    model = shallow(models.get(name))
    sizes = dict.fromkeys(model.components, THREE)
    value = (model, page_size(model), sizes, sizes)
    ways = [DeviceOptions(layout=layout, io_backend=backend) for layout, backend in legal()]
    makers = [partial(CpuDevice, *value, way) for way in ways]
    makers += [
        partial(CudaDevice, *value, way, accelerator=AtOnce())
        for way in ways
        if way.io_backend == "direct"
    ]
    result = []
    for make in makers:
        with make() as device:
            result.append(tour(device, model.components, model.layers))
    assert all(item == result[0] for item in result)
    for first in range(0, len(result[0]), 2 * THREE):
        _, second, _, backup, _, other = result[0][first : first + 2 * THREE]
        assert second == backup != other


def test_page_numbers_are_sent_once_for_all_layers_of_a_copy() -> None:
    """Seen where numbers are needed on the device: a look at pages, layer by layer."""
    accelerator = AtOnce()
    with make(accelerator) as device:
        stream = device.stream("compute")
        numbers = pages(1, 2, 3)
        for layer in range(LAYERS):
            device.access(stream, Access("full", numbers, "r", (layer, layer + 1), "test"))
        assert accelerator.uploads == 1
        device.access(stream, Access("full", numbers.copy(), "r", ALL, "test"))
        assert accelerator.uploads == 2
        device.access(device.stream("load"), Access("full", numbers, "r", ALL, "test"))
        assert accelerator.uploads == 3, "a tensor belongs to one stream"


@pytest.mark.parametrize(
    ("layout", "most", "moved"),
    [("page_first_direct", 1 << 31, 3), ("page_first_direct", 100, 0), ("layer_first", 1 << 31, 0)],
)
def test_a_backup_to_whole_pages_is_one_copy_of_rows_each(
    monkeypatch: pytest.MonkeyPatch, layout: str, most: int, moved: int
) -> None:
    """most: bytes between rows that the driver takes; here they are 9 pages of 48 bytes."""
    monkeypatch.setattr(_traffic, "_MOST_STEP", most)
    accelerator = AtOnce()
    with make(accelerator, layout=layout) as device:
        stream = device.stream("write")
        device.copy(stream, CopyJob(D2H, "full", pages(5, 8, 1), pages(0, 2, 1), ALL, "test"))
        assert accelerator.rectangles == moved
        device.copy(stream, CopyJob(H2D, "full", pages(5, 8, 1), pages(0, 2, 1), ALL, "test"))
        assert accelerator.rectangles == moved, "a load has no rows"


def test_marks_have_times_by_the_given_timer_and_the_latest_are_kept() -> None:
    with make(AtOnce()) as device, pytest.raises(CallerError, match="timer"):
        device.reached_ns(device.record(device.stream("load")))
    with make(AtOnce(), timer=lambda: 1_000) as device:
        stream = device.stream("load")
        first = device.record(stream)
        for _ in range(MOST + 10):
            last = device.record(stream)
        assert len(device._reached_ns) == MOST
        assert device.reached_ns(last) == 1_501_000
        with pytest.raises(CallerError, match="one of its 65536 latest events, reached, found 0"):
            device.reached_ns(first)


@pytest.mark.parametrize("closed", [False, True])
def test_a_look_is_told_when_a_later_mark_is_seen_or_the_device_closes(closed: bool) -> None:
    seen: list[tuple[int, ...]] = []
    with make(AtOnce(late=True)) as device:
        stream = device.stream("compute")
        area = Area(Tier.DEVICE, "full", pages(4, 2), (1, 3))
        device.read(stream, area, lambda result: seen.append(result[0].shape))
        device_event = device.record(stream)
        if not closed:
            assert not device.query(device_event)
        assert not seen
        assert closed or device.query(device_event)
        assert seen == [(2, 2, 2, PAGE_SIZE, 2, 12)] * (not closed)
    assert len(seen) == 1


@pytest.mark.skipif(not NO_CUDA, reason="this machine has a CUDA device")
def test_without_cuda_one_line_says_what_is_missing() -> None:
    assert "\n" not in unusable()
    words = r"^cuda: expected a .*, found .*; .* use the cpu device$"
    with pytest.raises(CallerError, match=words):
        CudaDevice(grouped(), 1, DEVICE_PAGES, HOST_PAGES, DeviceOptions(layout="layer_first"))


# -- what fails


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
            CallerError, match=r"^memory: expected room to move 2 pages of full, found CUDA .*out"
        ) as caught:
            device.read(stream, Area(Tier.DEVICE, "full", pages(1, 2), ALL), lambda _: None)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("tier", [Tier.DEVICE, Tier.HOST])
def test_too_little_memory_is_reported_in_numbers(tier: Tier) -> None:
    sizes = {Tier.DEVICE: {"full": 2}, Tier.HOST: {"full": 2}}
    sizes[tier] = {"full": 10**12}
    free = 1 << 20
    place = Place(torch.device("cpu"), lambda: free)
    with pytest.raises(CallerError, match=r"room for 192\d{9,} bytes .*; ask for fewer pages"):
        TorchArena(grouped(), 1, sizes, place, layout="layer_first", backend="direct")
