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
    fp8_flops_per_s=4_500_000_000_000_000,  # data sheet: 72 PFLOPS sparse for eight, half dense
    fp4_flops_per_s=9_000_000_000_000_000,  # data sheet: 144 PFLOPS sparse for eight, half dense
    ranks_link="nvswitch",  # HGX B200: every pair at full rate
    ranks_link_bytes_per_s=900_000_000_000,  # data sheet: 14.4 TB/s for eight, both directions
    sms=148,  # reported by the driver of a B200
    link_both_permille=1_616,  # [own], two large copies; the same PCIe Gen5
)
