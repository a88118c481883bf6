#!/usr/bin/env python3
"""Seconds of processor time that a training process takes for its batches and its log lines.

  python3 scripts/time_dataloader.py [-o FILE.jsonl] [--rounds N]

Needs torch, transformers and datasets; with trl its collator is timed, too. What is timed is what
the Trainer runs in the training process with dataloader_num_workers = 0: rows of a tokenized
datasets.Dataset, the collator, and for log lines Trainer.log with its default callbacks. Each line
has one shape: samples of a batch, tokens of a sample, seconds a batch (of the fastest round).
The last line is the fit: a batch = fixed + samples * per_sample + samples * tokens * per_token.
"""

import argparse
import json
import os
import sys
import tempfile
import time

SHAPES = [(1, 128), (1, 1024), (1, 4096), (1, 16384), (4, 512), (4, 4096), (8, 1024), (16, 256), (16, 2048),
          (32, 512), (64, 128)]


def rows_of(samples, tokens, columns):
    import datasets

    row = [(i * 7919) % 32000 for i in range(tokens)]
    data = {name: [row] * samples for name in columns}
    return datasets.Dataset.from_dict(data)


def tokenizer():
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = {f"w{i}": i for i in range(100)}
    words["<pad>"] = 100
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="w0")),
                                   pad_token="<pad>")


def collators():
    """Name, columns of the dataset, collator."""
    import transformers

    text = tokenizer()
    full = ["input_ids", "attention_mask", "labels"]
    found = [
        ("default_data_collator", full, transformers.default_data_collator),
        ("DataCollatorForSeq2Seq", full, transformers.DataCollatorForSeq2Seq(text, padding=True)),
        ("DataCollatorForLanguageModeling", full[:2],
         transformers.DataCollatorForLanguageModeling(text, mlm=False)),
    ]
    try:
        from trl.trainer.sft_trainer import DataCollatorForLanguageModeling as Trl

        found.append(("trl.DataCollatorForLanguageModeling", full[:1], Trl(pad_token_id=100)))
    except ImportError:
        pass
    return found


def seconds_of_batches(dataset, collator, samples, rounds):
    from torch.utils.data import DataLoader

    best = None
    for _ in range(rounds):
        loader = iter(DataLoader(dataset, batch_size=samples, collate_fn=collator))
        next(loader)
        batches = 0
        began = time.process_time()
        for _ in loader:
            batches += 1
        took = (time.process_time() - began) / batches
        best = took if best is None else min(best, took)
    return best


def seconds_of_log(rounds, lines=200):
    """Of one Trainer.log, with the default callbacks (progress bar or print, state)."""
    import torch
    import transformers

    class Tiny(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))

    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(output_dir=folder, report_to=[], use_cpu=True)
        trainer = transformers.Trainer(model=Tiny(), args=arguments)
        best = None
        kept, sys.stdout = sys.stdout, open(os.devnull, "w")
        try:
            for _ in range(rounds):
                trainer.state.log_history.clear()
                began = time.process_time()
                for i in range(lines):
                    trainer.state.global_step = i
                    trainer.log({"loss": 1.0, "grad_norm": 0.5, "learning_rate": 1e-5})
                took = (time.process_time() - began) / lines
                best = took if best is None else min(best, took)
        finally:
            sys.stdout.close()
            sys.stdout = kept
        return best


def fit(lines):
    """Least squares of relative errors, coefficients not below zero."""
    import numpy

    rows = numpy.array([[1.0, line["samples"], line["samples"] * line["tokens"]] for line in lines])
    seconds = numpy.array([line["seconds"] for line in lines])
    kept = [0, 1, 2]
    while True:
        found, *_ = numpy.linalg.lstsq(rows[:, kept] / seconds[:, None], numpy.ones(len(lines)), rcond=None)
        if (found >= 0.0).all():
            break
        kept.pop(int(found.argmin()))
    values = [0.0, 0.0, 0.0]
    for at, value in zip(kept, found):
        values[at] = float(value)
    return dict(zip(["fixed", "per_sample", "per_token"], values))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    import datasets
    import torch
    import transformers

    torch.set_num_threads(1)
    software = {"torch": torch.__version__, "transformers": transformers.__version__,
                "datasets": datasets.__version__}
    out = open(options.output, "w") if options.output else sys.stdout
    for name, columns, collator in collators():
        lines = []
        for samples, tokens in SHAPES:
            dataset = rows_of(samples * 9, tokens, columns)
            took = seconds_of_batches(dataset, collator, samples, options.rounds)
            lines.append({"collator": name, "columns": len(columns), "samples": samples, "tokens": tokens,
                          "seconds": took})
        for line in lines:
            print(json.dumps({**line, **software}), file=out)
        print(json.dumps({"collator": name, "fit": fit(lines), **software}), file=out)
    print(json.dumps({"log_line": seconds_of_log(options.rounds), **software}), file=out)
    out.flush()


if __name__ == "__main__":
    main()
