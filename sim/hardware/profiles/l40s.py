"""NVIDIA L40S. Source: NVIDIA L40S data sheet (2671951)."""

from __future__ import annotations

from sim.hardware.profile import HardwareProfile

PROFILE = HardwareProfile(
    name="l40s",
    flops_per_s=362_000_000_000_000,  # data sheet: 362.05 TFLOPS bf16, dense
    hbm_bytes_per_s=864_000_000_000,  # data sheet: 864 GB/s
    hbm_bytes=48_000_000_000,  # data sheet: 48 GB
    link_bytes_per_s=31_500_000_000,  # data sheet: PCIe Gen4; [pcie]
    link_shared_permille=1_806,  # [bw]
    copy_latency_ns=6_000,  # [lat], the middle
    compute_permille=600,  # estimate: large bf16 matrix products in serving
    hbm_permille=800,  # estimate: weight streaming in decode
    link_permille=800,  # estimate: 25 GB/s of 31.5 with packet headers and pinned memory
    step_overhead_ns=500_000,  # estimate: launch of a captured graph, sampling, scheduling
    fp8_flops_per_s=733_000_000_000_000,  # data sheet: 733 TFLOPS fp8, dense
    ranks_link="pcie",  # has no NVLink
    ranks_link_bytes_per_s=31_500_000_000,  # data sheet: PCIe Gen4; [pcie]
    sms=142,  # Ada architecture white paper: 18,176 CUDA cores, 128 an SM
    l2_bytes=100_663_296,  # the same: 96 MB
)
