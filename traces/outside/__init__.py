"""Policies and schedulers of a user's own, from a file or an installed package."""
