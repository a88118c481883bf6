// The flags that each command has besides those of a scenario (flags.hpp).
#pragma once

#include <array>

#include "cli/arguments.hpp"

namespace zeroplan::cli {

inline constexpr OptionInfo kConfidence = {
    "--confidence", "", "P", "probability a fit must have (0.95)"};

inline constexpr OptionInfo kForce = {
    "--force", "", "", "with -o: also replace files that zeroplan did not write"};

inline constexpr OptionInfo kForm = {"--form",
                                     "",
                                     "TOOL",
                                     "with -o: one file for llama-factory, axolotl, accelerate, "
                                     "trl, trainer, shell, sbatch, openrlhf or "
                                     "verl"};

inline constexpr OptionInfo kClusters = {
    "--clusters",
    "",
    "LIST|all",
    "instead of CLUSTER: which of these, or of all in the price list: 8xA100-80G,2x8xH100"};
inline constexpr OptionInfo kCompareVersions = {
    "--compare-versions",
    "",
    "[SETS|all]",
    "the same under sets of releases DEEPSPEED/TORCH/TRANSFORMERS, and what changes between them: "
    "0.16.4/2.6/4.50,0.19.6/2.11/5.17 (those of docs/software.md)"};
inline constexpr OptionInfo kQuick = {
    "--quick",
    "",
    "",
    "a first answer: strategies that offload least, by formulas; the best is simulated"};
inline constexpr OptionInfo kTokens = {
    "--tokens", "", "N", "of the whole training, for hours and cost: 1B"};
inline constexpr OptionInfo kPrices = {
    "--prices", "", "FILE", "a price list instead of the built-in one (profiles/prices.json)"};
inline constexpr OptionInfo kGpuPrice = {
    "--price", "", "N", "of a GPU-hour of any kind, instead of a price list"};
inline constexpr OptionInfo kGoal = {"--goal",
                                     "",
                                     "longest-sequence|largest-model",
                                     "how far the cluster reaches, instead of the best strategy"};
inline constexpr OptionInfo kSolve = {
    "--solve",
    "",
    "mbs|seq|rank|completions|gpus|model",
    "the largest that trains, of gpus the fewest, instead of the best strategy"};
inline constexpr std::array kFitOptions = {
    kConfidence,
    kForce,
    OptionInfo{"--all", "", "", "strategies without and with activation checkpointing"},
    OptionInfo{"--why",
               "",
               "",
               "what another stage, checkpointing, offload, batch or one node would give instead"},
    kQuick,
    kClusters,
    kCompareVersions,
    kTokens,
    kPrices,
    kGpuPrice,
    kGoal,
    kSolve,
    OptionInfo{"--output",
               "-o",
               "DIR|FILE",
               "write everything that starts the recommendation: see DIR/PLAN.md; with --form, or "
               "to the tool of --from, one FILE"},
    kForm};
inline constexpr std::array kSimulateOptions = {
    kConfidence,
    OptionInfo{"--require-fit", "", "", "exit with 3 when it does not fit"},
    OptionInfo{"--estimate", "", "", "by formulas alone, in milliseconds: nothing is simulated"},
    kCompareVersions,
    OptionInfo{"--rank", "", "N", "GPU memory of this rank (the one that needs the most)"},
    OptionInfo{"--batch",
               "",
               "FILE.jsonl",
               "one scenario a line in (-: standard input), one result a line out as it is ready"},
    OptionInfo{"--jobs", "", "N", "threads for --batch (1)"},
    OptionInfo{
        "--checkpoint-bandwidth",
        "",
        "SIZE",
        "what the folder of checkpoints takes and gives a second, per node (the NVMe's): 2G"},
    OptionInfo{"--trace", "", "FILE", "write the step's timeline; ui.perfetto.dev opens it"},
    OptionInfo{"--memory-snapshot",
               "",
               "FILE",
               "write the allocator's history; pytorch.org/memory_viz opens it"}};
inline constexpr OptionInfo kFix = {
    "--fix", "", "KEY=VALUE ...", "no choice about this key; may be repeated"};
inline constexpr OptionInfo kSearch = {"--search",
                                       "",
                                       "KEY=LOW..HIGH|KEY=A,B,C ...",
                                       "the values to try instead of the grid; may be repeated"};
inline constexpr OptionInfo kMaxGpuMemory = {
    "--max-gpu-memory", "", "SIZE", "use no more of each GPU: 60GiB"};
inline constexpr OptionInfo kMaxHostMemory = {
    "--max-host-memory", "", "SIZE", "use no more of each node's memory: 500G"};
inline constexpr OptionInfo kReserve = {
    "--reserve", "", "SIZE", "GPU memory to keep free for others"};
inline constexpr OptionInfo kMinThroughput = {
    "--min-throughput", "", "N", "tokens/s per GPU, at least"};
inline constexpr OptionInfo kAllCores = {"--jobs", "", "N", "threads (all cores)"};
inline constexpr std::array kTuneOptions = {
    OptionInfo{
        "--objective",
        "",
        "throughput|memory|gpus|cost",
        "what to look for (throughput): most tokens/s per GPU, least GPU memory, fewest GPUs "
        "of the cluster, fewest GPU-hours a token over its nodes"},
    kFix,
    kSearch,
    kMaxGpuMemory,
    kMaxHostMemory,
    kReserve,
    kMinThroughput,
    OptionInfo{"--price", "", "N", "of a GPU-hour, in any currency: what a million tokens cost"},
    OptionInfo{
        "--gap",
        "",
        "P",
        "how much faster a point that is left out may be (0.05, and the search ends after 200 "
        "simulations without a better point); 0: the exact optimum, slower"},
    kConfidence,
    kAllCores,
    OptionInfo{
        "--time-limit",
        "",
        "SECONDS",
        "stop then and answer with the best so far (none: a count of simulations ends the search)"},
    OptionInfo{
        "--output",
        "-o",
        "DIR|FILE",
        "write everything that starts the best: see DIR/PLAN.md; with --form, or to the tool "
        "of --from, one FILE"},
    kForm,
    kForce};
inline constexpr OptionInfo kReportObjective = {
    "--objective",
    "",
    "throughput|memory",
    "what the chosen configuration is best at (throughput)"};
inline constexpr OptionInfo kReportTime = {
    "--time-limit",
    "",
    "SECONDS",
    "stop all searches then; the page says what that cut (none: they count simulations)"};
inline constexpr OptionInfo kNoSearch = {
    "--no-search", "", "", "the strategies of fit alone; what it recommends is the chosen point"};
inline constexpr OptionInfo kBrief = {
    "--brief", "", "", "the answer and the strategies, and nothing else that would be simulated"};
inline constexpr std::array kReportOptions = {
    OptionInfo{"--output", "-o", "FILE", "the page to write: report.html"},
    OptionInfo{"--compare-with",
               "",
               "FLAGS",
               "compared with: the question with other flags, several between semicolons"},
    kNoSearch,
    kQuick,
    kBrief,
    kReportObjective,
    kFix,
    kSearch,
    kMaxGpuMemory,
    kMaxHostMemory,
    kReserve,
    kMinThroughput,
    kConfidence,
    kTokens,
    kPrices,
    kGpuPrice,
    kAllCores,
    kReportTime};
inline constexpr std::array kPlotOptions = {
    OptionInfo{"--output", "-o", "FILE", "the file to write: .svg or .png"},
    OptionInfo{"--plot",
               "",
               "tradeoff|memory|streams|stages|knobs-memory|knobs-time",
               "which plot of the report (tradeoff)"},
    OptionInfo{"--theme", "", "light|dark", "colours (light)"},
    OptionInfo{"--width", "", "PIXELS", "of the picture (720)"},
    kNoSearch,
    kReportObjective,
    kFix,
    kSearch,
    kMaxGpuMemory,
    kMaxHostMemory,
    kReserve,
    kMinThroughput,
    kConfidence,
    kAllCores,
    kReportTime};
inline constexpr std::array kExplainOptions = {kConfidence};
inline constexpr std::array kModelsOptions = {
    OptionInfo{"--config", "", "FILE", "count the parameters of this config.json, name or size"}};
inline constexpr std::array kKnobsOptions = {
    OptionInfo{"--json-schema", "", "", "print the JSON Schema of ds_config.json, for editors"},
    OptionInfo{"--deepspeed", "", "RELEASE", "with --json-schema: of this release (0.19.8)"},
    OptionInfo{"--markdown", "", "", "print docs/knobs.md"}};

inline constexpr std::array kLintOptions = {
    OptionInfo{"--gpus", "", "N", "GPUs of the job, where no cluster is given"},
    OptionInfo{
        "--launcher", "", "torchrun|deepspeed|accelerate|mpirun|srun", "what starts the processes"},
    OptionInfo{"--task", "", "train|evaluate|generate", "what the run does"},
    OptionInfo{"--format",
               "",
               "text|json|github|sarif",
               "findings as text, or at their lines: as GitHub's annotations, as SARIF"},
    OptionInfo{"--rules", "", "", "list the rules instead"},
    OptionInfo{"--markdown", "", "", "with --rules: print docs/lint.md"}};

inline constexpr std::array kReplayOptions = {OptionInfo{
    "--against",
    "",
    "FILE",
    "compare a memory snapshot's requests with those of this one, which simulate wrote"}};

inline constexpr std::array kValidateOptions = {
    kConfidence,
    OptionInfo{"--profile", "", "FILE", "predict with this profile where a line has none"},
    OptionInfo{"--output",
               "-o",
               "FILE",
               "write the profile with its errors, which answers with --profile say then"},
    OptionInfo{"--tiers", "", "LETTERS", "only measurements of these tiers: AB"},
    OptionInfo{"--worst", "", "N", "how many of the worst predictions to list (10)"},
    OptionInfo{"--plot",
               "",
               "FILE.svg|FILE.html",
               "write predicted against measured as plots; the page says more of each point"},
    OptionInfo{"--jobs", "", "N", "threads (1)"}};

inline constexpr std::array kCalibrateOptions = {
    OptionInfo{"--output", "-o", "FILE", "write the profile here, for --profile"},
    OptionInfo{"--name", "", "TEXT", "of the profile (calibrated)"},
    OptionInfo{"--tiers", "", "LETTERS", "only measurements of these tiers: AB"},
    OptionInfo{"--worst", "", "N", "how many of the worst rows to list (10)"},
    OptionInfo{"--jobs", "", "N", "threads (all cores)"}};
inline constexpr std::array kProfileOptions = {
    OptionInfo{"--output", "-o", "FILE", "write the profile here, for --profile"},
    OptionInfo{"--name", "", "TEXT", "of the profile (the machine's)"},
    OptionInfo{
        "--device", "", "cuda|cpu", "also the GPU, or the CPU alone (cuda where there is one)"},
    OptionInfo{"--quick", "", "", "less of everything: under a minute"},
    OptionInfo{"--nvme-path", "", "FOLDER", "also measure the drive of this folder"}};

inline constexpr std::array kDoctorOptions = {
    OptionInfo{"--hostfile", "", "FILE", "also look at the hosts of this file, by ssh"},
    OptionInfo{"--nvme-path", "", "FOLDER", "also look at the folder that DeepSpeed swaps to"},
    OptionInfo{"--measure-nvme", "", "", "write, read and remove a file of 1 GiB there"},
    OptionInfo{"--record", "", "FILE", "keep what the machine said, to be looked at elsewhere"},
    OptionInfo{"--recorded", "", "FILE", "look at such a recording instead of this machine"}};
inline constexpr OptionInfo kSteps = {"--steps", "", "N", "optimizer steps (10)"};
inline constexpr OptionInfo kDevice = {
    "--device", "", "cuda|cpu", "what trains (cuda where there is a GPU, else cpu)"};
inline constexpr OptionInfo kRanks = {
    "--ranks", "", "N", "ranks (as many as the cluster has GPUs; 1 without a cluster)"};
inline constexpr OptionInfo kSeed = {"--seed", "", "N", "of weights and random tokens (0)"};
inline constexpr OptionInfo kData = {
    "--data", "", "FILE", "text, or 16-bit tokens in a .bin (random tokens without it)"};
inline constexpr OptionInfo kWeights = {
    "--weights", "", "FILE", "start from this .safetensors file (random weights without it)"};
inline constexpr OptionInfo kDeviceMemory = {
    "--device-memory", "", "SIZE", "of each rank: who needs more ends the run (no limit)"};
inline constexpr OptionInfo kCollectives = {
    "--collectives",
    "",
    "auto|tcp|mpi",
    "between processes that mpirun, srun or torchrun started: "
    "MPI under mpirun, else TCP (auto)"};
inline constexpr OptionInfo kSecretFile = {
    "--secret-file",
    "",
    "FILE",
    "the secret by which processes on several machines know each other (ZEROPLAN_SECRET)"};
inline constexpr OptionInfo kJoinTimeout = {
    "--join-timeout",
    "",
    "SECONDS",
    "how long processes wait for the others of their job to come (30)"};
inline constexpr OptionInfo kRunTrace = {
    "--trace", "", "FILE", "write the last step's timeline; ui.perfetto.dev opens it"};
inline constexpr OptionInfo kMeasurement = {
    "--measurement", "", "FILE", "add what was measured as a line that validate reads"};
inline constexpr std::array kRunOptions = {
    kSteps,
    kDevice,
    kRanks,
    kDeviceMemory,
    kCollectives,
    kSecretFile,
    kJoinTimeout,
    kSeed,
    kData,
    kWeights,
    OptionInfo{"--save", "", "DIR", "write a checkpoint at the end: DIR/global_stepN, DIR/latest"},
    OptionInfo{"--save-every", "", "N", "and every N steps"},
    OptionInfo{"--keep", "", "N", "of the run's checkpoints keep the N newest (all)"},
    OptionInfo{"--resume", "", "DIR", "go on from a checkpoint, on any number of ranks"},
    OptionInfo{"--allow-changes", "", "", "with --resume: also with other data, model or rates"},
    kRunTrace,
    kMeasurement};
inline constexpr std::array kVerifyOptions = {
    kSteps,
    kDevice,
    kRanks,
    kDeviceMemory,
    kCollectives,
    kSecretFile,
    kJoinTimeout,
    kSeed,
    kData,
    kRunTrace,
    kMeasurement,
    OptionInfo{"--memory-tolerance", "", "R", "error of the peak that still passes (0.01)"},
    OptionInfo{"--time-tolerance", "", "R", "error of the step that still passes on GPUs (0.15)"}};
inline constexpr std::array kRehearseOptions = {
    OptionInfo{"--gpu", "", "NAME", "the GPU that is emulated: A100-80G"},
    OptionInfo{"--cluster", "", "CLUSTER", "instead of --gpu and --ranks: 2x8xH100"},
    OptionInfo{"--ranks", "", "N", "ranks of the job (1)"},
    OptionInfo{
        "--rank",
        "",
        "R|distinct|all",
        "which of them the program is (0); the first, a middle one and the last, or all, one "
        "after the other"},
    OptionInfo{"--find",
               "",
               "micro-batch|sequence",
               "the largest that runs; {} in COMMAND is where the number stands, if no argument "
               "has a usual name for it"},
    OptionInfo{"--steps", "", "N", "end after N optimizer steps (4); 0: when the program ends"},
    OptionInfo{"--events",
               "",
               "done|pending|both",
               "when work on the GPU ends, which decides what is reserved: at once, when "
               "something waits for it, or a run of each (both)"},
    OptionInfo{
        "--real-gpu",
        "",
        "",
        "on the GPU of this machine: only NCCL is emulated, so that the program is one rank of "
        "the cluster's; a collective takes its predicted time"},
    OptionInfo{"--output", "-o", "FILE", "write what was measured as a line that validate reads"},
    OptionInfo{"--memory-snapshot",
               "",
               "FILE",
               "write PyTorch's memory snapshot, for pytorch.org/memory_viz"},
    OptionInfo{"--time",
               "",
               "",
               "how long a step takes, too: the program's own work with the planner's times (two "
               "more runs)"},
    OptionInfo{"--trace", "", "FILE", "write that step as a trace (ui.perfetto.dev); as --time"},
    OptionInfo{"--count-work",
               "",
               "",
               "one run alone, and what a step of it puts on the GPU beside what the simulated one "
               "does"},
    OptionInfo{"--work", "", "FILE", "write a line of all that is put on the GPU's streams"}};
inline constexpr std::array kTraceOptions = {
    OptionInfo{"--output", "-o", "FILE", "the document that stands for the model: graph.json"},
    OptionInfo{"--code",
               "",
               "FILE.py:FUNCTION",
               "instead of MODEL: a function that returns a module and a function of batch and "
               "sequence that returns its inputs"},
    OptionInfo{"--python", "", "PYTHON", "the Python that has the model's packages (python3)"},
    OptionInfo{"--class", "", "NAME", "of transformers (what the config names)"},
    OptionInfo{"--attention", "", "eager|sdpa|flash", "attn_implementation (the model's own)"},
    OptionInfo{
        "--freeze", "", "NAME ...", "parameters or modules that do not train; may be repeated"},
    OptionInfo{"--images", "", "N", "images in each sequence"},
    OptionInfo{"--image-size", "", "WxH", "of the images, in pixels (1024x1024)"},
    OptionInfo{
        "--micro-batch-size", "", "N", "the batch, where the class loops over its images (1)"},
    OptionInfo{"--batches", "", "A,B,C", "the batches it is run with (2,3,5)"},
    OptionInfo{"--sequences", "", "A,B,C", "the sequence lengths (128,256,512)"},
    OptionInfo{"--family",
               "",
               "",
               "MODEL is a type of transformers (olmo3): one document for all its configs"},
    OptionInfo{"--trust-remote-code", "", "", "run the model repository's own code"}};
inline constexpr std::array kWatchOptions = {
    OptionInfo{"--every", "", "SECONDS", "look so often (default 10)"},
    OptionInfo{"--once", "", "", "look once"},
    OptionInfo{
        "--output", "-o", "FILE", "write the run as a measurement at the end, for validate"}};
inline constexpr std::array kImportOptions = {
    OptionInfo{"--output", "-o", "FILE", "write the measurements here, one a line"},
    OptionInfo{"--together", "", "", "all files are of one run: one measurement"},
    OptionInfo{"--source", "", "TEXT", "`source` of the measurements (import)"}};

}  // namespace zeroplan::cli
