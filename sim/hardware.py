"""Hardware profiles: accelerators as published, or measured ones from files of `hicache calibrate`.

Capacities are the data sheets' decimal gigabytes. Four sources serve several profiles:

[pcie]  PCI-SIG base specification: 16 lanes at 16 GT/s (Gen4) or 32 GT/s (Gen5), 128b/130b coded,
        make 31.5 and 63.0 GB/s per direction.
[bw]    github.com/NVIDIA/nvbandwidth, README, example outputs: one direction alone 12.36 GB/s, with
        the other direction busy 11.16 GB/s, so both together reach 2 x 11.16 / 12.36 = 1.806.
[own]   measured by this project on an H100 80GB HBM3 with PCIe Gen5, 2026-11-22 (make gpu-check,
        both_ways): both directions together reach 1.616 of one with two large pinned copies,
        1.45 to 1.77 with pages of a cache; one direction alone 54.9 GB/s.
[lat]   arXiv 2602.21548, section 5.2: submitting one cudaMemcpyAsync costs 5 to 7 us.

Peaks of matrix products are without sparsity. Vendors do not publish reachable fractions: those
here are estimates of this project. A calibration replaces them.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from hashlib import sha256
from itertools import pairwise
from typing import Any

from hicache.core.errors import CallerError, unknown
from hicache.files import ANY, INTEGER, TEXT, Named, Only, Value, fit, parsed, text_of, whole
from hicache.memory.layouts import check


@dataclass(frozen=True, slots=True)
class Curve:
    """points: (bytes, ns) of a copy without other traffic; at least two, with ascending bytes."""

    points: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        if len(self.points) < 2 or any(one[0] >= two[0] for one, two in pairwise(self.points)):
            raise CallerError("curve: expected two points or more with ascending bytes, found less")
        if self.points[0][0] < 1 or min(ns for _, ns in self.points) < 1:
            raise CallerError("curve: expected bytes and times above 0, found others")

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


_USUAL = {
    "link_shared_permille": 1_806,  # [bw]
    "copy_latency_ns": 6_000,  # [lat], the middle
    "compute_permille": 600,  # estimate: large bf16 matrix products in serving
    "hbm_permille": 800,  # estimate: weight streaming in decode
    "step_overhead_ns": 500_000,  # estimate: launch of a captured graph, sampling, scheduling
}
# [pcie]; of 31.5 and 63 GB/s, 25 and 55 are estimated to be reached with pinned memory. Both ways
# at once as measured [own], of two large copies.
_GEN4 = {"link_bytes_per_s": 31_500_000_000, "link_permille": 800}
_GEN5 = {"link_bytes_per_s": 63_000_000_000, "link_permille": 870}
_GEN5_MEASURED = _GEN5 | {"link_both_permille": 1_616}
PUBLISHED: dict[str, dict[str, Any]] = {
    # NVIDIA A100 80GB SXM. Source: NVIDIA A100 data sheet (2188504).
    "a100": {
        **_USUAL,
        "flops_per_s": 312_000_000_000_000,  # data sheet: 312 TFLOPS bf16, dense
        "hbm_bytes_per_s": 2_039_000_000_000,  # data sheet: 2,039 GB/s
        "hbm_bytes": 80_000_000_000,  # data sheet: 80 GB
        **_GEN4,
        "ranks_link": "nvswitch",  # HGX A100: every pair at full rate
        "ranks_link_bytes_per_s": 300_000_000_000,  # data sheet: NVLink 600 GB/s, both directions
    },
    # NVIDIA B200 in a DGX B200. Source: NVIDIA DGX B200 data sheet, an eighth of its totals.
    "b200": {
        **_USUAL,
        "flops_per_s": 2_250_000_000_000_000,  # Blackwell brief: 4.5 PFLOPS bf16 sparse, half dense
        "hbm_bytes_per_s": 8_000_000_000_000,  # data sheet: 64 TB/s for eight
        "hbm_bytes": 180_000_000_000,  # data sheet: 1,440 GB for eight
        **_GEN5_MEASURED,
        "fp8_flops_per_s": 4_500_000_000_000_000,  # data sheet: 72 PFLOPS sparse for 8, half dense
        "fp4_flops_per_s": 9_000_000_000_000_000,  # data sheet: 144 PFLOPS sparse for 8, half dense
        "ranks_link": "nvswitch",  # HGX B200: every pair at full rate
        "ranks_link_bytes_per_s": 900_000_000_000,  # data sheet: 14.4 TB/s for eight, both ways
    },
    # NVIDIA GB200 in an NVL72. Source: NVIDIA GB200 NVL72 data sheet, a 72nd of its totals.
    "gb200": {
        **_USUAL,
        "flops_per_s": 2_500_000_000_000_000,  # data sheet: 360 PFLOPS sparse for 72, half dense
        "hbm_bytes_per_s": 8_000_000_000_000,  # data sheet: 576 TB/s for 72
        "hbm_bytes": 186_000_000_000,  # data sheet: 13.4 TB for 72
        "link_bytes_per_s": 225_000_000_000,  # NVLink-C2C 900 GB/s both ways, of a CPU and two GPUs
        "link_permille": 893,  # fitted: mean of 210 GB/s to a GB300 and 192 back, SGLang PR 40278
        "fp8_flops_per_s": 5_000_000_000_000_000,  # data sheet: 720 PFLOPS sparse, half dense
        "fp4_flops_per_s": 10_000_000_000_000_000,  # data sheet: 1,440 PFLOPS fp4 sparse for 72
        "ranks_link": "nvswitch",  # NVL72: every pair at full rate
        "ranks_link_bytes_per_s": 900_000_000_000,  # data sheet: 130 TB/s for 72, both directions
    },
    # NVIDIA GH200 with 96 GB of HBM3. Source: NVIDIA GH200 data sheet (2705455).
    "gh200": {
        **_USUAL,
        "flops_per_s": 989_000_000_000_000,  # data sheet: 1,979 TFLOPS bf16 sparse, half dense
        "hbm_bytes_per_s": 4_000_000_000_000,  # data sheet: 4 TB/s
        "hbm_bytes": 96_000_000_000,  # data sheet: 96 GB
        "link_bytes_per_s": 450_000_000_000,  # data sheet: NVLink-C2C 900 GB/s, both directions
        "link_permille": 747,  # measured: mean of 375 GB/s to device and 297 back, arXiv 2407.07850
        "fp8_flops_per_s": 1_979_000_000_000_000,  # data sheet: 3,958 TFLOPS fp8 sparse, half dense
        "ranks_link": "nvlink",  # data sheet: NVLink 4 between two of them
        "ranks_link_bytes_per_s": 450_000_000_000,  # data sheet: NVLink 900 GB/s, both directions
    },
    # NVIDIA H100 SXM5 80GB. Source: NVIDIA H100 data sheet (2287922).
    "h100": {
        **_USUAL,
        "flops_per_s": 989_000_000_000_000,  # data sheet: 1,979 TFLOPS bf16 sparse, half dense
        "hbm_bytes_per_s": 3_350_000_000_000,  # data sheet: 3.35 TB/s
        "hbm_bytes": 80_000_000_000,  # data sheet: 80 GB
        **_GEN5_MEASURED,
        "fp8_flops_per_s": 1_979_000_000_000_000,  # data sheet: 3,958 TFLOPS fp8 sparse, half dense
        "ranks_link": "nvswitch",  # HGX H100: every pair at full rate
        "ranks_link_bytes_per_s": 450_000_000_000,  # data sheet: NVLink 900 GB/s, both directions
    },
    # NVIDIA H100 PCIe 80GB. Source: NVIDIA H100 data sheet (2287922).
    "h100-pcie": {
        **_USUAL,
        "flops_per_s": 756_000_000_000_000,  # data sheet: 1,513 TFLOPS bf16 sparse, half dense
        "hbm_bytes_per_s": 2_000_000_000_000,  # data sheet: 2 TB/s
        "hbm_bytes": 80_000_000_000,  # data sheet: 80 GB
        **_GEN5_MEASURED,
        "fp8_flops_per_s": 1_513_000_000_000_000,  # data sheet: 3,026 TFLOPS fp8 sparse, half dense
        "ranks_link": "pcie",  # without NVLink bridges
        "ranks_link_bytes_per_s": 63_000_000_000,  # data sheet: PCIe Gen5; [pcie]
    },
    # NVIDIA H20 96GB. Source: NVIDIA H20 data sheet, read in public copies.
    "h20": {
        **_USUAL,
        "flops_per_s": 148_000_000_000_000,  # data sheet: 148 TFLOPS bf16, dense
        "hbm_bytes_per_s": 4_000_000_000_000,  # data sheet: 4.0 TB/s
        "hbm_bytes": 96_000_000_000,  # data sheet: 96 GB
        **_GEN5_MEASURED,
        "fp8_flops_per_s": 296_000_000_000_000,  # data sheet: 296 TFLOPS fp8, dense
        "ranks_link": "nvswitch",  # HGX board: every pair at full rate
        "ranks_link_bytes_per_s": 450_000_000_000,  # data sheet: NVLink 900 GB/s, both directions
    },
    # NVIDIA L40S. Source: NVIDIA L40S data sheet (2671951).
    "l40s": {
        **_USUAL,
        "flops_per_s": 362_000_000_000_000,  # data sheet: 362.05 TFLOPS bf16, dense
        "hbm_bytes_per_s": 864_000_000_000,  # data sheet: 864 GB/s
        "hbm_bytes": 48_000_000_000,  # data sheet: 48 GB
        **_GEN4,
        "fp8_flops_per_s": 733_000_000_000_000,  # data sheet: 733 TFLOPS fp8, dense
        "ranks_link": "pcie",  # has no NVLink
        "ranks_link_bytes_per_s": 31_500_000_000,  # data sheet: PCIe Gen4; [pcie]
    },
    # NVIDIA GeForce RTX 4090. Source: NVIDIA Ada GPU architecture white paper, its table.
    "rtx-4090": {
        **_USUAL,
        "flops_per_s": 165_000_000_000_000,  # 165.2 TFLOPS bf16 with fp32 sums, dense
        "hbm_bytes_per_s": 1_008_000_000_000,  # 1,008 GB/s
        "hbm_bytes": 24_000_000_000,  # 24 GB
        **_GEN4,
        "fp8_flops_per_s": 330_000_000_000_000,  # 330.3 TFLOPS fp8 with fp32 sums, dense
        "ranks_link": "pcie",  # has no NVLink
        "ranks_link_bytes_per_s": 31_500_000_000,  # PCIe Gen4; [pcie]
    },
    # NVIDIA RTX PRO 6000 Blackwell. Source: its data sheet; RTX Blackwell PRO white paper.
    "rtx-pro-6000": {
        **_USUAL,
        "flops_per_s": 504_000_000_000_000,  # white paper: 503.8 TFLOPS bf16 with fp32 sums, dense
        "hbm_bytes_per_s": 1_792_000_000_000,  # data sheet: 1,792 GB/s
        "hbm_bytes": 96_000_000_000,  # data sheet: 96 GB
        **_GEN5,
        "fp8_flops_per_s": 1_007_000_000_000_000,  # twice the rate of bf16
        "fp4_flops_per_s": 2_000_000_000_000_000,  # data sheet: 4,000 TOPS fp4 sparse, half dense
        "ranks_link": "pcie",  # has no NVLink
        "ranks_link_bytes_per_s": 63_000_000_000,  # data sheet: PCIe Gen5; [pcie]
    },
}
_LIKE: dict[str, tuple[str, dict[str, Any]]] = {
    # NVIDIA A100 40GB SXM. Source: NVIDIA A100 data sheet (1758950), edition of 2021.
    "a100-40gb": ("a100", {"hbm_bytes_per_s": 1_555_000_000_000, "hbm_bytes": 40_000_000_000}),
    # NVIDIA GB300 in an NVL72. Source: NVIDIA GB300 NVL72 data sheet, a 72nd of its totals: 20.1 TB
    # of memory, 1,080 PFLOPS fp4 dense.
    "gb300": ("gb200", {"hbm_bytes": 279_000_000_000, "fp4_flops_per_s": 15_000_000_000_000_000}),
    # NVIDIA H20-3e 141GB: an H20 with the HBM3e of an H200.
    "h20-3e": ("h20", {"hbm_bytes_per_s": 4_800_000_000_000, "hbm_bytes": 141_000_000_000}),
    # NVIDIA H200 SXM. Source: NVIDIA H200 data sheet (3002446).
    "h200": ("h100", {"hbm_bytes_per_s": 4_800_000_000_000, "hbm_bytes": 141_000_000_000}),
    # NVIDIA H800 SXM5 80GB: an H100 with a narrower NVLink. Source: product brief, 400 GB/s in all.
    "h800": ("h100", {"ranks_link_bytes_per_s": 200_000_000_000}),
}
PUBLISHED |= {name: PUBLISHED[base] | changed for name, (base, changed) in _LIKE.items()}
_KNOWN = {name: HardwareProfile(name, **figures) for name, figures in PUBLISHED.items()}


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
_MOST_PERMILLE = 2000
_MOST_NS = 1 << 40  # 18 minutes
_MOST = 1 << 60  # every other number
_MOST_NAME = 100
_NAME = Value(
    f"a printable name of at most {_MOST_NAME} characters",
    lambda value: type(value) is str and value.isprintable() and len(value) <= _MOST_NAME,
)
_CURVE = [[whole(0, _MOST)]]
_GEOMETRY = {
    "page_size": INTEGER,
    "model": _NAME,
    "component": _NAME,
    "layout": TEXT,
    "io_backend": TEXT,
    "shapes": [Only({"pool": _NAME, "layers": INTEGER, "pieces": INTEGER, "piece_bytes": INTEGER})],
}
_RATES = ("fp8_flops_per_s", "fp4_flops_per_s")
_PUBLISHED = ("ranks_link", "ranks_link_bytes_per_s")
_NOT_MEASURED = ("name", "curves", "geometry", "link_both_permille", *_RATES, *_PUBLISHED)
_AGAIN = "measure again with hicache calibrate"


def _figure(name: str) -> Value:
    if name.endswith("_permille"):
        return whole(1, _MOST_PERMILLE)
    least = 0 if name in ("copy_latency_ns", "step_overhead_ns") else 1
    return whole(least, _MOST_NS if name.endswith("_ns") else _MOST)


_SHAPE = {
    "hash": TEXT,
    "name": _NAME,
    "curves": {"d2h": _CURVE, "h2d": _CURVE},
    "geometry": _GEOMETRY,
    **dict.fromkeys(("machine", "made", "measured"), Named(ANY)),
    "hardware": Only(
        {
            one.name: _figure(one.name)
            for one in fields(HardwareProfile)
            if one.name not in _NOT_MEASURED
        }
    ),
}


@dataclass(frozen=True, slots=True)
class Measured:
    """A checked file. path: path of the file. curves: time of a copy without other traffic, by
    direction.

    geometry: what was copied (model, component, page size, layout, backend), and the shape of each
    pool (layers, pieces of a page in a layer, bytes of a piece). made, machine: how and on which
    machine it was measured. figures: all measurements. hardware: fields of a `HardwareProfile`.
    """

    path: str
    name: str
    hash: str
    hardware: dict[str, int]
    curves: dict[str, Curve]
    geometry: dict[str, Any]
    machine: dict[str, Any]
    made: dict[str, Any]
    figures: dict[str, Any]


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
    except ValueError:
        document = None
    if type(document) is not dict or "hicache_profile" not in document:
        raise CallerError(f"{path}: no hardware profile; name a file that hicache calibrate wrote")
    content = {key: value for key, value in document.items() if key != "hash"}
    try:
        hashed = _hash(content)
    except RecursionError:
        hashed = ""
    if type(document["hicache_profile"]) is not int or document["hicache_profile"] != VERSION:
        raise CallerError(f"{path}: not a profile of version {VERSION}; {_AGAIN}")
    if not hashed or document.get("hash") != hashed:
        raise CallerError(f"{path}: changed since it was sealed with its hash; {_AGAIN}")
    try:
        values = fit(document, _SHAPE, "")
        check(values["geometry"]["layout"], values["geometry"]["io_backend"])
        curves = {
            direction: Curve(tuple((count, ns) for count, ns in points))
            for direction, points in values["curves"].items()
        }
    except (CallerError, TypeError, ValueError) as error:
        raise CallerError(f"{path}: a fault in this profile ({error}); {_AGAIN}") from None
    same = {name: values[name] for name in ("name", "hash", "hardware", "geometry", "machine")}
    return Measured(path, curves=curves, made=values["made"], figures=values["measured"], **same)


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
