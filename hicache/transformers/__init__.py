"""hicache under the models of the `transformers` library: what their caches hold, as pools."""
