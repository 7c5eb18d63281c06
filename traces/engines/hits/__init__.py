"""The hits of a real engine beside those that the simulator predicts."""
