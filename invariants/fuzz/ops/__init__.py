"""Operations: one file each, found by name.

`draw` returns literal arguments for the state of a run, or None if the operation is not possible.
`play` performs it, or does nothing if it does not fit the state.
"""
