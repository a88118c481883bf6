#!/usr/bin/env python3
"""Writes lines of rehearsals that nobody chose: programs of the matrix with lengths, batches, layers, vocabularies and
buckets drawn at random, so that what holds for the matrix is seen on shapes that no one looked at.

drawn_lines.py SEED COUNT TORCH [ENGINES] > LINES.jsonl        TORCH: 2.11.0; ENGINES: deepspeed,fsdp,ddp

scripts/rehearse_matrix.py rehearses them; a new seed gives new ones. matrix/drawn.jsonl has 40 of seed 31 and, of DDP and FSDP, 16 of seed 33
(2.11.0), and 20 of seed 32 (2.6.0, DeepSpeed).
"""
import glob
import json
import os
import random
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
OWN_PROGRAMS = ("trl", "lengths", "four_bits", "drawn")
# Families whose layers are all alike.
PLAIN = ("llama", "qwen2", "qwen3", "mistral", "gpt2", "opt", "phi3", "olmo2", "granite", "starcoder2", "phi", "gpt_neox", "bloom")
LLAMA_LIKE = ("llama", "qwen2", "qwen3", "mistral")


def pool(torch, engines):
    lines = []
    for path in sorted(glob.glob(os.path.join(HERE, "matrix", "*.jsonl"))):
        if os.path.basename(path).split(".jsonl")[0] in OWN_PROGRAMS:
            continue
        for text in open(path):
            line = json.loads(text)
            scenario = line["scenario"]
            fits = line["measured"].get("fits") and scenario["software"].get("torch") == torch
            if fits and isinstance(scenario["model"], dict) and scenario["workload"]["engine"] in engines:
                lines.append(line)
    return lines


def draw_model(model):
    layers = "num_hidden_layers" if "num_hidden_layers" in model else "n_layer"
    if model["model_type"] in PLAIN and layers in model:
        model[layers] = random.choice([3, 5, 7, 9])
        if "layer_types" in model:
            model["layer_types"] = model["layer_types"][:1] * model[layers]
    if model["model_type"] in LLAMA_LIKE:
        model["vocab_size"] = random.choice([31999, 50257, 100003, 128256, 151669])
        model["intermediate_size"] += random.choice([0, 128 * random.randint(1, 9)])


def draw_zero(zero):
    stage = zero.get("stage")
    if stage in (1, 2) and random.random() < 0.5:
        zero["reduce_bucket_size"] = random.choice([30000000, 77777777, 200000000])
    if stage == 3 and random.random() < 0.5:
        zero["stage3_prefetch_bucket_size"] = random.choice([0, 5000000, 30000000])
        zero["stage3_param_persistence_threshold"] = random.choice([0, 10000, 300000])
        zero["stage3_max_live_parameters"] = random.choice([100000000, 1000000000])


def drawn(line, number):
    line = json.loads(json.dumps(line))
    scenario = line["scenario"]
    workload, config = scenario["workload"], scenario.get("ds_config", {})
    draw_model(scenario["model"])
    longest = min(scenario["model"].get(name) or 1 << 20 for name in ("max_position_embeddings", "n_positions"))
    workload["sequence_length"] = min(longest, random.choice([384, 640, 1000, 1536, 1999, 2304, 3072]))
    workload["micro_batch_size"] = random.choice([1, 2, 3, 5])
    workload["gradient_accumulation_steps"] = random.choice([1, 1, 2, 3])
    for key, said in (("train_micro_batch_size_per_gpu", "micro_batch_size"), ("gradient_accumulation_steps",) * 2):
        if key in config:
            config[key] = workload[said]
    draw_zero(config.get("zero_optimization", {}))
    line["id"] = "drawn-%d-%s-s%d-m%d-g%d" % (number, line["id"], workload["sequence_length"], workload["micro_batch_size"],
                                             workload["gradient_accumulation_steps"])
    for key in ("reserved_by_events", "peak_allocated_by_phase", "uncertainty"):
        line.pop(key, None)
    line["measured"] = {"fits": True}
    return line


def main():
    seed, count, torch = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    engines = (sys.argv[4] if len(sys.argv) > 4 else "deepspeed,fsdp,ddp").split(",")
    random.seed(seed)
    lines = pool(torch, engines)
    for number in range(count):
        print(json.dumps(drawn(random.choice(lines), number)))


if __name__ == "__main__":
    main()
