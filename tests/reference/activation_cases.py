"""The rows of tests/reference/activations.json: which model, how it runs, how large."""

LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256,
         "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 8,
         "intermediate_size": 688, "vocab_size": 1000, "max_position_embeddings": 512}
MODELS = {
    "llama": LLAMA,
    "llama-gqa4": {**LLAMA, "num_key_value_heads": 2, "vocab_size": 3001},
    "llama-gqa2-tied": {**LLAMA, "num_key_value_heads": 4, "tie_word_embeddings": True},
    "llama-mqa-bias": {**LLAMA, "num_key_value_heads": 1, "attention_bias": True,
                       "mlp_bias": True, "intermediate_size": 1024},
    "llama-head20": {**LLAMA, "hidden_size": 160, "head_dim": 20, "num_key_value_heads": 4},
    "qwen2": {**LLAMA, "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2",
              "num_key_value_heads": 2},
    "qwen2-tied": {**LLAMA, "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2",
                   "tie_word_embeddings": True, "vocab_size": 5000},
    "mixtral": {**LLAMA, "architectures": ["MixtralForCausalLM"], "model_type": "mixtral",
                "num_key_value_heads": 4, "num_local_experts": 4, "num_experts_per_tok": 2,
                "num_hidden_layers": 2, "sliding_window": None},
    "gpt2": {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": 256,
             "n_layer": 2, "n_head": 8, "vocab_size": 1000, "n_positions": 512,
             "attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0},
    "gpt2-dropout": {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": 256,
                     "n_layer": 2, "n_head": 4, "vocab_size": 3001, "n_positions": 512},
    "bloom": {"architectures": ["BloomForCausalLM"], "model_type": "bloom", "hidden_size": 256,
              "n_layer": 2, "n_head": 8, "vocab_size": 1000},
    "falcon-7b": {"architectures": ["FalconForCausalLM"], "model_type": "falcon",
                  "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 8,
                  "vocab_size": 1000, "multi_query": True, "parallel_attn": True, "bias": False,
                  "new_decoder_architecture": False, "alibi": False},
    "falcon-40b": {"architectures": ["FalconForCausalLM"], "model_type": "falcon",
                   "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 8,
                   "num_kv_heads": 2, "vocab_size": 1000, "new_decoder_architecture": True,
                   "bias": False, "alibi": False},
    "falcon-rw": {"architectures": ["FalconForCausalLM"], "model_type": "falcon",
                  "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 8,
                  "vocab_size": 1000, "multi_query": False, "parallel_attn": False, "bias": True,
                  "new_decoder_architecture": False, "alibi": True},
    "gpt_neox": {"architectures": ["GPTNeoXForCausalLM"], "model_type": "gpt_neox",
                 "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 8,
                 "intermediate_size": 1024, "vocab_size": 1000, "max_position_embeddings": 512},
    "gpt_neox-sequential": {"architectures": ["GPTNeoXForCausalLM"], "model_type": "gpt_neox",
                            "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
                            "intermediate_size": 1024, "vocab_size": 3001,
                            "max_position_embeddings": 512, "use_parallel_residual": False,
                            "rotary_pct": 1.0},
    "opt": {"architectures": ["OPTForCausalLM"], "model_type": "opt", "hidden_size": 256,
            "num_hidden_layers": 2, "num_attention_heads": 8, "ffn_dim": 1024, "vocab_size": 1000,
            "max_position_embeddings": 512, "word_embed_proj_dim": 256, "dropout": 0.0},
    "opt-dropout": {"architectures": ["OPTForCausalLM"], "model_type": "opt", "hidden_size": 256,
                    "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 1024,
                    "vocab_size": 3001, "max_position_embeddings": 512,
                    "word_embed_proj_dim": 256, "dropout": 0.1},
    "bert": {"architectures": ["BertForMaskedLM"], "model_type": "bert", "hidden_size": 256,
             "num_hidden_layers": 2, "num_attention_heads": 8, "intermediate_size": 1024,
             "vocab_size": 1000, "hidden_dropout_prob": 0.0,
             "attention_probs_dropout_prob": 0.0},
    "bert-dropout": {"architectures": ["BertForMaskedLM"], "model_type": "bert",
                     "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
                     "intermediate_size": 1024, "vocab_size": 3001},
    "t5": {"architectures": ["T5ForConditionalGeneration"], "model_type": "t5", "d_model": 256,
           "num_layers": 2, "num_heads": 8, "d_kv": 32, "d_ff": 1024, "vocab_size": 1000,
           "dropout_rate": 0.0, "decoder_start_token_id": 0, "pad_token_id": 0},
    "t5-gated-untied": {"architectures": ["T5ForConditionalGeneration"], "model_type": "t5",
                        "d_model": 256, "num_layers": 2, "num_heads": 4, "d_kv": 64,
                        "d_ff": 640, "vocab_size": 3001, "dropout_rate": 0.0,
                        "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False,
                        "decoder_start_token_id": 0, "pad_token_id": 0},
    "t5-dropout": {"architectures": ["T5ForConditionalGeneration"], "model_type": "t5",
                   "d_model": 256, "num_layers": 2, "num_heads": 4, "d_kv": 64, "d_ff": 1024,
                   "vocab_size": 1000, "decoder_start_token_id": 0, "pad_token_id": 0},
}
DROPOUT = ("gpt2-dropout", "opt-dropout", "bert-dropout", "t5-dropout")

# (batch, sequence): odd and even, one and several rows, above and below the embedding's 3072.
SHAPES = {name: [(1, 128), (3, 77)] for name in MODELS}
SHAPES.update({"llama": [(1, 128), (3, 77), (8, 512)], "llama-gqa4": [(1, 200), (3, 77)]})

CHECKPOINTING = ("none", "reentrant", "non_reentrant")
EAGER_ONLY = ("bloom", "t5", "t5-gated-untied", "t5-dropout")


def attentions(model):
    return ("eager",) if model in EAGER_ONLY else ("eager", "sdpa")


def full_rows(models):
    for model in models:
        for attention in attentions(model):
            for checkpointing in CHECKPOINTING:
                # Checkpointing changes when a layer runs, not what it does: one shape is enough.
                shapes = SHAPES[model] if checkpointing == "none" else SHAPES[model][1:2]
                for batch, sequence in shapes:
                    yield {"model": model, "attention": attention, "checkpointing": checkpointing,
                           "batch": batch, "sequence": sequence}


def extra_rows():
    """One thing at a time beside the default."""
    for model in ("llama-gqa4", "gpt2", "opt", "gpt_neox"):
        for attention in ("eager", "sdpa"):
            base = {"model": model, "attention": attention, "checkpointing": "none", "batch": 3,
                    "sequence": 77}
            yield {**base, "outputs": "held"}
            yield {**base, "dtype": "fp32"}
            yield {**base, "use_cache": False}
            yield {**base, "mask": "padded"}
    for checkpointing in CHECKPOINTING:
        for attention in ("eager", "sdpa"):
            base = {"model": "llama-gqa4", "attention": attention, "checkpointing": checkpointing,
                    "batch": 3, "sequence": 77}
            yield {**base, "lora": {"rank": 8, "targets": ["q_proj", "v_proj"]}}
            yield {**base, "lora": {"rank": 4, "targets": ["q_proj", "k_proj", "v_proj", "o_proj",
                                                           "gate_proj", "up_proj", "down_proj"]}}
            if checkpointing != "reentrant":  # it needs an input with a gradient, which is peft's
                yield {**base, "trained": ["model.norm.weight", "lm_head.weight"]}
                yield {**base, "trained": ["k_proj.weight", "up_proj.weight"]}


def rows():
    yield from full_rows(MODELS)
    yield from extra_rows()


# What a continuous-integration machine records again: a row of every kind of layer.
SMALL = ("llama-gqa4", "gpt2", "opt", "bert", "t5")


def is_small(row):
    return (row["model"] in SMALL and row["batch"] == 3 and
            set(row) <= {"model", "attention", "checkpointing", "batch", "sequence"})


def row_id(row):
    parts = [row["model"], row["attention"], row["checkpointing"],
             "b%ds%d" % (row["batch"], row["sequence"])]
    if row.get("dtype", "bf16") != "bf16":
        parts.append(row["dtype"])
    if row.get("outputs") == "held":
        parts.append("held")
    if not row.get("use_cache", True):
        parts.append("no-cache")
    if "mask" in row:
        parts.append(row["mask"])
    if "lora" in row:
        parts.append("lora%d" % len(row["lora"]["targets"]))
    if "trained" in row:
        parts.append("trained-" + row["trained"][0].split(".")[-2])
    return "/".join(parts)
