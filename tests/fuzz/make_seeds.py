#!/usr/bin/env python3
"""Writes tests/fuzz/seeds and tests/fuzz/dictionaries from what the repository holds and from texts
written here. Inputs that a fuzzer found (names that begin with found-) stay.

    tests/fuzz/make_seeds.py build/release/bin/zeroplan
"""

import json
import pathlib
import pickle
import re
import subprocess
import sys
import zlib

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SEEDS = HERE / "seeds"
LARGEST_SEED = 12_000  # bytes: a fuzzer works best on small inputs


def write(target, name, text):
    folder = SEEDS / target
    folder.mkdir(parents=True, exist_ok=True)
    data = text if isinstance(text, bytes) else text.encode()
    assert len(data) <= LARGEST_SEED, (target, name, len(data))
    (folder / name).write_bytes(data)


def compact(value):
    return json.dumps(value, separators=(",", ":"))


def json_seeds():
    write("json", "values.json", '{"a":[1,-2,3.5e3,1e-300,true,false,null,"x\\u00e9\\n"],"b":{"~/":{}}}')
    write("json", "relaxed.json", '// one\n{"a": 1, /* two */ "b": [1, 2,],}\n')
    write("json", "numbers.json", "[9223372036854775807,18446744073709551615,-0.0,1e308,0.1]")
    write("json", "twice.json", '{"a":1,"a":2}')
    write("json", "deep.json", "[" * 60 + "]" * 60)
    write("json", "marked.json", b"\xef\xbb\xbf{}\r\n")


def knobs(program):
    output = subprocess.run([program, "knobs", "--json"], check=True, capture_output=True).stdout
    return json.loads(output)["knobs"]


EXAMPLE = {"boolean": True, "integer": 8, "real": 0.5, "text": "cpu", "list": [], "object": {}}


def example(row):
    if row["type"].startswith("`"):  # a choice
        return row["type"].split("`")[1]
    return EXAMPLE[row["type"]]


def put(document, key, value):
    *sections, last = key.strip("/").replace("/", ".").split(".")
    for section in sections:
        document = document.setdefault(section, {})
        if not isinstance(document, dict):
            return
    document.setdefault(last, value)


def ds_config_seeds(rows):
    every = {}
    for row in rows:
        put(every, row["key"], example(row))
    for section, value in every.items():
        write("ds_config", f"every-{section}.json", json.dumps({section: value}))
    write("ds_config", "offload.json", json.dumps({
        "train_batch_size": "auto", "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": "8", "bf16": {"enabled": "auto"},
        "zero_optimization": {
            "stage": 3, "overlap_comm": True, "reduce_bucket_size": 5e8, "sub_group_size": 1e9,
            "offload_optimizer": {"device": "nvme", "nvme_path": "/local", "pin_memory": True},
            "offload_param": {"device": "cpu", "buffer_count": 5}}}, indent=2))
    write("ds_config", "old.json",
          '{"zero_optimization": true, "bfloat16": {"enabled": "true"}, // old\n "optimizer": '
          '{"type": "Adam", "params": {"lr": 1e-5, "betas": [0.9, 0.95]}}, "steps_per_print": 1,}')
    write("ds_config", "spelling.json",
          '{"zero_optimization": {"stage": 2, "cpu_offload": true, "comm_overlap": true, '
          '"stage3_gather_fp16_weights_on_model_save": false}}')


def shrunk(config):
    """The same with few layers and experts: a fuzzer lists their tensors in every run."""
    small = {}
    for key, value in config.items():
        if isinstance(value, dict):
            small[key] = shrunk(value)
        elif isinstance(value, int) and re.search("layer|depth|experts", key) and value > 4:
            small[key] = 4
        else:
            small[key] = value
    return small


def is_read(program, config):
    path = SEEDS / "config.json"
    path.write_text(compact(config))
    read = subprocess.run([program, "models", "--config", path], capture_output=True, check=False)
    path.unlink()
    return read.returncode == 0


def hf_config_seeds(program):
    by_type = {}
    for config in json.loads((ROOT / "tests/reference/layout_configs.json").read_text()):
        kept = by_type.setdefault(config["model_type"], [])
        if len(kept) < 2:
            kept.append(config)
    for path in sorted((ROOT / "configs/models").glob("*.json")):
        config = json.loads(path.read_text())["config"]
        by_type.setdefault(config.get("model_type", "none"), [config])
    for model_type, configs in by_type.items():
        for number, config in enumerate(configs):
            small = shrunk(config)
            text = compact(small if is_read(program, small) else config)
            if len(text) <= LARGEST_SEED:
                write("hf_config", f"{model_type}-{number}.json", text)


CLUSTERS = ["2x4xA800-80G", "8xH100", "cpu", "4 x rtx 4090", "1*8*V100-32G-SXM2"]
INLINE_CLUSTER = {
    "nodes": 2, "gpus_per_node": 4,
    "gpu": {"name": "B9", "memory_bytes": 8e10, "memory_bandwidth": 2e12, "peak_flops": 3e14,
            "compute_capability": "9.0"},
    "intra_node": {"link": "nvlink", "bandwidth": 2e11, "latency": 6e-7},
    "inter_node": {"link": "ib", "bandwidth": 2.5e10, "latency": 3e-6},
    "host_memory_bytes": 1e12, "host_memory_bandwidth": 2e11, "cpu_cores": 64,
    "pcie_bandwidth": 2.5e10,
    "nvme": {"read_bandwidth": 6e9, "write_bandwidth": 3e9, "capacity_bytes": 4e12}}


def cluster_seeds():
    for number, text in enumerate(CLUSTERS):
        write("cluster", f"text-{number}", text)
    write("cluster", "inline.json", compact(INLINE_CLUSTER))
    for path in sorted((ROOT / "configs/clusters").glob("*.json")):
        write("cluster", path.name, path.read_text())


def hostfile_seeds():
    write("hostfile", "two", "worker-1 slots=8\nworker-2 slots=8 # spare\n\n# end\n")
    write("hostfile", "windows", "10.0.0.1\tslots=4\r\n10.0.0.2 slots=4\r\n")
    write("hostfile", "unequal", "a slots=4\nb slots=8\na slots=4\nc\nd slots=-1\n")


SMALL_MODEL = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2,
               "num_attention_heads": 4, "intermediate_size": 96, "vocab_size": 128}


def scenarios():
    workload = {
        "sequence_length": 2048, "micro_batch_size": 1, "gradient_accumulation_steps": 4,
        "method": {"lora": {"rank": 8, "targets": ["q_proj", "v_proj"]}}, "precision": "bf16",
        "optimizer": "adamw", "attention": "flash", "activation_checkpointing": "full",
        "checkpoint_reentrant": True, "activation_offload": "none", "engine": "deepspeed",
        "frontend": "hf-trainer", "implementation": "hf", "fused_loss": False, "compile": False,
        "pipeline_parallel": 1, "tensor_parallel": 1, "sequence_parallel": 1,
        "dataset": {"samples": 20000, "epochs": 3, "mean_tokens": 512, "padding": "longest"}}
    yield "full", {"id": "s", "model": SMALL_MODEL, "cluster": "2x4xA800-80G", "workload": workload,
                   "software": {"deepspeed": "0.16.4", "torch": 2.6, "transformers": "4.50"},
                   "ds_config": {"zero_optimization": {"stage": 3}}}
    yield "inline", {"model": SMALL_MODEL, "cluster": INLINE_CLUSTER,
                     "workload": {"frontend": "native", "precision": "fp16"},
                     "ds_config": {"fp16": {"enabled": True}, "zero_optimization": {
                         "stage": 2, "offload_optimizer": {"device": "cpu"}}}}
    yield "small", {"model": SMALL_MODEL, "cluster": "8xH100", "workload": {"sequence_length": 1e3}}
    yield "nvme", {"model": SMALL_MODEL, "cluster": "1x2xRTX4090",
                   "software": {"deepspeed": "0.12.6"},
                   "ds_config": {"train_batch_size": 16, "zero_optimization": {
                       "stage": 3, "offload_optimizer": {"device": "nvme"},
                       "offload_param": {"device": "nvme"}, "zero_hpz_partition_size": 2}}}


def scenario_seeds():
    for name, scenario in scenarios():
        write("scenario", f"{name}.json", compact(scenario))
        write("plan", f"{name}.json", compact(scenario))
    write("scenario", "flag-method", '\x08{"lora":{"rank":8}}')
    write("scenario", "flag-seq", "\x054096")


def profile_seeds():
    def profile(values, **more):
        return {"schema": "zeroplan.profile/1", "name": "bench", "date": "2026-11-22", "provenance": "measured",
                "values": values, **more}

    write("profile", "machine.json", compact(profile([
        {"name": "host_memory_bytes", "value": 270000000000, "unit": "bytes", "provenance": "measured: /proc/meminfo"},
        {"name": "host_memory_bandwidth", "value": 2e10, "unit": "bytes/s", "relative_sd": 0.03},
        {"name": "cpu_cores", "value": 6, "unit": "1"}, {"name": "cpu_sockets", "value": 2},
        {"name": "pcie_bandwidth", "value": 2.5e10, "unit": "bytes/s"},
        {"name": "nvme_read_bandwidth", "value": 6e9, "unit": "bytes/s"},
        {"name": "nvme_write_bandwidth", "value": 3e9, "unit": "bytes/s"},
        {"name": "nvme_capacity_bytes", "value": 4e12, "unit": "bytes"}])))
    write("profile", "fitted.json", compact(profile(
        [{"name": "cpu_adam_process_rate", "value": 2e8, "unit": "1/s", "relative_sd": 0.02, "gpu": ""},
         {"name": "matmul_sustained_derate", "value": 1.2, "relative_sd": 0.02, "gpu": "rtx_4090"}],
        range={"parameters": [1e8, 3e10], "sequence_length": [512, 4096], "gpus": [1, 64],
               "tokens_per_micro_batch": [512, 8192], "cards": ["rtx_4090", "a100"]})))
    for name in ("profile", "profile_bad"):
        write("profile", name + ".json", (ROOT / "tests/golden/input" / (name + ".json")).read_text())
    write("profile", "range.json", compact(profile([], range={"parameters": [3e10, 1e8], "cards": {"a": 1}, "gpus": None})))


def measurement_seeds():
    lines = []
    for number, (_, scenario) in enumerate(scenarios()):
        lines.append(compact({
            "id": f"m{number}", "source": "log", "tier": "A", "group": "g", "scenario": scenario,
            "measured": {"peak_allocated_bytes": 41e9, "peak_reserved_bytes": 42000000000,
                         "step_seconds": 1.25, "mfu": 0.43, "fits": True,
                         "max_micro_batch_size": 4, "tokens_per_second_per_gpu": 3900.5},
            "notes": "n", "uncertainty": {"step_seconds": 0.02}}))
    write("measurement", "four.jsonl", "\n".join(lines) + "\n")
    write("measurement", "short.jsonl", '{"id":"a","source":"b","scenario":{},"measured":'
          '{"samples_per_second":10,"host_peak_bytes":1e11},"uncertainty":0.1}\r\n')
    write("measurement", "bad.jsonl", '{"id":1}\n\n[]\n{"id":\n{"id":"a","source":"b","scenario":'
          '{"model":3},"measured":{"mfu":43,"step_second":1},"uncertainty":"2 runs"}\n')


OOM_TEXTS = {
    "torch-1.x": "RuntimeError: CUDA out of memory. Tried to allocate 1.25 GiB (GPU 5; 31.75 GiB total "
                 "capacity; 28.02 GiB already allocated; 771.50 MiB free; 19.79 GiB allowed; 29.80 GiB "
                 "reserved in total by PyTorch) If reserved memory is >> allocated memory try\n",
    "torch-1.0": "CUDA out of memory. Tried to allocate 16.50 MiB (GPU 0; 10.76 GiB total capacity; "
                 "9.31 GiB already allocated; 8.56 MiB free; 431.02 MiB cached)\n",
    "torch-2.1": "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 172.00 MiB. GPU 0 "
                 "has a total capacty of 23.65 GiB of which 88.06 MiB is free. Process 4242 has 402.00 "
                 "MiB memory in use. Of the allocated memory 22.01 GiB is allocated by PyTorch, and "
                 "3.40 MiB is reserved by PyTorch but unallocated.\n",
    "torch-2.6": "\x1b[31m[rank1]:\x1b[0m torch.OutOfMemoryError: CUDA out of memory. Tried to allocate "
                 "224.00 MiB. GPU 1 has a total capacity of 47.43 GiB of which 101.25 MiB is free. "
                 "Including non-PyTorch memory, this process has 17179869184.00 GiB memory in use. "
                 "15.84 GiB allowed; Of the allocated memory 33.61 GiB is allocated by PyTorch, with "
                 "24.00 MiB allocated in private pools (e.g., CUDA Graphs), and 297.12 MiB is reserved "
                 "by PyTorch but unallocated.\r\n",
    "wrapped": "3: CUDA out of memory. Tried to\n1: step 12\n> 3: allocate more than 1EB memory.\n"
               "[1,3]<stderr>:HIP out of memory. Tried to allocate 0 bytes.\n"
               "(W pid=7, ip=1.2.3.4) NPU out of memory. Tried to allocate 2.5 GiB (NPU 2; 3 MiB free)\n",
    "libraries": "RuntimeError: CUDA error: out of memory\ncuda runtime error (2) : out of memory\n"
                 "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling\n"
                 "n:12:34 [3] a.h:1 NCCL WARN Cuda failure 'out of memory'\n"
                 "n:12:34 [3] a.h:2 NCCL WARN Failed to CUDA calloc async 6291456 bytes\n"
                 "per_process_memory_fraction limit. Requested size: 3.00 GiB\n",
    "host": "DefaultCPUAllocator: can't allocate memory: you tried to allocate 26954174464 bytes.\n"
            "[Errno 12] Cannot allocate memory\nstd::bad_alloc\nfailed (exitcode: -9) local_rank: 1 "
            "(pid: 4711) of\n  exitcode  : -9 (pid: 4711)\nSignal 9 (SIGKILL) received by PID 4711\n"
            "exits with return code = -9\nexits with return code = -7\nBus error (core dumped)\n"
            "Memory cgroup out of memory: Killed process 9 (p) total-vm:9kB, anon-rss:786432000kB\n"
            "Detected 1 oom_kill event in StepId=1.0\nOOMKilled\n",
}


def oom_seeds():
    for name, text in OOM_TEXTS.items():
        write("oom_text", name, text)


def import_seeds():
    """The samples of the golden tests; long ones by their beginning."""
    for path in sorted((ROOT / "tests/golden/input/import").rglob("*")):
        if path.is_file():
            write("import", "-".join(path.parts[-2:]) if path.name.endswith("json") else path.name,
                  path.read_bytes()[:LARGEST_SEED])
    for protocol in (2, 4):
        write("import", f"snapshot-{protocol}", pickle.dumps(SNAPSHOT, protocol))


SNAPSHOT = {
    "segments": [{"device": 0, "address": 0x7F0000000000, "total_size": 2097152, "stream": 0,
                  "segment_pool_id": (0, 0), "is_expandable": False, "blocks": [
                      {"address": 0x7F0000000000, "size": 1024, "state": "active_allocated"},
                      {"address": 0x7F0000000400, "size": 2096128, "state": "inactive"}]}],
    "device_traces": [[{"action": action, "addr": 0x7F0000000400, "size": 5000, "time_us": 1}
                       for action in ("segment_alloc", "alloc", "free_requested", "free_completed",
                                      "oom", "segment_free")], []],
    "allocator_settings": {"expandable_segments": False, "garbage_collection_threshold": 0.5},
    "external_annotations": None}


def unpickle_seeds():
    shared = [1, -2, 70000, 1 << 40, -(1 << 40), 1 << 63]
    for protocol in (2, 3, 4, 5):
        write("unpickle", f"snapshot-{protocol}", pickle.dumps(SNAPSHOT, protocol))
        write("unpickle", f"shared-{protocol}", pickle.dumps(
            {"a": shared, "b": shared, "c": (shared, (), (1,), (1, 2), (1, 2, 3, 4)), "d": 0.5,
             "e": "\u00e9" * 300, "f": True}, protocol))
    write("unpickle", "calls", b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85R.")
    write("unpickle", "holds-itself", b"\x80\x02]q\x00h\x00a.")


def replay_seeds():
    """The smallest recording of each kind of engine, cut to a step where it is long."""
    smallest = {}
    for path in sorted((ROOT / "tests/engine/data").glob("*/*.jsonl")):
        for line in path.read_text().splitlines():
            recording = json.loads(line)
            zero = recording["ds_config"].get("zero_optimization", {})
            kind = (recording.get("wrapper"), zero.get("stage"),
                    "offload_optimizer" in zero, "offload_param" in zero, path.parent.name)
            text = compact(recording)
            if len(text) > LARGEST_SEED:
                recording["steps"] = recording["steps"][:1]
                text = compact(recording)
            if kind not in smallest or len(text) < len(smallest[kind]):
                smallest[kind] = text
    for kind, text in sorted(smallest.items(), key=str):
        if len(text) <= LARGEST_SEED:
            name = "-".join(str(part) for part in kind if part not in (False, None))
            write("replay", f"{name}.jsonl", text + "\n")


def number(value, size=4):
    return (value % (1 << (8 * size))).to_bytes(size, "little")


BINARY_WORDS = {}  # of targets whose input is no text, as libFuzzer's dictionaries write bytes


def rank_messages_seeds():
    """Every message of runtime/processes/rank_messages, written as it is described there."""
    opening = number(0x7A65726F706C616E, 8) + number(2)
    digest = bytes(range(32))
    reason = "error: no such file\nhint: look".encode()

    def word(which, rest=b""):
        return number(which) + number(len(rest)) + rest

    def hello(purpose, port, text=b""):
        return (opening + number(purpose) + number(77, 8) + number(5, 8) + number(1) + number(3)
                + number(port) + number(len(text)) + digest + text + digest)

    def place(host, port):
        return host.ljust(64, b"\0") + number(port)

    messages = {
        "challenge": opening + digest,
        "hello": hello(0, 4242),
        "hello-failure": hello(1, 0, reason),
        "hello-data": hello(2, 0),
        "hello-other-release": number(0x7A65726F706C616E, 8) + number(3),
        "reply": opening + number(0) + digest,
        "reply-twice": opening + number(4) + digest,
        "beat": word(0),
        "failure": word(1, reason),
        "done": word(2),
        "here": word(3),
        "places": word(4, place(b"", 1) + place(b"10.0.0.7", 65535) + place(b"fe80::1%eth0", 80)),
        "connected": word(5),
        "go": word(6),
        "call": number(7, 8) + number(-1, 8) + number(1001, 8) + number(2) + number(1) + number(7)
                + number(2),
        "call-nonsense": number(7, 8) + number(-1, 8) + number(1001, 8) + number(99) + number(-1)
                         + number(1 << 30) + number(3),
        "fingerprint": b"model.heads=4\ndata.seed=0\nds_config./zero_optimization/stage=3\n"}
    for name, content in messages.items():
        write("rank_messages", name, content)
    # Extreme numbers, for libFuzzer to put where sizes, ranks and enumerators stand.
    extremes = [0, 1, 2, 3, 4, 5, 6, 7, 8, 4095, 4096, 4097, 65535, 65536, 1 << 14, (1 << 14) + 1,
                204, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF]
    words = {opening, digest[:8]} | {number(value) for value in extremes}
    words |= {number(value, 8) for value in (1 << 63, (1 << 63) - 1, (1 << 64) - 1)}
    BINARY_WORDS["rank_messages"] = {
        "".join(f"\\x{byte:02x}" for byte in one) for one in words}


def checkpoint_state_seeds():
    """state.json as `run --save` writes it, as a release before did, and with extreme numbers."""
    def sealed(document):
        body = json.dumps(document, indent=2)[:-2]
        return f'{body},\n  "crc32": {zlib.crc32(body.encode())}\n}}\n'

    files = {name: {"bytes": 4096, "crc32": 305419896}
             for name in ("model.safetensors", "optimizer.safetensors")}
    scaler = {"scale": 65536.0, "hysteresis": 2, "iteration": 7, "last_overflow": -1}
    state = {"schema": "zeroplan.checkpoint/2", "run": "0123456789abcdef", "steps": 7, "rows": 56,
             "updates": 7, "loss_scaler": None,
             "curve": {"model.heads": "4", "optimizer.lr": "0.001"}, "files": files}
    write("checkpoint_state", "whole", sealed(state).encode())
    write("checkpoint_state", "fp16", sealed({**state, "loss_scaler": scaler}).encode())
    old = {"schema": "zeroplan.checkpoint/1", "steps": 7, "rows": 56, "updates": 7,
           "loss_scale": 65536.0, "files": files}
    write("checkpoint_state", "old", (json.dumps(old, indent=2) + "\n").encode())
    extremes = [0, -1, 1 << 31, 1 << 53, (1 << 53) + 1, (1 << 62), (1 << 63) - 1]
    for value in extremes:
        write("checkpoint_state", f"rows{value}", sealed({**state, "rows": value}).encode())
    overflow = {**scaler, "last_overflow": (1 << 63) - 1, "scale": 1e308}
    write("checkpoint_state", "overflow", sealed({**state, "loss_scaler": overflow}).encode())


def safetensors_seeds():
    """Headers alone (the target puts a length in front) and files with theirs."""
    def tensor(dtype, shape, begin, end):
        return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}

    header = {"__metadata__": {"format": "pt"}, "wte.weight": tensor("F32", [8, 4], 0, 128),
              "ln.bias": tensor("BF16", [4], 128, 136), "scale": tensor("F16", [], 136, 138),
              "none": tensor("F32", [0, 7], 138, 138)}
    write("safetensors", "header.json", compact(header))
    for extreme in (int(text) for text in EXTREMES[:6]):
        write("safetensors", f"shape{extreme}.json", compact({"a": tensor("F32", [extreme, 2], 0, 8)}))
        write("safetensors", f"end{extreme}.json", compact({"a": tensor("F16", [4], 0, extreme)}))
    small = compact({"a": tensor("F32", [2], 0, 8)}).encode()
    write("safetensors", "file", number(len(small), 8) + small + bytes(8))
    write("safetensors", "cut", number(len(small), 8) + small)
    write("safetensors", "long", number(1 << 63, 8) + small)


def calibrate_seeds():
    """Whole measurement lines of small models, with stated spreads and timings of parts."""
    lines = []
    for name, scenario in scenarios():
        base = {"id": name, "source": "https://github.com/o/r (log)", "tier": "A", "scenario": scenario,
                "measured": {"step_seconds": 0.25, "peak_allocated_bytes": 2e9}, "uncertainty": 0.02}
        lines += [base, {**base, "uncertainty": {"step_seconds": 0.0}},
                  {**base, "tier": "C", "measured": {"mfu": 0.4, "peak_reserved_bytes": 3e9}},
                  {**base, "measured": {"samples_per_second": 1e-320, "host_peak_bytes": 1e11}}]
    parts = json.loads((ROOT / "tests/golden/input/calibrate.jsonl").read_text().splitlines()[0])
    for position, line in enumerate([*lines, parts]):
        write("calibrate", f"{position}.jsonl", compact(line) + "\n")
    timings = [{"operation": "all_gather", "bytes": 1 << 28, "seconds": 0.002, "ranks": 8}]
    write("calibrate", "collectives.jsonl", compact({
        "id": "c", "source": "nccl-tests", "scenario": {"cluster": "2x4xA800-80G"},
        "collectives": timings}) + "\n")


def batch_line_seeds():
    for name, scenario in scenarios():
        write("batch_line", f"{name}.json", compact(scenario))
        small = json.loads(compact(scenario))
        small.setdefault("workload", {}).update({"sequence_length": 128, "method": "full"})
        write("batch_line", f"{name}-short.json", compact(small))
    for engine in ("ddp", "fsdp", "embedded"):
        write("batch_line", f"{engine}.json", compact({
            "id": 7, "model": SMALL_MODEL, "cluster": "8xH100",
            "workload": {"sequence_length": 128, "engine": engine}}))


def doctor_seeds():
    for path in sorted((ROOT / "tests/golden/input/doctor").glob("*.json")):
        write("doctor", path.name, compact(json.loads(path.read_text())))


def trace_seeds():
    """What `zeroplan trace` recorded, with one layer or with none, and a document of one product."""
    for path in sorted((ROOT / "tests/reference/traced").glob("*.graph.json")):
        document = json.loads(path.read_text())
        layers = [call for call in document["calls"] if call["layer"]]
        for name, kept in (("one", layers[:1]), ("none", [])):
            gone = tuple(call["prefix"] for call in layers[len(kept):])
            small = dict(document)
            small["modules"] = [module for module in document["modules"]
                                if not (module["name"] + ".").startswith(gone)]
            calls = [call for call in document["calls"] if call in kept or not call["layer"]]
            used = sorted({call["block"] for call in calls})
            small["blocks"] = [document["blocks"][block] for block in used]
            small["calls"] = [{**call, "block": used.index(call["block"])} for call in calls]
            small["shape"] = {**document["shape"], "layers": len(kept)}
            text = compact(small)
            if len(text) <= LARGEST_SEED:
                write("trace", f"{path.name.split('.')[0]}-{name}.json", text)
    product = {
        "schema": "zeroplan.graph/1", "name": "Toy", "model_type": "toy", "source": "by hand",
        "software": {"torch": "2.11.0", "transformers": "5.17.0", "python": "3.11.7"}, "dtype": "bf16",
        "attention": "sdpa", "traced": {"batches": [2, 3, 5], "sequences": [128, 256, 512]},
        "shape": {"hidden": 64, "layers": 0, "heads": 1, "vocabulary": 100, "positions": 512},
        "inputs": {"x": {"dtype": "model", "shape": [[0, 1, 0, 0], [0, 0, 1, 0], 64]}}, "buffers": {},
        "modules": [{"name": "", "type": "Toy"},
                    {"name": "fc", "type": "Linear", "parameters": {"weight": [64, 100]}}],
        "slots": 0,
        "blocks": [{"name": "all", "input": None, "output": 0, "takes": [], "gives": [], "held": [],
                    "tensors": [{"dtype": "model", "shape": []},
                                {"dtype": "model", "shape": [[0, 1, 0, 0], [0, 0, 1, 0], 100]}],
                    "events": [{"enter": "fc", "tensor": None},
                               {"op": "mm", "in": ["input:x", "parameter:fc.weight"], "out": [1],
                                "saves": ["input:x"]},
                               {"leave": "fc", "tensor": 1}, {"op": "sum", "in": [1], "out": [0]}]}],
        "calls": [{"block": 0, "prefix": "", "layer": False}]}
    write("trace", "product.json", compact(product))
    product["modules"][1]["parameters"]["weight"] = [100, 64]
    write("trace", "product-inner-sizes.json", compact(product))


# Numbers at and beyond what types and readers hold.
EXTREMES = ["0", "-1", "2147483648", "9007199254740993", "4611686018427387904",
            "9223372036854775807", "-9223372036854775808", "18446744073709551616", "1e308",
            "-1e308", "1e-320", "1e999", "4294967296", "0.5", "-0.0"]


def dictionary(target):
    """The words in quotes of a target's seeds and extreme numbers, for libFuzzer to insert."""
    words = set(EXTREMES)
    for path in (SEEDS / target).iterdir():
        text = path.read_bytes().decode("utf-8", "replace")
        words.update(re.findall(r'"([A-Za-z0-9_./-]{2,48})"', text))
    if target == "import":
        for path in (SEEDS / target).iterdir():
            text = path.read_bytes().decode("utf-8", "replace")
            words.update(re.findall(r"[A-Za-z][A-Za-z _()-]{3,46}[:=]", text))
    if target == "oom_text":
        for text in OOM_TEXTS.values():
            words.update(re.findall(r"[A-Za-z][A-Za-z' _-]{4,46}[A-Za-z]", text))
    lines = "".join(f'"{word}"\n' for word in sorted(words | BINARY_WORDS.get(target, set())))
    (HERE / "dictionaries").mkdir(exist_ok=True)
    (HERE / "dictionaries" / f"{target}.txt").write_text(lines)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    for path in SEEDS.glob("*/*"):
        if not path.name.startswith("found-"):
            path.unlink()
    json_seeds()
    ds_config_seeds(knobs(sys.argv[1]))
    hf_config_seeds(sys.argv[1])
    cluster_seeds()
    hostfile_seeds()
    scenario_seeds()
    profile_seeds()
    measurement_seeds()
    oom_seeds()
    import_seeds()
    unpickle_seeds()
    replay_seeds()
    rank_messages_seeds()
    checkpoint_state_seeds()
    safetensors_seeds()
    calibrate_seeds()
    batch_line_seeds()
    doctor_seeds()
    trace_seeds()
    for target in sorted(path.name for path in SEEDS.iterdir()):
        dictionary(target)


if __name__ == "__main__":
    main()
