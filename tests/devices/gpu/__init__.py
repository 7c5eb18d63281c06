"""Checks that need a GPU, one in each file: `run()` returns its figures and faults."""
