"""Accelerators as data: what a profile says, and how to find one.

Lives here: the record, its derived rates and the lookup. The figures, each with its source, are
in sim/hardware/profiles, one accelerator per file, or in a file that `hicache calibrate` wrote
(measured). Must not live here: any formula about a model (sim/engine/costs).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

from hicache.core import registry
from hicache.core.errors import CallerError

from . import measured
from .curve import Curve

_PROFILES = "sim.hardware.profiles"
_NOT_MEASURED = ("name", "curves")


@dataclass(frozen=True, slots=True)
class HardwareProfile:
    """One accelerator and its link to host memory. Peaks as published, fractions in thousandths.

    flops_per_s             dense bf16, peak.
    hbm_bytes_per_s         device memory, peak.
    hbm_bytes               device memory, capacity.
    link_bytes_per_s        host link, one direction alone, peak.
    link_shared_permille    what both directions together reach when both are busy, in thousandths
                            of what one reaches alone: 2000 is full duplex, 1000 one shared wire.
    copy_latency_ns         from the start of a copy until its first byte moves.
    compute_permille, hbm_permille, link_permille   reachable part of each peak.
    step_overhead_ns        of one forward pass, outside its layers: scheduling, launch, sampling.
    curves                  by direction (d2h, h2d), how long a copy takes alone, where measured; it
                            stands for link_bytes_per_s and copy_latency_ns then.
    """

    name: str
    flops_per_s: int
    hbm_bytes_per_s: int
    hbm_bytes: int
    link_bytes_per_s: int
    link_shared_permille: int
    copy_latency_ns: int
    compute_permille: int
    hbm_permille: int
    link_permille: int
    step_overhead_ns: int
    curves: Mapping[str, Curve] = field(default_factory=dict)

    @property
    def reached_flops_per_s(self) -> int:
        return self.flops_per_s * self.compute_permille // 1000

    @property
    def reached_hbm_bytes_per_s(self) -> int:
        return self.hbm_bytes_per_s * self.hbm_permille // 1000

    @property
    def reached_link_bytes_per_s(self) -> int:
        """One direction while the other is idle."""
        return self.link_bytes_per_s * self.link_permille // 1000

    @property
    def reached_shared_bytes_per_s(self) -> int:
        """Both directions together while both are busy."""
        return self.reached_link_bytes_per_s * self.link_shared_permille // 1000


def names() -> list[str]:
    """Every profile there is, sorted."""
    return registry.names(_PROFILES)


def get(name: str) -> HardwareProfile:
    """The profile of that name, or in that file. Raises CallerError that lists the names."""
    if measured.is_path(name):
        return of(read(name))
    if name not in names():
        raise registry.unknown("hardware", name, names())
    profile = registry.load(_PROFILES, name).PROFILE
    assert isinstance(profile, HardwareProfile), f"{name} holds no profile"
    return profile


def read(path: str) -> measured.Measured:
    """The measured profile in a file. Raises CallerError where it is not as it was sealed."""
    return measured.read(path, _MEASURED)


def of(found: measured.Measured) -> HardwareProfile:
    """What a simulation needs of a measured profile; its name tells whose content it is."""
    return HardwareProfile(
        name=f"{found.name}@{found.hash[:12]}", curves=found.curves, **found.hardware
    )


def scaled_host_bandwidth(
    profile: HardwareProfile, numerator: int, denominator: int
) -> HardwareProfile:
    """The same accelerator with its host link numerator / denominator times as fast.

    Another speed than the measured one has no measured curves.
    """
    if numerator == denominator > 0:
        return profile
    if numerator < 1 or denominator < 1:
        raise CallerError(
            f"host bandwidth factor: expected above 0, found {numerator}/{denominator}"
        )
    scaled = profile.link_bytes_per_s * numerator // denominator
    if scaled * profile.link_permille // 1000 < 1:
        raise CallerError(
            f"host bandwidth factor: expected at least 1 byte/s, found {scaled} from "
            f"{numerator}/{denominator} of {profile.link_bytes_per_s}"
        )
    return replace(profile, link_bytes_per_s=scaled, curves={})


_MEASURED = tuple(each.name for each in fields(HardwareProfile) if each.name not in _NOT_MEASURED)
