"""What the keys of a config are, by their names: sizes, counts, windows, rules of layers."""

# A config's keys by what must divide what: one value and others, by the first pattern that is in the key's name.
SIZES = (
    (("num_key_value_heads", "num_kv_heads", "multi_query_group_num"), (3, 2, 1)),
    (("linear_num_key_heads",), (3, 6, 2)),
    (("linear_num_value_heads",), (6, 18, 36)),
    (("num_attention_heads", "n_head", "num_heads"), (12, 24, 36)),
    (("qk_rope_head_dim",), (16, 32, 48)),
    (("qk_nope_head_dim",), (120, 152, 168)),
    (("v_head_dim",), (32, 88, 104)),
    (("head_dim",), (48, 80, 112)),
    (("lora_rank",), (94, 106, 118)),
    (("moe_intermediate_size", "shared_expert_intermediate_size", "expert_ffn_hidden_size"), (136, 152, 184)),
    (("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size", "d_ff"), (664, 712, 776)),
    (("experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k"), (2, 3, 5)),
    (("n_shared_experts", "num_shared_experts"), (1, 2, 3)),
    (("topk_group",), (2, 1)),
    (("n_group",), (4, 8, 2)),
    (("num_experts", "n_routed_experts", "num_local_experts"), (16, 32, 8)),
    (("hidden_size", "n_embd", "d_model", "embed_dim"), (1728, 2880, 4032)),
    (("vocab_size",), (1009, 1013, 1019)),
    (("max_position_embeddings", "n_positions"), (8209, 8219, 8221)),
    (("temporal_patch_size",), (2, 3, 4)),
    (("patch_size",), (14, 28, 42)),
    (("image_size",), (672, 1344, 2016)),
)
LAYERS = ("num_hidden_layers", "n_layer", "num_layers")
OTHER_LAYERS = (*LAYERS, "depth")  # of configs inside a config
_WINDOWS = ("window", "attention_chunk_size")
_FIRST = ("first_k_dense", "num_dense_layers", "moe_layer_start_index", "dense_layers")
_PERIODS = ("interval", "pattern", "_step", "layer_freq", "every_n")
# Keys that name no size and no operation.
_NAMES = ("token_id", "token_index", "_name_or_path", "transformers_version", "architectures", "model_type", "dtype", "torch_dtype", "id2label", "label2id",
          "problem_type", "return_dict", "output_hidden_states", "output_attentions", "use_cache", "chunk_size_feed_forward", "is_encoder_decoder",
          "initializer", "pretraining_tp", "keys_to_ignore", "tokenizer_class", "finetuning_task")
# Sizes that a class can do without, where its config says null.
_DISPENSABLE = ("q_lora_rank",)
# Ways to do something that a config has a word for.
_WAYS = {"topk_method": ("greedy", "group_limited_greedy")}
# Of latent attention: values as wide as queries take other kernels.
LATENT_HEADS = ("v_head_dim", "qk_nope_head_dim", "qk_rope_head_dim")
ROPE = ("rope_parameters", "rope_scaling", "rope_theta")
ROPE_SORTS = {
    "linear": {"factor": 4.0},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 2048, "beta_fast": 32.0, "beta_slow": 1.0, "attention_factor": 1.1},
    "llama3": {"factor": 8.0, "original_max_position_embeddings": 2048, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
}


def last(key):
    """The name of a key: those of a config inside a config stand behind its name, "text_config.hidden_size"."""
    return key.rsplit(".", 1)[-1]


def sizes_of(key):
    for names, sizes in SIZES:
        if any(name in key for name in names):
            return sizes
    return None


def is_size(key, value):
    return isinstance(value, int) and not isinstance(value, bool) and not is_name(key)


def is_first(key):
    return any(name in key for name in _FIRST)


def is_window(key):
    return any(name in key for name in _WINDOWS) and "layers" not in key and not is_period(key)


def is_name(key):
    return any(name in key for name in _NAMES)


def is_period(key):
    return any(name in key for name in _PERIODS)


def switched(key, value, fixed):
    """Values with which a class does something else; `fixed`: the key's value, where all else of it is another class."""
    if isinstance(fixed, bool):
        return [not fixed]
    dispensable = key in _DISPENSABLE or is_window(key) and "." in key
    if dispensable and is_size(key, value) and value > 0:
        return [None]
    return [way for way in _WAYS.get(key, ()) if way != value]


def others(key, value):
    """Values that a key may have instead."""
    if isinstance(value, bool):
        return [not value]
    if is_size(key, value):
        sizes = sizes_of(key)
        if is_window(key):
            return [value + 6, value + 10]
        if sizes and value == sizes[0]:
            return list(sizes[1:])
        return [value + 1, 2 * value, value + 2, value + 4]
    if isinstance(value, str) and "." in key and "act" in last(key):  # of a tower that is not run
        return [way for way in ("silu", "gelu", "gelu_pytorch_tanh") if way != value]
    if isinstance(value, list) and "." in key and all(isinstance(one, int) for one in value):
        return [[max(0, one - 1) for one in value]] if value else []
    if isinstance(value, float):
        return [0.5 * value, 2.0 * value] if value else [0.1]
    return []
