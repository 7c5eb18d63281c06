"""Operations: one file each, found by name. `draw` makes literal arguments from the state of a run,
or None where it has nothing to do; `play` does it, and nothing where it cannot."""
