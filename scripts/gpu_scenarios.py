#!/usr/bin/env python3
"""Writes one-GPU scenarios for configs/kit/measure.py, one a line: what DeepSpeed is asked on a real GPU.

    gpu_scenarios.py --cluster "1x1xNVIDIA H100 80GB HBM3" --zeroplan build/cuda/bin/zeroplan -o scenarios.jsonl

Models of 0.1B to 3B under every stage and with CPU offload, 7B under stage 3 alone; three sequence lengths,
eager and sdpa, with and without checkpointing, buckets, sub-groups, live parameters. The micro-batches at the
GPU's limit are asked of zeroplan: the points whose predicted memory is next to LIMITS of the GPU's.
The order is shuffled the same way every time, so that a part of the list is a part of everything.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile

LIMITS = (0.90, 0.97, 1.03, 1.15)  # of the GPU's memory
MOST_MICRO_BATCH = 512


def llama(hidden, feed_forward, layers, heads, kv_heads, vocabulary, tied=False):
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": hidden,
        "intermediate_size": feed_forward,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": vocabulary,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": tied,
    }


def qwen(hidden, feed_forward, layers, heads, kv_heads):
    return {
        "model_type": "qwen2",
        "architectures": ["Qwen2ForCausalLM"],
        "hidden_size": hidden,
        "intermediate_size": feed_forward,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": 151936,
        "max_position_embeddings": 4096,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "use_sliding_window": False,
    }


MODELS = {
    "0.1B": llama(768, 2048, 12, 12, 12, 32000),
    "0.4B": llama(1024, 2816, 24, 16, 16, 32000),
    "0.5B": qwen(896, 4864, 24, 14, 2),
    "1.1B": llama(2048, 5632, 22, 32, 4, 32000),
    "1.5B": qwen(1536, 8960, 28, 12, 2),
    "3B": qwen(2048, 11008, 36, 16, 2),
    "7B": llama(4096, 11008, 32, 32, 32, 32000),
}
CPU = {"device": "cpu", "pin_memory": True}
OFFLOAD = {"offload_optimizer": CPU}
OFFLOAD_ALL = {"offload_optimizer": CPU, "offload_param": CPU}


def scenario(cluster, model, stage, sequence=1024, micro_batch=1, attention="sdpa", checkpointing="none",
             accumulation=1, **zero):
    ds_config = {
        "train_micro_batch_size_per_gpu": micro_batch,
        "gradient_accumulation_steps": accumulation,
        "bf16": {"enabled": True},
        "gradient_clipping": 1.0,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
        "zero_optimization": {"stage": stage, **zero},
    }
    said = "-".join(f"{key}={value['device'] if isinstance(value, dict) else value}" for key, value in zero.items())
    parts = [model, f"z{stage}", f"s{sequence}", f"b{micro_batch}", attention, f"ckpt_{checkpointing}",
             f"gas{accumulation}", said]
    return {
        "id": "-".join(part for part in parts if part),
        "model": MODELS[model],
        "cluster": cluster,
        "workload": {
            "sequence_length": sequence,
            "micro_batch_size": micro_batch,
            "gradient_accumulation_steps": accumulation,
            "precision": "bf16",
            "optimizer": "adamw",
            "attention": attention,
            "activation_checkpointing": checkpointing,
            "engine": "deepspeed",
            "frontend": "native",
        },
        "ds_config": ds_config,
    }


def small_models(cluster):
    """Every stage, sequence length, attention and checkpointing at sizes that fit every GPU."""
    for model in ("0.1B", "0.4B"):
        for stage in (0, 1, 2, 3):
            yield scenario(cluster, model, stage, 1024, 4)
        yield scenario(cluster, model, 2, 512, 8, "eager")
        yield scenario(cluster, model, 2, 2048, 2, "eager")
        yield scenario(cluster, model, 3, 4096, 1, checkpointing="full")
        yield scenario(cluster, model, 1, 1024, 2, accumulation=4)
    for stage in (1, 2, 3):
        yield scenario(cluster, "0.5B", stage, 1024, 4)
        yield scenario(cluster, "0.5B", stage, 4096, 1, "eager", "full")


def middle_models(cluster):
    for model in ("1.1B", "1.5B"):
        for stage in (0, 2, 3):
            yield scenario(cluster, model, stage, 1024, 2)
        yield scenario(cluster, model, 2, 512, 4, "eager")
        yield scenario(cluster, model, 3, 4096, 1, checkpointing="full")
        yield scenario(cluster, model, 2, 1024, 2, **OFFLOAD)
        yield scenario(cluster, model, 3, 1024, 2, **OFFLOAD_ALL)
    for stage in (2, 3):
        yield scenario(cluster, "3B", stage, 1024, 1, checkpointing="full")
        yield scenario(cluster, "3B", stage, 1024, 1, checkpointing="full", **OFFLOAD)
    yield scenario(cluster, "3B", 3, 4096, 1, checkpointing="full", **OFFLOAD_ALL)


def knobs(cluster):
    for bucket in (5_000_000, 50_000_000, 500_000_000):
        yield scenario(cluster, "1.1B", 2, 1024, 2, reduce_bucket_size=bucket, allgather_bucket_size=bucket)
        yield scenario(cluster, "1.1B", 3, 1024, 2, reduce_bucket_size=bucket,
                       stage3_prefetch_bucket_size=bucket)
    for group in (10_000_000, 100_000_000, 1_000_000_000):
        yield scenario(cluster, "1.1B", 3, 1024, 2, sub_group_size=group)
        yield scenario(cluster, "1.1B", 3, 1024, 2, sub_group_size=group, **OFFLOAD)
    for live in (10_000_000, 100_000_000, 1_000_000_000):
        yield scenario(cluster, "1.5B", 3, 1024, 2, stage3_max_live_parameters=live,
                       stage3_max_reuse_distance=live)
    for threshold in (0, 1_000_000):
        yield scenario(cluster, "1.5B", 3, 1024, 2, stage3_param_persistence_threshold=threshold)
    for overlap in (True, False):
        yield scenario(cluster, "1.1B", 2, 1024, 2, overlap_comm=overlap, contiguous_gradients=overlap)


def seven_billion(cluster):
    yield scenario(cluster, "7B", 3, 1024, 1, checkpointing="full", **OFFLOAD)
    yield scenario(cluster, "7B", 3, 1024, 1, checkpointing="full", **OFFLOAD_ALL)
    yield scenario(cluster, "7B", 3, 4096, 1, checkpointing="full", **OFFLOAD_ALL)
    yield scenario(cluster, "7B", 3, 1024, 1)


# What is pushed to the GPU's limit by its micro-batch.
FAMILIES = (
    ("0.4B", 1, 1024, "sdpa", "none", {}),
    ("0.4B", 2, 1024, "eager", "none", {}),
    ("0.5B", 3, 1024, "sdpa", "none", {}),
    ("1.1B", 2, 1024, "sdpa", "none", {}),
    ("1.5B", 3, 4096, "sdpa", "full", OFFLOAD),
)


def memory_shares(zeroplan, scenarios):
    """Predicted memory over the GPU's, in the order of the scenarios."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as file:
        file.writelines(json.dumps(each) + "\n" for each in scenarios)
        file.flush()
        done = subprocess.run([zeroplan, "simulate", "--batch", file.name], capture_output=True, text=True, check=False)
    shares = []
    for line in done.stdout.splitlines():
        result = json.loads(line)
        if "error" in result:
            raise SystemExit(f"zeroplan refuses {result['id']}: {json.dumps(result['error'])}")
        shares.append(result["gpu"]["peak_total_bytes"] / result["gpu"]["capacity_bytes"])
    if len(shares) != len(scenarios):
        raise SystemExit(f"zeroplan answered {len(shares)} of {len(scenarios)} scenarios: {done.stderr[-500:]}")
    return shares


def at_the_limit(cluster, zeroplan):
    sizes = sorted({round(2 ** (step / 4)) for step in range(0, 37)})
    for model, stage, sequence, attention, checkpointing, zero in FAMILIES:
        tried = [scenario(cluster, model, stage, sequence, size, attention, checkpointing, **zero)
                 for size in sizes if size <= MOST_MICRO_BATCH]
        shares = memory_shares(zeroplan, tried)
        for limit in LIMITS:
            yield tried[min(range(len(tried)), key=lambda i: abs(shares[i] - limit))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cluster", required=True, help="one GPU, as zeroplan takes it")
    parser.add_argument("--zeroplan", required=True, help="the program")
    parser.add_argument("-o", "--output", required=True)
    arguments = parser.parse_args()
    every = [
        *small_models(arguments.cluster),
        *middle_models(arguments.cluster),
        *knobs(arguments.cluster),
        *seven_billion(arguments.cluster),
        *at_the_limit(arguments.cluster, arguments.zeroplan),
    ]
    by_id = {each["id"]: each for each in every}
    scenarios = list(by_id.values())
    shares = memory_shares(arguments.zeroplan, scenarios)
    random.Random(1).shuffle(scenarios)
    with open(arguments.output, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(each) + "\n" for each in scenarios)
    past = sum(share > 1.0 for share in shares)
    print(f"{len(scenarios)} scenarios, {past} of them past the GPU's memory as zeroplan predicts")
    return 0


if __name__ == "__main__":
    sys.exit(main())
