"""Published accelerators, one to an entry of `PUBLISHED`: each figure with its source beside it.

An entry has the fields of a `HardwareProfile` (see profile).

Capacities are the data sheets' decimal gigabytes. Four sources serve several profiles:

[pcie]  PCI-SIG base specification: 16 lanes at 16 GT/s (Gen4) or 32 GT/s (Gen5), 128b/130b coded,
        make 31.5 and 63.0 GB/s per direction.
[bw]    github.com/NVIDIA/nvbandwidth, README, example outputs: one direction alone 12.36 GB/s, with
        the other direction busy 11.16 GB/s, so both together reach 2 x 11.16 / 12.36 = 1.806.
[own]   measured by this project on an H100 80GB HBM3 with PCIe Gen5, 2026-11-22 (make gpu-check,
        both_ways): both directions together reach 1.616 of one with two large pinned copies,
        1.45 to 1.77 with pages of a cache; one direction alone 54.9 GB/s.
[lat]   arXiv 2602.21548, section 5.2: submitting one cudaMemcpyAsync costs 5 to 7 us.

Peaks of matrix products are without sparsity. Where a figure of streaming multiprocessors or of the
level 2 cache is left out, its vendor does not publish it.

Vendors do not publish reachable fractions. Those here are estimates of this
project, marked as such. A calibration run should replace them first.
"""

from __future__ import annotations

from typing import Any

_USUAL = {
    "link_shared_permille": 1_806,  # [bw]
    "copy_latency_ns": 6_000,  # [lat], the middle
    "compute_permille": 600,  # estimate: large bf16 matrix products in serving
    "hbm_permille": 800,  # estimate: weight streaming in decode
    "step_overhead_ns": 500_000,  # estimate: launch of a captured graph, sampling, scheduling
}
PUBLISHED: dict[str, dict[str, Any]] = {
    # NVIDIA A100 80GB SXM. Source: NVIDIA A100 data sheet (2188504).
    "a100": {
        **_USUAL,
        "flops_per_s": 312_000_000_000_000,  # data sheet: 312 TFLOPS bf16, dense
        "hbm_bytes_per_s": 2_039_000_000_000,  # data sheet: 2,039 GB/s
        "hbm_bytes": 80_000_000_000,  # data sheet: 80 GB
        "link_bytes_per_s": 31_500_000_000,  # data sheet: PCIe Gen4; [pcie]
        "link_permille": 800,  # estimate: 25 GB/s of 31.5 with packet headers and pinned memory
        "ranks_link": "nvswitch",  # HGX A100: every pair at full rate
        "ranks_link_bytes_per_s": 300_000_000_000,  # data sheet: NVLink 600 GB/s, both directions
        "sms": 108,  # A100 architecture white paper, table 4
        "l2_bytes": 41_943_040,  # the same: 40 MB
    },
    # NVIDIA A100 40GB SXM. Source: NVIDIA A100 data sheet (1758950), edition of 2021.
    "a100-40gb": {
        **_USUAL,
        "flops_per_s": 312_000_000_000_000,  # data sheet: 312 TFLOPS bf16, dense
        "hbm_bytes_per_s": 1_555_000_000_000,  # data sheet: 1,555 GB/s
        "hbm_bytes": 40_000_000_000,  # data sheet: 40 GB
        "link_bytes_per_s": 31_500_000_000,  # data sheet: PCIe Gen4; [pcie]
        "link_permille": 800,  # estimate: 25 GB/s of 31.5 with packet headers and pinned memory
        "ranks_link": "nvswitch",  # HGX board: every pair at full rate
        "ranks_link_bytes_per_s": 300_000_000_000,  # data sheet: NVLink 600 GB/s, both directions
        "sms": 108,  # A100 architecture white paper, table 4
        "l2_bytes": 41_943_040,  # the same: 40 MB
    },
    # NVIDIA B200 in a DGX B200. Source: NVIDIA DGX B200 data sheet, an eighth of its totals.
    "b200": {
        **_USUAL,
        "flops_per_s": 2_250_000_000_000_000,  # Blackwell brief: 4.5 PFLOPS bf16 sparse, half dense
        "hbm_bytes_per_s": 8_000_000_000_000,  # data sheet: 64 TB/s for eight
        "hbm_bytes": 180_000_000_000,  # data sheet: 1,440 GB for eight
        "link_bytes_per_s": 63_000_000_000,  # hosts of this system are PCIe Gen5; [pcie]
        "link_permille": 870,  # estimate: 55 GB/s of 63 with packet headers and pinned memory
        "fp8_flops_per_s": 4_500_000_000_000_000,  # data sheet: 72 PFLOPS sparse for 8, half dense
        "fp4_flops_per_s": 9_000_000_000_000_000,  # data sheet: 144 PFLOPS sparse for 8, half dense
        "ranks_link": "nvswitch",  # HGX B200: every pair at full rate
        "ranks_link_bytes_per_s": 900_000_000_000,  # data sheet: 14.4 TB/s for eight, both ways
        "sms": 148,  # reported by the driver of a B200
        "link_both_permille": 1_616,  # [own], two large copies; the same PCIe Gen5
    },
    # NVIDIA GB200 in an NVL72. Source: NVIDIA GB200 NVL72 data sheet, a 72nd of its totals.
    "gb200": {
        **_USUAL,
        "flops_per_s": 2_500_000_000_000_000,  # data sheet: 360 PFLOPS sparse for 72, half dense
        "hbm_bytes_per_s": 8_000_000_000_000,  # data sheet: 576 TB/s for 72
        "hbm_bytes": 186_000_000_000,  # data sheet: 13.4 TB for 72
        "link_bytes_per_s": 225_000_000_000,  # NVLink-C2C 900 GB/s both ways, of a CPU and two GPUs
        "link_permille": 893,  # fitted: mean of 210 GB/s to a GB300 and 192 back, SGLang PR 40278
        "fp8_flops_per_s": 5_000_000_000_000_000,  # data sheet: 720 PFLOPS sparse, half dense
        "fp4_flops_per_s": 10_000_000_000_000_000,  # data sheet: 1,440 PFLOPS fp4 sparse for 72
        "ranks_link": "nvswitch",  # NVL72: every pair at full rate
        "ranks_link_bytes_per_s": 900_000_000_000,  # data sheet: 130 TB/s for 72, both directions
    },
    # NVIDIA GB300 in an NVL72. Source: NVIDIA GB300 NVL72 data sheet, a 72nd of its totals.
    "gb300": {
        **_USUAL,
        "flops_per_s": 2_500_000_000_000_000,  # data sheet: 360 PFLOPS sparse for 72, half dense
        "hbm_bytes_per_s": 8_000_000_000_000,  # data sheet: 576 TB/s for 72
        "hbm_bytes": 279_000_000_000,  # data sheet: 20.1 TB for 72
        "link_bytes_per_s": 225_000_000_000,  # NVLink-C2C 900 GB/s both ways, of a CPU and two GPUs
        "link_permille": 893,  # fitted: mean of 210 GB/s to a GB300 and 192 back, SGLang PR 40278
        "fp8_flops_per_s": 5_000_000_000_000_000,  # data sheet: 720 PFLOPS sparse, half dense
        "fp4_flops_per_s": 15_000_000_000_000_000,  # data sheet: 1,080 PFLOPS fp4 dense for 72
        "ranks_link": "nvswitch",  # NVL72: every pair at full rate
        "ranks_link_bytes_per_s": 900_000_000_000,  # data sheet: 130 TB/s for 72, both directions
    },
    # NVIDIA GH200 with 96 GB of HBM3. Source: NVIDIA GH200 data sheet (2705455).
    "gh200": {
        **_USUAL,
        "flops_per_s": 989_000_000_000_000,  # data sheet: 1,979 TFLOPS bf16 sparse, half dense
        "hbm_bytes_per_s": 4_000_000_000_000,  # data sheet: 4 TB/s
        "hbm_bytes": 96_000_000_000,  # data sheet: 96 GB
        "link_bytes_per_s": 450_000_000_000,  # data sheet: NVLink-C2C 900 GB/s, both directions
        "link_permille": 747,  # measured: mean of 375 GB/s to device and 297 back, arXiv 2407.07850
        "fp8_flops_per_s": 1_979_000_000_000_000,  # data sheet: 3,958 TFLOPS fp8 sparse, half dense
        "ranks_link": "nvlink",  # data sheet: NVLink 4 between two of them
        "ranks_link_bytes_per_s": 450_000_000_000,  # data sheet: NVLink 900 GB/s, both directions
        "sms": 132,  # that of an H100 SXM5, which it shares the die with
        "l2_bytes": 52_428_800,  # the same: 50 MB
    },
    # NVIDIA H100 SXM5 80GB. Source: NVIDIA H100 data sheet (2287922).
    "h100": {
        **_USUAL,
        "flops_per_s": 989_000_000_000_000,  # data sheet: 1,979 TFLOPS bf16 sparse, half dense
        "hbm_bytes_per_s": 3_350_000_000_000,  # data sheet: 3.35 TB/s
        "hbm_bytes": 80_000_000_000,  # data sheet: 80 GB
        "link_bytes_per_s": 63_000_000_000,  # data sheet: PCIe Gen5, 128 GB/s both ways; [pcie]
        "link_permille": 870,  # estimate: 55 GB/s of 63 with packet headers and pinned memory
        "fp8_flops_per_s": 1_979_000_000_000_000,  # data sheet: 3,958 TFLOPS fp8 sparse, half dense
        "ranks_link": "nvswitch",  # HGX H100: every pair at full rate
        "ranks_link_bytes_per_s": 450_000_000_000,  # data sheet: NVLink 900 GB/s, both directions
        "sms": 132,  # H100 architecture white paper, table 2
        "l2_bytes": 52_428_800,  # the same: 50 MB
        "link_both_permille": 1_616,  # [own], two large copies
    },
    # NVIDIA H100 PCIe 80GB. Source: NVIDIA H100 data sheet (2287922).
    "h100-pcie": {
        **_USUAL,
        "flops_per_s": 756_000_000_000_000,  # data sheet: 1,513 TFLOPS bf16 sparse, half dense
        "hbm_bytes_per_s": 2_000_000_000_000,  # data sheet: 2 TB/s
        "hbm_bytes": 80_000_000_000,  # data sheet: 80 GB
        "link_bytes_per_s": 63_000_000_000,  # data sheet: PCIe Gen5; [pcie]
        "link_permille": 870,  # estimate: 55 GB/s of 63 with packet headers and pinned memory
        "fp8_flops_per_s": 1_513_000_000_000_000,  # data sheet: 3,026 TFLOPS fp8 sparse, half dense
        "ranks_link": "pcie",  # without NVLink bridges
        "ranks_link_bytes_per_s": 63_000_000_000,  # data sheet: PCIe Gen5; [pcie]
        "sms": 114,  # H100 architecture white paper, table 2
        "l2_bytes": 52_428_800,  # the same: 50 MB
        "link_both_permille": 1_616,  # [own], two large copies; the same PCIe Gen5
    },
    # NVIDIA H20 96GB. Source: NVIDIA H20 data sheet, read in public copies.
    "h20": {
        **_USUAL,
        "flops_per_s": 148_000_000_000_000,  # data sheet: 148 TFLOPS bf16, dense
        "hbm_bytes_per_s": 4_000_000_000_000,  # data sheet: 4.0 TB/s
        "hbm_bytes": 96_000_000_000,  # data sheet: 96 GB
        "link_bytes_per_s": 63_000_000_000,  # data sheet: PCIe Gen5; [pcie]
        "link_permille": 870,  # estimate: 55 GB/s of 63 with packet headers and pinned memory
        "fp8_flops_per_s": 296_000_000_000_000,  # data sheet: 296 TFLOPS fp8, dense
        "ranks_link": "nvswitch",  # HGX board: every pair at full rate
        "ranks_link_bytes_per_s": 450_000_000_000,  # data sheet: NVLink 900 GB/s, both directions
        "sms": 78,  # reported by Geekbench 6 on a card
        "l2_bytes": 62_914_560,  # data sheet: 60 MB
        "link_both_permille": 1_616,  # [own], two large copies; the same PCIe Gen5
    },
    # NVIDIA H20-3e 141GB: an H20 with HBM3e. Source: NVIDIA H20 data sheet, in public copies.
    "h20-3e": {
        **_USUAL,
        "flops_per_s": 148_000_000_000_000,  # as an H20: 148 TFLOPS bf16, dense
        "hbm_bytes_per_s": 4_800_000_000_000,  # HBM3e as an H200: 4.8 TB/s
        "hbm_bytes": 141_000_000_000,  # as an H200: 141 GB
        "link_bytes_per_s": 63_000_000_000,  # data sheet: PCIe Gen5; [pcie]
        "link_permille": 870,  # estimate: 55 GB/s of 63 with packet headers and pinned memory
        "fp8_flops_per_s": 296_000_000_000_000,  # data sheet: 296 TFLOPS fp8, dense
        "ranks_link": "nvswitch",  # HGX board: every pair at full rate
        "ranks_link_bytes_per_s": 450_000_000_000,  # data sheet: NVLink 900 GB/s, both directions
        "sms": 78,  # reported by Geekbench 6 on a card
        "l2_bytes": 62_914_560,  # data sheet: 60 MB
        "link_both_permille": 1_616,  # [own], two large copies; the same PCIe Gen5
    },
    # NVIDIA H200 SXM. Source: NVIDIA H200 data sheet (3002446).
    "h200": {
        **_USUAL,
        "flops_per_s": 989_000_000_000_000,  # data sheet: 1,979 TFLOPS bf16 sparse, half dense
        "hbm_bytes_per_s": 4_800_000_000_000,  # data sheet: 4.8 TB/s
        "hbm_bytes": 141_000_000_000,  # data sheet: 141 GB
        "link_bytes_per_s": 63_000_000_000,  # data sheet: PCIe Gen5, 128 GB/s both ways; [pcie]
        "link_permille": 870,  # estimate: 55 GB/s of 63 with packet headers and pinned memory
        "fp8_flops_per_s": 1_979_000_000_000_000,  # data sheet: 3,958 TFLOPS fp8 sparse, half dense
        "ranks_link": "nvswitch",  # HGX H200: every pair at full rate
        "ranks_link_bytes_per_s": 450_000_000_000,  # data sheet: NVLink 900 GB/s, both directions
        "sms": 132,  # that of an H100 SXM5, which it shares the die with
        "l2_bytes": 52_428_800,  # the same: 50 MB
        "link_both_permille": 1_616,  # [own], two large copies; the same PCIe Gen5
    },
    # NVIDIA H800 SXM5 80GB: an H100 with a narrower NVLink. Source: product brief.
    "h800": {
        **_USUAL,
        "flops_per_s": 989_000_000_000_000,  # as an H100: 1,979 TFLOPS bf16 sparse, half dense
        "hbm_bytes_per_s": 3_350_000_000_000,  # as an H100: 3.35 TB/s
        "hbm_bytes": 80_000_000_000,  # as an H100: 80 GB
        "link_bytes_per_s": 63_000_000_000,  # data sheet: PCIe Gen5; [pcie]
        "link_permille": 870,  # estimate: 55 GB/s of 63 with packet headers and pinned memory
        "fp8_flops_per_s": 1_979_000_000_000_000,  # as an H100: 3,958 TFLOPS fp8 sparse, half dense
        "ranks_link": "nvswitch",  # HGX board: every pair at full rate
        "ranks_link_bytes_per_s": 200_000_000_000,  # product brief: NVLink 400 GB/s, both ways
        "sms": 132,  # as an H100
        "l2_bytes": 52_428_800,  # as an H100
        "link_both_permille": 1_616,  # [own], two large copies; the same PCIe Gen5
    },
    # NVIDIA L40S. Source: NVIDIA L40S data sheet (2671951).
    "l40s": {
        **_USUAL,
        "flops_per_s": 362_000_000_000_000,  # data sheet: 362.05 TFLOPS bf16, dense
        "hbm_bytes_per_s": 864_000_000_000,  # data sheet: 864 GB/s
        "hbm_bytes": 48_000_000_000,  # data sheet: 48 GB
        "link_bytes_per_s": 31_500_000_000,  # data sheet: PCIe Gen4; [pcie]
        "link_permille": 800,  # estimate: 25 GB/s of 31.5 with packet headers and pinned memory
        "fp8_flops_per_s": 733_000_000_000_000,  # data sheet: 733 TFLOPS fp8, dense
        "ranks_link": "pcie",  # has no NVLink
        "ranks_link_bytes_per_s": 31_500_000_000,  # data sheet: PCIe Gen4; [pcie]
        "sms": 142,  # Ada architecture white paper: 18,176 CUDA cores, 128 an SM
        "l2_bytes": 100_663_296,  # the same: 96 MB
    },
    # NVIDIA GeForce RTX 4090. Source: NVIDIA Ada GPU architecture white paper, its table.
    "rtx-4090": {
        **_USUAL,
        "flops_per_s": 165_000_000_000_000,  # 165.2 TFLOPS bf16 with fp32 sums, dense
        "hbm_bytes_per_s": 1_008_000_000_000,  # 1,008 GB/s
        "hbm_bytes": 24_000_000_000,  # 24 GB
        "link_bytes_per_s": 31_500_000_000,  # PCIe Gen4; [pcie]
        "link_permille": 800,  # estimate: 25 GB/s of 31.5 with packet headers and pinned memory
        "fp8_flops_per_s": 330_000_000_000_000,  # 330.3 TFLOPS fp8 with fp32 sums, dense
        "ranks_link": "pcie",  # has no NVLink
        "ranks_link_bytes_per_s": 31_500_000_000,  # PCIe Gen4; [pcie]
        "sms": 128,  # white paper
        "l2_bytes": 75_497_472,  # white paper: 72 MB
    },
    # NVIDIA RTX PRO 6000 Blackwell. Source: its data sheet; RTX Blackwell PRO white paper.
    "rtx-pro-6000": {
        **_USUAL,
        "flops_per_s": 504_000_000_000_000,  # white paper: 503.8 TFLOPS bf16 with fp32 sums, dense
        "hbm_bytes_per_s": 1_792_000_000_000,  # data sheet: 1,792 GB/s
        "hbm_bytes": 96_000_000_000,  # data sheet: 96 GB
        "link_bytes_per_s": 63_000_000_000,  # data sheet: PCIe Gen5; [pcie]
        "link_permille": 870,  # estimate: 55 GB/s of 63 with packet headers and pinned memory
        "fp8_flops_per_s": 1_007_000_000_000_000,  # twice the rate of bf16
        "fp4_flops_per_s": 2_000_000_000_000_000,  # data sheet: 4,000 TOPS fp4 sparse, half dense
        "ranks_link": "pcie",  # has no NVLink
        "ranks_link_bytes_per_s": 63_000_000_000,  # data sheet: PCIe Gen5; [pcie]
        "sms": 188,  # data sheet: 24,064 CUDA cores, 128 an SM
        "l2_bytes": 134_217_728,  # white paper: 128 MB
    },
}
