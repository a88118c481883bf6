"""What the keys of a config are, by their names: sizes, counts, windows, rules of layers."""

import re

IMAGE_TOKENS = ("image_token_id", "image_token_index", "media_placeholder_token_id", "image_soft_token_id")  # of the token that an image's features stand for
SEE_ALWAYS = ("blip", "blip-2", "git", "idefics", "instructblip", "instructblipvideo", "kosmos-2", "pp_formulanet")  # model types whose classes read an image with every text
OWN_KERNELS = ("mra",)  # model types whose attention gives zeros where the CUDA kernels that it builds for itself are not there
POSITIONS = ("max_position_embeddings", "n_positions", "max_target_positions")
# A config's keys by what must divide what: one value and others, by the first pattern that is in the key's name.
SIZES = (
    (("num_key_value_heads", "num_kv_heads", "multi_query_group_num", "kv_n_heads"), (3, 2, 1)),
    (("num_global_key_value_heads",), (2, 6, 4)),
    (("linear_num_key_heads",), (3, 6, 2)),
    (("linear_num_value_heads",), (6, 18, 36)),
    (("mamba_n_heads", "mamba_num_heads", "n_mamba_heads"), (18, 36, 9)),
    (("attention_heads", "n_head", "num_heads"), (12, 24, 36)),
    (("qk_rope_head_dim",), (16, 32, 48)),
    (("qk_nope_head_dim",), (120, 152, 168)),
    (("v_head_dim",), (32, 88, 104)),
    (("head_dim",), (48, 80, 112)),
    (("lora_rank",), (94, 106, 118)),
    (("moe_intermediate_size", "shared_expert_intermediate_size", "expert_ffn_hidden_size"), (136, 152, 184)),
    (("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size", "d_ff"), (664, 712, 776)),
    (("experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k", "top_k_experts"), (2, 3, 5)),
    (("n_shared_experts", "num_shared_experts"), (1, 2, 3)),
    (("topk_group",), (2, 1)),
    (("hidden_groups",), (1,)),  # of layers that are called again
    (("n_group",), (4, 8, 2)),
    (("num_experts", "n_routed_experts", "num_local_experts"), (16, 32, 8)),
    (("hidden_size", "n_embd", "d_model", "embed_dim", "emb_dim", "mamba_d_ssm"), (1728, 2880, 4032)),
    (("output_vocab_size",), (991, 997, 983)),  # of a head that knows fewer words
    (("vocab_size", "n_words"), (1009, 1013, 1019)),
    (POSITIONS, (8209, 8219, 8221)),
    (("temporal_patch_size",), (2, 3, 4)),
    (("patch_size",), (14, 28, 42)),
    (("image_size",), (672, 1344, 2016)),
)
WIDEST, _WIDE = 256, (272, 304, 336)  # heads
POWERS = (16, 32, 64)  # numbers of heads, where the class does something else with those that are no powers of two (ALiBi)
# Types whose classes pad sequences to whole blocks, and are run on such: the key that says a block, its tokens, the fewest with which the class does so.
WHOLE_BLOCKS = {
    **{kind: ("block_size", 64, 768) for kind in ("big_bird", "bigbird_pegasus")},  # up to 704 its attention is full
    **{kind: ("attention_window", 512, 1024) for kind in ("led", "longformer")}, "longt5": ("local_radius", 128, 256), "pegasus_x": ("block_size", 512, 1024),
}
LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers", "layers")
_OTHER_LAYERS = (*LAYERS, "depth")  # of configs inside a config
_STACKS = re.compile("(num_)?(encoder|decoder)_(num_)?(hidden_)?layers")  # two stacks in one config
_WINDOWS = ("window", "attention_chunk_size")
_CHOSEN = "index_topk"  # of an indexer: so many keys for each query, or all where there are fewer
_CHOSEN_OF = ("compress_rates", "compressed_sparse_attention")  # where an entry of the indexer stands for so many tokens
_FIRST = ("first_k_dense", "num_dense_layers", "moe_layer_start_index", "dense_layers")
_LASTS = ("kv_shared_layers",)  # numbers of layers that come last
_PERIODS = ("interval", "pattern", "_step", "layer_freq", "every_n", "attention_frequency")
# Keys that name no size and no operation.
_NAMES = ("token_id", "token_index", "_name_or_path", "transformers_version", "architectures", "model_type", "dtype", "torch_dtype", "id2label", "label2id",
          "problem_type", "task_specific_params", "return_dict", "output_hidden_states", "output_attentions", "use_cache", "chunk_size_feed_forward", "is_encoder_decoder",
          "initializer", "pretraining_tp", "keys_to_ignore", "tokenizer_class", "finetuning_task", "classifier", "suppress_tokens", "vocabulary_map", "num_beams", "max_length")
# Sizes that a class can do without, where its config says null.
_DISPENSABLE = ("q_lora_rank",)
# Sizes that are null in a class's default config; a class builds further modules only where a config gives one, and is recorded without them.
SPARE = ("density_router_hidden_size",)
# Ways to do something that a config has a word for.
_WAYS = {"topk_method": ("greedy", "group_limited_greedy")}
# By model type, what released checkpoints have where the class's defaults are another class, each recorded by itself; ({},): the defaults alone.
# A tuple is repeated over the layers; a number of layers is of how many it is recorded.
_TEXT, _VISION = "text_config.model_type", "vision_config.model_type"
_NORMED = {"text_config.norm_topk_prob": True}
_CONVOLUTIONS = ("conv", "conv", "full_attention")
_WITH_STATES = ("linear_attention", "mlp", "full_attention", "moe")
_WITHOUT_LAYER_INPUTS = {"final_logit_softcapping": 30.0, "use_bidirectional_attention": "vision", "hidden_size_per_layer_input": 0, "attention_k_eq_v": True, "global_head_dim": 512, "num_global_key_value_heads": 4,
                         "layer_types": ("sliding_attention", "full_attention")}
_PASSED_ON = {"num_hidden_layers": 8, "num_kv_shared_layers": 4}  # keys and values to the last layers: each kind of them twice
_WITH_LAYER_INPUTS = {"final_logit_softcapping": 30.0, "global_head_dim": 512, **_PASSED_ON, "layer_types": ("sliding_attention", "full_attention")}
_GEMMA4_SMALL = (_WITH_LAYER_INPUTS, {**_WITH_LAYER_INPUTS, "use_double_wide_mlp": True})  # E4B, E2B
_GEMMA3N = {**_PASSED_ON, "num_hidden_layers": 10, "layer_types": ("sliding_attention", "full_attention"),
            "activation_sparsity_pattern": (0.95, 0.95) + (0.0,) * 8}
_GEMMA4 = (  # 31B, 26B-A4B
    _WITHOUT_LAYER_INPUTS, {**_WITHOUT_LAYER_INPUTS, "enable_moe_block": True, "num_experts": 128, "top_k_experts": 8, "moe_intermediate_size": 704})
RELEASED = {
    "bart": ({}, {"attention_dropout": 0.1, "activation_dropout": 0.1}),  # large-cnn; base, large
    "blip-2": ({"image_token_index": 50265},),  # opt-2.7b, opt-6.7b
    "bamba": ({"attn_layer_indices": [1, 3]},),
    "canary": ({"encoder_config.num_mel_bins": 128, "encoder_config.scale_input": False, "encoder_config.layerdrop": 0.0},),  # 1b-v2
    "chameleon": ({"vocabulary_map": {"<image>": 8711}},),
    "emu3": ({"vocabulary_map": {"<image>": 0}},),  # of a tokenizer: texts have none of it
    "dbrx": ({"attn_config.kv_n_heads": 8, "attn_config.clip_qkv": 8, "attn_config.rope_theta": 5e5, "ffn_config.ffn_hidden_size": 10752, "ffn_config.moe_num_experts": 16, "ffn_config.moe_top_k": 4},),
    "deepseek_ocr2": ({"text_config.mlp_layer_types": ("dense", "sparse"), "text_config.hidden_size": 1280, "text_config.num_attention_heads": 10,
                       "text_config.num_experts_per_tok": 6, "text_config.moe_intermediate_size": 896},),
    "deepseek_v4": ({"layer_types": ("sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"), "mlp_layer_types": ("hash_moe", "moe")},),
    "deberta-v2": ({}, {"relative_attention": True, "position_buckets": 256, "norm_rel_ebd": "layer_norm", "share_att_key": True,  # v3
                        "pos_att_type": ["p2c", "c2p"], "position_biased_input": False}),
    "exaone4": ({}, {"sliding_window": None, "sliding_window_pattern": None, "layer_types": ("full_attention",)}),  # 32B, 1.2B
    "esm": ({"vocab_size": 33, "mask_token_id": 32, "pad_token_id": 1, "position_embedding_type": "rotary", "token_dropout": True,  # ESM-2
             "emb_layer_norm_before": False, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},),
    "glm_moe_dsa": ({}, {"indexer_types": ("full", "full", "shared", "shared")}),  # GLM-5, 5.1; 5.2
    "glm_ocr": ({"text_config.head_dim": 128, "text_config.rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [16, 24, 24]}},),
    "glm4v_moe": ({"text_config.head_dim": 128},),
    "hunyuan_vl": ({"text_config.head_dim": 128, "text_config.rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [16, 16, 16, 16]}},),
    "olmo_hybrid": ({"layer_types": ("linear_attention", "linear_attention", "linear_attention", "full_attention")},),
    "qwen2_5_omni_thinker": ({"vision_start_token_id": 151652, "vision_end_token_id": 151653},),
    "ovis2": ({"vocab_size": 151936, "text_config.vocab_size": 151936, "text_config.hidden_size": 1536, "text_config.intermediate_size": 8960,  # 2B
               "text_config.num_attention_heads": 12, "text_config.num_key_value_heads": 2},),
    "qwen3_omni_moe_thinker": ({"vision_start_token_id": 151652, "vision_end_token_id": 151653, "text_config.num_attention_heads": 32, "text_config.head_dim": 128},),
    "phimoe": ({}, {"attention_bias": True, "lm_head_bias": True, "input_jitter_noise": 0.01, "router_jitter_noise": 0.01,
                    "sliding_window": 131072}),  # 3.5-MoE
    "step3p7": ({"text_config.sliding_window": 512},),
    "xmod": ({"default_language": "en_XX"},),
    "gemma4": ({}, *({_VISION: "gemma4_vision", "vision_config.standardize": True, **{"text_config." + key: value for key, value in text.items()}}
                     for text in _GEMMA4),
               *({_VISION: "gemma4_vision", "vision_config.use_clipped_linears": True, "audio_config.model_type": "gemma4_audio", "audio_config.use_clipped_linears": True,
                  **{"text_config." + key: value for key, value in text.items()}} for text in _GEMMA4_SMALL)),
    "gemma4_text": (*_GEMMA4, *_GEMMA4_SMALL),
    "gemma3n_text": (_GEMMA3N,),
    "falcon": (  # 7B; 40B and 180B; 2 11B; RW
        {}, {"new_decoder_architecture": True, "num_kv_heads": 8}, {"new_decoder_architecture": True, "num_kv_heads": 8, "num_ln_in_parallel_attn": 1},
        {"alibi": True, "multi_query": False, "parallel_attn": False, "bias": True}),
    "fast_vlm": ({"vision_config.hidden_size": 3072},),
    "gpt2": ({}, {"activation_function": "gelu"}),  # GPT-2; GPT-SW3, Cerebras-GPT
    "gpt_bigcode": ({}, {"activation_function": "gelu"}),  # StarCoder
    "gpt_neox": ({}, {"rotary_pct": 1.0}),  # Pythia; RedPajama-INCITE
    "granite4_vision": ({"text_config.attention_multiplier": 0.0078125, "text_config.embedding_multiplier": 12.0, "text_config.residual_multiplier": 0.22,
                         "text_config.logits_scaling": 8.0},),
    **{kind: ({}, {"shared_intermediate_size": 1024}) for kind in ("granitemoe_swa", "granitemoeshared")},
    "granitemoehybrid": (  # 4.0 H Tiny and Small, H Micro, Micro
        {"layer_types": ("linear_attention", "full_attention"), "position_embedding_type": "nope"},
        {"layer_types": ("linear_attention", "full_attention"), "position_embedding_type": "nope", "num_local_experts": 0},
        {"layer_types": ("full_attention",), "position_embedding_type": "rope", "num_local_experts": 0}),
    "instructblip": ({"image_token_index": 32000, _TEXT: "llama"},),  # vicuna
    "instructblipvideo": ({"video_token_index": 32000, _TEXT: "llama"},),
    "internvl": (  # with the tower of 0.3 B, with that of 6 B
        {}, *({_TEXT: kind, **more, "vision_config.attention_bias": True} for kind, more in (("llama", {}), ("qwen3", {}), ("qwen3_moe", _NORMED), ("gpt_oss", {}))),
        *({_TEXT: kind, **more, "vision_config.use_qk_norm": True, "vision_config.norm_type": "rms_norm"} for kind, more in (("qwen2", {}), ("qwen3", {}), ("qwen3_moe", _NORMED)))),
    "longformer": ({"attention_window": (512,), "max_position_embeddings": 4098},),
    "lfm2": ({"layer_types": _CONVOLUTIONS},),
    "lfm2_moe": ({"layer_types": _CONVOLUTIONS},),
    "lfm2_vl": ({"text_config.layer_types": _CONVOLUTIONS},),
    "llava": (  # bakLlava, llava-interleave-qwen, Pixtral 12B
        {}, {_TEXT: "mistral"}, {_TEXT: "qwen2", _VISION: "siglip_vision_model"}, {_TEXT: "mistral", _VISION: "pixtral"}),
    "llava_next": (  # v1.6-mistral, 72B and 110B, Granite Vision 3
        {}, {_TEXT: "mistral"}, {_TEXT: "qwen2"}, {_TEXT: "granite", _VISION: "siglip_vision_model"}),
    "llava_next_video": ({}, {_TEXT: "mistral"}, {_TEXT: "qwen2"}),  # 7B-32K, 32B-Qwen
    "marian": ({"activation_function": "swish"},),  # opus-mt
    "mbart": ({}, {"activation_function": "relu"}),  # large-cc25; large-50
    "mistral3": ({}, {_TEXT: "ministral3"}),  # Ministral 3
    "opt": ({}, {"do_layer_norm_before": False, "word_embed_proj_dim": 512}),  # 350m
    "pegasus": ({"activation_function": "relu", "attention_dropout": 0.1, "activation_dropout": 0.1},),
    "t5": ({}, {"feed_forward_proj": "gated-gelu"}),  # of 2019; 1.1 and Flan
    "mllama": ({"text_config.cross_attention_layers": [1]},),
    "nemotron_h": (  # Nano, Super
        {"layers_block_type": _WITH_STATES}, {"layers_block_type": _WITH_STATES, "moe_latent_size": 1024}),
    "nemotron_h_omni": ({"text_config.layers_block_type": _WITH_STATES, "vision_config.video_temporal_patch_size": 2},),
    "phi": ({}, {"partial_rotary_factor": 0.4, "hidden_size": 2560, "num_attention_heads": 32}),  # 1.5; 2
    "paligemma": ({}, {_TEXT: "gemma2"}),  # PaliGemma 2
}
# What they have besides before transformers 5: sections of a rotary embedding, without which the class does not run.
_SECTIONS, _ROTARY = "mrope_section", "text_config.rope_scaling"
_QWEN3_VL = {_ROTARY: {"rope_type": "default", _SECTIONS: [24, 20, 20], "mrope_interleaved": True}}
BEFORE_5 = {
    **{kind: {_ROTARY: {"rope_type": "default", _SECTIONS: [16, 24, 24]}} for kind in ("qwen2_vl", "qwen2_5_vl")},
    "qwen3_vl": _QWEN3_VL,
    "qwen3_vl_moe": {**_QWEN3_VL, "text_config.num_attention_heads": 32, "text_config.num_key_value_heads": 4, "text_config.num_experts": 128,
                     "text_config.num_experts_per_tok": 8},
    **{kind: {_ROTARY: {"rope_type": "default", _SECTIONS: [8, 12, 12]}} for kind in ("glm4v", "glm4v_moe")},
}
# Widths of heads under latent attention: values as wide as queries take other kernels.
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


def nested(values):
    """Values by such keys as a config says them, those of parts inside the parts."""
    said = {}
    for key, value in values.items():
        part, _, name = key.rpartition(".")
        (said.setdefault(part, {}) if part else said)[name] = value
    return said


def repeated(kinds, layers):
    """A list of so many layers, in which the kinds follow each other."""
    return (list(kinds) * layers)[:layers]


def kinds_of_times(value):
    """The kinds of layers that rows of kinds and how often they follow each other say; none of another value."""
    is_one = isinstance(value, list) and all(isinstance(row, (list, tuple)) and len(row) == 2 and isinstance(row[0], (list, tuple)) and isinstance(row[1], int) for row in value)
    return [kind for kinds, times in value for _ in range(times) for kind in kinds] if is_one else []


def sizes_of(key):
    for names, sizes in SIZES:
        if any(name in key for name in names):
            return sizes
    return None


def wide_sizes_of(key, value):
    """sizes_of() a key that has this value: of wide heads other wide ones."""
    return _WIDE if is_wide(key, value) and sizes_of(key) else sizes_of(key)


def is_size(key, value):
    return isinstance(value, int) and not isinstance(value, bool) and not is_name(key)


def is_dropout(key, value):
    """Whether a key is a share of what is dropped, a number of operations alone."""
    return isinstance(value, float) and "drop" in last(key)


def is_stack(key, text):
    """Whether a key is a number of layers; `text`: what keys of the text model begin with, which has one such key besides those of two stacks."""
    of_another = "." in key and not key.startswith(text or ".")
    return _STACKS.fullmatch(last(key)) is not None or of_another and last(key) in _OTHER_LAYERS


def is_wide(key, value):
    """Whether heads are too wide for a fused kernel that shares keys: their keys are repeated (sdpa_attention.py use_gqa_in_sdpa)."""
    return last(key).endswith("head_dim") and isinstance(value, int) and value > WIDEST


def is_first(key):
    return any(name in key for name in _FIRST)


def is_last(key):
    return any(name in key for name in _LASTS)


def is_window(key):
    return last(key) == _CHOSEN or any(name in key for name in _WINDOWS) and "layers" not in key and not is_period(key)


def tokens_of(key, config):
    """How many tokens a window's unit is."""
    rates, kind = _CHOSEN_OF
    return (config.get(rates) or {}).get(kind, 1) if last(key) == _CHOSEN else 1


def is_name(key):
    return last(key) == "prefix" or any(name in key for name in _NAMES)


def is_period(key):
    return any(name in key for name in _PERIODS)


def switched(key, value, fixed):
    """Values with which a class does something else; `fixed`: the key's value, where all else of it is another class."""
    if isinstance(fixed, bool):
        return [not fixed]
    dispensable = key in _DISPENSABLE or is_window(key) and "." in key
    if key in _DISPENSABLE and value is None or dispensable and is_size(key, value) and value > 0:
        return [None]  # also where it is so by default: small configs have a size of it
    return [way for way in _WAYS.get(key, ()) if way != value]


def others(key, value):
    """Values that a key may have instead."""
    if isinstance(value, bool):
        return [not value]
    if is_size(key, value):
        sizes = wide_sizes_of(key, value)
        if is_window(key):
            return [value + 6, value + 10]
        if sizes and value == sizes[0]:
            return list(sizes[1:])
        if last(key).endswith("head_dim") and value:  # of which a share may be turned
            return [2 * value, 3 * value]
        tried = dict.fromkeys([value + 1, 2 * value, value + 2, value + 4] + [4 * value] * bool(sizes))
        return [other for other in tried if other != value]  # of none, twice as many is none
    if isinstance(value, str) and "feature_select_strategy" in key:  # of images
        return [way for way in ("default", "full") if way != value]
    if isinstance(value, str) and "." in key and "act" in last(key):  # of a tower that is not run
        return [way for way in ("silu", "gelu", "gelu_pytorch_tanh") if way != value]
    if isinstance(value, (list, tuple)) and value and all(isinstance(one, float) for one in value):  # factors and bounds
        return [[2.0 * one + 0.5 for one in value]]
    if isinstance(value, list) and value and all(isinstance(one, str) for one in value):  # of layers that the class does not build
        return [value[::-1]]
    if isinstance(value, list) and "." in key and all(isinstance(one, int) for one in value):
        return [[max(0, one - 1) for one in value]] if value else []
    if value is None and "idx" in key:  # which layers
        return [[0]]
    if isinstance(value, float):
        return [0.5 * value, 2.0 * value] if value else [0.1, 0.2]
    return []
