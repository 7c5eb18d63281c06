"""Policies and schedulers of the user, from a file or an installed package."""
