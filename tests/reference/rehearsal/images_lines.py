#!/usr/bin/env python3
"""Configurations of classes that take images, as lines for scripts/rehearse_matrix.py: images_lines.py ZEROPLAN PYTHON > LINES.jsonl

Towers and texts of a few layers of released widths, one and two images of 1024x768 in each sequence, under stages 2 and 3, with
checkpoints, adapters and a frozen tower, in a loop and under the Trainer. What the classes make of their images is asked once
(ZEROPLAN trace in PYTHON) and kept beside the other traced documents, which the lines name as their models.
"""
import json
import os
import subprocess
import sys
import tempfile

import matrix_lines

TRACED = os.path.join(matrix_lines.HERE, "..", "traced", "images")
SIZE = "1024x768"


def text(kind, hidden, heads, keys, inner, vocabulary, **more):
    return {"model_type": kind, "hidden_size": hidden, "num_attention_heads": heads, "num_key_value_heads": keys, "intermediate_size": inner,
            "vocab_size": vocabulary, "num_hidden_layers": 2, "tie_word_embeddings": False, "max_position_embeddings": 32768, **more}


def tower(kind, hidden, heads, inner, side, patch, **more):
    return {"model_type": kind, "hidden_size": hidden, "num_attention_heads": heads, "intermediate_size": inner, "image_size": side,
            "patch_size": patch, "num_hidden_layers": 3, **more}


QWEN_TOWER = {"depth": 3, "hidden_size": 1024, "num_heads": 16, "intermediate_size": 4096, "out_hidden_size": 2048, "patch_size": 16,
              "num_position_embeddings": 2304, "deepstack_visual_indexes": [0, 1]}
CLIP = tower("clip_vision_model", 1024, 16, 4096, 336, 14, projection_dim=768)
SIGLIP = tower("siglip_vision_model", 1152, 16, 4304, 384, 14, vision_use_head=False)
LINEAR = {"layer_types": ["linear_attention", "full_attention"], "head_dim": 256, "linear_num_key_heads": 16, "linear_num_value_heads": 16,
          "linear_key_head_dim": 128, "linear_value_head_dim": 128}
# The parts of each config; how long its sequences are.
MODELS = {
    "qwen2.5-vl": (4096, {"model_type": "qwen2_5_vl", "text_config": text("qwen2_5_vl_text", 2048, 16, 2, 11008, 151936),
                          "vision_config": {"depth": 3, "hidden_size": 1280, "num_heads": 16, "intermediate_size": 3420, "out_hidden_size": 2048,
                                            "fullatt_block_indexes": [1]}}),
    "qwen3-vl": (4096, {"model_type": "qwen3_vl", "text_config": text("qwen3_vl_text", 2048, 16, 8, 6144, 151936, head_dim=128),
                        "vision_config": QWEN_TOWER}),
    "qwen3.5": (3072, {"model_type": "qwen3_5", "text_config": text("qwen3_5_text", 1024, 8, 2, 3584, 248320, **LINEAR),
                       "vision_config": {**QWEN_TOWER, "out_hidden_size": 1024}}),
    "internvl": (2048, {"model_type": "internvl", "text_config": text("qwen2", 896, 14, 2, 4864, 151674),
                        "vision_config": tower("internvl_vision", 1024, 16, 4096, [448, 448], [14, 14])}),
    "gemma3": (2048, {"model_type": "gemma3", "tie_word_embeddings": True,
                      "text_config": text("gemma3_text", 2560, 8, 4, 10240, 262208, head_dim=256, tie_word_embeddings=True, sliding_window=1024),
                      "vision_config": tower("siglip_vision_model", 1152, 16, 4304, 896, 14, vision_use_head=False)}),
    "llava": (2048, {"model_type": "llava", "text_config": text("llama", 4096, 32, 32, 11008, 32064), "vision_config": CLIP}),
    "llava-next": (6144, {"model_type": "llava_next", "text_config": text("mistral", 4096, 32, 8, 14336, 32064, sliding_window=None), "vision_config": CLIP}),
    "llava-onevision": (8192, {"model_type": "llava_onevision", "text_config": text("qwen2", 896, 14, 2, 4864, 152000), "vision_config": SIGLIP}),
    "smolvlm": (4096, {"model_type": "smolvlm", "scale_factor": 3, "text_config": text("llama", 2048, 32, 32, 8192, 49280),
                       "vision_config": tower("smolvlm_vision", 1152, 16, 4304, 384, 14)}),
    "idefics3": (5120, {"model_type": "idefics3", "text_config": text("llama", 4096, 32, 8, 14336, 128259),
                        "vision_config": tower("idefics3_vision", 1152, 16, 4304, 364, 14)}),
    "mistral3": (4096, {"model_type": "mistral3", "text_config": text("mistral", 5120, 32, 8, 32768, 131072, head_dim=128, sliding_window=None),
                        "vision_config": tower("pixtral", 1024, 16, 4096, 1540, 14, head_dim=64)}),
}
RUNS = (
    dict(count=2, stage=2),
    dict(count=2, stage=3),
    dict(count=1, stage=2, batch=2, checkpointing="ckn"),
    dict(count=1, stage=3, batch=2, checkpointing="ckn"),
    dict(count=1, stage=3, batch=2, checkpointing="ckr"),
    dict(count=2, stage=3, lora=16, checkpointing="ckr"),
    dict(count=1, stage=2, batch=2, lora=16),
    dict(count=2, stage=2, freeze="vision"),
    dict(count=1, stage=3, batch=2, freeze="vision", checkpointing="ckn"),
    dict(count=2, stage=3, trainer=True, checkpointing="ckn"),
    dict(count=1, stage=2, batch=2, trainer=True, freeze="vision,projector"),
)


def document(zeroplan, python, name, config, count, batch):
    """The path of the traced document; a class that loops over the images of a batch has one for each batch."""
    for kept in ("%s-%d" % (name, count), "%s-%d-m%d" % (name, count, batch)):
        if os.path.exists(os.path.join(TRACED, kept + ".graph.json")):
            return kept
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "config.json")
        with open(path, "w") as file:
            json.dump(config, file)
        made = os.path.join(folder, "graph.json")
        subprocess.run([zeroplan, "trace", path, "--images", str(count), "--image-size", SIZE, "--micro-batch-size", str(batch), "--python", python,
                        "-o", made], check=True, stdout=sys.stderr)
        with open(made) as file:
            graph = json.load(file)
    graph["name"] = name
    kept = "%s-%d" % (name, count) + ("-m%d" % batch if len(graph["traced"]["batches"]) == 1 else "")
    with open(os.path.join(TRACED, kept + ".graph.json"), "w") as file:
        json.dump(graph, file, separators=(",", ":"))
        file.write("\n")
    return kept


def line(zeroplan, python, name, count, freeze="", **said):
    sequence, config = MODELS[name]
    made = matrix_lines.line("llama-3.2-1b", "t211", ranks=2, sequence=sequence, **said)
    made["id"] = made["id"].replace("llama-3.2-1b", "%s-i%d" % (name, count), 1) + (freeze and "-freeze-" + freeze.replace(",", "-"))
    made["group"] = made["group"].replace("llama-3.2-1b", name + "-images")
    made["scenario"]["model"] = "../../traced/images/%s.graph.json" % document(zeroplan, python, name, config, count, said.get("batch", 1))
    made["scenario"]["workload"].update(images=count, image_size=SIZE)
    if freeze:
        made["scenario"]["workload"]["freeze"] = freeze
    return made


def main():
    os.makedirs(TRACED, exist_ok=True)
    for said in RUNS:
        for name in MODELS:
            try:
                print(json.dumps(line(*sys.argv[1:3], name, **said)), flush=True)
            except subprocess.CalledProcessError:
                print(name, said, "is not traced", file=sys.stderr)


if __name__ == "__main__":
    main()
