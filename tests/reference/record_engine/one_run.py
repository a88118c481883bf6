"""Records one configuration: builds the engine, trains some steps, and returns the recording."""

import contextlib
import json

import torch

from accelerator import COMPUTE
from engine_hooks import log_flattening
from event_log import LOG
from held_buffers import held_buffers
from live_bytes import Peaks
from models import Decoder, freeze, optimizer_groups
from process_group import join

SIZED = ("ar", "ag", "rs", "bc", "red", "agl", "a2a")


def summary(events):
    """Events of initialisation by kind and dtype: how many, and elements in all."""
    counted = {}
    for event in events:
        kind = event[0]
        if kind in SIZED:
            kind = f"{kind}:{event[2]}"
        elif kind in ("cat", "si", "sw"):
            continue  # tensors printed into a line of a log; the first reads from a drive
        entry = counted.setdefault(kind, [0, 0])
        entry[0] += 1
        if event[0] in SIZED:
            entry[1] += event[1]
    return counted


def numel_of(parameter):
    return getattr(parameter, "ds_numel", parameter.numel())


def shape_of(parameter):
    return list(getattr(parameter, "ds_shape", parameter.shape))


def on_drive(parameter):
    """Whether the partition is read from NVMe for every gather."""
    return getattr(parameter.ds_tensor.final_location, "value", None) == "nvme"


class Run:
    """One rank of one engine; `configuration` is an entry of configurations.py."""

    def __init__(self, name, configuration, release):
        self.name = name
        self.configuration = configuration
        self.release = release
        self.shape = configuration["model"]
        self.ds_config = json.loads(json.dumps(configuration["ds"]))
        self.micro_steps = self.ds_config.get("gradient_accumulation_steps", 1)
        self.peaks = Peaks() if configuration.get("memory") else None

    # ---- the model ----

    def build_model(self):
        import deepspeed

        torch.manual_seed(0)
        inside = contextlib.nullcontext()
        LOG.writing = bool(self.configuration.get("zero_init"))
        if self.configuration.get("zero_init"):
            shards = self.ds_config["zero_optimization"].get("mics_shard_size", -1)
            context = deepspeed.zero.MiCS_Init if shards > 0 else deepspeed.zero.Init
            inside = context(config_dict_or_path=self.ds_config)
        with inside:
            self.model = Decoder(self.shape, self.configuration.get("ckpt", 0))
        LOG.writing = False
        self.zero_init_events = LOG.take()
        freeze(self.model, self.configuration.get("frozen"))
        if self.peaks:  # what a GPU gets is the model in its final format
            self.model.to(self.model_dtype())
        self.mark_leaves()
        self.parameters = list(self.model.parameters())
        LOG.parameters = {id(p): i for i, p in enumerate(self.parameters)}
        LOG.modules = {id(m): i for i, m in enumerate(self.model.modules())}

    def model_dtype(self):
        if self.ds_config.get("bf16", {}).get("enabled"):
            return torch.bfloat16
        return torch.float16 if self.ds_config.get("fp16", {}).get("enabled") else torch.float32

    def mark_leaves(self):
        """Modules whose subtree stage 3 treats as one."""
        names = self.configuration.get("leaf", [])
        if names:
            from deepspeed.utils import set_z3_leaf_modules

            classes = {type(m).__name__: type(m) for m in self.model.modules()}
            set_z3_leaf_modules(self.model, [classes[name] for name in names])

    def describe_model(self):
        index = {id(p): i for i, p in enumerate(self.parameters)}
        named = list(self.model.named_parameters())
        modules = list(self.model.named_modules())
        description = dict(
            self.shape,
            params=[[n, numel_of(p), shape_of(p)] for n, p in named],
            modules=[
                [n or "(root)", type(m).__name__, [index[id(p)] for p in m.parameters(recurse=False)]]
                for n, m in modules
            ],
            frozen=[i for i, p in enumerate(self.parameters) if not p.requires_grad],
        )
        return description

    def leaves(self):
        """Modules whose subtree is treated as one; a granularity threshold marks some itself."""
        modules = list(self.model.modules())
        return [i for i, m in enumerate(modules) if getattr(m, "_z3_leaf", False)]

    # ---- the engine ----

    def make_optimizer(self):
        """None where the configuration names one: DeepSpeed then makes it."""
        if "optimizer" in self.ds_config:
            return None
        groups = optimizer_groups(self.model, self.configuration.get("groups", 1))
        return torch.optim.AdamW(groups, lr=1e-4, foreach=False)

    def build_engine(self):
        import deepspeed

        optimizer = self.make_optimizer()
        more = {} if optimizer else {"model_parameters": optimizer_groups(self.model, 1)}
        LOG.writing = True
        LOG.take()
        with self.measured_init():
            self.engine = deepspeed.initialize(
                model=self.model, optimizer=optimizer, config=self.ds_config, **more
            )[0]
        LOG.writing = False
        self.init_events = LOG.take()
        self.optimizer = self.engine.optimizer
        if hasattr(self.optimizer, "param_id"):
            ids = self.optimizer.param_id
            self.optimizer.recorded_parameters = {
                ids[id(p)]: p for p in self.parameters if id(p) in ids
            }
        if hasattr(self.optimizer, "flatten"):
            log_flattening(self.optimizer)
        self.name_streams()

    def measured_init(self):
        if not self.peaks:
            return contextlib.nullcontext()
        self.peaks.hook()
        live = self.peaks.live
        stack = contextlib.ExitStack()
        stack.enter_context(live)
        for parameter in self.parameters:
            live.see(parameter.data)
        self.peaks.init = stack.enter_context(live.window())
        return stack

    def measured_training(self):
        return self.peaks.live if self.peaks else contextlib.nullcontext()

    def measured_step(self):
        """Peaks of the optimizer's step; with accumulation of the last micro-step's."""
        if not self.peaks:
            return contextlib.nullcontext()
        return self.keep_window()

    @contextlib.contextmanager
    def keep_window(self):
        with self.peaks.live.window() as window:
            yield
        self.peaks.steps.append(window)

    def name_streams(self):
        """R: reduction, A: all-gather. Without overlap both are the compute stream."""
        offload = getattr(self.optimizer, "parameter_offload", None)
        streams = {
            "R": getattr(self.optimizer, "reduction_stream", None)
            or getattr(self.optimizer, "reduce_and_partition_stream", None),
            "A": getattr(offload, "_DeepSpeedZeRoOffload__allgather_stream", None),
        }
        for name, stream in streams.items():
            if stream is not None and stream is not COMPUTE:
                stream.name = name

    def buffers(self):
        with LOG.pause():
            return held_buffers(self.optimizer, self.parameters)

    def describe_init(self):
        init = {"events": summary(self.init_events)}
        if self.configuration.get("zero_init"):
            init["zero_init_events"] = summary(self.zero_init_events)
        init.update(self.buffers())
        optimizer = self.optimizer
        if hasattr(optimizer, "sub_group_to_group_id"):
            init["sub_groups"] = [[LOG.parameter(p) for p in g] for g in optimizer.fp16_groups]
            persistent = [p for p in self.parameters if getattr(p, "ds_persist", False)]
            init["persistent"] = [LOG.parameter(p) for p in persistent]
            init["sub_group_numel"] = [t.numel() for t in optimizer.fp32_partitioned_groups_flat]
            if self.configuration.get("drive"):
                init["on_drive"] = [LOG.parameter(p) for p in self.parameters if on_drive(p)]
        elif hasattr(optimizer, "bit16_groups_flat"):
            groups = optimizer.round_robin_bit16_groups
            init["groups"] = [[LOG.parameter(p) for p in g] for g in groups]
            init["flat_numel"] = [t.numel() for t in optimizer.bit16_groups_flat]
            init["padding"] = list(getattr(optimizer, "groups_padding", []))
        elif self.configuration.get("groups", 1) > 2:
            groups = getattr(optimizer, "bf16_groups", None) or getattr(optimizer, "fp16_groups", [])
            init["groups"] = [[LOG.parameter(p) for p in g] for g in groups]
        return init

    # ---- training ----

    def token_ids(self):
        return torch.randint(0, self.shape["V"], (1, self.shape.get("seq", 8)))

    def evaluate(self):
        """A forward pass without gradients between two steps."""
        self.engine.eval()
        LOG.add("phase", "fwd", 0)  # and no backward
        with torch.no_grad():
            self.engine(self.token_ids())
        self.engine.train()

    def train_step(self, step):
        """One optimizer step; returns its events."""
        layers = self.configuration.get("orders", {}).get(str(step))
        self.model.order = layers if layers is not None else list(range(self.shape["L"]))
        last = step == self.configuration["steps"] - 1
        if step in self.configuration.get("evaluate_before", []):
            self.evaluate()
        for micro in range(self.micro_steps):
            LOG.add("phase", "fwd", micro)
            loss = self.engine(self.token_ids())
            if step in self.configuration.get("overflow", []):
                loss = loss * float("inf")
            LOG.add("phase", "bwd", micro)
            self.engine.backward(loss)
            if step == 0 and micro == 0:
                self.recording["after_bwd0"] = self.buffers()
            if last and micro == self.micro_steps - 1:
                self.recording["before_last_step"] = self.buffers()
            LOG.add("phase", "step", micro)
            del loss
            with self.measured_step():
                self.engine.step()
        return LOG.take()

    def add_step(self, events):
        """Appends a step, or the number of the step that it repeats."""
        steps = self.recording["steps"]
        for number, earlier in enumerate(steps):
            if earlier == events:
                steps.append({"same_as": number})
                return
            if isinstance(earlier, list) and without_agreement(earlier) == events:
                steps.append({"same_as": number, "without": "bc i64"})
                return
        steps.append(events)

    def record(self):
        """The recording, as engine_traces has it."""
        LOG.finished_events = self.configuration.get("query", False)
        self.build_model()
        model = self.describe_model()
        self.build_engine()
        if self.leaves():
            model["leaf"] = self.leaves()
        backend = "fake" if LOG.simulated else "gloo"
        self.recording = {
            "id": self.name,
            "software": f"deepspeed {self.release}, torch {torch.__version__.split('+')[0]}, "
            f"backend {backend}, rank {self.configuration.get('rank', 0)}, "
            f"event query {LOG.finished_events}",
            "model": model,
            "world_size": self.configuration["world"],
            "rank": self.configuration.get("rank", 0),
            "ds_config": json.loads(json.dumps(self.configuration["ds"])),
            "workload": self.workload(),
            "wrapper": type(self.optimizer).__name__,
            "init": self.describe_init(),
            "steps": [],
            "after_step": [],
        }
        LOG.writing = True
        for step in range(self.configuration["steps"]):
            try:
                with self.measured_training():
                    events = self.train_step(step)
            except AssertionError as stop:
                if not LOG.has("short") and not LOG.has("twice"):
                    raise
                self.recording["stopped"] = str(stop)
                self.add_step(LOG.take())
                break
            self.add_step(events)
            if step in (0, self.configuration["steps"] - 1):
                self.recording["after_step"].append(dict(step=step, **self.buffers()))
        LOG.writing = False
        if self.peaks:
            self.recording["memory"] = self.peaks.described()
        self.recording["skipped_steps"] = self.engine.skipped_steps
        self.recording["global_steps"] = self.engine.global_steps
        return self.recording

    def workload(self):
        return {
            "G": self.micro_steps,
            "ckpt": self.configuration.get("ckpt", 0),
            "param_groups": self.configuration.get("groups", 1),
            "mb": 1,
            "seq": self.shape.get("seq", 8),
            **({"overflow": self.configuration["overflow"]} if "overflow" in self.configuration else {}),
        }


def without_agreement(events):
    """Events without the broadcasts that compare a trace between ranks."""
    return [e for e in events if not (e[0] == "bc" and e[2] == "i64")]


def record(name, configuration, release, port=0):
    """Joins the group and records."""
    join(configuration.get("rank", 0), configuration["world"], port)
    return Run(name, configuration, release).record()
