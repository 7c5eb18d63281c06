"""NVIDIA GeForce RTX 4090. Source: NVIDIA Ada GPU architecture white paper, its table."""

from __future__ import annotations

from sim.hardware.profile import HardwareProfile

PROFILE = HardwareProfile(
    name="rtx-4090",
    flops_per_s=165_000_000_000_000,  # 165.2 TFLOPS bf16 with fp32 sums, dense
    hbm_bytes_per_s=1_008_000_000_000,  # 1,008 GB/s
    hbm_bytes=24_000_000_000,  # 24 GB
    link_bytes_per_s=31_500_000_000,  # PCIe Gen4; [pcie]
    link_shared_permille=1_806,  # [bw]
    copy_latency_ns=6_000,  # [lat], the middle
    compute_permille=600,  # estimate: large bf16 matrix products in serving
    hbm_permille=800,  # estimate: weight streaming in decode
    link_permille=800,  # estimate: 25 GB/s of 31.5 with packet headers and pinned memory
    step_overhead_ns=500_000,  # estimate: launch of a captured graph, sampling, scheduling
    fp8_flops_per_s=330_000_000_000_000,  # 330.3 TFLOPS fp8 with fp32 sums, dense
    ranks_link="pcie",  # has no NVLink
    ranks_link_bytes_per_s=31_500_000_000,  # PCIe Gen4; [pcie]
    sms=128,  # white paper
    l2_bytes=75_497_472,  # white paper: 72 MB
)
