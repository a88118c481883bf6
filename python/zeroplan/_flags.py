"""The keyword arguments, for type checkers and editors: the flags of the command line (`zeroplan fit --help --all`).

tests/python/calls_test.py holds these classes against the program's own help.
"""

from __future__ import annotations

import os
from typing import Any, Dict, List, Tuple, TypedDict, Union

Count = Union[int, str]  # 4096, "4k"
Size = Union[int, str]  # bytes, "64G", "512GiB"
File = Union[str, "os.PathLike[str]"]
Document = Union[str, "os.PathLike[str]", Dict[str, Any]]


class RunFlags(TypedDict, total=False):
    """What every question may say of the run, but for its ds_config.json."""

    id: str
    profile: Document
    scenario: Document
    from_: Document
    """A file that starts a training elsewhere: YAML of LLaMA-Factory, axolotl, verl or accelerate, job scripts, commands."""
    tokenizer: File
    """Folder of the tokenizer that counts the samples of dataset, a .jsonl file."""
    epochs: float
    """How often the samples of dataset are seen."""
    padding: str
    """longest, max or packed."""
    host_memory: Size
    """Of a node."""
    cpu_cores: int
    network: float
    """Of a node, in Gb/s."""
    sequence_length: Count
    """Tokens."""
    seq: Count
    """Tokens: short for sequence_length."""
    micro_batch_size: int
    """Sequences per GPU in one forward pass."""
    mbs: int
    gradient_accumulation_steps: int
    gas: int
    global_batch_size: int
    """Sequences in one optimizer step, of all GPUs together."""
    global_batch: int
    method: Union[str, Dict[str, Any]]
    """full, lora, qlora, or {"lora": {"rank": 8, "targets": ["q_proj"]}}."""
    precision: str
    """bf16, fp16 or fp32."""
    weights_dtype: str
    """bf16, fp16, fp32 or pure-bf16: what FSDP and DDP load the weights in."""
    dtype: str
    load_device: str
    """gpu or cpu."""
    loading: str
    """usual, every-rank or converted."""
    optimizer: str
    attention: str
    """eager, sdpa or flash."""
    linear_attention: str
    """torch, fla or mamba_ssm."""
    activation_checkpointing: Union[str, bool]
    """none, full or selective."""
    ckpt: Union[str, bool]
    checkpoint_reentrant: bool
    activation_offload: str
    engine: str
    """deepspeed, fsdp, ddp or embedded."""
    frontend: str
    """hf-trainer or native."""
    implementation: str
    fused_loss: bool
    tiled_mlp: bool
    compile: bool
    use_cache: bool
    outputs_held: bool
    outputs_kept: bool
    gradients_held: bool
    sync_each_batch: bool
    expandable_segments: bool
    optimizer_implementation: str
    fsdp_version: int
    omp_num_threads: int
    pipeline_parallel: int
    tensor_parallel: int
    sequence_parallel: int
    dataset: Union[str, Dict[str, Any]]
    """{"samples": 20000, "epochs": 3, "mean_tokens": 512, "padding": "longest"}."""
    lengths: Union[File, List[int]]
    """Tokens of each sample, or a file of them."""
    images: int
    """Images in each sequence: a class that takes them is traced with them."""
    image_size: str
    """"1024x768": width and height of the images in pixels."""
    freeze: str
    """"vision,projector", or names of parameters or modules that do not train."""
    trainer: Union[str, Dict[str, Any]]
    """TRL's: sft, dpo, kto, grpo, ppo, gkd, or {"dpo": {"precompute_reference": True}}."""
    teacher: Union[str, Dict[str, Any]]
    """The model that gkd's trained one learns from, as model."""
    beside: Union[str, List[Union[str, Dict[str, Any]]]]
    """Models beside the trained one: "reference,sharded", or [{"role": "reward", "model": "..."}]."""
    evaluation: Union[str, Dict[str, Any]]
    """loss, logits, or {"logits": {"batch_size": 8}}."""
    save_steps: Union[int, float, str]
    """How often a whole run saves: 500 steps, 0.1 of all, "epoch", "no"."""
    eval_steps: Union[int, float, str]
    logging_steps: Union[int, float, str]
    dataloader_num_workers: int
    mtbf: int
    """Processes that make batches; 0: the training process."""
    deepspeed: str
    """Release: "0.19.6"."""
    torch: str
    transformers: str
    trl: str
    accelerate: str
    confidence: float
    """Probability that a fit must have (0.95)."""


class Question(RunFlags, total=False):
    """What a question may say of the run."""

    ds_config: Document


class SimulateFlags(Question, total=False):
    """Of `simulate`."""

    checkpoint_bandwidth: Size
    """What the folder of checkpoints takes and gives a second, per node."""
    estimate: bool


class FitFlags(Question, total=False):
    """Of `fit`."""

    all: bool
    force: bool
    quick: bool
    why: bool
    tokens: Count
    """Of the whole training, for hours and cost."""
    prices: File
    price: float
    """Of a GPU-hour."""
    output: File
    """Folder to write everything that starts the recommendation to; with form, or to the tool of from_, one file."""
    form: str
    """llama-factory, axolotl, accelerate, trl, trainer, shell, sbatch, openrlhf or verl."""


class SearchFlags(Question, total=False):
    """Of a search."""

    objective: str
    fix: Dict[str, Any]
    """Keys about which there is no choice."""
    search: Dict[str, Union[Tuple[Any, Any], List[Any]]]
    """Values to try instead of the grid: (from, to), or a list."""
    max_gpu_memory: Size
    max_host_memory: Size
    reserve: Size
    min_throughput: float
    """Tokens/s per GPU, at least."""
    price: float
    jobs: int
    """Threads (all cores)."""
    time_limit: float
    """Seconds."""


class TuneFlags(SearchFlags, total=False):
    """Of `tune`."""

    gap: float
    output: File
    form: str
    force: bool


class ReportFlags(SearchFlags, total=False):
    """Of `report`."""

    no_search: bool
    """The strategies of `fit` alone."""
    brief: bool
    """The answer and the strategies, and nothing beside them."""
    quick: bool
    """The first answer of `fit(quick=True)`."""
    compare_with: str
    """Flags of other questions, several between semicolons: "--cluster 8xH100-80G; --method lora"."""
    tokens: Count
    prices: File


class LintFlags(RunFlags, total=False):
    """Of `lint`."""

    gpus: int
    launcher: str
    task: str
