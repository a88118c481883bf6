#!/usr/bin/env python3
"""--dataset FILE.jsonl --tokenizer DIR counts what the tokenizer makes of each kind of row: check_lengths.py PROGRAM PYTHON

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
        began = time.monotonic()
        found = lengths(program, python, folder, [{"text": "a " * (1 + i % 400)} for i in range(50_000)])
        assert found["samples"] == 50_000, found["samples"]
        mean = sum(found["lengths"]) / len(found["lengths"])
        assert abs(mean - 201.5) < 2.0, mean
        print(f"50,000 rows in {time.monotonic() - began:.1f} s")


if __name__ == "__main__":
    main()
