"""A conversation with a local model: imports torch, so `hicache chat` loads it by name."""
