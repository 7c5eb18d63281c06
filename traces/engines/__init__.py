"""A real engine in a process of its own: vLLM, as a judge of answers, hits and times."""
