"""Tests of `hicache/vllm`."""
