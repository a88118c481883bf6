#include "cli/commands.hpp"

#include <algorithm>
#include <array>

#include "cli/command_options.hpp"
#include "cli/tune_command.hpp"

namespace zeroplan::cli {
namespace {

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
                "  zeroplan simulate --scenario plan --mbs 4 --json\n"
                "  zeroplan simulate --batch scenarios.jsonl --jobs 8 > results.jsonl\n"
                "  zeroplan simulate llama-2-7b 8xA100-80G --trace step.json\n",
                run_simulate},
    CommandInfo{
        "explain",
        "what uses the memory and which knob moves it, or what a log's error was",
        "FILE",
        true,
        kExplainOptions,
        "  zeroplan explain ds_config.json --model llama-2-7b --cluster 8xA100-40G --seq 4096\n"
        "  zeroplan explain train.log; tail -n 200 train.log | zeroplan explain -\n"
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
                "  zeroplan doctor --scenario plan --hostfile plan/kit/hostfile\n"
                "  zeroplan doctor --record machine.json\n",
                run_doctor},
    CommandInfo{"watch",
                "a run that goes on, from its log, beside what is predicted of it",
                "LOG",
                true,
                kWatchOptions,
                "  zeroplan watch train.log --model llama-2-7b --cluster 8xA100-80G --seq 4096\n"
                "  zeroplan watch - --scenario plan < train.log\n"
                "  zeroplan watch output/ --scenario plan -o measured.jsonl\n",
                run_watch},
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
                "compare predictions with measurements",
                "MEASUREMENTS+",
                false,
                kValidateOptions,
                "  zeroplan validate measurements.jsonl --jobs 2\n"
                "  zeroplan validate runs/*.jsonl --tiers AB --worst 20\n"
                "  zeroplan validate measurements.jsonl --plot scatter.html\n"
                "  zeroplan validate measurements.jsonl -o mine.json\n"
                "  zeroplan fit llama-2-7b 8xA100-80G --why --profile mine.json\n"
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
                "train with the embedded runtime and compare the prediction with it",
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
                "validate the simulator's engine against recordings of DeepSpeed, its "
                "allocator against memory snapshots of PyTorch",
                "RECORDINGS",
                false,
                kReplayOptions,
                "  zeroplan replay real.pickle --against simulated.pickle --json\n",
                run_replay},
    CommandInfo{"mcp",
                "fit, simulate, lint, explain and rehearse as tools of a language model's client",
                "",
                false,
                {},
                "  zeroplan mcp\n",
                run_mcp},
};

}  // namespace

std::span<const CommandInfo> commands() { return kCommands; }

const CommandInfo* command_named(std::string_view name) {
  const auto found = std::find_if(
      kCommands.begin(), kCommands.end(), [&](const CommandInfo& one) { return one.name == name; });
  return found == kCommands.end() ? nullptr : &*found;
}

}  // namespace zeroplan::cli
