"""Hands that need a library: the registry through which the fuzzer finds them."""
