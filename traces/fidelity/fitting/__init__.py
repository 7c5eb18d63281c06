"""Fits the constants of the roofline and of the engine profiles to the fit half of the published
measurements (`fit`): its rows become `samples` (the passes of a replay, and the work in each), a
`table` predicts all of them under changed `parameters`, `solving` finds these, and `writing` makes
the file that sim/fitted reads.
"""
