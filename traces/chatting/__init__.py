"""A conversation with a local model.

`loading` reads the folder of a model, `talking` is the loop of questions and answers. They import
torch and transformers, so `hicache chat` loads them by name.
"""
