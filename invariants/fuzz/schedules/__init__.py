"""Schedules: the order in which the host takes due replies. One file each, found by name."""
