"""NVIDIA RTX PRO 6000 Blackwell. Source: its data sheet; RTX Blackwell PRO white paper."""

from __future__ import annotations

from sim.hardware.profile import HardwareProfile

PROFILE = HardwareProfile(
    name="rtx-pro-6000",
    flops_per_s=504_000_000_000_000,  # white paper: 503.8 TFLOPS bf16 with fp32 sums, dense
    hbm_bytes_per_s=1_792_000_000_000,  # data sheet: 1,792 GB/s
    hbm_bytes=96_000_000_000,  # data sheet: 96 GB
    link_bytes_per_s=63_000_000_000,  # data sheet: PCIe Gen5; [pcie]
    link_shared_permille=1_806,  # [bw]
    copy_latency_ns=6_000,  # [lat], the middle
    compute_permille=600,  # estimate: large bf16 matrix products in serving
    hbm_permille=800,  # estimate: weight streaming in decode
    link_permille=870,  # estimate: 55 GB/s of 63 with packet headers and pinned memory
    step_overhead_ns=500_000,  # estimate: launch of a captured graph, sampling, scheduling
    fp8_flops_per_s=1_007_000_000_000_000,  # twice the rate of bf16
    fp4_flops_per_s=2_000_000_000_000_000,  # data sheet: 4,000 TOPS fp4 sparse, half dense
    ranks_link="pcie",  # has no NVLink
    ranks_link_bytes_per_s=63_000_000_000,  # data sheet: PCIe Gen5; [pcie]
    sms=188,  # data sheet: 24,064 CUDA cores, 128 an SM
    l2_bytes=134_217_728,  # white paper: 128 MB
)
