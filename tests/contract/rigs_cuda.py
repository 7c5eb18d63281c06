"""The CUDA device for the contract suite: on CUDA where there is one, and without it on an
accelerator that acts at once, which leaves out only what CUDA itself does.
"""

from __future__ import annotations

from collections.abc import Callable

from hicache.devices.base import DeviceOptions, Mark
from hicache.devices.cuda import FEW, CudaDevice, Runtime
from hicache.models import ModelDescription
from tests.devices.at_once import AtOnce

GPU = ("cuda-direct", "cuda-kernel")


class CudaRig:
    """See `test_devices.Rig`."""

    def __init__(
        self,
        model: ModelDescription,
        pages: tuple[int, int],
        backend: str,
        few: int,
        accelerator: Runtime | None = None,
    ) -> None:
        self.failing = False
        self.device = CudaDevice(
            model,
            2,
            {"full": pages[0]},
            {"full": pages[1]},
            DeviceOptions(
                layout="page_first_direct", io_backend=backend, fault=lambda *_: self.failing
            ),
            few=few,
            accelerator=accelerator,
        )

    def settle(self, mark: Mark) -> None:
        self.device.synchronize(mark)

    def fail_copies(self, failing: bool) -> None:
        self.failing = failing

    def close(self) -> None:
        self.device.close()


def rigs(model: ModelDescription, pages: tuple[int, int]) -> dict[str, Callable[[], CudaRig]]:
    """By name. pages: of the device and of the host. Those of `GPU` need one. In all but the first,
    a thread issues every copy."""

    def at_once(few: int) -> Callable[[], CudaRig]:
        return lambda: CudaRig(model, pages, "direct", few, AtOnce(late=True))

    def real(backend: str) -> Callable[[], CudaRig]:
        return lambda: CudaRig(model, pages, backend, few=0)

    return {
        "cuda-at-once": at_once(FEW),
        "cuda-thread": at_once(0),
        "cuda-direct": real("direct"),
        "cuda-kernel": real("kernel"),
    }
