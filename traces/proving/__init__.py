"""`hicache prove`: sequences with real models as jobs, the sums of each family, and the report."""
