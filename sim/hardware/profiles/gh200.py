"""NVIDIA GH200 with 96 GB of HBM3. Source: NVIDIA GH200 data sheet (2705455)."""

from __future__ import annotations

from sim.hardware.profile import HardwareProfile

PROFILE = HardwareProfile(
    name="gh200",
    flops_per_s=989_000_000_000_000,  # data sheet: 1,979 TFLOPS bf16 sparse, half dense
    hbm_bytes_per_s=4_000_000_000_000,  # data sheet: 4 TB/s
    hbm_bytes=96_000_000_000,  # data sheet: 96 GB
    link_bytes_per_s=450_000_000_000,  # data sheet: NVLink-C2C 900 GB/s, both directions
    link_shared_permille=1_806,  # [bw]
    copy_latency_ns=6_000,  # [lat], the middle
    compute_permille=600,  # estimate: large bf16 matrix products in serving
    hbm_permille=800,  # estimate: weight streaming in decode
    link_permille=747,  # measured: mean of 375 GB/s to the device and 297 back, arXiv 2407.07850
    step_overhead_ns=500_000,  # estimate: launch of a captured graph, sampling, scheduling
    fp8_flops_per_s=1_979_000_000_000_000,  # data sheet: 3,958 TFLOPS fp8 sparse, half dense
    ranks_link="nvlink",  # data sheet: NVLink 4 between two of them
    ranks_link_bytes_per_s=450_000_000_000,  # data sheet: NVLink 900 GB/s, both directions
    sms=132,  # that of an H100 SXM5, which it shares the die with
    l2_bytes=52_428_800,  # the same: 50 MB
)
