"""Bytes in words, as the sentences and the options write them. Does not read sizes."""

from __future__ import annotations


def gigabytes(count: int, space: str = " ") -> str:
    """`512 GB` or `1.5 TB`; with decimals below 10 GB. Without the space, an option reads it."""
    if count >= 10**12:
        return f"{count / 1e12:{'' if not space else ','}.4g}{space}TB"
    return f"{count / 1e9:.4g}{space}GB"
