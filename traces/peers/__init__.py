"""What `hicache peers` can do: one action per file, found by its name."""
