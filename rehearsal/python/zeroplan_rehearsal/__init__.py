"""What PyTorch and DeepSpeed need of Python when the GPU computes nothing, and what they say of themselves.

Nothing here allocates on the GPU. `begin` is called when Python starts (sitecustomize.py); each part is put in place
when the module it is about has been imported, so that a Python that imports no torch is left alone.

Variables, set by `zeroplan rehearse`:
  ZEROPLAN_REHEARSAL         folder for what is recorded
  ZEROPLAN_REHEARSAL_STEPS   optimizer steps after which the program ends; 0: it ends by itself
  ZEROPLAN_REHEARSAL_RANKS   this one process is a rank of so many; 0: a launcher starts a process a rank
  ZEROPLAN_REHEARSAL_RANK    and which
  ZEROPLAN_REHEARSAL_OPERATIONS  not empty: each operation of torch is written to the GPU's work file (operations.py)
  ZEROPLAN_REHEARSAL_ANSWERS  file for what the program asks its tensors, or nothing (answers.py)
  ZEROPLAN_REHEARSAL_GIVE_ANSWERS  not empty: they are given again, and no values are computed from the first forward pass on
  ZEROPLAN_REHEARSAL_SNAPSHOT  file for torch's memory snapshot, or nothing
"""
from . import imports


def begin():
    imports.after("torch", _torch)
    imports.after("torch._dynamo.eval_frame", _dynamo)
    imports.after("deepspeed", _deepspeed)
    imports.after("deepspeed.runtime.engine", _deepspeed_engine)
    imports.after("deepspeed.runtime.pipe.engine", _pipeline_engine)
    imports.after("deepspeed.ops.op_builder.builder", _op_builder)
    imports.after("deepspeed.runtime.zero.utils", _zero_utils)
    imports.after("transformers.modeling_utils", _modeling)
    imports.after("transformers.image_processing_utils", _processors)
    imports.after("transformers.trainer", _trainer)
    imports.after("torch.nn.parallel.distributed", _ddp)
    imports.after("torch.distributed.fsdp", _fsdp)
    imports.after("peft.peft_model", _peft)
    imports.after("trl.experimental.gkd.gkd_trainer", _distillation)
    for package in ("lightning.pytorch", "pytorch_lightning"):
        imports.after(package + ".loops.optimization.automatic", _lightning)


def _torch(torch):
    from . import answers, ending, gpu, phases, values, world

    world.install(torch)
    if not gpu.is_real():
        values.install(torch)
        answers.watch(torch)
    phases.install(torch)
    ending.install(torch)


def _dynamo(module):
    from . import compiling, gpu

    if not gpu.is_real():
        compiling.install(module)


def _deepspeed(deepspeed):
    from . import facts, phases, world

    world.launch_alone()
    facts.software("deepspeed")
    phases.wrap_initialize(deepspeed)


def _deepspeed_engine(module):
    from . import phases

    phases.wrap_engine(module.DeepSpeedEngine)


def _pipeline_engine(module):
    from . import phases

    phases.wrap_pipeline(module.PipelineEngine)


def _op_builder(module):
    from . import extensions, gpu

    if not gpu.is_real():
        extensions.install(module)


def _zero_utils(module):
    from . import world

    world.agree_with_rank_0(module)


def _modeling(module):
    from . import facts

    facts.watch_models(module.PreTrainedModel)


def _processors(module):
    from . import pictures

    pictures.watch(module.BaseImageProcessor)


def _trainer(module):
    from . import facts, phases

    facts.watch_trainer(module.Trainer)
    phases.wrap_trainer(module.Trainer)


def _ddp(module):
    from . import facts

    facts.watch_engine(module.DistributedDataParallel, "ddp")


def _fsdp(module):
    from . import facts

    facts.watch_fsdp(module)


def _lightning(module):
    from . import facts

    facts.watch_lightning(module)


def _peft(module):
    from . import facts

    facts.watch_peft(module)


def _distillation(module):
    from . import facts

    facts.watch_distillation(module.GKDTrainer)


def begin_again(environment):
    """In a child that a process forked after its imports and before it used the GPU: a run of its own, in that environment.

    tests/reference/rehearsal/warm.py makes hundreds of runs so.
    """
    import os

    from . import gpu, facts, phases, timing, unknown, world

    os.environ.clear()
    os.environ.update(environment)
    gpu.read_settings()
    facts.forget()
    timing.forget()
    unknown.forget()
    phases.read_settings()
    world.read_settings()
