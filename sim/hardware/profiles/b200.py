"""NVIDIA B200 in a DGX B200. Source: NVIDIA DGX B200 data sheet, an eighth of its totals."""

from __future__ import annotations

from sim.hardware.profile import HardwareProfile

PROFILE = HardwareProfile(
    name="b200",
    flops_per_s=2_250_000_000_000_000,  # Blackwell brief: 4.5 PFLOPS bf16 sparse, half dense
    hbm_bytes_per_s=8_000_000_000_000,  # data sheet: 64 TB/s for eight
    hbm_bytes=180_000_000_000,  # data sheet: 1,440 GB for eight
    link_bytes_per_s=63_000_000_000,  # hosts of this system are PCIe Gen5; [pcie]
    link_shared_permille=1_806,  # [bw]
    copy_latency_ns=6_000,  # [lat], the middle
    compute_permille=600,  # estimate: large bf16 matrix products in serving
    hbm_permille=800,  # estimate: weight streaming in decode
    link_permille=870,  # estimate: 55 GB/s of 63 with packet headers and pinned memory
    step_overhead_ns=500_000,  # estimate: launch of a captured graph, sampling, scheduling
)
