"""Admission orders, one a file: which of the waiting requests is admitted next."""
