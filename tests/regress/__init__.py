"""Failures that the fuzzer found in the core, each as `hicache shrink --export` wrote it, shrunk.

A file here failed before its bug was mended and plays clean since. Its tape is literal, so that it
means the same whatever the fuzzer draws; `hicache explain FILE` tells the story of one that fails.
Must not live here: anything written by hand, or a bug that was planted.
"""
