"""The I/O backends of a CUDA device, one per file. The name of the file is that of the backend."""
