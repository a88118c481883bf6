// With --lang zh no English is left: the golden cases of the translated commands are run again
// under a Chinese locale, and what they print holds no word of small letters but names.
#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include <unistd.h>

#include "tests/catch.hpp"
#include "tests/golden/part.hpp"

namespace {

namespace fs = std::filesystem;

const fs::path kFolder = fs::path(ZEROPLAN_SOURCE_DIR) / "tests" / "golden";

// Values and names that are the same in both languages.
const std::set<std::string>& names() {
  static const std::set<std::string> words = {
      // of keys, of ds_config.json and of the scenario document
      "none",
      "full",
      "cpu",
      "nvme",
      "auto",
      "true",
      "false",
      "null",
      "name",
      "notes",
      "nodes",
      "hosts",
      "gpu",
      "assumed",
      "assumptions",
      "schema",
      "device",
      "workload",
      "dataset",
      "profile",
      "stage",
      "sub",
      "group",
      "lines",
      "packed",
      "longest",
      "max",
      "throughput",
      "memory",
      "gpus",
      "cost",
      "machine",
      "required",
      "best",
      "other",
      "plan",
      // of programs and what people call things in Chinese too
      "zeroplan",
      "deepspeed",
      "peft",
      "dtype",
      "torch",
      "torchrun",
      "fsdp",
      "ddp",
      "llmq",
      "internevo",
      "nvidia",
      "adamw",
      "adam",
      "lion",
      "adafactor",
      "sgd",
      "muon",
      "collator",
      "labels",
      "pad",
      "python",
      "sequence",  // what rehearse --find and --rank take
      "distinct",
      "all",
      "rehearse",
      "usual",  // what --loading takes
      "every",
      "converted",
      "transformers",
      "transformer",
      "FULL_SHARD",
      "SHARD_GRAD_OP",
      "accelerate",
      "mpirun",
      "srun",
      "numpy",
      "bitsandbytes",
      "pydantic",
      "ninja",
      "nvcc",
      "pdsh",
      "numactl",
      "dmesg",
      "cgroup",
      "ulimit",
      "lora",
      "qlora",
      "sdpa",
      "flash",
      "eager",
      "half",
      "megatron",
      "composer",
      "embedded",
      "cuda",
      "pickle",
      "gzip",
      "gunzip",
      "hostfile",
      "slots",
      "token",
      "tokens",
      "logits",
      "rank",
      "config",
      "json",
      "autotuning",
      "trace",
      "en",
      "zh",
      "nvswitch",
      "jamba",
      "mlock",
      "gloo",
      "apex",
      "libaio",
      "faulthandler",
      "tensorboard",
      "packaging",
      "devel",
      "dump",
      "dropout",
      "state",
      "dict",
      "pcie",
      "tcp",
      "roce",
      "opa",
      "ib",
      // of kernels
      "mm",
      "mul",
      "silu",
      "clone",
      "head",
      "inputs",
      // of pointers and units
      "line",
      "column",
      "byte",
      "scenario",
      "input",
      "us",
      "ms",
      "lo",
      "bf",
      "fp",
      "int",
      // of commands to type
      "simulate",
      "pip",
      "install",
      "apt",
      "get",
      "pgrep",
      "rm",
      "mount",
      "remount",
      "export",
      "unset",
      "kill",
      "ps",
      "aux",
      "fuser",
      "which",
      "df",
      "findmnt",
      "ssh",
      "unlimited",
      "import",
      "topo",
      "fit",
      "tune",
      "explain",
      "lint",
      "doctor",
      "replay",
      "report",
      "plot",
      "tradeoff",
      "stages",
      "streams",
      "bloom",
      "llama",
      "sudo",
      "ip",
      "addr",
      "ss",
      "grep",
      "rmmod",
      "modprobe",
      "reboot",
      "echo",
      "tee",
      "chmod",
      "dpkg",
      "purge",
      "conda",
      "hostname",
      "loss",
      "standard",
      "nodejs",
      "validate",
      "help",
      "models",
      "knobs",
      "dbrx",  // a model
      // of trainers, tools and placements, as they are typed
      "sft",
      "dpo",
      "kto",
      "grpo",
      "ppo",
      "gkd",
      "axolotl",
      "trl",
      "trainer",
      "shell",
      "sbatch",
      "replicated",
      "sharded",
      "train",
      // of the words of others: ssh, Python
      "has",
      "unsupported",
      "type",
      "denied",
      "list"};
  return words;
}

bool is_translated(const std::string& name, const std::string& command) {
  constexpr std::array kGroups = {"fit_", "tune", "explain_", "lint_", "doctor_", "error_"};
  const bool group = std::any_of(
      kGroups.begin(), kGroups.end(), [&](const char* start) { return name.starts_with(start); });
  // Documents for programs and what a shell prints besides; commands that speak English.
  for (const char* other : {"--json",
                            "--format",
                            "--batch",
                            "echo",
                            "plan.yaml",  // a file for another tool
                            "zeroplan replay",
                            "--markdown",
                            "zeroplan calibrate",
                            "zeroplan profile",
                            "zeroplan run",
                            "mismatch.json",    // quotes ssh and the linker
                            "unknown_failure",  // quotes the log
                            "profile_bad"}) {
    if (command.find(other) != std::string::npos) return false;
  }
  return group;
}

std::string output_of(const std::string& command) {
  const fs::path scratch =
      fs::temp_directory_path() / ("zeroplan_language_" + std::to_string(getpid()));
  fs::create_directories(scratch);
  const fs::path script = scratch / "run.sh";
  std::ofstream(script) << "cd '" << kFolder.string() << "'\n"
                        << "export PATH='" << ZEROPLAN_PROGRAM_DIR << "':$PATH\n"
                        << "export LC_ALL=zh_CN.UTF-8 ZEROPLAN_PYTHON=none SCRATCH='"
                        << scratch.string() << "'\n"
                        << command << "\n";
  const std::string line = "sh '" + script.string() + "' 2>&1 </dev/null";
  std::string text;
  {
    const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(line.c_str(), "r"), pclose);
    REQUIRE(pipe);
    char buffer[4096];
    while (const std::size_t n = fread(buffer, 1, sizeof(buffer), pipe.get())) {
      text.append(buffer, n);
    }
  }
  fs::remove_all(scratch);
  return text;
}

// Words of small letters alone, outside quotes, keys, paths, flags and versions.
std::vector<std::string> english_words(const std::string& line) {
  static const std::regex quoted("\"[^\"]*\"|'[^']*'");
  static const std::regex technical("[!-~]*[A-Z0-9/_.=()\\[\\]*-][!-~]*");
  static const std::regex word("[a-z]{2,}");
  const std::string plain =
      std::regex_replace(std::regex_replace(line, quoted, " "), technical, " ");
  std::vector<std::string> found;
  for (std::sregex_iterator at(plain.begin(), plain.end(), word), end; at != end; ++at) {
    if (!names().contains(at->str())) found.push_back(at->str());
  }
  return found;
}

}  // namespace

TEST_CASE("under a Chinese locale the translated commands leave no English") {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::recursive_directory_iterator(kFolder / "cases")) {
    if (entry.path().extension() == ".txt") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::size_t cases = 0;
  for (const fs::path& path : paths) {
    std::ifstream stream(path);
    std::string command;
    std::getline(stream, command);
    const std::string name = path.filename().string();
    if (!command.starts_with("$ ") || !is_translated(name, command)) continue;
    if (!zeroplan::test::part_of_environment().takes(cases++)) continue;
    std::istringstream output(output_of(command.substr(2)));
    for (std::string line; std::getline(output, line);) {
      const std::size_t begin = line.find_first_not_of(' ');
      const bool document = begin != std::string::npos &&
                            std::string("\"{}[]").find(line[begin]) != std::string::npos;
      if (document) continue;
      std::string left;
      for (const std::string& word : english_words(line)) left += word + " ";
      INFO(name << ": " << line << "\nleft in English: " << left);
      CHECK(left.empty());
    }
  }
  CHECK(cases > 80);
}
