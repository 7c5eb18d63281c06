"""`hicache replay --processes`: a trace replayed by ranks that are processes of their own."""
