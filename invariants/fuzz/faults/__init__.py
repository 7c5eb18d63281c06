"""Kinds of faults: one file for each kind, or for kinds that differ in a parameter, found by name.

Every fault is recoverable: a miss is legal, but wrong bytes or a hang are not.
"""
