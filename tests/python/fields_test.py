"""Every member of every document has a field in zeroplan.results, and no field is without a member: a key that a command
gets is then in Python as well, with its meaning and its unit."""

import dataclasses
import json
import os
import re
import subprocess
import tempfile
import typing
import unittest
from pathlib import Path

import zeroplan
from zeroplan import results as r

SCHEMA = {"schema"}  # says which of the classes it is
TINY = ["gpt2", "2xRTX-4090", "--global-batch", "8", "--seq", "256"]


def document(*words, accept=(0, 3)):
    """What `zeroplan WORDS --json` prints."""
    ran = subprocess.run([zeroplan.program(), *words, "--json"], capture_output=True, text=True)
    assert ran.returncode in accept, ran.stderr
    return json.loads(ran.stdout)


def contract():
    return Path(os.environ["ZEROPLAN_SOURCE"], "docs", "contract.md").read_text(encoding="utf-8")


def members_in_contract(command):
    """The outermost members of the document that docs/contract.md shows for a command."""
    text = contract()
    at = text.index("{", text.index(f"`{command} --json`:"))
    members, depth = [], 0
    for found in re.finditer(r'"(\w+)":|[{}\[\]`]', text[at:]):
        depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(found.group(0), 0)
        if found.group(1) and depth == 1:
            members.append(found.group(1))
        if found.group(0) == "`":
            return members
    raise AssertionError(f"the document of {command} does not end")


def kind_of(hint):
    """The dataclass that a field holds, one or a list of; None for plain values."""
    for one in (hint, *typing.get_args(hint)):
        if dataclasses.is_dataclass(one):
            return one
        inner = next((two for two in typing.get_args(one) if dataclasses.is_dataclass(two)), None)
        if inner is not None:
            return inner
    return None


def holds(hint, value):
    """Whether JSON's `value` is of the type that a field says: a list of texts is no text, though both have items."""
    if value is None or hint is typing.Any:
        return True  # what may be missing stands in the contract
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Union:
        return any(holds(one, value) for one in inner if one is not type(None))
    if origin is list:
        return isinstance(value, list) and all(holds(inner[0], one) for one in value)
    if origin is tuple:
        return isinstance(value, list)
    if origin is dict or dataclasses.is_dataclass(hint):
        return isinstance(value, dict)
    if hint is float:
        return isinstance(value, (int, float))
    if hint is int:
        return isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return isinstance(value, hint)


class Seen:
    """Members of documents that have no field or one of another type, and fields that were in some document."""

    def __init__(self):
        self.unknown = set()
        self.other_type = set()
        self.known = set()

    def compare(self, kind, value, path):
        if isinstance(value, list):
            for one in value:
                self.compare(kind, one, path + "/*")
            return
        if not isinstance(value, dict):
            return
        hints = typing.get_type_hints(kind)
        fields = {field.name for field in dataclasses.fields(kind)}
        for name, member in value.items():
            if name in SCHEMA:
                continue
            if name not in fields:
                self.unknown.add(f"{kind.__name__}: {path}/{name}")
                continue
            self.known.add((kind.__name__, name))
            if not holds(hints[name], member):
                self.other_type.add(f"{kind.__name__}: {path}/{name}: {hints[name]}, {str(member)[:60]}")
            inner = kind_of(hints[name])
            if inner is not None:
                self.compare(inner, member, f"{path}/{name}")


class Fields(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        folder = Path(cls.folder.name)
        (folder / "ds.json").write_text(json.dumps({"zero_optimization": {"stage": 3}, "bf16": {"enabled": True}}))
        (folder / "bad.json").write_text(json.dumps({"zero_optimization": {"stage": 3}, "x": 1, "train_batch_size": 7}))
        (folder / "oom.txt").write_text(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
            "23.64 GiB of which 1.10 GiB is free. Of the allocated memory 20.00 GiB is allocated by PyTorch, and 1.50 GiB "
            "is reserved by PyTorch but unallocated."
        )
        (folder / "hang.txt").write_text("[rank1]: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5)\n")
        lengths = ["--dataset", json.dumps({"samples": 1000, "epochs": 1, "mean_tokens": 100, "padding": "longest"})]
        scenario = document("scenario", *TINY[:2], "--mbs", "1", "--gas", "1", "--seq", "256")
        measured = {"peak_allocated_bytes": 10**9, "step_seconds": 0.1, "fits": True}
        (folder / "measured.jsonl").write_text(
            json.dumps({"id": "a", "source": "s", "scenario": scenario, "measured": measured})
            + "\n"
            + json.dumps({"id": "b", "source": "s", "scenario": {}, "measured": measured})
        )
        here = [*TINY[:2], "--mbs", "1", "--gas", "1", "--seq", "256"]
        about = ["--model", here[0], "--cluster", here[1], *here[2:], "--ds-config", str(folder / "ds.json")]
        cls.documents = [
            (r.Simulation, document("simulate", *here, *lengths)),
            (r.Simulation, document("simulate", "70B", "1xRTX-4090", "--mbs", "1", "--gas", "1")),
            (r.Simulation, document("simulate", *here, "--engine", "ddp")),
            (r.Fit, document("fit", *TINY)),
            (r.Fit, document("fit", *TINY, *lengths)),
            (r.Fit, document("fit", *TINY, "--quick")),
            (r.Fit, document("fit", *TINY, "--why")),
            (r.Fit, document("fit", "7B", "1xRTX-4090", "--seq", "2048", "--mbs", "1", "--gas", "8")),
            (r.Fit, document("fit", "1.3B", "2x4xA100-80G", "--seq", "512")),
            (r.Fit, document("fit", "qwen3-1.7b", "1xRTX-4090", "--optimizer", "adamw8bit")),  # faster without DeepSpeed
            (r.Fit, document("fit", "70B", "1xRTX-4090", "--seq", "1024", "--mbs", "1", "--gas", "1")),
            (r.Fit, document("fit", "mistral-7b", "8xA100-80G", "--engine", "ddp", "--seq", "8624")),  # at the GPU's limit
            (r.Fit, document("fit", "mixtral-8x7b", "2x4xV100-32G", "--method", "lora", "--mbs", "1", "--gas", "1")),  # its host's usual memory
            (r.WhichGpu, document("fit", "gpt2", "--clusters", "2xRTX-4090,1xA100-80G", "--tokens", "1M", "--price", "2")),
            (r.Versions, document("simulate", *here, "--compare-versions", "0.16.4/2.6/4.50,0.19.6/2.11/5.17")),
            (r.Versions, document("fit", *TINY, "--compare-versions", "0.16.4/2.6/4.50,0.19.6/2.11/5.17")),
            (r.Reach, document("fit", *TINY[:2], "--goal", "longest-sequence")),
            (r.Reach, document("fit", "1xRTX-4090", "--goal", "largest-model", "--seq", "512")),
            (r.Tuning, document("tune", *TINY, "--fix", "stage=2")),
            (r.Tuning, document("tune", "7B", "1xV100-16G", "--seq", "1024", "--fix", "micro_batch_size=1", "--fix", "stage=1")),
            (r.Report, document("report", *TINY, "--no-search")),
            (r.Lint, document("lint", str(folder / "ds.json"), "--gpus", "8")),
            (r.Lint, document("lint", str(folder / "bad.json"), "--gpus", "8")),
            (r.Explanation, document("explain", *about[:-2], str(folder / "ds.json"))),
            (r.Explanation, document("explain", str(folder / "oom.txt"))),
            (r.Explanation, document("explain", str(folder / "oom.txt"), *about)),
            (r.Explanation, document("explain", str(folder / "hang.txt"))),
            (r.Validation, document("validate", str(folder / "measured.jsonl"), accept=(0, 3, 4))),
            (r.Rehearsal, dict.fromkeys(members_in_contract("rehearse"))),  # needs a Python with torch
        ]

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_every_member_has_a_field(self):
        seen = Seen()
        for kind, found in self.documents:
            seen.compare(kind, found, "")
        self.assertEqual([], sorted(seen.unknown))
        self.assertEqual([], sorted(seen.other_type))

    def test_every_field_is_a_member_of_some_document(self):
        """A field that no document has is a wrong name, or one of a rehearsal that ran (docs/contract.md has these)."""
        seen = Seen()
        for kind, found in self.documents:
            seen.compare(kind, found, "")
        text = contract()
        reached = {kind for kind, _ in self.documents} | {getattr(r, name) for name, _ in seen.known}
        missing = [
            f"{kind.__name__}.{field.name}"
            for kind in reached
            for field in dataclasses.fields(kind)
            if (kind.__name__, field.name) not in seen.known
            and f'"{field.name}"' not in text
            and field.name != "html"  # the page, which is a file
        ]
        self.assertEqual([], sorted(missing))


os.environ.setdefault("ZEROPLAN_SOURCE", str(Path(__file__).resolve().parent.parent.parent))

if __name__ == "__main__":
    unittest.main()
