"""Hardware profiles, one accelerator per file: `PROFILE`, each figure with its source beside it.

Capacities are the data sheets' decimal gigabytes. Three sources serve every profile:

[pcie]  PCI-SIG base specification: 16 lanes at 16 GT/s (Gen4) or 32 GT/s (Gen5), 128b/130b coded,
        make 31.5 and 63.0 GB/s per direction.
[bw]    github.com/NVIDIA/nvbandwidth, README, example outputs: one direction alone 12.36 GB/s, with
        the other direction busy 11.16 GB/s, so both together reach 2 x 11.16 / 12.36 = 1.806.
[own]   measured by this project on an H100 80GB HBM3 with PCIe Gen5, 2026-11-22 (hicache gpu-check
        --only both-ways): both directions together reach 1.616 of one with two large pinned copies,
        1.45 to 1.77 with pages of a cache; one direction alone 54.9 GB/s.
[lat]   arXiv 2602.21548, section 5.2: submitting one cudaMemcpyAsync costs 5 to 7 us.

Peaks of matrix products are without sparsity. Where a figure of streaming multiprocessors or of the
level 2 cache is left out, its vendor does not publish it.

Vendors do not publish reachable fractions. Those here are estimates of this
project, marked as such. A calibration run should replace them first.
"""
