"""Accelerators as data: what a profile says, and how to find one.

Lives here: the record, its derived rates and the lookup. The figures, each with its source, are in
sim/profiles, one accelerator per file. Must not live here: any formula about a model (sim/costs).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hicache import registry
from hicache.core.errors import CallerError

_PROFILES = "sim.profiles"


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
    """The profile of that name. Raises CallerError that lists the names."""
    if name not in names():
        raise registry.unknown("hardware", name, names())
    profile = registry.load(_PROFILES, name).PROFILE
    assert isinstance(profile, HardwareProfile), f"{name} holds no profile"
    return profile


def scaled_host_bandwidth(
    profile: HardwareProfile, numerator: int, denominator: int
) -> HardwareProfile:
    """The same accelerator with its host link numerator / denominator times as fast."""
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
    return replace(profile, link_bytes_per_s=scaled)
