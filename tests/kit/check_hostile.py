#!/usr/bin/env python3
"""Kits of users' files whose names mean something to a shell, YAML or a terminal: check_hostile.py PROGRAM

Hosts, modules, models and folders are given every name of HOSTILE (drives: tests/unit/tuner/kit/kit_test.cpp). What the program refuses, it
refuses with a message that a terminal can show; what it takes comes back, exactly, from who reads the
written files: bash with stubs for the launchers, PyYAML, json. Nothing of a name is executed.
"""

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import unicodedata
from pathlib import Path

from small_models import LLAMA as CONFIG

try:
    import yaml
except ImportError:
    yaml = None


def shows(text):
    """Whether a terminal shows it as it is: no control characters, no marks that turn the writing."""
    steering = {"\u200e", "\u200f", "\u061c", "\u2028", "\u2029", *map(chr, range(0x202A, 0x202F)), *map(chr, range(0x2066, 0x206A))}
    return not any((unicodedata.category(c) == "Cc" and c not in "\n\t") or c in steering for c in text)


HOSTILE = [
    "$(touch executed)",
    "node$(touch${IFS}executed)",
    "`touch executed`",
    "a;touch executed",
    "a&&touch executed",
    "a|touch executed",
    "a>executed",
    "';touch executed;'",
    '";touch executed;"',
    "a'b\"c`d",
    "a\\b",
    "a\nevil: true",
    "a\r\nb",
    "a\x00b",
    "a\tb",
    "\x1b]0;title\x07\x1b[2J",
    "\u202egnp.exe\u2066",
    "\x9b2J",
    "-oProxyCommand=touch executed",
    "--model",
    "..",
    "{{ 7 }}",
    "${HOME}",
    "%h%n",
    "a: b #c",
    "[1-4]",
    "fe80::1",
    "ssh:node",
    "a,b",
    "My Models",
    "模型",
    "x" * 300,
]
STEERING = [name for name in HOSTILE if not shows(name) or "\n" in name] + ["-oProxyCommand=touch executed"]
STUBS = ["deepspeed", "torchrun", "accelerate", "ssh", "pdsh", "srun", "sbatch", "numactl", "docker", "touch"]
failures = []


def check(good, text):
    if not good:
        failures.append(text)


class Sandbox:
    """A folder with stubs of the launchers, which record their arguments and do nothing."""

    def __init__(self, program):
        self.program = program
        self.folder = Path(tempfile.mkdtemp(prefix="zeroplan_hostile_"))
        self.bin = self.folder / "bin"
        self.bin.mkdir()
        self.calls = self.folder / "calls.jsonl"
        for name in STUBS:
            stub = self.bin / name
            stub.write_text(
                f"#!{sys.executable}\nimport json, os, sys\n"
                f"open({str(self.calls)!r}, 'a').write(json.dumps("
                f"[{name!r}, *sys.argv[1:]]) + '\\n')\n"
            )
            stub.chmod(stub.stat().st_mode | stat.S_IXUSR)
        self.number = 0

    def new_folder(self, name=None):
        self.number += 1
        folder = self.folder / str(self.number) / name if name else self.folder / str(self.number)
        folder.mkdir(parents=True)
        return folder

    def run(self, words, cwd):
        environment = {**os.environ, "PATH": f"{self.bin}:/usr/bin:/bin", "LC_ALL": "C.UTF-8", "LANG": "C.UTF-8"}
        done = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, stdin=subprocess.DEVNULL)
        what = " ".join(map(ascii, words[-4:]))
        try:
            out, err = done.stdout.decode(), done.stderr.decode()
        except UnicodeDecodeError as error:
            check(False, f"{what}: prints no UTF-8: {error}")
            out, err = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
        return done.returncode, out, err

    def zeroplan(self, *words, cwd=None):
        code, out, err = self.run([self.program, *words], cwd or self.folder)
        check(shows(out) and shows(err), f"{words[-4:]!a}: prints what steers a terminal: {(out + err)!a}"[:600])
        check(code in (0, 2, 3), f"{words[-4:]!a}: exit {code}: {err!a}"[:600])
        return code, out, err

    def says(self, words, folder):
        code, out, err = self.run([self.program, *words], folder)
        check(shows(out) and shows(err), f"{words!a}: prints what steers a terminal: {(out + err)!a}"[:600])
        check(code in (0, 2, 3, 4), f"{words!a}: exit {code}: {err!a}"[:600])
        code, out, err = self.run([self.program, *words, "--json"], folder)
        check(shows(out), f"{words!a} --json: prints what steers a terminal: {out!a}"[:600])
        if out.strip():
            try:
                json.loads(out)
            except ValueError as error:
                check(False, f"{words!a} --json: {error}: {out!a}"[:600])

    def called(self):
        lines = self.calls.read_text().splitlines() if self.calls.is_file() else []
        self.calls.unlink(missing_ok=True)
        return [json.loads(line) for line in lines]

    def executed(self):
        """Whether a name was executed: its `touch` is a stub, and makes no file."""
        return any(call[0] == "touch" for call in self.called()) or any(self.folder.rglob("executed"))


def refused(code, out, err, folder, what):
    check(code == 2, f"{what!a}: is taken, exit {code}")
    check(err.startswith("error: "), f"{what!a}: no message: {err!a}")
    check(not folder.exists(), f"{what!a}: is refused and written")


def hosts(box):
    for name in HOSTILE:
        folder = box.new_folder()
        file = folder / "hostfile"
        file.write_bytes(f"{name} slots=4\nnode-2 slots=4\n".encode())
        cluster = f"hostfile:{file}@A100-80G"
        refused(*box.zeroplan("fit", "llama-3.2-1b", cluster, "-o", str(folder / "kit")), folder / "kit", name)
        box.zeroplan("doctor", "--hostfile", str(file), "--recorded", os.devnull)
        check(not box.executed(), f"host {name!a}: was executed")


def good_hosts(box):
    for name, address in (("node-1", "node-1"), ("gpu_7.cluster.example.com", "gpu_7.cluster.example.com"),
                          ("root@10.0.0.1", "10.0.0.1"), ("123", "123"), ("1e5", "1e5"), ("on", "on")):
        folder = box.new_folder()
        (folder / "hostfile").write_text(f"{name} slots=4\nnode-2 slots=4\n")
        kit = folder / "kit"
        code, _, err = box.zeroplan("fit", "llama-3.2-1b", f"hostfile:{folder}/hostfile@A100-80G", "-o", str(kit))
        check(code == 0, f"host {name!a}: refused: {err}")
        check((kit / "kit" / "hostfile").read_text().splitlines()[0] == f"{name} slots=4", f"hostfile of {name!a}")
        os.environ["NODE_RANK"] = "0"
        box.run(["bash", "run.sh", "torchrun", "--steps", "1"], kit)
        calls = box.called()
        check([f"--master_addr={address}"] == [w for call in calls for w in call if w.startswith("--master_addr")],
              f"torchrun for {name!a}: {calls}")
        if yaml:
            check(yaml.safe_load((kit / "kit" / "accelerate.yaml").read_text())["main_process_ip"] == address,
                  f"accelerate.yaml of {name!a}")
            compose = yaml.safe_load((kit / "kit" / "docker-compose.yml").read_text())
            check(compose["services"]["train"]["hostname"] == f"${{KIT_HOST:-{address}}}"
                  or compose["services"]["train"]["hostname"] == f'${{KIT_HOST:-"{address}"}}',
                  f"docker-compose.yml of {name!a}: {compose['services']['train']['hostname']}")


def modules(box):
    for name in HOSTILE:
        kit = box.new_folder() / "kit"
        method = json.dumps({"lora": {"rank": 8, "targets": ["q_proj", name]}})
        refused(*box.zeroplan("fit", "llama-3.2-1b", "4xA100-80G", "--method", method, "-o", str(kit)), kit, name)
    kit = box.new_folder() / "kit"
    method = json.dumps({"lora": {"rank": 8, "targets": ["q_proj", "v_proj"]}})
    box.zeroplan("fit", "llama-3.2-1b", "4xA100-80G", "--method", method, "-o", str(kit))
    if yaml:
        check(yaml.safe_load((kit / "kit" / "llamafactory.yaml").read_text())["lora_target"] == "q_proj,v_proj", "lora_target")


def models(box):
    for name in HOSTILE:
        if "\0" in name or len(name.encode()) > 255:
            continue
        folder = box.new_folder()
        model = folder / name / "llama 2"
        model.mkdir(parents=True)
        (model / "config.json").write_text(json.dumps(CONFIG))
        kit = folder / f"kit of {name}"
        given = f"{name}/llama 2/config.json"
        if name.startswith("{"):
            given = "./" + given  # a config itself begins so
        words = ("fit", "--model", given, "--cluster", "1x2xA100-80G", "--seq", "64", "-o", str(kit))
        code, out, err = box.zeroplan(*words, cwd=folder)
        if any(ord(c) < 32 or ord(c) == 127 for c in name):
            refused(code, out, err, kit, name)
            continue
        check(code == 0, f"model {given!a}: exit {code}: {err!a}"[:400])
        if code != 0:
            continue
        check(json.loads((kit / "kit" / "model" / "config.json").read_text()) == CONFIG, f"model/config.json of {given!a}")
        plan = (kit / "PLAN.md").read_text()
        check(plan.startswith("# ") and plan.split("\n")[1] == "" and shows(plan), f"PLAN.md of {given!a}")
        again, _, err = box.zeroplan("simulate", "--scenario", str(kit))
        check(again == 0, f"scenario.json of {given!a}: {err!a}"[:400])
        box.called()
        arguments = ["--model", given, "--data", name, "--steps", "1"]
        for launcher in ("deepspeed", "torchrun"):
            code, _, err = box.run(["bash", str(kit / "run.sh"), launcher, *arguments], folder)
            calls = [call for call in box.called() if call[0] == launcher]
            check(code == 0 and len(calls) == 1 and calls[0][-6:] == arguments,
                  f"{launcher} in {kit.name!a}: exit {code}, {calls!a} {err!a}"[:600])
        code, _, err = box.run(["bash", str(kit / "kit" / "job.sbatch"), *arguments], kit)
        check(not any(call[0] == "touch" for call in box.called()), f"job.sbatch in {kit.name!a}")
        check(not box.executed(), f"model {given!a}: was executed")


def several_hosts(box):
    """DeepSpeed hands the folder and the arguments unquoted to shells on other hosts: run.sh refuses such."""
    for name, good in (("plan", True), ("My Plans", False), ("$(touch executed)", False), ("a;b", False)):
        kit = box.new_folder() / name
        box.zeroplan("fit", "llama-3.2-1b", "2x2xA100-80G", "-o", str(kit))
        code, _, err = box.run(["bash", "run.sh", "--steps", "1"], kit)
        check((code == 0) == good and (len(box.called()) > 0) == good, f"run.sh in {name!a}: exit {code}: {err!a}")
    kit = box.new_folder() / "kit"
    box.zeroplan("fit", "llama-3.2-1b", "2x2xA100-80G", "-o", str(kit))
    for word, good in (("My Models/llama 2", True), ("a=b", True), ("$(touch executed)", False), ("a;b", False), ("a\nb", False)):
        code, _, err = box.run(["bash", "run.sh", "deepspeed", "--data", word], kit)
        calls = box.called()
        check((code == 0) == good, f"run.sh with {word!a}: exit {code}: {err!a}")
        check(not good or calls[-1][-1] == word, f"run.sh with {word!a}: {calls!a}")


def doctor(box):
    """ssh gives its words to the other host's shell: here a sh in the same folder, which must be found there."""
    ssh = box.bin / "ssh"
    stub = ssh.read_text()
    ssh.write_text('#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nshift 2\nexec sh -c "$*"\n')
    for name in HOSTILE[:12]:
        folder = box.new_folder(name)
        (folder / "hostfile").write_text("node-1 slots=1\n")
        _, out, _ = box.zeroplan("doctor", "--hostfile", "hostfile", "--nvme-path", "-rf", "--json", cwd=folder)
        codes = [finding["code"] for finding in json.loads(out)["findings"]]
        check("no-folder" not in codes and "no-ssh" not in codes, f"doctor in {name!a}: {codes}")
    ssh.write_text(stub)
    check(not box.executed(), "doctor executed a folder's name")


def terminal(box):
    """Every command that repeats what a file says."""
    folder = box.new_folder()
    box.called()
    for name in STEERING:
        documents = {
            "ds.json": {"zero_optimization": {"stage": 2}, name: name, "optimizer": {"type": name}, "fp16": {name: 1}},
            "ds_path.json": {"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": name}}},
            "config.json": {**CONFIG, "architectures": [name], "_name_or_path": name, name: name, "torch_dtype": name},
            "cluster.json": {"nodes": 1, "gpus_per_node": 2, "gpu": {"name": name, "memory_bytes": 80e9}},
            "scenario.json": {"id": name, "model": "llama-3.2-1b", "cluster": "2xA100-80G", "ds_config": "ds.json"},
            "scenario_bad.json": {"model": name, "cluster": name, name: name},
            "profile.json": {"schema": "zeroplan.profile/1", "name": name, "date": name, "values": [{"name": name, "value": 1}]},
            "machine.json": {"schema": "zeroplan.machine/1", "commands": {name: {"exit": 0, "text": name}, "ls /sys/class/net": {"exit": 0, "text": name},
                             "nvidia-smi --query-gpu=index,name,driver_version,memory.used,memory.total --format=csv,noheader,nounits":
                             {"exit": 0, "text": f"0, {name}, 550, 4000, 81559\n"},
                             "nvidia-smi --query-compute-apps=pid,used_memory,process_name --format=csv,noheader,nounits":
                             {"exit": 0, "text": f"1; touch executed, 5, {name}\n"}}},
        }
        for file, document in documents.items():
            (folder / file).write_text(json.dumps(document))
        (folder / "traces.jsonl").write_text(json.dumps({"id": name, "software": name, "config": name}) + "\n")
        line = {"id": name, "source": name, "notes": name, "measured": {"step_seconds": 1.0, "peak_allocated_bytes": 1e9},
                "scenario": {"model": "llama-3.2-1b", "cluster": "2xA100-80G", "workload": {"sequence_length": 64, "micro_batch_size": 1}}}
        (folder / "rows.jsonl").write_text(json.dumps(line) + "\n")
        (folder / "train.log").write_bytes(
            b"\x1b[31m" + name.encode() + b" CUDA out of memory. Tried to allocate 1.00 GiB " + name.encode() + b"\xff\n")
        model = ("--model", "llama-3.2-1b", "--cluster", "2xA100-80G")
        commands = [
            ("simulate", "--scenario", "scenario.json"),
            ("simulate", "--scenario", "scenario_bad.json"),
            ("simulate", *model, "--ds-config", "ds_path.json"),
            ("simulate", "--model", "llama-3.2-1b", "--cluster", "cluster.json"),
            ("simulate", *model, "--profile", "profile.json"),
            ("lint", "ds.json"),
            ("explain", "ds.json", *model),
            ("explain", "train.log"),
            ("models", "--config", "config.json"),
            ("doctor", "--recorded", "machine.json"),
            ("replay", "traces.jsonl"),
            ("validate", "rows.jsonl"),
            ("calibrate", "rows.jsonl"),
            ("import", "train.log", *model),
        ]
        for words in commands:
            box.says(words, folder)
        # A finding's line stays one line.
        _, out, _ = box.zeroplan("lint", "ds.json", cwd=folder)
        check("\nevil" not in out, f"lint with {name!a}: {out!a}"[:400])
    check(not box.executed(), "a name was executed")


def main():
    box = Sandbox(str(Path(sys.argv[1]).resolve()))
    if yaml is None:
        print("SKIPPED: PyYAML IS NOT INSTALLED", file=sys.stderr)
    try:
        for part in (hosts, good_hosts, modules, models, several_hosts, doctor, terminal):
            part(box)
    finally:
        shutil.rmtree(box.folder)
    for text in failures:
        print(f"FAILED: {text}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
