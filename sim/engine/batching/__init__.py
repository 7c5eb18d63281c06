"""Ways to compose a pass, one per file: whether chunks of prompts and decoding share one."""
