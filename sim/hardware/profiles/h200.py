"""NVIDIA H200 SXM. Source: NVIDIA H200 data sheet (3002446)."""

from __future__ import annotations

from sim.hardware.profile import HardwareProfile

PROFILE = HardwareProfile(
    name="h200",
    flops_per_s=989_000_000_000_000,  # data sheet: 1,979 TFLOPS bf16 sparse, half dense
    hbm_bytes_per_s=4_800_000_000_000,  # data sheet: 4.8 TB/s
    hbm_bytes=141_000_000_000,  # data sheet: 141 GB
    link_bytes_per_s=63_000_000_000,  # data sheet: PCIe Gen5, 128 GB/s both ways; [pcie]
    link_shared_permille=1_806,  # [bw]
    copy_latency_ns=6_000,  # [lat], the middle
    compute_permille=600,  # estimate: large bf16 matrix products in serving
    hbm_permille=800,  # estimate: weight streaming in decode
    link_permille=870,  # estimate: 55 GB/s of 63 with packet headers and pinned memory
    step_overhead_ns=500_000,  # estimate: launch of a captured graph, sampling, scheduling
    fp8_flops_per_s=1_979_000_000_000_000,  # data sheet: 3,958 TFLOPS fp8 sparse, half dense
    ranks_link="nvswitch",  # HGX H200: every pair at full rate
    ranks_link_bytes_per_s=450_000_000_000,  # data sheet: NVLink 900 GB/s, both directions
    sms=132,  # that of an H100 SXM5, which it shares the die with
    l2_bytes=52_428_800,  # the same: 50 MB
    link_both_permille=1_616,  # [own], two large copies; the same PCIe Gen5
)
