"""Hardware profiles: accelerators as published, or measured ones from files of `hicache calibrate`.

accelerators.toml has what is published. Capacities are the data sheets' decimal gigabytes, peaks of
matrix products without sparsity. Vendors do not publish reachable fractions: those here are
estimates of this project. A calibration replaces them.
"""

import json
import tomllib
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, replace
from dataclasses import field as default
from hashlib import sha256
from pathlib import Path
from typing import Any

from msgspec import Struct, convert, field

from hicache.core.errors import CallerError, unknown
from hicache.files import parsed, text_of


@dataclass(frozen=True, slots=True)
class Curve:
    """points: (bytes, ns) of a copy without other traffic; at least two, with ascending bytes."""

    points: tuple[tuple[int, int], ...]

    def ns(self, count: int) -> int:
        """Nanoseconds of a copy of `count` bytes: linear between the points, at least 1 ns.

        Above the last point the time is proportional to the size. Below the first point it falls on
        a straight line to half the first time at size 0.
        """
        first, last = self.points[0], self.points[-1]
        if count <= first[0]:
            return max(1, first[1] - first[1] * (first[0] - count) // (2 * first[0]))
        if count >= last[0]:
            return last[1] * count // last[0]
        at = bisect_right(self.points, (count, 1 << 62))
        (low, low_ns), (high, high_ns) = self.points[at - 1], self.points[at]
        return max(1, low_ns + (high_ns - low_ns) * (count - low) // (high - low))

    def covers(self, count: int) -> bool:
        """Whether this size lies in the measured range."""
        return self.points[0][0] <= count <= self.points[-1][0]


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
    link_both_permille: int = 0
    curves: Mapping[str, Curve] = default(default_factory=dict)
    geometry: Mapping[str, Any] = default(default_factory=dict)

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

    def shared_bytes_per_s(self, measured: bool) -> int:
        """Both directions together while both are busy: estimated, or measured where it was."""
        both = self.link_both_permille if measured else 0
        return self.reached_link_bytes_per_s * (both or self.link_shared_permille) // 1000


def _published(
    name: str,
    tflops: tuple[int, int, int],
    memory: tuple[int, int],
    host: tuple[int, int, int],
    ranks: tuple[str, int],
) -> HardwareProfile:
    """See accelerators.toml."""
    return HardwareProfile(
        name,
        flops_per_s=tflops[0] * 10**12,
        fp8_flops_per_s=tflops[1] * 10**12,
        fp4_flops_per_s=tflops[2] * 10**12,
        hbm_bytes_per_s=memory[0] * 10**9,
        hbm_bytes=memory[1] * 10**9,
        link_bytes_per_s=host[0] * 10**6,
        link_permille=host[1],
        link_both_permille=host[2],
        ranks_link=ranks[0],
        ranks_link_bytes_per_s=ranks[1] * 10**6,
        # github.com/NVIDIA/nvbandwidth, README, example outputs: one direction alone 12.36 GB/s,
        # with the other direction busy 11.16 GB/s, so both reach 2 x 11.16 / 12.36
        link_shared_permille=1_806,
        # arXiv 2602.21548, section 5.2: submitting one cudaMemcpyAsync costs 5 to 7 us
        copy_latency_ns=6_000,
        compute_permille=600,  # estimate: large bf16 matrix products in serving
        hbm_permille=800,  # estimate: weight streaming in decode
        step_overhead_ns=500_000,  # estimate: launch of a captured graph, sampling, scheduling
    )


_TABLE = tomllib.loads(Path(__file__).with_name("accelerators.toml").read_text())
_KNOWN = {name: _published(name, **figures) for name, figures in _TABLE.items()}


def names() -> list[str]:
    """Names of all published profiles, sorted."""
    return sorted(_KNOWN)


def is_path(name: str) -> bool:
    """Whether a profile's name is the path of a file. No profile's own name has a dot."""
    return "." in name or "/" in name


def get(name: str) -> HardwareProfile:
    """Returns the profile of that name or file. Raises CallerError, which lists the known names."""
    if is_path(name):
        return of(read(name))
    spelled = name.replace("_", "-")
    if spelled not in _KNOWN:
        raise unknown("hardware", name, names())
    return _KNOWN[spelled]


# -- measured profiles: JSON files with a hash of their content

VERSION = 2
MAX_BYTES = 16 << 20
_RATES = ("fp8_flops_per_s", "fp4_flops_per_s")
_PUBLISHED = ("ranks_link", "ranks_link_bytes_per_s")
_AGAIN = "measure again with hicache calibrate"


class Measured(Struct, frozen=True):
    """A checked file. path: path of the file. curves: time of a copy without other traffic, by
    direction.

    geometry: what was copied (model, component, page size, layout, backend), and the shape of each
    pool (layers, pieces of a page in a layer, bytes of a piece). made, machine: how and on which
    machine it was measured. figures: all measurements. hardware: fields of a `HardwareProfile`.
    """

    name: str
    hash: str
    hardware: dict[str, int]
    curves: dict[str, Curve]
    geometry: dict[str, Any]
    machine: dict[str, Any]
    made: dict[str, Any]
    figures: dict[str, Any] = field(name="measured")
    path: str = ""


def seal(document: dict[str, Any]) -> dict[str, Any]:
    """Returns the document with its version and a hash of everything else."""
    content = {"hicache_profile": VERSION, **document}
    return {**content, "hash": _hash(content)}


def _hash(content: dict[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return sha256(text.encode()).hexdigest()


def read(path: str) -> Measured:
    """Reads a measured profile from a file. Raises CallerError if it cannot be read, has another
    version, or was changed after sealing."""
    text = text_of(path, "hardware profile", MAX_BYTES, _AGAIN)
    try:
        document = parsed(text)
        version = document["hicache_profile"]
    except (KeyError, TypeError, ValueError):
        what = "no hardware profile; name a file that hicache calibrate wrote"
        raise CallerError(f"{path}: {what}") from None
    if version != VERSION:
        raise CallerError(f"{path}: not a profile of version {VERSION}; {_AGAIN}")
    content = {key: value for key, value in document.items() if key != "hash"}
    if document.get("hash") != _hash(content):
        raise CallerError(f"{path}: changed since it was sealed with its hash; {_AGAIN}")
    try:
        curves = {name: {"points": points} for name, points in document["curves"].items()}
        measured = convert(document | {"curves": curves, "path": path}, Measured)
        of(measured)
    except (AttributeError, CallerError, KeyError, TypeError, ValueError) as error:
        raise CallerError(f"{path}: a fault in this profile ({error}); {_AGAIN}") from None
    return measured


def of(measured: Measured) -> HardwareProfile:
    """Returns the profile for a simulation; its name contains the hash of the file.

    What is not measured is that of the published profile of the accelerator, if there is one; the
    rates of fp8 and fp4 products in proportion to the measured rate.
    """
    figures: dict[str, Any] = dict(measured.hardware)
    profile = HardwareProfile(
        name=f"{measured.name}@{measured.hash[:12]}",
        curves=measured.curves,
        geometry=measured.geometry,
        **figures,
    )
    # the longest name of which a driver's text has all parts, as GH200 contains H200
    text = str(measured.machine.get("accelerator", "")).lower()
    known = [name for name in names() if all(part in text for part in name.split("-"))]
    if not known:
        return profile
    base = _KNOWN[max(known, key=len)]
    rates = {name: getattr(base, name) * profile.flops_per_s // base.flops_per_s for name in _RATES}
    return replace(profile, **rates, **{name: getattr(base, name) for name in _PUBLISHED})
