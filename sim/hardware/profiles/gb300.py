"""NVIDIA GB300 in an NVL72. Source: NVIDIA GB300 NVL72 data sheet, a 72nd of its totals."""

from __future__ import annotations

from sim.hardware.profile import HardwareProfile

PROFILE = HardwareProfile(
    name="gb300",
    flops_per_s=2_500_000_000_000_000,  # data sheet: 360 PFLOPS bf16 sparse for 72, half dense
    hbm_bytes_per_s=8_000_000_000_000,  # data sheet: 576 TB/s for 72
    hbm_bytes=279_000_000_000,  # data sheet: 20.1 TB for 72
    link_bytes_per_s=225_000_000_000,  # NVLink-C2C 900 GB/s, both ways, of a CPU with two GPUs
    link_shared_permille=1_806,  # [bw]
    copy_latency_ns=6_000,  # [lat], the middle
    compute_permille=600,  # estimate: large bf16 matrix products in serving
    hbm_permille=800,  # estimate: weight streaming in decode
    link_permille=893,  # fitted: mean of 210 GB/s to a GB300 and 192 back, SGLang PR 40278
    step_overhead_ns=500_000,  # estimate: launch of a captured graph, sampling, scheduling
    fp8_flops_per_s=5_000_000_000_000_000,  # data sheet: 720 PFLOPS fp8 sparse for 72, half dense
    fp4_flops_per_s=15_000_000_000_000_000,  # data sheet: 1,080 PFLOPS fp4 dense for 72
    ranks_link="nvswitch",  # NVL72: every pair at full rate
    ranks_link_bytes_per_s=900_000_000_000,  # data sheet: 130 TB/s for 72, both directions
)
