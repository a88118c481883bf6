"""What the calls return. Fields have the names of the command line's JSON documents (docs/contract.md section 5), with
their units in them; bytes are whole numbers, times are seconds."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Tuple

from ._decode import Result
from ._trainer import training_arguments


@dataclass(frozen=True)
class GpuMemory(Result):
    """Memory of the GPU of the rank that needs the most."""

    capacity_bytes: int = 0
    peak_allocated_bytes: int = 0
    """What torch.cuda.max_memory_allocated() will say."""
    peak_reserved_bytes: int = 0
    """What torch.cuda.max_memory_reserved() will say."""
    replayed_reserved_bytes: int = 0
    """Reserved when the known allocations are played through PyTorch's allocator and nothing else."""
    peak_total_bytes: int = 0
    """What nvidia-smi will say: reserved, CUDA's context, NCCL, libraries."""
    static_allocated_bytes: int = 0
    """Held between steps."""
    peak_phase: str = ""
    """load, init, forward, backward, step or save."""
    allocator_flushes: int = 0
    rank: Optional[int] = None
    """Whose memory it is, where ranks differ (stages 1 and 2)."""
    breakdown_at_peak: Dict[str, int] = field(default_factory=dict)
    """Bytes by category at the peak; they sum to peak_total_bytes."""
    breakdown_by_phase: Dict[str, Dict[str, int]] = field(default_factory=dict)
    """The same at the peak of each phase."""


@dataclass(frozen=True)
class HostMemory(Result):
    """Host memory of one node."""

    capacity_bytes: Optional[int] = None
    peak_bytes: int = 0
    pinned_bytes: int = 0
    load_peak_bytes: int = 0
    peak_phase: str = ""
    """Where the peak is: load, init, forward, backward, step or save."""


@dataclass(frozen=True)
class StepTime(Result):
    """The time of one optimizer step, all its micro-batches together."""

    seconds: float = 0.0
    forward_seconds: float = 0.0
    backward_seconds: float = 0.0
    """Recomputation counts here."""
    optimizer_seconds: float = 0.0
    exposed_communication_seconds: float = 0.0
    exposed_offload_seconds: float = 0.0
    bound: str = ""
    """What it waits for: compute, communication, host, pcie, cpu_optimizer, nvme or dispatch."""
    bounds_seconds: Optional[Tuple[float, float]] = None
    """What it cannot be below, and what it is when nothing overlaps."""
    tokens_per_second_per_gpu: float = 0.0
    samples_per_second: float = 0.0
    """Of the whole job."""
    model_tflops_per_gpu: float = 0.0
    mfu: float = 0.0
    """Model FLOPs over the GPU's dense peak."""


@dataclass(frozen=True)
class Intervals(Result):
    """90 % prediction intervals, low and high."""

    peak_allocated_bytes: Optional[Tuple[int, int]] = None
    peak_reserved_bytes: Optional[Tuple[int, int]] = None
    peak_total_bytes: Optional[Tuple[int, int]] = None
    step_seconds: Optional[Tuple[float, float]] = None


@dataclass(frozen=True)
class Limit(Result):
    """A resource that does not suffice."""

    resource: str = ""
    """gpu_memory, host_memory, nvme or time."""
    needed_bytes: int = 0
    """As predicted: needed_bytes + margin_bytes > available_bytes."""
    margin_bytes: int = 0
    """Beside that, for the probability that was asked for."""
    available_bytes: int = 0
    largest_term: str = ""
    cheapest_change: Optional[str] = None


@dataclass(frozen=True)
class HostCondition(Result):
    """What a plan asks of nodes whose host memory is unspecified, where they usually have less."""

    enough_bytes: int = 0
    """With so much it fits."""
    margin_bytes: int = 0
    """The part of that beside the predicted peak."""
    usual_probability: float = 0.0
    """That it fits a node with the usual amount."""


@dataclass(frozen=True)
class Parameters(Result):
    """How many parameters the model has."""

    total: int = 0
    trainable: int = 0
    active: int = 0
    """That one token goes through (mixtures of experts)."""


@dataclass(frozen=True)
class NvmeSpace(Result):
    """What lies on the drives of one node."""

    bytes: int = 0


@dataclass(frozen=True)
class JobParts(Result):
    """Where the time of the whole training goes."""

    steps_seconds: float = 0.0
    """Forward, backward and optimizer on tokens of samples."""
    padding_seconds: float = 0.0
    """The same on tokens that only fill rows up."""
    dataloader_seconds: float = 0.0
    """Batches that the training process makes itself while its GPU waits."""
    logging_seconds: float = 0.0
    saving_seconds: float = 0.0
    evaluation_seconds: float = 0.0
    failures_seconds: float = 0.0
    """Expected: work done again and checkpoints read again, where mtbf says how often nodes fail."""


@dataclass(frozen=True)
class Job(Result):
    """The whole training, where the dataset is known."""

    steps: int = 0
    seconds: float = 0.0
    """Of all parts; without starting up."""
    padded_length: float = 0.0
    """Tokens of a row of a micro-batch, in the mean."""
    padding_share: Optional[float] = None
    """Of these the part that is padding, 0 to 1; None where lengths are not known."""
    longer_share: Optional[float] = None
    """Of the samples those longer than the sequence, which are cut or left out; None where lengths are not given."""
    parts: JobParts = field(default_factory=JobParts)


@dataclass(frozen=True)
class NetworkSpeed(Result):
    """Speed at another network between nodes than the assumed one."""

    gigabits_per_second: float = 0.0
    tokens_per_second_per_gpu: float = 0.0


@dataclass(frozen=True)
class CheckpointFile(Result):
    """Files of one kind in a checkpoint."""

    path: str = ""
    """With {step} and {rank} in it."""
    written_by: str = ""
    """rank_0, first_replica, every_rank, first_shard_group or converter."""
    files: int = 0
    tensor_bytes: int = 0
    """Of the largest, without what pickle adds."""
    bytes: int = 0
    """Of the largest."""
    total_bytes: int = 0
    """Of all."""


@dataclass(frozen=True)
class CheckpointFiles(Result):
    """A checkpoint of one kind: native, the model alone, universal."""

    bytes: Optional[int] = None
    """None where it is not written; `problem` says why."""
    files: List[CheckpointFile] = field(default_factory=list)
    problem: Optional[str] = None


@dataclass(frozen=True)
class CheckpointWork(Result):
    """What saving, loading or converting takes."""

    node_bytes: int = 0
    """Written or read by a node."""
    gpu_peak_bytes: Optional[int] = None
    host_peak_bytes: int = 0
    """Of a node."""
    seconds: Optional[float] = None
    """None where the storage's rate is not known."""
    disk_peak_bytes: Optional[int] = None
    """While converting: both kinds lie there."""


@dataclass(frozen=True)
class OtherRanks(Result):
    """Whether another number of ranks goes on from the checkpoint."""

    resume: str = ""
    """directly, by_universal or never."""
    reason: str = ""


@dataclass(frozen=True)
class Checkpoint(Result):
    """What a checkpoint of this configuration is (docs/model.md, "Checkpoints")."""

    native: CheckpointFiles = field(default_factory=CheckpointFiles)
    """DeepSpeed's own."""
    model: Optional[CheckpointFiles] = None
    """What others can read: save_16bit_model, the Trainer's safetensors."""
    universal: Optional[CheckpointFiles] = None
    exclude_frozen_parameters: bool = False
    native_written_twice: bool = False
    save: Optional[CheckpointWork] = None
    """Native and model together."""
    load: Optional[CheckpointWork] = None
    """By the same ranks."""
    load_universal: Optional[CheckpointWork] = None
    convert: Optional[CheckpointWork] = None
    """From native to universal."""
    other_ranks: Optional[OtherRanks] = None
    storage_bytes_per_second: Optional[float] = None
    """Of a node."""


@dataclass(frozen=True)
class Simulation(Result):
    """One configuration: memory, time, and the probability that it fits."""

    fits: bool = False
    fit_probability: float = 0.0
    host_condition: Optional[HostCondition] = None
    """Of `fits` and `fit_probability`; None where the host memory was stated or the usual amount does."""
    gpu: GpuMemory = field(default_factory=GpuMemory)
    host: HostMemory = field(default_factory=HostMemory)
    step: StepTime = field(default_factory=StepTime)
    intervals: Intervals = field(default_factory=Intervals)
    parameters: Parameters = field(default_factory=Parameters)
    limits: List[Limit] = field(default_factory=list)
    assumptions: List[str] = field(default_factory=list)
    """What nobody said and was taken to be so."""
    warnings: List[str] = field(default_factory=list)
    nvme: NvmeSpace = field(default_factory=NvmeSpace)
    job: Optional[Job] = None
    """None without a dataset."""
    checkpoint: Optional[Checkpoint] = None
    """Of `simulate` alone, and of DeepSpeed's engine alone."""
    at_network: Optional[List[NetworkSpeed]] = None
    """Where the network between nodes was assumed: the speed at others."""
    remedies: Optional[List[Dict[str, Any]]] = None
    """Of `simulate` alone, where it does not fit: change, price, result."""
    id: Optional[str] = None

    @property
    def probability(self) -> float:
        """That GPU, host memory and NVMe suffice, from load to step."""
        return self.fit_probability


class _Startable(Result):
    """A configuration that can be started."""

    def training_arguments(self) -> Dict[str, Any]:
        """Keyword arguments for transformers.TrainingArguments that make this plan, the ds_config among them.

        Give output_dir and what else the run wants beside them. Raises ValueError where the Trainer has no argument
        for a part of the plan.
        """
        return training_arguments(self._document)


class _Configured(_Startable):
    """A configuration with its result."""

    result: Simulation

    @property
    def probability(self) -> float:
        """That GPU, host memory and NVMe suffice."""
        return self.result.fit_probability


@dataclass(frozen=True)
class Strategy(_Configured):
    """A ZeRO stage with its offload, in its best batch."""

    name: str = ""
    """"ZeRO-2, optimizer on cpu, full activation checkpointing"."""
    stage: int = 0
    offload_optimizer: str = "none"
    offload_param: str = "none"
    activation_checkpointing: str = "none"
    micro_batch_size: int = 1
    gradient_accumulation_steps: int = 1
    fits: bool = False
    at_limit: bool = False
    """It fits, and fills the GPU to within 5 %."""
    simulated: bool = True
    """False: by analytic estimates alone (`quick`)."""
    host_memory_stated: bool = False
    """False: nobody said how much a node has; then the need is a requirement."""
    ds_config: Dict[str, Any] = field(default_factory=dict)
    """Ready for TrainingArguments(deepspeed=...)."""
    workload: Dict[str, Any] = field(default_factory=dict)
    """Batch, precision, checkpointing and the like, as a scenario document has them."""
    result: Simulation = field(default_factory=Simulation)


@dataclass(frozen=True)
class FasterStrategy(Strategy):
    """A strategy that wants more packages."""

    packages: str = ""
    """As pip takes them."""


@dataclass(frozen=True)
class Remedy(Result):
    """A change after which something fits."""

    change: str = ""
    price: str = ""
    """nothing, speed, training, host_memory or machines."""
    strategy: str = ""
    ds_config: Optional[Dict[str, Any]] = None
    result: Optional[Simulation] = None


@dataclass(frozen=True)
class Fit(Result):
    """Whether a model trains on a cluster, and how."""

    fits: bool = False
    recommended: Optional[Strategy] = None
    """The best strategy; None where nothing fits."""
    strategies: List[Strategy] = field(default_factory=list)
    remedies: List[Remedy] = field(default_factory=list)
    """What to change, where nothing fits."""
    tried: List[str] = field(default_factory=list)
    """What else was tried, and is not enough."""
    with_expandable_segments: Optional[Simulation] = None
    """Where the recommended one runs near the GPU's limit: the same with PyTorch's expandable segments."""
    one_node: Optional[Strategy] = None
    """The best strategy on one node of several, where one is enough."""
    without_deepspeed: Optional[Strategy] = None
    """The Trainer alone on one GPU, where nobody named an engine and it is clearly faster or has room where the recommended one has none."""
    why: List[Dict[str, Any]] = field(default_factory=list)
    """What another stage, checkpointing, offload, batch or one node would give instead (`why`)."""
    trust: Optional[Dict[str, Any]] = None
    """What predictions of this kind of plan were compared with, how far they were off, and what would make this one surer (`why`)."""
    largest_micro_batch: Optional[int] = None
    longest_sequence: Optional[int] = None
    """Tokens, with everything else as recommended."""

    needs_packages: Optional[str] = None
    """What pip has to install because nothing fits without it; None where something does."""
    usual_host: Optional[FasterStrategy] = None
    """The best strategy for nodes with the usual host memory, where the recommended one asks for more and one fits."""
    usual_host_remedy: Optional[Remedy] = None
    """Where none fits: a change that costs nothing and makes one fit."""
    faster_with: Optional[FasterStrategy] = None
    """The best strategy with packages that are not part of the plan, where it is clearly faster."""

    @property
    def probability(self) -> float:
        """That the recommended strategy fits; of the most probable one where none is recommended."""
        if self.recommended is not None:
            return self.recommended.probability
        return max((row.probability for row in self.strategies), default=0.0)

    @property
    def ds_config(self) -> Optional[Dict[str, Any]]:
        """Of the recommended strategy, ready for TrainingArguments(deepspeed=...); None where nothing fits."""
        return None if self.recommended is None else copy.deepcopy(self.recommended.ds_config)

    def training_arguments(self) -> Dict[str, Any]:
        """Of the recommended strategy. Raises ValueError where nothing fits."""
        if self.recommended is None:
            raise ValueError("nothing fits, so there is nothing to train with")
        return self.recommended.training_arguments()


@dataclass(frozen=True)
class ClusterChoice(Result):
    """One cluster that trains the model."""

    cluster: str = ""
    gpus: int = 0
    strategy: str = ""
    tokens_per_second: float = 0.0
    hours: Optional[float] = None
    price_per_hour: Optional[float] = None
    cost: Optional[float] = None
    """In the answer's currency."""
    needs_packages: Optional[str] = None
    """What pip has to install because nothing fits it without."""
    workload: Dict[str, Any] = field(default_factory=dict)
    result: Simulation = field(default_factory=Simulation)


@dataclass(frozen=True)
class WhichGpu(Result):
    """Which clusters train the model: the smallest, the cheapest, the fastest."""

    fits: bool = False
    tokens: Optional[int] = None
    currency: Optional[str] = None
    clusters: List[ClusterChoice] = field(default_factory=list)
    smallest: Optional[int] = None
    """Index into clusters."""
    cheapest: Optional[int] = None
    fastest: Optional[int] = None
    tokens_assumed: bool = False
    """Nobody said how many: what `tokens` has was taken."""
    refused: List[Dict[str, Any]] = field(default_factory=list)
    """Clusters that cannot be planned: cluster, why."""
    not_asked: List[str] = field(default_factory=list)
    """Clusters of the price list that could win in nothing."""


@dataclass(frozen=True)
class VersionSet(Result):
    """The run under one set of releases."""

    deepspeed: Optional[str] = None
    torch: str = ""
    transformers: str = ""
    fits: bool = False
    fit_probability: float = 0.0
    gpu_memory: int = 0
    """Bytes of the rank that needs most, as the driver counts them."""
    gpu_allocated: int = 0
    host_memory: int = 0
    """Bytes of a node."""
    step_seconds: float = 0.0
    tokens_per_second_per_gpu: float = 0.0
    differences: int = 0
    """Rules and defaults that differ from the set before."""
    effects: List[Dict[str, Any]] = field(default_factory=list)
    """Those that move this run, with what each moves."""
    warnings: List[str] = field(default_factory=list)


@dataclass(frozen=True)
class Versions(Result):
    """The same run under several sets of releases, the oldest first."""

    strategy: Optional[str] = None
    ds_config: Optional[Dict[str, Any]] = None
    sets: List[VersionSet] = field(default_factory=list)


@dataclass(frozen=True)
class Length(Result):
    """A length of sequences that trains, and how."""

    value: int = 0
    """Tokens."""
    strategy: Optional[str] = None
    ds_config: Optional[Dict[str, Any]] = None
    result: Optional[Simulation] = None
    packages: Optional[str] = None
    """As pip takes them, where it needs some."""


@dataclass(frozen=True)
class Reach(Result):
    """How far a cluster reaches: the longest sequence, or the largest model."""

    fits: bool = False
    goal: str = ""
    value: Any = None
    """Tokens, or a size such as "13.2B"."""
    strategy: Optional[str] = None
    ds_config: Optional[Dict[str, Any]] = None
    result: Optional[Simulation] = None
    needs_packages: Optional[str] = None
    """What pip has to install because nothing fits without it."""
    longer: Optional[Length] = None
    """A strategy that reaches a little farther, and is worse otherwise."""
    with_packages: Optional[Length] = None
    """What packages that are not part of the answer make of it, where that is longer."""
    usual_host: Optional[Length] = None
    """On nodes with the usual host memory, where `result` has a condition and any length fits them."""


@dataclass(frozen=True)
class Candidate(_Configured):
    """A configuration that a search found."""

    scenario: Dict[str, Any] = field(default_factory=dict)
    ds_config: Dict[str, Any] = field(default_factory=dict)
    """Ready for TrainingArguments(deepspeed=...)."""
    workload: Dict[str, Any] = field(default_factory=dict)
    result: Simulation = field(default_factory=Simulation)

    @property
    def fits(self) -> bool:
        """Whether it fits with the asked confidence."""
        return self.result.fits


@dataclass(frozen=True)
class ParetoPoint(_Startable):
    """A configuration than which no other is both faster and smaller."""

    ds_config: Dict[str, Any] = field(default_factory=dict)
    """Ready for TrainingArguments(deepspeed=...)."""
    workload: Dict[str, Any] = field(default_factory=dict)
    tokens_per_second_per_gpu: float = 0.0
    step_seconds: float = 0.0
    gpu_bytes: int = 0
    """Peak of a GPU, as nvidia-smi has it."""
    host_bytes: int = 0
    """Peak of a node."""


@dataclass(frozen=True)
class Tuning(Result):
    """The best configuration of a search, and what the search did."""

    best: Optional[Candidate] = None
    """The simplest within the gap of the fastest."""
    top: Optional[ParetoPoint] = None
    """The fastest that was simulated (the smallest, by the objective memory); None where that is the best."""
    pareto: List[ParetoPoint] = field(default_factory=list)
    """No other is both faster and smaller."""
    evaluated: int = 0
    pruned: int = 0
    unseen: int = 0
    cut_by_time_limit: bool = False
    seconds: float = 0.0
    """That the search took."""
    optimal: bool = False
    tally: List[Dict[str, Any]] = field(default_factory=list)
    """Why the others were left out: reason, count, a sample."""

    objective: str = ""
    """throughput, memory, gpus or cost."""
    points: int = 0
    """Of the space, before anything was left out."""
    gap: float = 0.0
    """How much faster a point that was left out may be."""
    unseen_at_most: Optional[float] = None
    """How much faster than the best any point can be that was not simulated: a share."""
    cut_off: List[str] = field(default_factory=list)
    """What the time limit left no time for: `impacts`, `headroom`, `fewest_gpus`, `nearest`."""
    impacts: List[Dict[str, Any]] = field(default_factory=list)
    """What each choice of the best is worth: key, value, other, speed_change."""
    fewest_gpus: Optional[int] = None
    """GPUs of the cluster on which something fits."""
    gpu_hours_per_million_tokens: Optional[float] = None
    largest_micro_batch: Optional[int] = None
    longest_sequence: Optional[int] = None
    """Tokens, with everything else as in the best."""
    needs_packages: Optional[str] = None
    """What pip has to install because nothing fits without it."""
    nearest: Optional[Dict[str, Any]] = None
    """Where nothing fits: what comes nearest, with its result."""
    remedies: List[Remedy] = field(default_factory=list)
    """What to change, where nothing fits."""

    @property
    def fits(self) -> bool:
        """Whether anything fits."""
        return self.best is not None

    @property
    def probability(self) -> float:
        """That the best fits; 0 where nothing does."""
        return 0.0 if self.best is None else self.best.probability

    @property
    def ds_config(self) -> Optional[Dict[str, Any]]:
        """Of the best, ready for TrainingArguments(deepspeed=...)."""
        return None if self.best is None else copy.deepcopy(self.best.ds_config)


@dataclass(frozen=True)
class Finding(Result):
    """Something about a ds_config.json that is worth a line."""

    severity: str = ""
    """error, warning or info."""
    pointer: str = ""
    """JSON pointer of the key; empty for the whole file."""
    code: str = ""
    message: str = ""
    cost: str = ""
    fix: str = ""
    line: Optional[int] = None
    """Where the key stands, from 1; None where the file does not have it."""
    column: Optional[int] = None


@dataclass(frozen=True)
class Lint(Result):
    """What DeepSpeed would refuse, ignore or make slow."""

    findings: List[Finding] = field(default_factory=list)
    skipped: List[Dict[str, Any]] = field(default_factory=list)
    """Rules that could not be judged, and what must be said for them."""
    frontend: Optional[str] = None
    """Whose rules counted: hf-trainer or native."""

    @property
    def ok(self) -> bool:
        """Whether no finding is an error."""
        return all(one.severity != "error" for one in self.findings)


@dataclass(frozen=True)
class Explanation(Result):
    """What uses the memory, or what an error was, and which knob moves it."""

    kind: str = ""
    """configuration, out_of_memory or symptoms: which of the fields below are there."""
    result: Optional[Simulation] = None
    moves: List[Dict[str, Any]] = field(default_factory=list)
    events: List[Dict[str, Any]] = field(default_factory=list)
    causes: List[Dict[str, Any]] = field(default_factory=list)
    changes: List[Dict[str, Any]] = field(default_factory=list)
    smallest_change: Optional[int] = None
    """Index into changes."""
    file: Optional[str] = None
    peak: Optional[Dict[str, Any]] = None
    """Of a configuration: phase, allocated_bytes, and what is held then."""
    largest_movers: Optional[Dict[str, List[int]]] = None
    """Indices into moves, by gpu_memory, host_memory and step_time."""
    refused: List[Dict[str, Any]] = field(default_factory=list)
    """Changes that are not possible: change, reason."""
    explained: Optional[int] = None
    """Of an error: index into events."""
    missing: Optional[str] = None
    """Flags that would tell more."""
    same_size: List[Dict[str, Any]] = field(default_factory=list)
    """What has the size of the failed request: what, arithmetic, bytes."""
    matches: List[Dict[str, Any]] = field(default_factory=list)
    """Requests of the simulated step that the failed one can be."""
    simulated_end: Optional[Dict[str, Any]] = None
    """Where the simulated step ends, if it does."""
    refuted_by_bytes: Optional[int] = None
    """Where the prediction fits and the log says no: what the changes free."""
    places: List[Dict[str, Any]] = field(default_factory=list)
    """Where in the program memory ran out."""
    symptoms: List[Dict[str, Any]] = field(default_factory=list)
    consequences: List[Dict[str, Any]] = field(default_factory=list)
    """Lines that follow from a failure of which the log says nothing."""
    unknown: Optional[Dict[str, Any]] = None
    """The line that no known failure explains: line, text."""


@dataclass(frozen=True)
class ValidationRow(Result):
    """A prediction beside its measurement."""

    id: str = ""
    source: str = ""
    metric: str = ""
    measured: Any = None
    predicted: Any = None
    error: Optional[float] = None
    """(predicted - measured) / measured."""
    inside_interval: Optional[bool] = None
    probability: Optional[float] = None
    interval: Optional[Tuple[float, float]] = None
    """Of the prediction, 90 %."""
    likely: Any = None
    """The prediction with values a run that ran can have had in place of defaults."""
    tier: Optional[str] = None
    strategy: Optional[str] = None
    why: Optional[str] = None
    """What the prediction is made of."""
    file: Optional[str] = None


@dataclass(frozen=True)
class Validation(Result):
    """Predictions against measurements."""

    rows: List[ValidationRow] = field(default_factory=list)
    skipped: List[Dict[str, Any]] = field(default_factory=list)
    summary: List[Dict[str, Any]] = field(default_factory=list)
    gates: Optional[Dict[str, Any]] = None
    """What docs/design.md asks of the planner, and what these rows give."""
    scenarios: int = 0


@dataclass(frozen=True)
class Rehearsal(Result):
    """What a training program of the user's took on GPUs that are not there."""

    ran: bool = False
    outcome: str = ""
    """ran, out_of_memory, failed or used_no_gpu."""
    exit: Optional[int] = None
    ranks: int = 1
    steps: int = 0
    peak_allocated_bytes: Optional[int] = None
    peak_reserved_bytes: Optional[int] = None
    static_allocated_bytes: Optional[int] = None
    phases: List[Dict[str, Any]] = field(default_factory=list)
    out_of_memory: Optional[Dict[str, Any]] = None
    time: Optional[Dict[str, Any]] = None
    """With time=True: the step's seconds and what they are made of."""
    find: Optional[Dict[str, Any]] = None
    error: Optional[Dict[str, Any]] = None
    scenario: Optional[Dict[str, Any]] = None
    prediction: Optional[Simulation] = None
    """The planner's own prediction of the same run."""

    gpu: Optional[Dict[str, Any]] = None
    """The emulated GPU: name, memory_bytes, context_bytes, compute_capability, multiprocessors."""
    rank: Optional[int] = None
    """Which one is shown: that with the largest peak."""
    software: Optional[Dict[str, Any]] = None
    host: Optional[Dict[str, Any]] = None
    """peak_bytes that this machine touched, pinned_bytes."""
    counts: Optional[Dict[str, int]] = None
    """Kernels, products, collectives, copies, cuda_mallocs, refused."""
    peak_reserved_range: Optional[Tuple[int, int]] = None
    """Of the runs in which the GPU's work ends at once, or when something waits for it."""
    ends: List[Dict[str, Any]] = field(default_factory=list)
    """Peaks of each of these runs."""
    ranks_seen: List[Dict[str, Any]] = field(default_factory=list)
    unknown_values: List[Dict[str, Any]] = field(default_factory=list)
    """Where the program read a value that a GPU would have computed."""
    unknown_functions: List[str] = field(default_factory=list)
    skipped_steps: Optional[int] = None
    """By the loss scaler."""
    work: Optional[Dict[str, Any]] = None
    """With count_work=True."""
    prediction_problem: Optional[str] = None
    """Why there is no prediction."""

    @property
    def fits(self) -> bool:
        """Whether it ran to its end."""
        return self.ran


@dataclass(frozen=True)
class MemoryGrowth(Result):
    """Memory that a step leaves behind."""

    bytes_a_step: float = 0.0
    full_at_step: Optional[int] = None
    """The step in which the GPU would be full."""


@dataclass(frozen=True)
class Watched(Result):
    """A run as its log shows it."""

    steps_done: Optional[int] = None
    growth: Optional[MemoryGrowth] = None


@dataclass(frozen=True)
class Report(Result):
    """The trade-offs of a model on a cluster, with the page that draws them."""

    fits: bool = False
    question: Dict[str, Any] = field(default_factory=dict)
    chosen: Optional[Dict[str, Any]] = None
    nearest: Optional[Dict[str, Any]] = None
    """What lacks least, where nothing fits."""
    trade_offs: List[Dict[str, Any]] = field(default_factory=list)
    strategies: List[Dict[str, Any]] = field(default_factory=list)
    why: List[Dict[str, Any]] = field(default_factory=list)
    """What another stage, checkpointing, offload, batch or one node would give instead of the chosen one."""
    trust: Optional[Dict[str, Any]] = None
    """What predictions of this kind of plan were compared with, how far they were off, and what would make this one surer."""
    with_expandable_segments: Optional[Dict[str, Any]] = None
    """The chosen one with PyTorch's expandable segments, where it has none and may have them: bytes, seconds."""
    sizes: Optional[Dict[str, Any]] = None
    """The chosen one with other sequence lengths and micro-batches: `cells` by length, then by micro-batch; None where one was refused."""
    if_wrong: List[Dict[str, Any]] = field(default_factory=list)
    """What was assumed as it may be instead (`if`), and what the chosen one needs and takes then."""
    compared: List[Dict[str, Any]] = field(default_factory=list)
    """The question with the flags of `compare_with`, each as `fit` answers it, or with its `refusal`."""
    sensitivity: List[Dict[str, Any]] = field(default_factory=list)
    sensitivity_complete: bool = False
    """All of it was simulated before the time was over."""
    memory_timeline: Optional[Dict[str, Any]] = None
    """Bytes by category over the step."""
    stream_timeline: Optional[Dict[str, Any]] = None
    """What the GPU's streams do over the step."""
    search: Optional[Dict[str, Any]] = None
    """What the search did: points, evaluated, optimal."""
    remedies: List[Dict[str, Any]] = field(default_factory=list)
    assumptions: List[str] = field(default_factory=list)
    warnings: List[str] = field(default_factory=list)
    html: str = field(default="", repr=False)
    """The page; it asks nothing of any network."""

    @property
    def ds_config(self) -> Optional[Dict[str, Any]]:
        """Of the chosen configuration."""
        return None if self.chosen is None else copy.deepcopy(self.chosen["ds_config"])

    def save(self, path: Any) -> None:
        """Writes the page."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.html)
