"""NVIDIA H800 SXM5 80GB: an H100 with a narrower NVLink. Source: product brief."""

from __future__ import annotations

from sim.hardware.profile import HardwareProfile

PROFILE = HardwareProfile(
    name="h800",
    flops_per_s=989_000_000_000_000,  # as an H100: 1,979 TFLOPS bf16 sparse, half dense
    hbm_bytes_per_s=3_350_000_000_000,  # as an H100: 3.35 TB/s
    hbm_bytes=80_000_000_000,  # as an H100: 80 GB
    link_bytes_per_s=63_000_000_000,  # data sheet: PCIe Gen5; [pcie]
    link_shared_permille=1_806,  # [bw]
    copy_latency_ns=6_000,  # [lat], the middle
    compute_permille=600,  # estimate: large bf16 matrix products in serving
    hbm_permille=800,  # estimate: weight streaming in decode
    link_permille=870,  # estimate: 55 GB/s of 63 with packet headers and pinned memory
    step_overhead_ns=500_000,  # estimate: launch of a captured graph, sampling, scheduling
    fp8_flops_per_s=1_979_000_000_000_000,  # as an H100: 3,958 TFLOPS fp8 sparse, half dense
    ranks_link="nvswitch",  # HGX board: every pair at full rate
    ranks_link_bytes_per_s=200_000_000_000,  # product brief: NVLink 400 GB/s, both directions
    sms=132,  # as an H100
    l2_bytes=52_428_800,  # as an H100
    link_both_permille=1_616,  # [own], two large copies; the same PCIe Gen5
)
