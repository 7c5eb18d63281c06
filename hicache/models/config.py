"""A model from its `config.json`, as the library transformers writes it: pools and matrices.

`described` reads the keys that say what a layer caches and multiplies with. Layers are of four
kinds: full attention (keys and values, or one latent a token, with the keys of an indexer beside
it), a sliding window, a recurrent state (Gated DeltaNet or Mamba-2), and DeepSeek V4's rows of
compressed tokens. Parameters are counted matrix by matrix, with norms, biases and convolutions. The
source of the model names every key that was read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from hicache.core.errors import CallerError
from hicache.files import Value, fit, integer, show, unlike

from .base import Matrix, ModelDescription, PoolDescription
from .weights import stored

PAGE_SIZE = 64
# SGLang's default distance between tracked states (server_args.py, mamba_track_interval).
INTERVAL = 256
# An index key is fp8 with one fp32 scale per 128 elements (SGLang, NSATokenToKVPool).
_INDEX_SCALE: dict[str, Any] = {"dtype": "fp8", "scale_group": 128, "scale_bytes": 4}
# DeepSeek V4: tokens that share a row, and rows of state per page: two overlapping groups of 4, or
# one group of 128, without draft tokens (SGLang, deepseek_v4_compress_state.py).
_FEW, _MANY = 4, 128
_RINGS = {_FEW: 2 * _FEW, _MANY: _MANY}
_KINDS = {
    "full_attention": "full",
    "chunked_attention": "full",  # within chunks; longer prompts are not modelled
    "indexed_attention": "full",
    "attention": "full",
    "sliding_attention": "window",
    "linear_attention": "linear",
    "mamba": "mamba",
}
_RATIOS = {
    "sliding_attention": 0,
    "compressed_sparse_attention": _FEW,
    "heavily_compressed_attention": _MANY,
}
# What a configuration leaves to the library, by the model's type.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "gemma2": {"sliding_window_pattern": 2, "tie_word_embeddings": True},
    "gemma3_text": {
        "sliding_window_pattern": 6, "tie_word_embeddings": True, "vocab_size": 262_208,
    },
    "gpt_oss": {"sliding_window_pattern": 2, "attention_bias": True},
    "qwen2": {"use_sliding_window": False},
    "qwen3": {"use_sliding_window": False},
    "qwen3_moe": {"use_sliding_window": False},
    "qwen3_next": {"full_attention_interval": 4},
    "qwen3_5_text": {"full_attention_interval": 4},
    "qwen3_5_moe_text": {"full_attention_interval": 4},
}  # fmt: skip
# Keys of caches that are not described: shared between layers, of other widths, or without a list.
_STRANGE = (
    *("num_kv_shared_layers", "global_head_dim", "num_global_key_value_heads"),
    *("attention_k_eq_v", "hybrid_override_pattern", "layers_block_type", "attn_layer_period"),
    *("cross_attention_layers", "cla_share_factor", "mamba_d_ssm"),
)
# Types whose router has a bias for each expert, beside those that name the method of choosing.
_BIASED = ("gpt_oss", "deepseek_v3", "deepseek_v32", "deepseek_v4", "glm4_moe")
_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
_MOST = 1 << 24
_MOST_LAYERS = 1 << 14


class Config:
    """The values of a `config.json`, those of its text model before the others, and which keys were
    read. Raises CallerError for a value of another form, with its key."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        text = values.get("text_config")
        nested = text if isinstance(text, dict) else {}
        self.where = where
        self.kind = str(nested.get("model_type", values.get("model_type", "")))[:80]
        self._values = {**_DEFAULTS.get(self.kind, {}), **values, **nested}
        self.read: dict[str, Any] = {}

    def get(self, *names: str) -> Any:
        """The value of the first of these keys that is not null, as it is."""
        for name in names:
            value = self._values.get(name)
            if value is not None:
                self.read[name] = value
                return value
        return None

    def integer(self, *names: str, default: int | None = None, most: int = _MOST) -> int:
        """An integer under the first of these keys that is not null."""
        value = self.get(*names)
        if value is None and default is not None:
            return default
        least = 1 if default is None else 0
        number: int = fit(value, integer(least, most), self.where, at=f".{names[0]}")
        return number

    def words(self, name: str, known: Mapping[str, Any], count: int) -> list[Any] | None:
        """For each layer what `known` has for its word, or None without this key."""
        result = self.get(name)
        if result is None:
            return None
        word = Value(f"one of {', '.join(known)}", lambda value: value in known)
        kinds = fit(result, [word], self.where, at=f".{name}")
        if len(kinds) != count:
            raise self.wrong(name, f"{count} layers", f"{len(kinds)}")
        return [known[kind] for kind in kinds]

    def wrong(self, name: str, expected: str, text: str) -> CallerError:
        return unlike(f"{self.where}: {name}", expected, text)


class _Parts(NamedTuple):
    """What attention of all layers has. width: elements that a head multiplies and sums, in prefill
    and in decode. vectors: parameters that are in no matrix."""

    family: str
    width: tuple[int, int, int, int]
    pools: tuple[PoolDescription, ...]
    matrices: tuple[Matrix, ...]
    vectors: int
    selected_tokens: int = 0


def described(
    values: Mapping[str, Any],
    name: str,
    where: str,
    source: str = "",
    parameters: tuple[int, int] | None = None,
) -> ModelDescription:
    """The model of a configuration. where: names it in messages. parameters: all and active ones,
    where they are published and the configuration does not imply them to the last.

    Raises CallerError, with the key, for what is missing and for caches that are not described.
    """
    config = Config(values, where)
    for strange in _STRANGE:
        if config.get(strange):
            raise config.wrong(strange, "no such key, whose caches are not described", "it")
    layers = config.integer("num_hidden_layers", most=_MOST_LAYERS)
    hidden = config.integer("hidden_size")
    heads = config.integer("num_attention_heads")
    vocabulary = config.integer("vocab_size")
    dtype = _DTYPES.get(str(config.get("dtype", "torch_dtype") or "bfloat16"))
    if dtype is None:
        result = show(config.get("dtype", "torch_dtype"))
        raise config.wrong("dtype", f"one of {', '.join(_DTYPES)}", result)
    if config.get("compress_ratios", "compress_rates") is not None:
        attention = _compressed(config, layers, hidden, heads)
    elif config.get("kv_lora_rank") is not None:
        attention = _latents(config, layers, hidden, heads, dtype)
    else:
        attention = _rows(config, layers, hidden, heads, dtype)
    feed, feed_vectors, experts, used = _feed_forward(config, layers, hidden)
    family = "moe" if attention.family == "mha" and experts else attention.family

    embeddings = 1 if config.get("tie_word_embeddings") else 2
    norms = 4 if config.kind.startswith("gemma") else 2
    vectors = attention.vectors + feed_vectors + (norms * layers + 1) * hidden
    matrices = (*attention.matrices, *feed)
    routed = sum(matrix.layers * matrix.parameters for matrix in feed if matrix.routed)
    if config.kind == "gpt_oss":
        routed += layers * (2 * config.integer("intermediate_size") + hidden)  # biases of an expert
    always = embeddings * vocabulary * hidden + vectors
    always += sum(item.layers * item.parameters for item in matrices if not item.routed)
    total, active = parameters or (always + experts * routed, always + used * routed)
    weights = _weights(config)
    taken = ", ".join(f"{key} {show(value)}" for key, value in config.read.items())
    model = ModelDescription(
        name=name,
        family=family,
        source=source or f"{where}: {taken}",
        layers=layers,
        hidden_size=hidden,
        vocabulary=vocabulary,
        attention_heads=heads,
        score_elements=attention.width[0],
        value_elements=attention.width[1],
        decode_score_elements=attention.width[2],
        decode_value_elements=attention.width[3],
        parameters=total,
        active_parameters=active,
        experts=experts,
        experts_per_token=used,
        embeddings=embeddings,
        pools=attention.pools,
        page_size=256 if attention.family == "deepseek-v4" else PAGE_SIZE,
        matrices=matrices,
        selected_tokens=attention.selected_tokens,
    )
    return stored(model, *weights)


# -- attention


def _layer_kinds(config: Config, layers: int) -> list[str]:
    """Full, window, linear or mamba, for each layer."""
    kinds = config.words("layer_types", _KINDS, layers)
    if kinds is not None:
        return kinds
    if config.get("full_attention_interval"):
        every, other = config.integer("full_attention_interval"), "linear"
    elif config.get("mamba_n_heads"):
        listed = config.get("attn_layer_indices") or []
        full = fit(listed, [integer(0, layers - 1)], config.where, at=".attn_layer_indices")
        return ["full" if layer in full else "mamba" for layer in range(layers)]
    elif config.get("use_sliding_window") is False or config.get("sliding_window") is None:
        return ["full"] * layers
    elif config.get("max_window_layers") is not None:
        first = config.integer("max_window_layers", default=0)
        return ["full" if layer < first else "window" for layer in range(layers)]
    else:
        every, other = config.integer("sliding_window_pattern", default=layers + 1), "window"
    return [other if (layer + 1) % every else "full" for layer in range(layers)]


def _rows(config: Config, layers: int, hidden: int, heads: int, dtype: str) -> _Parts:
    """Keys and values of full and window layers, states of the others."""
    kinds = _layer_kinds(config, layers)
    kv_heads = config.integer("num_key_value_heads", default=heads)
    head = config.integer("head_dim", default=max(1, hidden // heads))
    if config.get("mamba_n_heads"):
        kinds = ["mamba" if kind == "linear" else kind for kind in kinds]
    if not kv_heads or heads % kv_heads:
        raise config.wrong("num_key_value_heads", f"a divisor of {heads} heads", str(kv_heads))
    by_kind = {
        kind: tuple(layer for layer, of in enumerate(kinds) if of == kind)
        for kind in ("full", "window", "linear", "mamba")
    }
    if not by_kind["full"]:
        raise config.wrong("layer_types", "some layers of full attention", "none")
    kv = PoolDescription("kv", "full", "kv", by_kind["full"], ("k", "v"), kv_heads, head, dtype)
    pools = [kv]
    if by_kind["window"]:
        window = config.integer("sliding_window", most=1 << 32)
        pools.append(
            replace(kv, name="swa", component="swa", layers=by_kind["window"], window=window)
        )
    count = len(by_kind["full"]) + len(by_kind["window"])
    gated = bool(by_kind["linear"])
    queries, rows = (1 + gated) * heads * head, 2 * kv_heads * head
    matrices = [
        Matrix("qkv", hidden, queries + rows, count, "outputs", "attention"),
        Matrix("o", heads * head, hidden, count, "inputs", "attention"),
    ]
    vectors = 0
    if config.kind.startswith(("qwen3", "gemma3")):
        vectors += count * 2 * head  # norms of queries and keys
    if config.get("attention_bias") or config.kind.startswith("qwen2"):
        vectors += count * (heads * head + rows)
        if config.kind in ("gpt_oss", "llama"):
            vectors += count * hidden  # of the output
    if config.kind == "gpt_oss":
        vectors += count * heads  # sinks
    if by_kind["linear"]:
        more = _delta_net(config, by_kind["linear"], hidden, dtype)
    elif by_kind["mamba"]:
        more = _mamba(config, by_kind["mamba"], hidden, dtype)
    else:
        more = [], [], 0
    family = "mamba" if more[0] else "swa" if by_kind["window"] else "mha"
    pools, matrices = [*pools, *more[0]], [*matrices, *more[1]]
    width = (head, head, head, head)
    return _Parts(family, width, tuple(pools), tuple(matrices), vectors + more[2])


_States = tuple[list[PoolDescription], list[Matrix], int]


def _delta_net(config: Config, layers: tuple[int, ...], hidden: int, dtype: str) -> _States:
    """Gated DeltaNet: a matrix per value head, and the last inputs of a convolution over queries,
    keys and values. Each rank has a share of the key heads and the value heads that belong to them.
    """
    keys = config.integer("linear_num_key_heads")
    values = config.integer("linear_num_value_heads")
    key = config.integer("linear_key_head_dim")
    value = config.integer("linear_value_head_dim")
    width = config.integer("linear_conv_kernel_dim")
    if values % keys:
        raise config.wrong("linear_num_value_heads", f"a multiple of {keys}", str(values))
    channels = 2 * key + values // keys * value
    count, wide = len(layers), 2 * (keys * key + values * value)
    return (
        [
            _state("ssm", layers, values, key * value, _state_dtype(config)),
            _state("conv", layers, keys, (width - 1) * channels, dtype),
        ],
        [
            Matrix("linear_qkvz", hidden, wide, count, part="attention"),
            Matrix("linear_ba", hidden, 2 * values, count, part="other"),
            Matrix("linear_o", values * value, hidden, count, "inputs", "attention"),
        ],
        count * (width * keys * channels + 2 * values + value),
    )


def _mamba(config: Config, layers: tuple[int, ...], hidden: int, dtype: str) -> _States:
    """Mamba-2: a matrix per head, and the last inputs of a convolution over inputs and both
    projections of a group."""
    heads = config.integer("mamba_n_heads")
    auto = config.get("mamba_d_head") in (None, "auto")
    width = config.integer("mamba_expand", default=2) * hidden // heads
    head = width if auto else config.integer("mamba_d_head")
    state = config.integer("mamba_d_state")
    groups = config.integer("mamba_n_groups")
    kernel = config.integer("mamba_d_conv")
    channels = heads * head + 2 * groups * state
    if channels % groups:
        raise config.wrong("mamba_n_groups", f"a divisor of {heads * head}", str(groups))
    count = len(layers)
    return (
        [
            _state("ssm", layers, heads, head * state, _state_dtype(config)),
            _state("conv", layers, groups, (kernel - 1) * channels // groups, dtype),
        ],
        [
            Matrix("mamba_in", hidden, heads * head + channels + heads, count, part="attention"),
            Matrix("mamba_out", heads * head, hidden, count, "inputs", "attention"),
        ],
        count * ((kernel + 1) * channels + 3 * heads + heads * head),
    )


def _state_dtype(config: Config) -> str:
    return _DTYPES.get(str(config.get("mamba_ssm_cache_dtype", "mamba_ssm_dtype")), "fp32")


def _state(
    name: str, layers: tuple[int, ...], heads: int, elements: int, dtype: str
) -> PoolDescription:
    """A pool whose slots have a state of all linear layers."""
    return PoolDescription(
        name, "mamba", "state", layers, ("state",), heads, elements, dtype,
        page_rows=1, window=1, interval=INTERVAL,
    )  # fmt: skip


def _latents(config: Config, layers: int, hidden: int, heads: int, dtype: str) -> _Parts:
    """Multi-head latent attention: the latent and the rotary key of each layer, in one row that is
    the same on every rank. The indexer of sparse attention has a small key per token beside it.

    Prefill expands the latent to heads with nope + rope elements for scores and value elements for
    values. Decode absorbs this expansion into the query and attends to the latent itself
    (DeepSeek-V2, arXiv 2405.04434, section 2.1.2), so each head multiplies latent + rope elements
    and sums latent elements. The expansion is the matrix kv_b: prefill multiplies it with every
    latent of the context, decode (in its two halves) with the new token alone.
    """
    latent = config.integer("kv_lora_rank")
    rope = config.integer("qk_rope_head_dim")
    nope = config.integer("qk_nope_head_dim")
    value = config.integer("v_head_dim")
    query = config.integer("q_lora_rank", default=0)
    kinds = config.words("layer_types", _KINDS, layers) or []
    if set(kinds) - {"full"}:
        raise config.wrong("layer_types", "full_attention alone beside latents", "others")
    score, row = nope + rope, latent + rope

    def product(name: str, inputs: int, outputs: int, split: str, expands: bool = False) -> Matrix:
        return Matrix(name, inputs, outputs, layers, split, "attention", expands=expands)

    first = query or heads * score
    matrices = [
        product("qkv_a", hidden, first + row, "whole" if query else "outputs"),
        *([product("q_b", query, heads * score, "outputs")] if query else []),
        product("kv_b", latent, heads * (nope + value), "outputs", expands=True),
        product("o", heads * value, hidden, "inputs"),
    ]
    vectors = layers * (query + latent)
    every = tuple(range(layers))
    pools = [PoolDescription("kv", "full", "latent", every, ("latent",), 1, row, dtype)]
    selected = config.integer("index_topk", default=0)
    if selected:
        key, index_heads = config.integer("index_head_dim"), config.integer("index_n_heads")
        pools.append(
            PoolDescription(
                "indexer", "full", "indexer", every, ("key",), 1, key, anchor="kv", **_INDEX_SCALE
            )
        )
        matrices += [
            product("index_q", query or hidden, index_heads * key, "whole"),
            product("index_k", hidden, key, "whole"),
            Matrix("index_weights", hidden, index_heads, layers, "whole", "other"),
        ]
        vectors += layers * 2 * key  # the norm of the key, with a bias
    family = "dsa" if selected else "mla"
    width = (score, value, row, latent)
    return _Parts(family, width, tuple(pools), tuple(matrices), vectors, selected)


def _compressed(config: Config, layers: int, hidden: int, heads: int) -> _Parts:
    """DeepSeek V4: rows of compressed tokens, a short window, and the states of the compressors.

    A logical pool without bytes has the page numbers. A layer compresses 4 or 128 tokens to one
    row, and layers that compress 4 tokens have an indexer over these rows. All these pools follow
    the page numbers of the logical pool. Each layer also keeps the last tokens uncompressed in the
    pool `swa`. The states of the compressors, which are unfinished sums, follow the pages of `swa`,
    with a ring of rows per page. The byte sizes are those of SGLang (deepseek_v4_memory_pool.py,
    deepseek_v4_compress_state.py), without the padding of its pages.
    """
    head, rope = config.integer("head_dim"), config.integer("qk_rope_head_dim", default=64)
    index, window = config.integer("index_head_dim"), config.integer("sliding_window")
    ratios = _ratios(config, layers)
    by_ratio = {
        ratio: tuple(layer for layer, of in enumerate(ratios) if of == ratio)
        for ratio in (_FEW, _MANY)
    }
    few, many = by_ratio[_FEW], by_ratio[_MANY]

    def latent(name: str, layers: tuple[int, ...], elements: int, **fields: Any) -> PoolDescription:
        return PoolDescription(
            name, "full", "latent", layers, ("latent",), 1, elements, anchor="logical", **fields
        )

    # fp8 with a one-byte scale per 64 elements, then the rotary key in bf16 and a byte of padding
    row: dict[str, Any] = {"dtype": "fp8", "scale_group": 64, "scale_bytes": 1}
    row["tail_bytes"] = 2 * rope + 1
    swa = latent("swa", tuple(range(layers)), head - rope, **row)
    key = latent("c4_indexer", few, index, compression=_FEW, **_INDEX_SCALE)
    pools = (
        PoolDescription("logical", "full", "logical", (), (), 1, 0),
        latent("c4", few, head - rope, compression=_FEW, **row),
        replace(key, kind="indexer", parts=("key",)),
        latent("c128", many, head - rope, compression=_MANY, **row),
        replace(swa, component="swa", anchor="", window=window),
        _compressor("c4_state", few, _FEW, head),
        _compressor("c4_indexer_state", few, _FEW, index),
        _compressor("c128_state", many, _MANY, head),
    )
    query, groups = config.integer("q_lora_rank"), config.integer("o_groups")
    out, index_heads = config.integer("o_lora_rank"), config.integer("index_n_heads")
    streams = config.integer("hc_mult")

    def whole_on_each(
        name: str, inputs: int, outputs: int, layers: int, part: str = "other", count: int = 1
    ) -> list[Matrix]:
        made = {"split": "whole", "part": part, "count": count}
        return [Matrix(name, inputs, outputs, layers, **made)] if layers else []  # type: ignore[arg-type]

    # a compressor has two products (value and score), twice as wide if its groups overlap
    grouped = Matrix("o_a", heads * head // groups, out, layers, part="attention", count=groups)
    matrices = (
        *whole_on_each("qkv_a", hidden, query + head, layers, "attention"),
        Matrix("q_b", query, heads * head, layers, "outputs", "attention"),
        grouped,
        Matrix("o_b", groups * out, hidden, layers, "inputs", "attention"),
        *whole_on_each("compressor_4", hidden, 2 * head, len(few), count=2),
        *whole_on_each("compressor_128", hidden, head, len(many), count=2),
        *whole_on_each("index_q", query, index_heads * index, len(few), "attention"),
        *whole_on_each("index_compressor", hidden, 2 * index, len(few), count=2),
        *whole_on_each("index_weights", hidden, index_heads, len(few)),
        *whole_on_each("mixing", streams * hidden, streams * (streams + 2), layers, count=2),
    )
    vectors = layers * (query + head + heads)
    width = (head, head, head, head)
    selected = config.integer("index_topk")
    return _Parts("deepseek-v4", width, pools, matrices, vectors, selected)


def _ratios(config: Config, layers: int) -> Sequence[int]:
    """For each layer, the tokens that share a row, or 0 for a layer with a window only. A draft
    module's follow those of the layers."""
    kinds = config.words("layer_types", _RATIOS, layers)
    if kinds is not None:
        return kinds
    ratio = Value("0, 4 or 128", lambda value: value in (0, _FEW, _MANY))
    ratios = fit(config.get("compress_ratios"), [ratio], config.where, at=".compress_ratios")
    if len(ratios) < layers:
        raise config.wrong("compress_ratios", f"{layers} layers", str(len(ratios)))
    return list(ratios[:layers])


def _compressor(name: str, layers: tuple[int, ...], ratio: int, elements: int) -> PoolDescription:
    """The state of a compressor: a value and a score of each token, for each group of `ratio`
    tokens that the token belongs to."""
    ring = _RINGS[ratio]
    wide = 2 * (ring // ratio) * elements
    return PoolDescription(
        name, "swa", "state", layers, ("state",), 1, wide, "fp32",
        anchor="swa", page_rows=ring, window=ring,
    )  # fmt: skip


# -- what follows attention


def _feed_forward(
    config: Config, layers: int, hidden: int
) -> tuple[tuple[Matrix, ...], int, int, int]:
    """The matrices of MLPs and experts, their vectors, the experts of a layer, and how many of them
    a token uses."""
    count = config.integer("n_routed_experts", "num_local_experts", "num_experts", default=0)
    if not count:
        return tuple(_mlp(layers, hidden, config.integer("intermediate_size"))), 0, 0, 0
    used = config.integer("num_experts_per_tok")
    if used >= count:
        raise config.wrong("num_experts_per_tok", f"fewer than {count} experts", str(used))
    inner = config.integer("moe_intermediate_size", "intermediate_size")
    if config.integer("decoder_sparse_step", "interleave_moe_layer_step", default=1) > 1:
        raise config.wrong("decoder_sparse_step", "experts in every layer", "fewer")
    dense = min(layers - 1, config.integer("first_k_dense_replace", default=0))
    shared = inner * config.integer("n_shared_experts", default=0)
    shared = shared or config.integer(
        "shared_expert_intermediate_size", "shared_intermediate_size", default=0
    )
    if config.kind == "llama4_text":
        shared = inner
    sparse = layers - dense
    matrices = [
        *_mlp(dense, hidden, config.integer("intermediate_size") if dense else 0),
        Matrix("router", hidden, count, sparse, "whole", "router"),
        *_mlp(sparse, hidden, inner, "expert_", "experts"),
        *_mlp(sparse, hidden, shared, "shared_"),
    ]
    if config.kind.startswith(("qwen2_moe", "qwen3_next", "qwen3_5_moe")):
        matrices.append(Matrix("shared_weight", hidden, 1, sparse, "whole", "router"))
    biased = config.get("topk_method") == "noaux_tc" or config.kind in _BIASED
    return tuple(matrices), sparse * count * biased, count, used


def _mlp(layers: int, hidden: int, inner: int, name: str = "", part: str = "mlp") -> list[Matrix]:
    """A gated MLP; nothing without layers or width."""
    if not layers * inner:
        return []
    return [
        Matrix(f"{name}gate_up", hidden, 2 * inner, layers, "outputs", part),
        Matrix(f"{name}down", inner, hidden, layers, "inputs", part),
    ]


def _weights(config: Config) -> tuple[str, str]:
    """The types of the weights and of routed experts ("" for the same)."""
    result = config.get("quantization_config")
    if result is None:
        return "bf16", ""
    if not isinstance(result, dict):
        raise config.wrong("quantization_config", "an object", show(result))
    method = str(result.get("quant_method", ""))
    named = f"{method} {result.get('quant_algo', '')} {result.get('format', '')}".lower()
    if method == "mxfp4":
        return "bf16", "mxfp4"
    if method in ("gptq", "awq") and result.get("bits") == 4:
        return "int4", ""
    if "nvfp4" in named:
        return "nvfp4", ""
    if method == "fp8" or "fp8" in named or "float-quantized" in named:
        experts = "mxfp4" if config.get("expert_dtype") == "fp4" else ""
        return ("fp8-block" if result.get("weight_block_size") else "fp8"), experts
    known = "fp8, mxfp4, nvfp4, or gptq and awq of 4 bits"
    raise config.wrong("quantization_config", known, f"{named[:80]!a}")
