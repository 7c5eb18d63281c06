"""A connector for vLLM: this cache's host and storage tiers under vLLM's own (docs/vllm.md).

vllm serve MODEL --kv-transfer-config '{"kv_connector": "HicacheConnector",
  "kv_connector_module_path": "hicache.vllm", "kv_role": "kv_both",
  "kv_connector_extra_config": {"host": "64GB", "storage": "file:/data/kv"}}'
"""

from .connector import HicacheConnector

__all__ = ["HicacheConnector"]
