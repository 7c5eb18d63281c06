"""Judging by logits: models that nobody here wrote, with this cache and without any."""
