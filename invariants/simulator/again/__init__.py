"""Parts of the simulator that were written a second time: durations, queues, engine rules."""
