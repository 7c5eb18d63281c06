"""The time model of this project."""

from __future__ import annotations

from .pure_roofline import times as times

SUMMARY = "durations by the shape of each product, with what the ranks exchange"
