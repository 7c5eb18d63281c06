"""The I/O backends of a CUDA device, one per file: the name of an entry is the backend's name."""
