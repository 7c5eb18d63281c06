"""Admission orders, one per file: which waiting request is admitted next."""
