"""Mistakes in what this project says of models, one per file: only logits show them."""
