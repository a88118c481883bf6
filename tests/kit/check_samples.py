#!/usr/bin/env python3
"""--dataset FILE --tokenizer DIR counts what the tokenizer makes of each kind of row, and a kit's scripts train on it:
check_samples.py PROGRAM PYTHON

A tokenizer whose words are tokens, made here, says how long a sample is without another program. Exit 77 (skipped) where
that Python has no tokenizers.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WORDS = ["a", "b", "user", "assistant", ":", "<s>", "</s>", "[UNK]"]
TOKENIZER = {
    "version": "1.0", "truncation": {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0},
    "padding": None, "added_tokens": [], "normalizer": None, "pre_tokenizer": {"type": "WhitespaceSplit"}, "decoder": None,
    "post_processor": {"type": "TemplateProcessing", "pair": [],
                       "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                       "special_tokens": {"<s>": {"id": "<s>", "ids": [5], "tokens": ["<s>"]}}},
    "model": {"type": "WordLevel", "vocab": {word: i for i, word in enumerate(WORDS)}, "unk_token": "[UNK]"},
}
# Two words beside the content of a turn, and {% generation %} as some templates have it.
TEMPLATE = "{{ bos_token }} {% for m in messages %}{{ m['role'] }} : {% generation %}{{ m['content'] }}{% endgeneration %} {% endfor %}"
CONVERSATION = [{"role": "user", "content": "a b a"}, {"role": "assistant", "content": "b b"}]
# A row, its tokens with the template and without one. The tokenizer's own token stands before texts alone.
ROWS = [
    ({"text": "a b a b a b"}, 7, 7),
    ({"messages": CONVERSATION}, 10, 6),
    ({"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}, 7, 3),
    ({"prompt": "a b", "completion": "a"}, 8, 4),
    ({"prompt": "a", "chosen": "b b b", "rejected": "b"}, 9, 5),
]


# How many of a row's tokens are a prompt, with the template and without one.
PROMPTS = [(0, 0), (0, 0), (0, 0), (5, 3), (4, 2)]


def samples(python, kit, data, folder):
    """What a kit's scripts read of the data: tokens of a row, of these a prompt's."""
    said = subprocess.run([python, "-c", "import json, sys; from samples import samples_of; print(json.dumps("
                           "[[len(ids), prompt] for ids, prompt in samples_of(*sys.argv[1:])]))", str(data), str(folder)],
                          capture_output=True, text=True, cwd=kit)
    if said.returncode != 0:
        raise SystemExit(said.stderr)
    return json.loads(said.stdout)


def check_kit(program, python, folder):
    """A kit names the file and the tokenizer, and pads rows to the longest of their micro-batch; parquet is as jsonl."""
    data, kit = folder / "train.jsonl", folder / "kit"
    said = subprocess.run([program, "fit", "qwen2.5-0.5b", "1xA100-80G", "--dataset", str(data), "--tokenizer", str(folder),
                           "--seq", "8", "-o", str(kit), "--force"], capture_output=True, text=True,
                          env={"ZEROPLAN_REHEARSAL_PYTHON": python, "PATH": "/usr/bin:/bin"})
    assert said.returncode == 0, said.stderr
    run = json.loads((kit / "kit" / "training.json").read_text())
    assert (run["data"], run["tokenizer"]) == (str(data), str(folder)), run
    script = ("import sys, types; sys.argv = ['train.py']; from common import Samples, parser, read_scenario\n"
              "arguments = parser('').parse_args(); scenario = read_scenario(arguments.scenario)\n"
              "model = types.SimpleNamespace(config=types.SimpleNamespace(vocab_size=8))\n"
              "data = Samples(arguments, scenario, model); rows = data.sequences(9, 1, data.read())\n"
              "batch = data.collate([rows[2], rows[3]])\n"
              "print([list(batch[key].shape) for key in batch], batch['attention_mask'].sum(1).tolist(),\n"
              "      (batch['labels'] == -100).sum(1).tolist())\n")
    # On an emulated GPU: torch for CUDA is not imported everywhere.
    said = subprocess.run([program, "rehearse", "--gpu", "A100-80G", "--", python, "-c", script], capture_output=True,
                          text=True, cwd=kit / "kit")
    # Without a template: 3 tokens, and 4 of which 3 are a prompt.
    assert "[[2, 4], [2, 4], [2, 4]] [3, 4] [1, 3]" in said.stdout + said.stderr, said.stdout + said.stderr
    table = subprocess.run([python, "-c", "import json, sys, pyarrow, pyarrow.parquet as parquet\n"
                            "rows = [json.loads(line) for line in open(sys.argv[1])]\n"
                            "parquet.write_table(pyarrow.Table.from_pylist([row for row in rows if 'text' in row]), sys.argv[2])",
                            str(data), str(folder / "train.parquet")], capture_output=True, text=True)
    if table.returncode == 0:  # a Python without pyarrow reads none
        assert samples(python, kit / "kit", folder / "train.parquet", folder) == [[ROWS[0][2], 0]]


def lengths(program, python, folder, rows):
    data = folder / "train.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    said = subprocess.run([program, "scenario", "--model", "qwen2.5-0.5b", "--cluster", "1xA100-80G", "--dataset", str(data),
                           "--tokenizer", str(folder), "--epochs", "2"], capture_output=True, text=True,
                          env={"ZEROPLAN_REHEARSAL_PYTHON": python, "PATH": "/usr/bin:/bin"})
    if said.returncode != 0:
        raise SystemExit(said.stderr)
    return json.loads(said.stdout)["workload"]["dataset"]


def main():
    program, python = sys.argv[1:3]
    if subprocess.run([python, "-I", "-c", "import tokenizers, jinja2"], capture_output=True).returncode != 0:
        print("skipped: this Python has no tokenizers and jinja2", file=sys.stderr)
        sys.exit(77)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "tokenizer.json").write_text(json.dumps(TOKENIZER), encoding="utf-8")
        for template in (True, False):
            config = {"bos_token": {"content": "<s>"}, **({"chat_template": TEMPLATE} if template else {})}
            (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
            found = lengths(program, python, folder, [row for row, *_ in ROWS])
            expected = sorted(row[1 if template else 2] for row in ROWS)
            assert found["lengths"] == expected, (template, found["lengths"], expected)
            assert found["samples"] == len(ROWS) and found["epochs"] == 2, found
            kit = Path(__file__).resolve().parents[2] / "configs" / "kit"
            expected = [[max(row[1 if template else 2], 1), prompt[0 if template else 1]] for row, prompt in zip(ROWS, PROMPTS)]
            read = samples(python, kit, folder / "train.jsonl", folder)
            assert read == expected, (template, read, expected)
        check_kit(program, python, folder)
        began = time.monotonic()
        found = lengths(program, python, folder, [{"text": "a " * (1 + i % 400)} for i in range(50_000)])
        assert found["samples"] == 50_000, found["samples"]
        mean = sum(found["lengths"]) / len(found["lengths"])
        assert abs(mean - 201.5) < 2.0, mean
        print(f"50,000 rows in {time.monotonic() - began:.1f} s")


if __name__ == "__main__":
    main()
