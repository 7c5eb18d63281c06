"""What the kernels of a forward pass do: operations, bytes, and the time that both take."""
