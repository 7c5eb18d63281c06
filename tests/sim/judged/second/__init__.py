"""The serving engine, written a second time, with its queue and the rules of engine profiles."""
