"""Fits the constants of the roofline and of the engine profiles to the fit half of the published
measurements: its rows become `samples` (passes of a replay, and the work in each), a
`table` predicts all of them under changed constants, `solving` finds the constants, and `writing`
makes the file that sim/times/fitted reads.
"""
