"""What `hicache store` can do: one action per file, found by its name."""
