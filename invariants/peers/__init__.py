"""Other people's caches under this harness.

A peer is one file of `engines`. Everything here runs in the peer's own process.
"""
