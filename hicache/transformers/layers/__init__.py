"""Kinds of cache layers of the `transformers` library, those that are alike in one file.

A file has `KINDS` (see `base.LayerKind`). To add a kind, add it there, or in a file of its own:
layers of the classes that its `classes` names are then understood.
"""
