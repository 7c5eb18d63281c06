"""Ways to read and write parts of one large file, one per file of this folder, found by name."""
