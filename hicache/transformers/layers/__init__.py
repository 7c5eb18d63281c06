"""Kinds of cache layers of the `transformers` library, one per file.

A file has a `KIND` (see `base.LayerKind`). To add a kind, add a file: layers of the classes that
its `classes` names are then understood.
"""
