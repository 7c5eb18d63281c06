"""The constants that were fitted to published measurements, and what reads them."""
