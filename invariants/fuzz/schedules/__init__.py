"""Schedules: in which order the host takes replies that are due. One file each, found by name."""
