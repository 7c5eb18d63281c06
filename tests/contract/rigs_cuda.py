"""The CUDA device for the contract suite: on CUDA where there is one, and without it on an
accelerator that acts at once, which leaves out only what CUDA itself does.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hicache.core.errors import CallerError
from hicache.devices._accelerator import unusable
from hicache.devices.base import DeviceOptions, Mark
from hicache.devices.cuda import FEW, CudaDevice, Runtime
from hicache.models import ModelDescription
from tests.devices.at_once import AtOnce


class CudaRig:
    """See `test_devices.Rig`. Skips the test where the backend's package is missing."""

    def __init__(
        self,
        model: ModelDescription,
        pages: tuple[int, int],
        backend: str,
        few: int,
        accelerator: Runtime | None = None,
    ) -> None:
        self.failing = False
        try:
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
        except CallerError as error:
            if "expected the package" not in str(error):
                raise
            pytest.skip(str(error))

    def settle(self, mark: Mark) -> None:
        self.device.synchronize(mark)

    def fail_copies(self, failing: bool) -> None:
        self.failing = failing

    def close(self) -> None:
        self.device.close()


def rigs(model: ModelDescription, pages: tuple[int, int]) -> dict[str, Callable[[], CudaRig]]:
    """By name. pages: of the device and of the host. On a machine without CUDA, the first two alone
    are tests; the others skip and say why. In all but the first, a thread issues every copy."""

    def at_once(few: int) -> Callable[[], CudaRig]:
        return lambda: CudaRig(model, pages, "direct", few, AtOnce(late=True))

    def real(backend: str) -> Callable[[], CudaRig]:
        def make() -> CudaRig:
            if missing := unusable():
                pytest.skip(missing)
            return CudaRig(model, pages, backend, few=0)

        return make

    return {
        "cuda-at-once": at_once(FEW),
        "cuda-thread": at_once(0),
        "cuda-direct": real("direct"),
        "cuda-kernel": real("kernel"),
    }
