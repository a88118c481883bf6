#!/usr/bin/env python3
"""Records what PyTorch computes for tiny transformers, for tests/runtime/golden_losses_test.cpp.

    pip install torch transformers        (recorded with 2.6.0 on the CPU and 4.50.3)
    python3 tests/reference/record_losses.py > tests/reference/losses.json

For each family: gradients of the first step (norm and a few entries of every parameter) and the
losses of 20 steps of AdamW in fp32. Neither weights nor tokens are stored; both come from a hash
that C++ computes bit by bit (tests/runtime/hashed_model.hpp):

    hash(x)            splitmix64's output function of x + 0x9e3779b97f4a7c15
    uniform(key, i)    (hash(key + i) >> 40) * 2^-24, exact in fp32
    weight i of p      (2 uniform(fnv1a(name of p), i) - 1) * width in fp32; the width is 0.1 for
                       matrices and 0.02 for biases; a norm's weight is 1 + that, of width 0.1
    token i of a batch hash(1000 * (batch + 1) + i) mod vocabulary

Batches 0 and 1 alternate. Masked language models: tokens with hash(7777 + i) mod 5 == 0 are
replaced by token 3 and are the only ones with a label; others are told by their successor.
"""

import json
import sys

import numpy as np
import torch
import transformers

BATCH, SEQUENCE, STEPS = 2, 70, 20
LEARNING_RATE, WEIGHT_DECAY = 1e-3, 0.01
MASK_TOKEN = 3

CONFIGS = {
    "llama": {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64,
        "intermediate_size": 176, "num_hidden_layers": 3, "num_attention_heads": 4,
        "num_key_value_heads": 2, "vocab_size": 307, "max_position_embeddings": 128,
        "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "tie_word_embeddings": False,
    },
    "llama_tied": {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 48,
        "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 3,
        "num_key_value_heads": 1, "vocab_size": 259, "max_position_embeddings": 128,
        "rms_norm_eps": 1e-06, "rope_theta": 500000.0, "tie_word_embeddings": True,
        "attention_bias": True,
    },
    "gpt2": {
        "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 64, "n_head": 4,
        "n_layer": 2, "n_positions": 80, "vocab_size": 307, "activation_function": "gelu_new",
        "attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "layer_norm_epsilon": 1e-05,
    },
    "bloom": {
        "model_type": "bloom", "architectures": ["BloomForCausalLM"], "hidden_size": 96,
        "n_head": 6, "n_layer": 2, "vocab_size": 307, "layer_norm_epsilon": 1e-05,
        "attention_dropout": 0.0, "hidden_dropout": 0.0,
    },
    "bert": {
        "model_type": "bert", "architectures": ["BertForMaskedLM"], "hidden_size": 64,
        "intermediate_size": 160, "num_hidden_layers": 2, "num_attention_heads": 4,
        "vocab_size": 307, "max_position_embeddings": 80, "type_vocab_size": 2,
        "hidden_act": "gelu", "layer_norm_eps": 1e-12, "attention_probs_dropout_prob": 0.0,
        "hidden_dropout_prob": 0.0,
    },
}


def hashed(values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        z = values.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def fnv1a(text: str) -> int:
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = ((value ^ byte) * 0x100000001B3) % 2**64
    return value


def weights(name: str, shape) -> torch.Tensor:
    count = int(np.prod(shape))
    with np.errstate(over="ignore"):
        bits = hashed(np.uint64(fnv1a(name)) + np.arange(count, dtype=np.uint64))
    uniform = (bits >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)
    width = np.float32(0.02 if name.endswith("bias") else 0.1)
    values = (np.float32(2) * uniform - np.float32(1)) * width
    if len(shape) == 1 and not name.endswith("bias"):
        values = np.float32(1) + values
    return torch.from_numpy(values.reshape(shape))


def batch_of(index: int, config: dict):
    count = BATCH * SEQUENCE
    ids = (hashed(np.arange(count) + 1000 * (index + 1)) % np.uint64(config["vocab_size"]))
    ids = ids.astype(np.int64)
    labels = ids.copy()
    if config["architectures"][0].endswith("ForMaskedLM"):
        masked = hashed(np.arange(count) + 7777) % np.uint64(5) == 0
        labels[~masked] = -100
        ids[masked] = MASK_TOKEN
    shape = (BATCH, SEQUENCE)
    return torch.from_numpy(ids.reshape(shape)), torch.from_numpy(labels.reshape(shape))


def record(config: dict) -> dict:
    fields = {k: v for k, v in config.items() if k != "model_type"}
    hf_config = transformers.AutoConfig.for_model(config["model_type"], **fields)
    hf_config._attn_implementation = "eager"
    model = getattr(transformers, config["architectures"][0])(hf_config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights(name, tuple(parameter.shape)))
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    losses, gradients = [], {}
    for step in range(STEPS):
        ids, labels = batch_of(step % 2, config)
        loss = model(input_ids=ids, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            for name, parameter in model.named_parameters():
                flat = parameter.grad.flatten()
                at = sorted({0, flat.numel() // 3, flat.numel() // 2, flat.numel() - 1})
                gradients[name] = {
                    "norm": float(flat.double().norm()),
                    "entries": [[i, float(flat[i])] for i in at],
                }
        optimizer.step()
        losses.append(loss.item())
    return {"config": config, "losses": losses, "gradients": gradients}


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    json.dump(
        {
            "recorded_with": {"torch": torch.__version__, "transformers": transformers.__version__},
            "batch": BATCH, "sequence": SEQUENCE, "learning_rate": LEARNING_RATE,
            "weight_decay": WEIGHT_DECAY, "mask_token": MASK_TOKEN,
            "models": {name: record(config) for name, config in CONFIGS.items()},
        },
        sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
