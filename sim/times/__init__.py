"""Time models, one per file: how long a forward pass takes."""
