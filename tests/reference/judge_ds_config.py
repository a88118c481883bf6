#!/usr/bin/env python3
"""DeepSpeed itself as the judge of ds_config.json files.

  judge_ds_config.py record --python A/bin/python [--python B/bin/python ...]
      rewrites ds_config_judgements.json: what each interpreter's DeepSpeed says about every file of
      data/corpus/ds_configs and of ds_config_mutations.json
  judge_ds_config.py fits --zeroplan build/release/bin/zeroplan --python A/bin/python ...
      every strategy of `zeroplan fit --json`, models x clusters x front ends: accepted, the batch
      sizes as zeroplan says, no key unread; exit 1 where one is not
  judge_ds_config.py judge FILE [--gpus N]
      one file, by the interpreter that runs this script

An interpreter needs DeepSpeed, torch (CPU), transformers and accelerate. A file with an "auto" is
for the Hugging Face Trainer: TrainingArguments, HfTrainerDeepSpeedConfig and accelerate's plugin
fill it first, with arguments that agree with what the file says; any other file goes to DeepSpeed
as it is. The judge is DeepSpeed's parser (DeepSpeedConfig); no engine starts.
"""
import argparse
import collections
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings

HERE = pathlib.Path(__file__).resolve().parent
CORPUS = HERE.parent.parent / "data" / "corpus" / "ds_configs"
MUTATIONS = HERE / "ds_config_mutations.json"
JUDGEMENTS = HERE / "ds_config_judgements.json"
MODELS = ["qwen2.5-0.5b", "llama-2-7b", "gpt2-xl", "bert-large-uncased", "mixtral-8x7b"]
CLUSTERS = ["1x1xRTX4090-24G", "1x8xA100-80G", "2x4xA800-80G"]
WORKLOADS = [[], ["--mbs", "2", "--gas", "4", "--precision", "fp16"], ["--precision", "fp32"],
             ["--optimizer", "lion"], ["--optimizer", "sgd"], ["--optimizer", "adafactor"]]
HIDDEN_SIZE = 4096  # of the model that a corpus file with sizes "auto" is filled for
TOTAL_STEPS = 1000


# --- the interpreter that has DeepSpeed -----------------------------------------------------------
class Recording(dict):
    """A dict that knows which of its keys were read; nested dicts too.

    Overriding __iter__ makes ** go through keys() and __getitem__, so sections that are unpacked
    into a pydantic class count as read (it refuses what it does not know)."""

    def __init__(self, plain, reads=None, path=""):
        self.reads = {} if reads is None else reads
        self.path = path
        for key, value in plain.items():
            place = f"{path}/{key.replace('~', '~0').replace('/', '~1')}"
            self.reads[place] = False
            nested = Recording(value, self.reads, place) if isinstance(value, dict) else value
            super().__setitem__(key, nested)

    def seen(self, key):
        place = f"{self.path}/{str(key).replace('~', '~0').replace('/', '~1')}"
        if place in self.reads:
            self.reads[place] = True

    def seen_whole(self):
        for key in super().keys():
            self.seen(key)
            value = super().__getitem__(key)
            if isinstance(value, Recording):
                value.seen_whole()

    def __getitem__(self, key):
        self.seen(key)
        return super().__getitem__(key)

    def get(self, key, default=None):
        self.seen(key)
        return super().get(key, default)

    def pop(self, key, *default):
        self.seen(key)
        return super().pop(key, *default)

    def items(self):  # asking for every pair is reading: monitors, aio
        for key in list(super().keys()):
            yield key, self[key]

    def __iter__(self):
        return super().__iter__()

    def __copy__(self):
        copy = Recording({})
        copy.reads, copy.path = self.reads, self.path
        for key, value in super().items():
            dict.__setitem__(copy, key, value)
        return copy

    def __deepcopy__(self, memo):
        return self.__copy__()

    def unread(self):
        """Places nobody read, without what stands inside one of them or inside a value that was
        read as a whole by a class which does not record."""
        missing = [place for place, seen in self.reads.items() if not seen]
        return [p for p in missing if not any(p.startswith(q + "/") for q in missing)]


class Judge:
    def __init__(self):
        os.environ.update(DS_ACCELERATOR="cpu", DS_IGNORE_CUDA_DETECTION="1",
                          TRANSFORMERS_VERBOSITY="error", ACCELERATE_USE_DEEPSPEED="false")
        warnings.simplefilter("ignore")
        from torch._library import infer_schema
        # DeepSpeed 0.19 annotates its operators with list[int], which torch 2.6 does not know.
        for plain in (int, float, bool):
            known = infer_schema.SUPPORTED_PARAM_TYPES
            known.setdefault(list[plain], {int: "SymInt[]", float: "float[]", bool: "bool[]"}[plain])
        import accelerate
        import deepspeed
        import deepspeed.runtime.config as config
        import hjson
        import transformers
        from deepspeed.runtime.config_utils import dict_raise_error_on_duplicate_keys
        from deepspeed.utils import logger
        logger.setLevel("ERROR")
        self.world = 1
        config.dist.get_rank = lambda *a, **k: 0
        config.dist.get_world_size = lambda *a, **k: self.world
        self.deepspeed_config = config.DeepSpeedConfig
        watch_nested_sections()
        self.read_hjson = lambda text: hjson.loads(
            text, object_pairs_hook=dict_raise_error_on_duplicate_keys)
        self.versions = {"deepspeed": deepspeed.__version__.split("+")[0],
                         "transformers": transformers.__version__,
                         "accelerate": accelerate.__version__}

        class Arguments(transformers.TrainingArguments):
            world_size = property(lambda arguments: self.world)

        self.arguments = Arguments

    def judge(self, text, world, trainer=None, workload=None):
        """{"verdict", "by", "message"} or {"verdict", "batch", "unread"}. `workload` says what the
        Trainer's arguments are; without one they agree with the file."""
        self.world = world
        try:
            if trainer if trainer is not None else '"auto"' in text:
                plain = self.filled_by_trainer(text, workload)
            else:
                plain = self.read_hjson(text)
            recording = Recording(plain) if isinstance(plain, dict) else plain
            parsed = self.deepspeed_config(recording)
        except Exception as error:  # whatever DeepSpeed raises is its verdict
            return {"verdict": "rejected", "by": raised_by(error), "message": words_of(error)}
        batch = [int(parsed.train_batch_size), int(parsed.train_micro_batch_size_per_gpu),
                 int(parsed.gradient_accumulation_steps)]
        return {"verdict": "accepted", "batch": batch,
                "unread": sorted(unread_keys(recording))}

    def filled_by_trainer(self, text, workload):
        with tempfile.NamedTemporaryFile("w", suffix=".json", delete=False) as file:
            file.write(text)
        try:
            said = json.loads(text) if workload is None else {}
            arguments = self.arguments(
                output_dir=tempfile.gettempdir(), deepspeed=file.name, report_to=[], use_cpu=True,
                **(agreeing_arguments(said, self.world) if workload is None else workload))
        finally:
            os.unlink(file.name)
        filled = arguments.hf_deepspeed_config
        hidden = HIDDEN_SIZE
        model = type("M", (), {"config": type("C", (), {"hidden_size": hidden})()})()
        steps = value_at(said, "scheduler/params/total_num_steps")
        filled.trainer_config_finalize(arguments, model,
                                       steps if isinstance(steps, int) else TOTAL_STEPS)
        # Accelerator._prepare_deepspeed fills these before deepspeed.initialize, and refuses any
        # other "auto" that is left.
        zero = "zero_optimization."
        arguments.deepspeed_plugin.deepspeed_config_process(
            must_match=False, **{"gradient_clipping": 1.0,
                                 zero + "stage3_gather_16bit_weights_on_model_save": False,
                                 zero + "reduce_bucket_size": hidden**2,
                                 zero + "stage3_prefetch_bucket_size": int(0.9 * hidden**2),
                                 zero + "stage3_param_persistence_threshold": 10 * hidden})
        config = dict(filled.config)
        config.pop("steps_per_print", None)  # accelerate's own
        return config


def watch_nested_sections():
    """pydantic reads a nested section past __getitem__. What became a class of DeepSpeed's was read
    whole: those classes refuse keys they do not know."""
    from deepspeed.runtime.config_utils import DeepSpeedConfigModel
    from pydantic import BaseModel
    plain_init = DeepSpeedConfigModel.__init__

    def init(self, strict=False, **data):
        plain_init(self, strict=strict, **data)
        for key, value in data.items():
            if isinstance(value, Recording) and isinstance(getattr(self, key, None), BaseModel):
                value.seen_whole()
    DeepSpeedConfigModel.__init__ = init


def unread_keys(recording):
    """Keys that no part of DeepSpeed reads. Parameters of optimizer and scheduler are read by the
    class that gets them, as its arguments."""
    import inspect
    import torch
    from deepspeed.ops.adam import DeepSpeedCPUAdam, FusedAdam
    from deepspeed.runtime import lr_schedules
    classes = {"adam": (FusedAdam, DeepSpeedCPUAdam), "adamw": (FusedAdam, DeepSpeedCPUAdam),
               "sgd": (torch.optim.SGD,)}
    # engine.py:_configure_basic_optimizer takes these out for itself.
    own = {"torch_adam", "adam_w_mode", "max_grad_norm"}
    unread = []
    for place in recording.unread():
        parts = place.split("/")[1:]
        if parts[:2] in (["optimizer", "params"], ["scheduler", "params"]):
            name = str(dict.get(dict.get(recording, parts[0]), "type", ""))
            takers = (classes.get(name.lower(), ()) if parts[0] == "optimizer"
                      else tuple(filter(None, [getattr(lr_schedules, name, None)])))
            names = [parts[2]] if len(parts) > 2 else list(
                dict.get(dict.get(recording, parts[0]), "params", {}))
            for key in names:
                known = not takers or any(
                    key in inspect.signature(taker.__init__).parameters for taker in takers)
                if not known and key not in own:
                    unread.append("/" + "/".join(parts[:2] + [key]))
        else:
            unread.append(place)
    return set(unread)


def value_at(config, path):
    for key in path.split("/"):
        config = config.get(key) if isinstance(config, dict) else None
    return None if config == "auto" else config


def agreeing_arguments(config, world):
    """TrainingArguments that say what the file says, so that only the file is judged."""
    arguments = {}

    def agree(name, path, kind=(int, float)):
        value = value_at(config, path)
        if isinstance(value, kind) and not isinstance(value, bool):
            arguments[name] = value
    agree("gradient_accumulation_steps", "gradient_accumulation_steps", int)
    agree("per_device_train_batch_size", "train_micro_batch_size_per_gpu", int)
    train = value_at(config, "train_batch_size")
    if isinstance(train, int) and "per_device_train_batch_size" not in arguments:
        per_rank = world * arguments.get("gradient_accumulation_steps", 1)
        arguments["per_device_train_batch_size"] = max(1, train // per_rank)
    arguments.setdefault("per_device_train_batch_size", 1)
    agree("max_grad_norm", "gradient_clipping")
    agree("learning_rate", "scheduler/params/warmup_max_lr")
    agree("learning_rate", "optimizer/params/lr")
    agree("adam_epsilon", "optimizer/params/eps")
    agree("weight_decay", "optimizer/params/weight_decay")
    betas = value_at(config, "optimizer/params/betas")
    if isinstance(betas, list) and len(betas) == 2:
        arguments["adam_beta1"], arguments["adam_beta2"] = betas
    agree("warmup_steps", "scheduler/params/warmup_num_steps", int)
    flags = {name: config.get(name, {}).get("enabled") if isinstance(config.get(name), dict)
             else None for name in ("fp16", "bf16")}
    for name in ("bf16", "fp16"):
        if flags[name] is True or (flags[name] == "auto" and not arguments.get("bf16")
                                   and flags["fp16" if name == "bf16" else "bf16"] is not True):
            arguments[name] = True
    return arguments


def raised_by(error):
    """The library whose code was last on the way to the error; DeepSpeed where hjson raised."""
    names = {"accelerate": "accelerate", "transformers": "transformers", "deepspeed": "DeepSpeed"}
    by, frame = "DeepSpeed", error.__traceback__
    while frame is not None:
        for part in pathlib.Path(frame.tb_frame.f_code.co_filename).parts:
            by = names.get(part, by)
        frame = frame.tb_next
    return by


def words_of(error):
    """The message in a line: pydantic's errors without their links, others without long values."""
    if type(error).__name__ == "ValidationError" and hasattr(error, "errors"):
        return f"{error.title}: " + "; ".join(
            ".".join(str(part) for part in one["loc"]) + ": " + one["msg"] for one in error.errors())
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}"


# --- recording ------------------------------------------------------------------------------------
def world_of(text):
    """The smallest number of GPUs for which the batch sizes of a file agree; 1 where none does."""
    try:
        config = json.loads(text)
        sizes = [config.get(key) for key in ("train_batch_size", "train_micro_batch_size_per_gpu",
                                             "gradient_accumulation_steps")]
    except (ValueError, AttributeError):
        return 1
    train, micro, steps = (x if isinstance(x, int) and x > 0 else None for x in sizes)
    if not train or not micro:
        return 1
    return train // (micro * (steps or 1)) if train % (micro * (steps or 1)) == 0 else 1


def jobs_of_files():
    jobs = []
    for path in sorted(CORPUS.glob("*.json")) if CORPUS.is_dir() else []:
        text = path.read_text(encoding="utf-8", errors="replace")
        jobs.append({"key": ["corpus", path.name], "text": text, "gpus": world_of(text)})
    for one in json.loads(MUTATIONS.read_text())["mutations"]:
        text = one["text"] if "text" in one else json.dumps(one["config"])
        jobs.append({"key": ["mutations", one["id"]], "text": text, "gpus": one.get("gpus", 1)})
    return jobs


def judged_by(python, jobs):
    """Runs `jobs` through the judge of another interpreter: its versions, and one answer a job."""
    done = subprocess.run([python, str(pathlib.Path(__file__).resolve()), "serve"],
                          input=json.dumps(jobs), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{python}: {done.stderr[-2000:]}")
    answer = json.loads(done.stdout.splitlines()[-1])
    return answer["versions"], answer["verdicts"]


def serve():
    jobs = json.load(sys.stdin)
    out, sys.stdout = sys.stdout, sys.stderr
    judge = Judge()
    verdicts = [judge.judge(job["text"], job["gpus"], job.get("trainer"), job.get("workload"))
                for job in jobs]
    print(json.dumps({"versions": judge.versions, "verdicts": verdicts}), file=out)


def record(pythons):
    jobs = jobs_of_files()
    document = json.loads(JUDGEMENTS.read_text()) if JUDGEMENTS.exists() else {}
    table = {"schema": "zeroplan.ds_config_judgements/1", "judges": {},
             "corpus": document.get("corpus", {}) if not CORPUS.is_dir() else {}, "mutations": {}}
    for python in pythons:
        versions, verdicts = judged_by(python, jobs)
        release = versions["deepspeed"]
        table["judges"][release] = versions
        for job, verdict in zip(jobs, verdicts):
            row = table[job["key"][0]].setdefault(job["key"][1], {"gpus": job["gpus"]})
            row[release] = verdict
    JUDGEMENTS.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n")
    for release in table["judges"]:
        count = collections.Counter(row[release]["verdict"] for part in ("corpus", "mutations")
                                    for row in table[part].values() if release in row)
        print(release, dict(count))


# --- what zeroplan writes -------------------------------------------------------------------------
def strategies(zeroplan, arguments):
    done = subprocess.run([zeroplan, "fit", *arguments, "--json"],
                          capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3):
        sys.exit(f"fit {arguments}: {done.stderr}")
    return json.loads(done.stdout)["strategies"]


def job_of_strategy(strategy, cluster):
    work = strategy["workload"]
    nodes, gpus = (int(x) for x in cluster.split("x")[:2])
    trainer = work["frontend"] == "hf-trainer"
    job = {"text": json.dumps(strategy["ds_config"]), "gpus": nodes * gpus, "trainer": trainer,
           "batch": [nodes * gpus * work["micro_batch_size"] * work["gradient_accumulation_steps"],
                     work["micro_batch_size"], work["gradient_accumulation_steps"]]}
    if trainer:
        job["workload"] = {
            "per_device_train_batch_size": work["micro_batch_size"],
            "gradient_accumulation_steps": work["gradient_accumulation_steps"],
            "bf16": work["precision"] == "bf16", "fp16": work["precision"] == "fp16"}
    return job


def fits(zeroplan, pythons):
    jobs, failed = [], False
    for model, cluster, frontend, workload in itertools.product(
            MODELS, CLUSTERS, ("native", "hf-trainer"), WORKLOADS):
        arguments = [model, cluster, "--frontend", frontend, *workload]
        for strategy in strategies(zeroplan, arguments):
            jobs.append({**job_of_strategy(strategy, cluster),
                         "where": f"{' '.join(arguments)}: stage {strategy['stage']}"})
    for python in pythons:
        versions, verdicts = judged_by(python, jobs)
        failures = 0
        for job, verdict in zip(jobs, verdicts):
            wrong = (verdict["verdict"] != "accepted" or verdict["batch"] != job["batch"]
                     or verdict["unread"])
            if wrong:
                failures += 1
                print(job["where"], json.dumps(verdict), job["text"])
        print(versions, len(jobs), "strategies,", failures, "refused, misread or with unread keys")
        failed = failed or failures > 0
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("record", "fits"):
        one = commands.add_parser(name)
        one.add_argument("--python", action="append", default=[], dest="pythons")
        if name == "fits":
            one.add_argument("--zeroplan", required=True)
    one = commands.add_parser("judge")
    one.add_argument("file", type=pathlib.Path)
    one.add_argument("--gpus", type=int, default=1)
    commands.add_parser("serve")
    arguments = parser.parse_args()
    if arguments.command == "serve":
        serve()
    elif arguments.command == "judge":
        print(json.dumps(Judge().judge(arguments.file.read_text(), arguments.gpus), indent=1))
    elif arguments.command == "record":
        record(arguments.pythons or [sys.executable])
    else:
        return fits(arguments.zeroplan, arguments.pythons or [sys.executable])
    return 0


if __name__ == "__main__":
    sys.exit(main())
