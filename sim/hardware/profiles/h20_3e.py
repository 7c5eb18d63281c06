"""NVIDIA H20-3e 141GB: an H20 with HBM3e. Source: NVIDIA H20 data sheet, in public copies."""

from __future__ import annotations

from sim.hardware.profile import HardwareProfile

PROFILE = HardwareProfile(
    name="h20-3e",
    flops_per_s=148_000_000_000_000,  # as an H20: 148 TFLOPS bf16, dense
    hbm_bytes_per_s=4_800_000_000_000,  # HBM3e as an H200: 4.8 TB/s
    hbm_bytes=141_000_000_000,  # as an H200: 141 GB
    link_bytes_per_s=63_000_000_000,  # data sheet: PCIe Gen5; [pcie]
    link_shared_permille=1_806,  # [bw]
    copy_latency_ns=6_000,  # [lat], the middle
    compute_permille=600,  # estimate: large bf16 matrix products in serving
    hbm_permille=800,  # estimate: weight streaming in decode
    link_permille=870,  # estimate: 55 GB/s of 63 with packet headers and pinned memory
    step_overhead_ns=500_000,  # estimate: launch of a captured graph, sampling, scheduling
    fp8_flops_per_s=296_000_000_000_000,  # data sheet: 296 TFLOPS fp8, dense
    ranks_link="nvswitch",  # HGX board: every pair at full rate
    ranks_link_bytes_per_s=450_000_000_000,  # data sheet: NVLink 900 GB/s, both directions
    sms=78,  # reported by Geekbench 6 on a card
    l2_bytes=62_914_560,  # data sheet: 60 MB
    link_both_permille=1_616,  # [own], two large copies; the same PCIe Gen5
)
