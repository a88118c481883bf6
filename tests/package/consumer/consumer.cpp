// What a user of the library writes.
//   consumer                  checks the types of the answers; ends with 1 where one is wrong
//   consumer COMMAND WORD...  answers as `zeroplan COMMAND WORD... --json` does
// The words: --scenario FILE, --from FILE, and of tune --fix KEY=VALUE, --search KEY=VALUES, --gap
// P, of lint
// --gpus N.
#include <atomic>
#include <fstream>
#include <iostream>
#include <optional>
#include <stdexcept>
#include <string>

#include <zeroplan/zeroplan.hpp>

namespace {

int failures = 0;

void expect(bool holds, const char* what) {
  if (holds) return;
  std::cerr << "consumer: not so: " << what << "\n";
  ++failures;
}

void check_simulation() {
  const zeroplan::Scenario scenario{.model = "llama-2-7b",
                                    .cluster = "8xA100-80G",
                                    .ds_config = R"({"zero_optimization": {"stage": 2}})",
                                    .sequence_length = 2048,
                                    .micro_batch_size = 1,
                                    .node_host_memory_bytes = 512'000'000'000};
  const zeroplan::Simulation answer = zeroplan::simulate(scenario);
  expect(answer.parameters_total == 6'738'415'616, "llama-2-7b has 6,738,415,616 parameters");
  expect(answer.gpu.capacity_bytes > 79'000'000'000, "an A100-80G has more than 79 GB");
  std::int64_t sum = 0;
  for (const auto& [category, bytes] : answer.gpu.breakdown_at_peak_bytes) sum += bytes;
  expect(sum == answer.gpu.peak_total_bytes, "the breakdown sums to the peak");
  expect(answer.host.capacity_bytes == 512'000'000'000,
         "the node has the host memory that was said");
  expect(answer.step.seconds > 0.0, "a step takes time");
  expect(answer.fits == (answer.fit_probability >= 0.95), "the verdict is that of the probability");
  expect(answer.json().find("\"schema\": \"zeroplan.step/1\"") != std::string::npos,
         "a step/1 document");
}

void check_fit() {
  const zeroplan::Fit yes = zeroplan::fit({.model = "llama-2-7b", .cluster = "8xA100-80G"});
  expect(yes.fits && yes.recommended, "7B fits 8 x A100-80G");
  const zeroplan::Strategy& best = yes.strategies.at(yes.recommended.value_or(0));
  expect(best.fits && best.result.fit_probability >= 0.95, "what is recommended fits");
  expect(best.ds_config.find("\"stage\": " + std::to_string(best.stage)) != std::string::npos,
         "the ds_config has the strategy's stage");
  const zeroplan::Fit no =
      zeroplan::fit({.model = "70B", .cluster = "1xRTX-4090", .micro_batch_size = 1});
  expect(!no.fits && !no.recommended, "70B does not fit a GPU of 24 GB");
}

// The same said as fields, as a document, and as a document with fields over it.
void check_documents() {
  const zeroplan::Scenario fields{
      .model = "gpt2", .cluster = "2xRTX-4090", .sequence_length = 512, .micro_batch_size = 2};
  const std::string expected = zeroplan::simulate(fields).json();
  const std::string workload = R"("workload": {"sequence_length": 512, "micro_batch_size": )";
  const std::string whole = R"({"model": "gpt2", "cluster": "2xRTX-4090", )" + workload;
  expect(zeroplan::simulate(zeroplan::Scenario::from_json(whole + "2}}")).json() == expected,
         "a document says what fields say");
  zeroplan::Scenario both = zeroplan::Scenario::from_json(whole + "1}}");
  both.micro_batch_size = 2;
  expect(zeroplan::simulate(both).json() == expected, "fields count over a document");
  const zeroplan::Resolved resolved = zeroplan::resolve(fields);
  const zeroplan::Scenario again = zeroplan::Scenario::from_json(resolved.json());
  expect(zeroplan::resolve(again).json() == resolved.json(), "what is resolved resolves to itself");
}

// What a job script says, with its GPUs: DDP, where it starts neither DeepSpeed nor FSDP.
void check_training(const std::string& script) {
  const zeroplan::Resolved resolved =
      zeroplan::resolve({.cluster = "A100-80G", .micro_batch_size = 4, .from = script});
  const auto has = [&](const char* text) {
    return resolved.json().find(text) != std::string::npos;
  };
  expect(has("\"engine\": \"ddp\"") && has("\"gpus_per_node\": 8"), "what runs is resolved");
  expect(has("\"micro_batch_size\": 4"), "fields count over the file");
  expect(has("\"host_memory_bytes\": 64424509440"), "a node has what the job may have of it");
  bool unknown = false;
  for (const std::string& line : resolved.read) {
    unknown = unknown || line.find("not known: ") == 0;
  }
  expect(resolved.read.size() > 3 && unknown, "what was read is said, and what is not known");
}

void check_tune() {
  const zeroplan::Scenario scenario{.model = "gpt2", .cluster = "2xRTX-4090"};
  zeroplan::TuneOptions options{.fix = {"stage=1", "gradient_accumulation_steps=1"},
                                .search = {"micro_batch_size=1..4"},
                                .price_per_gpu_hour = 1.0,
                                .jobs = 1};
  int calls = 0;
  options.on_progress = [&calls](const zeroplan::Progress&) { ++calls; };
  const zeroplan::Tuning tuning = zeroplan::tune(scenario, options);
  expect(tuning.best && calls > 0, "a search says how far it is, and finds something");
  expect(tuning.result.fits && tuning.best->gpu_bytes == tuning.result.gpu.peak_total_bytes,
         "the best fits, with its own memory");
  expect(tuning.json().find("price_per_million_tokens") != std::string::npos, "what tokens cost");
  const std::atomic<bool> stop = true;
  options.stop = &stop;
  expect(zeroplan::tune(scenario, options).stopped, "a search ends when it is told");
}

void check_lint() {
  const zeroplan::Lint lint = zeroplan::lint(
      {.ds_config = "{\n  \"fp16\": {\"enabled\": true},\n  \"bf16\": {\"enabled\": true}\n}"},
      {.gpus = 8});
  expect(!lint.findings.empty() && lint.findings[0].severity == zeroplan::Severity::error,
         "fp16 beside bf16 is an error");
  expect(!lint.skipped.empty(), "rules that need a model are skipped");
}

template <typename Ask>
void check_error(const Ask& ask,
                 const std::string& file,
                 const std::string& pointer,
                 const char* what) {
  try {
    ask();
    expect(false, what);
  } catch (const zeroplan::InputError& error) {
    expect(error.file() == file && error.pointer() == pointer, what);
    expect(!error.expected().empty() && !error.got().empty(),
           "an error says what was expected and got");
    if (error.pointer() != pointer) std::cerr << error.what() << "\n";
  }
}

void check_errors() {
  check_error(
      [] {
        (void)zeroplan::resolve(
            {.model = "llama-2-7b", .cluster = "8xA100-80G", .precision = "fp8"});
      },
      "scenario",
      "/workload/precision",
      "an unknown precision is an error of its field");
  check_error([] { (void)zeroplan::fit({.cluster = "8xA100-80G"}); },
              "scenario",
              "/model",
              "a scenario without a model is an error");
  check_error([] { (void)zeroplan::Scenario::from_json("{\"modle\": \"7B\"}", "mine.json"); },
              "mine.json",
              "/modle",
              "an unknown key is an error of the document");
  check_error(
      [] { (void)zeroplan::fit({.model = "7B", .cluster = "8xH100"}, {.confidence = 2.0}); },
      "options",
      "confidence",
      "a confidence above 1 is an error of the option");
  check_error([] { (void)zeroplan::Scenario::from_json(""); },
              "document",
              "",
              "an empty document is an error");
  check_error([] { (void)zeroplan::lint({.model = "7B"}); },
              "scenario",
              "/ds_config",
              "nothing to judge is an error");
}

std::string answer_of(const std::string& command,
                      const zeroplan::Scenario& scenario,
                      const zeroplan::TuneOptions& search,
                      const zeroplan::LintOptions& judged) {
  if (command == "scenario") return zeroplan::resolve(scenario).json();
  if (command == "simulate") return zeroplan::simulate(scenario).json();
  if (command == "fit") return zeroplan::fit(scenario).json();
  if (command == "tune") return zeroplan::tune(scenario, search).json();
  if (command == "lint") return zeroplan::lint(scenario, judged).json();
  throw std::invalid_argument("no such command: " + command);
}

int answer(int argc, char** argv) {
  std::string file;
  std::optional<std::string> training;
  zeroplan::TuneOptions search;
  zeroplan::LintOptions judged;
  for (int i = 2; i + 1 < argc; i += 2) {
    const std::string flag = argv[i], value = argv[i + 1];
    if (flag == "--scenario") file = value;
    if (flag == "--from") training = value;
    if (flag == "--fix") search.fix.push_back(value);
    if (flag == "--search") search.search.push_back(value);
    if (flag == "--gap") search.gap = std::stod(value);
    if (flag == "--gpus") judged.gpus = std::stoll(value);
  }
  try {
    zeroplan::Scenario scenario = zeroplan::Scenario::from_file(file);
    scenario.from = training;
    std::cout << answer_of(argv[1], scenario, search, judged);
    return 0;
  } catch (const zeroplan::InputError& error) {
    std::cerr << error.what() << "\n";
    return 2;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) return answer(argc, argv);
  expect(zeroplan::version() == FOUND_VERSION, "the library has the package's version");
  check_simulation();
  check_fit();
  check_documents();
  const std::string script = "training.sh";
  std::ofstream(script) << "#SBATCH --mem=60G\n#SBATCH --gres=gpu:8\ntorchrun --nproc_per_node 8 "
                           "run_clm.py --model_name_or_path gpt2 --bf16 true --odd_one 1\n";
  check_training(script);
  check_tune();
  check_lint();
  check_errors();
  return failures == 0 ? 0 : 1;
}
