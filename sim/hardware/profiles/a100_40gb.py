"""NVIDIA A100 40GB SXM. Source: NVIDIA A100 data sheet (1758950), edition of 2021."""

from __future__ import annotations

from sim.hardware.profile import HardwareProfile

PROFILE = HardwareProfile(
    name="a100-40gb",
    flops_per_s=312_000_000_000_000,  # data sheet: 312 TFLOPS bf16, dense
    hbm_bytes_per_s=1_555_000_000_000,  # data sheet: 1,555 GB/s
    hbm_bytes=40_000_000_000,  # data sheet: 40 GB
    link_bytes_per_s=31_500_000_000,  # data sheet: PCIe Gen4; [pcie]
    link_shared_permille=1_806,  # [bw]
    copy_latency_ns=6_000,  # [lat], the middle
    compute_permille=600,  # estimate: large bf16 matrix products in serving
    hbm_permille=800,  # estimate: weight streaming in decode
    link_permille=800,  # estimate: 25 GB/s of 31.5 with packet headers and pinned memory
    step_overhead_ns=500_000,  # estimate: launch of a captured graph, sampling, scheduling
    ranks_link="nvswitch",  # HGX board: every pair at full rate
    ranks_link_bytes_per_s=300_000_000_000,  # data sheet: NVLink 600 GB/s, both directions
    sms=108,  # A100 architecture white paper, table 4
    l2_bytes=41_943_040,  # the same: 40 MB
)
