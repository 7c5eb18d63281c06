"""Tests of `traces/engines`."""
