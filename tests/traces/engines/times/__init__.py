"""The times of a real engine: fitted, played and compared."""
