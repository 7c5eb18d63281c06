"""Bytes in words, as the sentences and the options write them. Does not read sizes."""

from __future__ import annotations


def gigabytes(count: int, space: str = " ") -> str:
    """`512 GB`, `1.5 TB`, or `6 MB`; with decimals below 10 GB. Without the space, an option reads
    it."""
    if 0 < count < 1000:
        return f"{count}{space}B"
    if 0 < count < 10**7:
        return f"{count / 1e6:.4g}{space}MB"
    if count >= 10**12:
        return f"{count / 1e12:{'' if not space else ','}.4g}{space}TB"
    return f"{count / 1e9:.4g}{space}GB"
