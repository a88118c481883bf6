#include "cli/commands.hpp"

#include <array>

#include "cli/tune_command.hpp"

namespace zeroplan {
namespace {

constexpr OptionInfo kConfidence = {"--confidence", "", "P", "probability a fit must have (0.95)"};

constexpr OptionInfo kForce = {
    "--force", "", "", "with -o: also replace files that zeroplan did not write"};

constexpr OptionInfo kClusters = {
    "--clusters",
    "",
    "LIST|all",
    "instead of CLUSTER: which of these, or of all in the price list: 8xA100-80G,2x8xH100"};
constexpr OptionInfo kCompareVersions = {
    "--compare-versions",
    "",
    "[SETS|all]",
    "the same under sets of releases DEEPSPEED/TORCH/TRANSFORMERS, and what changes between them: "
    "0.16.4/2.6/4.50,0.19.6/2.11/5.17 (those of docs/software.md)"};
constexpr OptionInfo kTokens = {
    "--tokens", "", "N", "of the whole training, for hours and cost: 1B"};
constexpr OptionInfo kPrices = {
    "--prices", "", "FILE", "a price list instead of the built-in one (profiles/prices.json)"};
constexpr OptionInfo kGpuPrice = {
    "--price", "", "N", "of a GPU-hour of any kind, instead of a price list"};
constexpr OptionInfo kGoal = {"--goal",
                              "",
                              "longest-sequence|largest-model",
                              "how far the cluster reaches, instead of the best strategy"};
constexpr std::array kFitOptions = {
    kConfidence,
    kForce,
    OptionInfo{"--all", "", "", "strategies without and with activation checkpointing"},
    kClusters,
    kCompareVersions,
    kTokens,
    kPrices,
    kGpuPrice,
    kGoal,
    OptionInfo{"--output",
               "-o",
               "DIR",
               "write everything that starts the recommendation: see DIR/PLAN.md"}};
constexpr std::array kSimulateOptions = {
    kConfidence,
    OptionInfo{"--require-fit", "", "", "exit with 3 when it does not fit"},
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
constexpr OptionInfo kFix = {
    "--fix", "", "KEY=VALUE ...", "no choice about this key; may be repeated"};
constexpr OptionInfo kSearch = {"--search",
                                "",
                                "KEY=LOW..HIGH|KEY=A,B,C ...",
                                "the values to try instead of the grid; may be repeated"};
constexpr OptionInfo kMaxGpuMemory = {
    "--max-gpu-memory", "", "SIZE", "use no more of each GPU: 60GiB"};
constexpr OptionInfo kMaxHostMemory = {
    "--max-host-memory", "", "SIZE", "use no more of each node's memory: 500G"};
constexpr OptionInfo kReserve = {"--reserve", "", "SIZE", "GPU memory to keep free for others"};
constexpr OptionInfo kMinThroughput = {"--min-throughput", "", "N", "tokens/s per GPU, at least"};
constexpr OptionInfo kAllCores = {"--jobs", "", "N", "threads (all cores)"};
constexpr std::array kTuneOptions = {
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
    OptionInfo{"--output", "-o", "DIR", "write everything that starts the best: see DIR/PLAN.md"},
    kForce};
constexpr OptionInfo kReportObjective = {"--objective",
                                         "",
                                         "throughput|memory",
                                         "what the chosen configuration is best at (throughput)"};
constexpr OptionInfo kReportTime = {
    "--time-limit",
    "",
    "SECONDS",
    "stop all searches then; the page says what that cut (none: they count simulations)"};
constexpr std::array kReportOptions = {
    OptionInfo{"--output", "-o", "FILE", "the page to write: report.html"},
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
constexpr std::array kPlotOptions = {
    OptionInfo{"--output", "-o", "FILE", "the file to write: .svg or .png"},
    OptionInfo{"--plot",
               "",
               "tradeoff|memory|streams|stages|knobs-memory|knobs-time",
               "which plot of the report (tradeoff)"},
    OptionInfo{"--theme", "", "light|dark", "colours (light)"},
    OptionInfo{"--width", "", "PIXELS", "of the picture (720)"},
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
constexpr std::array kExplainOptions = {kConfidence};
constexpr std::array kModelsOptions = {
    OptionInfo{"--config", "", "FILE", "count the parameters of this config.json, name or size"}};
constexpr std::array kKnobsOptions = {
    OptionInfo{"--json-schema", "", "", "print the JSON Schema of ds_config.json, for editors"},
    OptionInfo{"--deepspeed", "", "RELEASE", "with --json-schema: of this release (0.19.8)"},
    OptionInfo{"--markdown", "", "", "print docs/knobs.md"}};

constexpr std::array kLintOptions = {
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

constexpr std::array kReplayOptions = {OptionInfo{
    "--against",
    "",
    "FILE",
    "compare a memory snapshot's requests with those of this one, which simulate wrote"}};

constexpr std::array kValidateOptions = {
    kConfidence,
    OptionInfo{"--profile", "", "FILE", "predict with this profile where a line has none"},
    OptionInfo{"--tiers", "", "LETTERS", "only measurements of these tiers: AB"},
    OptionInfo{"--worst", "", "N", "how many of the worst predictions to list (10)"},
    OptionInfo{"--plot",
               "",
               "FILE.svg|FILE.html",
               "write predicted against measured as plots; the page says more of each point"},
    OptionInfo{"--jobs", "", "N", "threads (1)"}};

constexpr std::array kCalibrateOptions = {
    OptionInfo{"--output", "-o", "FILE", "write the profile here, for --profile"},
    OptionInfo{"--name", "", "TEXT", "of the profile (calibrated)"},
    OptionInfo{"--tiers", "", "LETTERS", "only measurements of these tiers: AB"},
    OptionInfo{"--worst", "", "N", "how many of the worst rows to list (10)"},
    OptionInfo{"--jobs", "", "N", "threads (all cores)"}};
constexpr std::array kProfileOptions = {
    OptionInfo{"--output", "-o", "FILE", "write the profile here, for --profile"},
    OptionInfo{"--name", "", "TEXT", "of the profile (the machine's)"},
    OptionInfo{
        "--device", "", "cuda|cpu", "also the GPU, or the CPU alone (cuda where there is one)"},
    OptionInfo{"--quick", "", "", "less of everything: under a minute"},
    OptionInfo{"--nvme-path", "", "FOLDER", "also measure the drive of this folder"}};

constexpr std::array kDoctorOptions = {
    OptionInfo{"--hostfile", "", "FILE", "also look at the hosts of this file, by ssh"},
    OptionInfo{"--nvme-path", "", "FOLDER", "also look at the folder that DeepSpeed swaps to"},
    OptionInfo{"--measure-nvme", "", "", "write, read and remove a file of 1 GiB there"},
    OptionInfo{"--record", "", "FILE", "keep what the machine said, to be looked at elsewhere"},
    OptionInfo{"--recorded", "", "FILE", "look at such a recording instead of this machine"}};
constexpr OptionInfo kSteps = {"--steps", "", "N", "optimizer steps (10)"};
constexpr OptionInfo kDevice = {
    "--device", "", "cuda|cpu", "what trains (cuda where there is a GPU, else cpu)"};
constexpr OptionInfo kRanks = {
    "--ranks", "", "N", "ranks (as many as the cluster has GPUs; 1 without a cluster)"};
constexpr OptionInfo kSeed = {"--seed", "", "N", "of weights and random tokens (0)"};
constexpr OptionInfo kData = {
    "--data", "", "FILE", "text, or 16-bit tokens in a .bin (random tokens without it)"};
constexpr OptionInfo kWeights = {
    "--weights", "", "FILE", "start from this .safetensors file (random weights without it)"};
constexpr OptionInfo kDeviceMemory = {
    "--device-memory", "", "SIZE", "of each rank: who needs more ends the run (no limit)"};
constexpr OptionInfo kCollectives = {"--collectives",
                                     "",
                                     "auto|tcp|mpi",
                                     "between processes that mpirun, srun or torchrun started: "
                                     "MPI under mpirun, else TCP (auto)"};
constexpr OptionInfo kSecretFile = {
    "--secret-file",
    "",
    "FILE",
    "the secret by which processes on several machines know each other (ZEROPLAN_SECRET)"};
constexpr OptionInfo kJoinTimeout = {
    "--join-timeout",
    "",
    "SECONDS",
    "how long processes wait for the others of their job to come (30)"};
constexpr OptionInfo kRunTrace = {
    "--trace", "", "FILE", "write the last step's timeline; ui.perfetto.dev opens it"};
constexpr OptionInfo kMeasurement = {
    "--measurement", "", "FILE", "add what was measured as a line that validate reads"};
constexpr std::array kRunOptions = {
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
constexpr std::array kVerifyOptions = {
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
constexpr std::array kRehearseOptions = {
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
constexpr std::array kTraceOptions = {
    OptionInfo{"--output", "-o", "FILE", "the document that stands for the model: graph.json"},
    OptionInfo{"--code",
               "",
               "FILE.py:FUNCTION",
               "instead of MODEL: a function that returns a module and a function of batch and "
               "sequence that returns its inputs"},
    OptionInfo{"--python", "", "PYTHON", "the Python that has the model's packages (python3)"},
    OptionInfo{"--class", "", "NAME", "of transformers (what the config names)"},
    OptionInfo{"--attention", "", "eager|sdpa", "attn_implementation (the model's own)"},
    OptionInfo{
        "--freeze", "", "NAME ...", "parameters or modules that do not train; may be repeated"},
    OptionInfo{"--batches", "", "A,B,C", "the batches it is run with (2,3,5)"},
    OptionInfo{"--sequences", "", "A,B,C", "the sequence lengths (128,256,512)"},
    OptionInfo{"--trust-remote-code", "", "", "run the model repository's own code"}};
constexpr std::array kImportOptions = {
    OptionInfo{"--output", "-o", "FILE", "write the measurements here, one a line"},
    OptionInfo{"--together", "", "", "all files are of one run: one measurement"},
    OptionInfo{"--source", "", "TEXT", "`source` of the measurements (import)"}};

constexpr std::array kCommands = {
    CommandInfo{"fit",
                "does MODEL train on CLUSTER, and with which ds_config.json?",
                "MODEL CLUSTER?",
                true,
                kFitOptions,
                "  zeroplan fit 10B 2x4xA800-80G\n"
                "  zeroplan fit 7B RTX4090-24G --host-memory 64G\n"
                "  zeroplan fit path/to/config.json 8xA100-80G --seq 4096 --mbs 2 -o plan\n"
                "  zeroplan fit 7B --clusters 8xA100-80G,4xRTX-4090 --tokens 1B\n",
                run_fit},
    CommandInfo{"tune",
                "the best configuration of MODEL on CLUSTER, and why not the others",
                "MODEL CLUSTER",
                true,
                kTuneOptions,
                "  zeroplan tune 7B 8xA100-80G -o plan\n"
                "  zeroplan tune 10B 2x4xA800-80G --fix stage=3 --search micro_batch_size=1..8\n"
                "  zeroplan tune 7B 8xA100-80G --fix train_batch_size=512 --max-gpu-memory 60GiB\n"
                "  zeroplan tune 13B 4x8xA100-80G --objective cost --price 2.5\n",
                run_tune},
    CommandInfo{"report",
                "the trade-offs of MODEL on CLUSTER as a page that needs no network",
                "MODEL CLUSTER",
                true,
                kReportOptions,
                "  zeroplan report 7B 8xA100-80G -o report.html\n"
                "  zeroplan report 10B 2x4xA800-80G --fix stage=3 -o report.html\n"
                "  zeroplan report 7B 8xA100-80G --json > report.json\n",
                run_report},
    CommandInfo{"plot",
                "one plot of the report as a file",
                "MODEL CLUSTER",
                true,
                kPlotOptions,
                "  zeroplan plot 7B 8xA100-80G -o tradeoff.svg\n"
                "  zeroplan plot 7B 8xA100-80G --plot memory --theme dark -o memory.png\n",
                run_plot},
    CommandInfo{"simulate",
                "memory and time of one configuration",
                "MODEL? CLUSTER?",
                true,
                kSimulateOptions,
                "  zeroplan simulate llama-2-7b 8xA100-80G --ds-config ds_config.json\n"
                "  zeroplan simulate --scenario plan/scenario.json --mbs 4 --json\n"
                "  zeroplan simulate --batch scenarios.jsonl --jobs 8 > results.jsonl\n"
                "  zeroplan simulate llama-2-7b 8xA100-80G --trace step.json\n",
                run_simulate},
    CommandInfo{
        "explain",
        "what uses the memory, or what an out-of-memory error was, and which knob moves it",
        "FILE",
        true,
        kExplainOptions,
        "  zeroplan explain ds_config.json --model llama-2-7b --cluster 8xA100-40G --seq 4096\n"
        "  zeroplan explain train.log\n"
        "  zeroplan explain train.log --model 7B --cluster 8xV100-32G --ds-config ds.json\n",
        run_explain},
    CommandInfo{"scenario",
                "print the scenario document with every default filled in",
                "MODEL? CLUSTER?",
                true,
                {},
                "  zeroplan scenario 10B 2x4xA800-80G > scenario.json\n",
                run_scenario},
    CommandInfo{"models",
                "known models; parameter counts of any config",
                "",
                false,
                kModelsOptions,
                "  zeroplan models\n"
                "  zeroplan models --config path/to/config.json --json\n",
                run_models},
    CommandInfo{"gpus", "known GPUs and machines", "", false, {}, "", run_gpus},
    CommandInfo{"knobs",
                "the keys of ds_config.json",
                "",
                false,
                kKnobsOptions,
                "  zeroplan knobs\n"
                "  zeroplan knobs --json-schema --deepspeed 0.16.4 > ds_config.schema.json\n",
                run_knobs},
    CommandInfo{
        "lint",
        "problems of a ds_config.json: what DeepSpeed refuses, ignores or makes slow",
        "FILE*",
        true,
        kLintOptions,
        "  zeroplan lint ds_config.json --gpus 8\n"
        "  zeroplan lint ds_config.json --model llama-2-7b --cluster 8xV100-32G --seq 2048\n"
        "  zeroplan lint ds_config.json --frontend native --launcher torchrun\n"
        "  zeroplan lint configs/*.json --format github\n"
        "  zeroplan lint --rules\n",
        run_lint},
    CommandInfo{"doctor",
                "what on this machine makes DeepSpeed hang, fail or crawl",
                "",
                true,
                kDoctorOptions,
                "  zeroplan doctor\n"
                "  zeroplan doctor --scenario plan/scenario.json --hostfile plan/hostfile\n"
                "  zeroplan doctor --record machine.json\n",
                run_doctor},
    CommandInfo{
        "import",
        "logs, traces and result folders as measurements",
        "LOGS+",
        true,
        kImportOptions,
        "  zeroplan import train.log --model llama-2-7b --cluster 8xA100-80G --seq 4096\n"
        "  zeroplan import autotuning_results/ --model 7B --seq 2048 -o measurements.jsonl\n"
        "  zeroplan import train.log gpu.csv --together --scenario scenario.json\n",
        run_import},
    CommandInfo{"validate",
                "hold predictions against measurements",
                "MEASUREMENTS+",
                false,
                kValidateOptions,
                "  zeroplan validate measurements.jsonl --jobs 2\n"
                "  zeroplan validate runs/*.jsonl --tiers AB --worst 20\n"
                "  zeroplan validate measurements.jsonl --plot scatter.html\n"
                "  zeroplan validate measurements.jsonl --json > report.json\n",
                run_validate},
    CommandInfo{"calibrate",
                "fit the model's coefficients to measurements: a profile",
                "MEASUREMENTS+",
                false,
                kCalibrateOptions,
                "  zeroplan calibrate measurements.jsonl -o mine.json\n"
                "  zeroplan simulate llama-2-7b 8xA100-80G --profile mine.json\n"
                "  zeroplan calibrate runs/*.jsonl nccl.jsonl --tiers AB --json > report.json\n",
                run_calibrate},
    CommandInfo{"profile",
                "measure this machine: a profile",
                "",
                false,
                kProfileOptions,
                "  zeroplan profile -o machine.json --quick\n"
                "  zeroplan profile -o machine.json --nvme-path /local_nvme\n"
                "  zeroplan fit 7B 2xRTX4090-24G --profile machine.json\n",
                run_profile},
    CommandInfo{"run",
                "train with the embedded runtime",
                "MODEL? CLUSTER?",
                true,
                kRunOptions,
                "  zeroplan run config.json --ranks 2 --precision fp32 --steps 20 --data text.txt\n"
                "  zeroplan run --scenario scenario.json --save checkpoint\n"
                "  zeroplan run --scenario scenario.json --resume checkpoint --ranks 4\n"
                "  mpirun -np 4 zeroplan run --scenario scenario.json\n"
                "  torchrun --no-python --nproc-per-node 4 zeroplan run --scenario scenario.json\n",
                run_run},
    CommandInfo{"verify",
                "train with the embedded runtime and hold the prediction against it",
                "MODEL? CLUSTER?",
                true,
                kVerifyOptions,
                "  zeroplan verify config.json --ranks 4 --ds-config ds_config.json --json\n",
                run_verify},
    CommandInfo{
        "rehearse",
        "run a training program of yours on GPUs that are not there",
        "COMMAND+",
        false,
        kRehearseOptions,
        "  zeroplan rehearse --gpu A100-80G --ranks 8 -- python train.py --deepspeed ds.json\n"
        "  zeroplan rehearse --cluster 2x8xH100 --rank 15 --steps 2 -- python train.py\n"
        "  zeroplan rehearse --gpu 4090 -o measured.jsonl -- python finetune.py\n"
        "  zeroplan rehearse --gpu H100 --ranks 8 --find micro-batch -- python train.py --mbs {}\n",
        run_rehearse},
    CommandInfo{"trace",
                "any PyTorch model as a document that stands for it",
                "MODEL?",
                false,
                kTraceOptions,
                "  zeroplan trace path/to/config.json -o graph.json\n"
                "  zeroplan fit graph.json 8xH100\n"
                "  zeroplan trace --code my_model.py:build --python venv/bin/python -o graph.json\n"
                "  zeroplan trace path/to/config.json --freeze model.embed_tokens -o graph.json\n",
                run_trace},
    CommandInfo{"replay",
                "hold the simulator's engine against recordings of DeepSpeed, its allocator "
                "against memory snapshots of PyTorch",
                "RECORDINGS",
                false,
                kReplayOptions,
                "  zeroplan replay real.pickle --against simulated.pickle --json\n",
                run_replay},
};

}  // namespace

std::span<const CommandInfo> commands() { return kCommands; }

}  // namespace zeroplan
