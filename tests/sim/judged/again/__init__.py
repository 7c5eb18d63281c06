"""Durations of passes, written a second time."""
