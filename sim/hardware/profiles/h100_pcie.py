"""NVIDIA H100 PCIe 80GB. Source: NVIDIA H100 data sheet (2287922)."""

from __future__ import annotations

from sim.hardware.profile import HardwareProfile

PROFILE = HardwareProfile(
    name="h100-pcie",
    flops_per_s=756_000_000_000_000,  # data sheet: 1,513 TFLOPS bf16 sparse, half dense
    hbm_bytes_per_s=2_000_000_000_000,  # data sheet: 2 TB/s
    hbm_bytes=80_000_000_000,  # data sheet: 80 GB
    link_bytes_per_s=63_000_000_000,  # data sheet: PCIe Gen5; [pcie]
    link_shared_permille=1_806,  # [bw]
    copy_latency_ns=6_000,  # [lat], the middle
    compute_permille=600,  # estimate: large bf16 matrix products in serving
    hbm_permille=800,  # estimate: weight streaming in decode
    link_permille=870,  # estimate: 55 GB/s of 63 with packet headers and pinned memory
    step_overhead_ns=500_000,  # estimate: launch of a captured graph, sampling, scheduling
    fp8_flops_per_s=1_513_000_000_000_000,  # data sheet: 3,026 TFLOPS fp8 sparse, half dense
    ranks_link="pcie",  # without NVLink bridges
    ranks_link_bytes_per_s=63_000_000_000,  # data sheet: PCIe Gen5; [pcie]
    sms=114,  # H100 architecture white paper, table 2
    l2_bytes=52_428_800,  # the same: 50 MB
    link_both_permille=1_616,  # [own], two large copies; the same PCIe Gen5
)
