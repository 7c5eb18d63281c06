"""Hardware profiles: the record of an accelerator, and the lookup by name.

Lives here: the record, the rates that follow from it, and the lookup. The figures with their
sources are in `published`, or in a file that `hicache calibrate` wrote (see measured). Does not
contain formulas about models (see sim/times).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from hicache import registry

from . import measured
from .curve import Curve
from .published import PUBLISHED

_RATES = ("fp8_flops_per_s", "fp4_flops_per_s")
_PUBLISHED = ("ranks_link", "ranks_link_bytes_per_s", "sms", "l2_bytes")
_NOT_MEASURED = (
    *("name", "curves", "geometry", "link_both_permille"),
    *_RATES,
    *_PUBLISHED,
)


@dataclass(frozen=True, slots=True)
class HardwareProfile:
    """One accelerator and its link to host memory. Peaks as published, fractions in thousandths.

    flops_per_s             dense bf16, peak.
    hbm_bytes_per_s         device memory, peak.
    hbm_bytes               device memory, capacity.
    link_bytes_per_s        host link, one direction without other traffic, peak.
    link_shared_permille    total of both directions when both are busy, in thousandths of one
                            direction alone: 2000 is full duplex, 1000 one shared wire.
    link_both_permille      the same where it was measured on such a link, else 0. It holds with all
                            time models but pure-roofline, whose runs repeat earlier ones.
    copy_latency_ns         from the start of a copy until its first byte moves.
    compute_permille, hbm_permille, link_permille   reachable part of each peak.
    step_overhead_ns        of one forward pass, outside its layers: scheduling, launch, sampling.
    fp8_flops_per_s, fp4_flops_per_s   dense, peak; 0 without such units: the products of these
                            weights then run in bf16.
    ranks_link              between ranks: nvlink (each pair has its own), nvswitch or pcie.
    ranks_link_bytes_per_s  of a rank, one direction, peak.
    sms                     streaming multiprocessors; 0 if not known.
    l2_bytes                level 2 cache; 0 if not known.
    curves                  measured copy times by direction (d2h, h2d); they replace
                            link_bytes_per_s and copy_latency_ns.
    geometry                what was copied when the curves were measured (see measured).
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
    fp8_flops_per_s: int = 0
    fp4_flops_per_s: int = 0
    ranks_link: str = "pcie"
    ranks_link_bytes_per_s: int = 0
    sms: int = 0
    l2_bytes: int = 0
    link_both_permille: int = 0
    curves: Mapping[str, Curve] = field(default_factory=dict)
    geometry: Mapping[str, Any] = field(default_factory=dict)

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

    @property
    def measured_shared_bytes_per_s(self) -> int:
        """The same as measured, or as estimated where nobody measured."""
        permille = self.link_both_permille or self.link_shared_permille
        return self.reached_link_bytes_per_s * permille // 1000


_KNOWN = {name: HardwareProfile(name, **figures) for name, figures in PUBLISHED.items()}


def names() -> list[str]:
    """Names of all profiles, sorted."""
    return sorted(_KNOWN)


def get(name: str) -> HardwareProfile:
    """Returns the profile of that name or file. Raises CallerError, which lists the known names."""
    if measured.is_path(name):
        return of(read(name))
    spelled = name.replace("_", "-")
    if spelled not in _KNOWN:
        raise registry.unknown("hardware", name, names())
    return _KNOWN[spelled]


def read(path: str) -> measured.Measured:
    """Reads a measured profile from a file. Raises CallerError if it is invalid or was changed."""
    return measured.read(path, _MEASURED)


def of(found: measured.Measured) -> HardwareProfile:
    """Returns the profile for a simulation; its name contains the hash of the file.

    What is not measured is that of the published profile of the accelerator, if there is one; the
    rates of fp8 and fp4 products in proportion to the measured rate.
    """
    profile = HardwareProfile(
        name=f"{found.name}@{found.hash[:12]}",
        curves=found.curves,
        geometry=found.geometry,
        ranks_link="pcie",
        **found.hardware,
    )
    known = _called(str(found.machine.get("accelerator", "")))
    if known is None:
        return profile
    rates = {
        name: getattr(known, name) * profile.flops_per_s // known.flops_per_s for name in _RATES
    }
    return replace(profile, **rates, **{name: getattr(known, name) for name in _PUBLISHED})


def _called(accelerator: str) -> HardwareProfile | None:
    """The published profile whose name has all its parts in what a driver calls an accelerator; the
    longest name of several, as GH200 contains H200."""
    text = accelerator.lower()
    fits = [name for name in names() if all(part in text for part in name.split("-"))]
    return get(max(fits, key=len)) if fits else None


_MEASURED = tuple(each.name for each in fields(HardwareProfile) if each.name not in _NOT_MEASURED)
