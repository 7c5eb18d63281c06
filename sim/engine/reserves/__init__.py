"""Rules of what must stay free for running requests before another is admitted, one per file."""
