"""Eviction policies that `hicache curve` replays page by page, one per file."""
