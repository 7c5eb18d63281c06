"""`hicache peers`: `session` runs an engine in a process, `failures` works up failures."""
