"""Tests on a real engine, that `pytest -m engine` runs."""
