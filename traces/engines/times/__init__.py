"""The times of a real engine: measured, fitted, and held against those of the simulator."""
