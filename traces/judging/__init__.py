"""`hicache prove --engine vllm`: the answers of vLLM with the connector, and without any cache."""
