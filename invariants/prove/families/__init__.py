"""Small models with random weights, one family of attention per file, found by name."""
