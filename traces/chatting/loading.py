"""A model and its tokenizer from a local folder. Nothing is downloaded, and no code of the folder
runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

from hicache.core.errors import CallerError
from hicache.transformers.describing import DTYPES

_WEIGHTS = "*.safetensors"


def load(folder: str, dtype: str, attention: str) -> tuple[Any, Any]:
    """The model, ready to generate, and its tokenizer. dtype, attention: auto is as the folder
    says. Raises CallerError for a folder without a model that the library knows."""
    path = Path(folder)
    for name in ("config.json", _WEIGHTS):
        if not any(path.glob(name)):
            found = "no such folder" if not path.is_dir() else f"no {name} in it"
            raise CallerError(
                f"model {folder}: expected a folder with config.json, a tokenizer and {_WEIGHTS}, "
                f"as save_pretrained writes it, found {found}"
            )
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    local: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    try:
        tokenizer = AutoTokenizer.from_pretrained(path, **local)
        config = AutoConfig.from_pretrained(path, **local)
        # a folder might name kernels, which the library would download and run
        config._attn_implementation = None if attention == "auto" else attention
        config._experts_implementation = None
        chosen = {"config": config, "dtype": DTYPES.get(dtype, "auto")}
        model = AutoModelForCausalLM.from_pretrained(path, use_safetensors=True, **local, **chosen)
    except Exception as error:  # of many kinds, whatever is wrong in the folder
        text = " ".join(str(error).split())
        raise CallerError(
            f"model {folder}: expected a model that transformers can load without code of its "
            f"own, found {type(error).__name__}: {text}"
        ) from error
    if torch.cuda.is_available():
        model = model.to("cuda")
    return model.eval(), tokenizer
