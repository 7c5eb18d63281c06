"""Checks that need a GPU, one for each file. The file's name is the check's name."""
