#include "model/lint/lint.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include <unistd.h>

#include "base/diagnostic.hpp"
#include "cli/commands.hpp"
#include "cli/flags.hpp"
#include "tests/catch.hpp"
#include "tests/support/lint_cases.hpp"

using namespace zeroplan;

namespace {

namespace fs = std::filesystem;

std::string whole_document(std::string_view text) {
  if (text.starts_with("{")) return std::string(text);
  return R"({"train_micro_batch_size_per_gpu": 1, )" + std::string(text) + "}";
}

struct Run {
  int exit_code = 0;
  Json document;
};

// `zeroplan lint FILE flags --json` on a file of that text.
Run run_on(std::string_view text, std::string_view flags) {
  const fs::path file =
      fs::temp_directory_path() / ("zeroplan_lint_" + std::to_string(getpid()) + ".json");
  std::ofstream(file) << whole_document(text);
  std::vector<std::string> words = {file.string(), "--json"};
  std::istringstream stream{std::string(flags)};
  for (std::string word; stream >> word;) words.push_back(word);
  const auto command = std::find_if(cli::commands().begin(),
                                    cli::commands().end(),
                                    [](const auto& row) { return row.name == "lint"; });
  std::ostringstream out;
  std::ostringstream log;
  const int exit_code = cli::run_lint(cli::parse_words(*command, words), {out, log});
  fs::remove(file);
  return {exit_code, parse_json(out.str(), "lint").root};
}

const Json* finding_of(const Run& run, std::string_view code) {
  for (const Json& finding : run.document.find("findings")->items()) {
    if (finding.find("code")->as_string() == code) return &finding;
  }
  return nullptr;
}

std::string member(const Json& finding, const char* key) { return finding.find(key)->as_string(); }

const RuleInfo& row_of(const std::vector<RuleInfo>& rules, std::string_view code) {
  return *std::find_if(
      rules.begin(), rules.end(), [&](const RuleInfo& rule) { return rule.code == code; });
}

}  // namespace

TEST_CASE("every rule has a file in which it speaks and one in which it does not") {
  std::set<std::string_view> with_case;
  for (const LintCase& row : kLintCases) CHECK(with_case.insert(row.code).second);
  for (const RuleInfo& rule : lint_rules()) {
    INFO(rule.code);
    CHECK(with_case.erase(rule.code) == 1);
  }
  for (const std::string_view code : with_case) FAIL_CHECK("no rule has the code " << code);
}

TEST_CASE("rules speak where they should, in the words recorded, and nowhere else") {
  const std::vector<RuleInfo> rules = lint_rules();
  std::string said;
  for (const LintCase& row : kLintCases) {
    INFO(row.code << " " << row.flags << "\n" << row.fires);
    const Run loud = run_on(row.fires, row.flags);
    const Json* finding = finding_of(loud, row.code);
    REQUIRE(finding != nullptr);
    CHECK((member(*finding, "severity") != "error" || loud.exit_code == cli::kAnswerIsNo));
    CHECK(member(*finding, "message").find_first_of("{}") == std::string::npos);
    CHECK(row_of(rules, row.code).severity <=
          (member(*finding, "severity") == "error"     ? Severity::error
           : member(*finding, "severity") == "warning" ? Severity::warning
                                                       : Severity::info));
    said += std::string(row.code) + " | " + member(*finding, "severity") + " | " +
            member(*finding, "pointer") + " | " + member(*finding, "message") + " | " +
            member(*finding, "fix") + "\n";
    INFO("quiet: " << row.quiet << " " << row.quiet_flags);
    const Run quiet = run_on(row.quiet, row.quiet_flags == "=" ? row.flags : row.quiet_flags);
    CHECK(finding_of(quiet, row.code) == nullptr);
  }
  const std::string path = std::string(ZEROPLAN_SOURCE_DIR) + "/tests/golden/lint_rules.txt";
  if (std::getenv("UPDATE_GOLDEN") != nullptr) std::ofstream(path) << said;
  std::ifstream file(path);
  std::stringstream expected;
  expected << file.rdbuf();
  INFO("UPDATE_GOLDEN=1 rewrites " << path);
  CHECK(said == expected.str());
}

TEST_CASE("every text of a rule takes what its rule hands over, and only that") {
  for (const RuleInfo& rule : lint_rules()) {
    for (const RuleText& text : rule.texts) {
      INFO(rule.code << ": " << text.message);
      const std::vector<Phrase> ten(10, Phrase(std::string("x")));
      CHECK_FALSE(filled(text.message, ten).empty());
      CHECK(text.message.back() != '.');
      CHECK(rule.cost.back() != '.');
    }
  }
}

TEST_CASE("docs/lint.md is the table of today") {
  const std::string path = std::string(ZEROPLAN_SOURCE_DIR) + "/docs/lint.md";
  const std::string expected = lint_rules_markdown();
  if (std::getenv("UPDATE_GOLDEN") != nullptr) std::ofstream(path) << expected;
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  INFO("UPDATE_GOLDEN=1 rewrites it");
  CHECK(text.str() == expected);
}

TEST_CASE("what is not known is said once for each rule and never judged") {
  const Run run = run_on(R"("bf16": {"enabled": true})", "");
  CHECK(finding_of(run, "bf16-gpu") == nullptr);
  std::map<std::string, std::string> missing;
  for (const Json& rule : run.document.find("skipped")->items()) {
    CHECK(missing.emplace(member(rule, "code"), member(rule, "missing")).second);
  }
  CHECK(missing.at("bf16-gpu") == "the cluster (--cluster)");
  CHECK(missing.at("omp-threads") == "what starts it (--launcher)");
  CHECK(missing.at("out-of-memory") == "a plan (--model and --cluster)");
  const Run known = run_on(R"("bf16": {"enabled": true})",
                           "--model gpt2 --cluster 8xA100-80G --mbs 1 --task train --launcher "
                           "deepspeed --deepspeed 0.19.6");
  CHECK(known.document.find("skipped")->items().empty());
}

TEST_CASE("under FSDP and DDP the rules of DeepSpeed's file are not asked") {
  const std::string_view text = R"("zero_optimization": {"stage": 3}, "bf16": {"enabled": true})";
  const std::string run =
      "--model llama-3-70b --cluster 2xRTX-3090 --seq 2048 --mbs 1 --gas 64 --frontend hf-trainer "
      "--method qlora --engine ";
  const Run deepspeed = run_on(text, run + "deepspeed");
  const Run fsdp = run_on(text, run + "fsdp");
  for (const char* code : {"gather-on-save", "quantised-base-stage3"}) {
    INFO(code);
    CHECK(finding_of(deepspeed, code) != nullptr);
    CHECK(finding_of(fsdp, code) == nullptr);
  }
  CHECK(finding_of(fsdp, "out-of-memory") != nullptr);
  CHECK(finding_of(run_on(R"("gradient_clipping": "auto")", run + "ddp"), "gather-on-save") ==
        nullptr);
}

TEST_CASE("the host is judged as simulate does: a mixture's experts are joined there") {
  const std::string run = "--model mixtral-8x22b --cluster 8x8xH100 --seq 1024 --ckpt full";
  const std::string_view text = R"("zero_optimization": {"stage": 3}, "bf16": {"enabled": true})";
  const Run stated = run_on(text, run + " --host-memory 1T");
  const Json* finding = finding_of(stated, "out-of-memory");
  REQUIRE(finding != nullptr);
  CHECK(member(*finding, "message").starts_with("the host needs 2066"));
  CHECK(finding_of(run_on(text, run + " --host-memory 3T"), "out-of-memory") == nullptr);
}

TEST_CASE("a run that cannot be planned still gets the rest, and the reason") {
  const Run run =
      run_on(R"("bf16": {"enabled": true}, "zero_optimization": {"stage": 3})",
             "--model llama-2-7b --cluster 8xV100-32G --method qlora --tensor-parallel 2");
  CHECK(finding_of(run, "bf16-gpu") != nullptr);
  CHECK(finding_of(run, "quantised-base-stage3") != nullptr);
  bool explained = false;
  for (const Json& rule : run.document.find("skipped")->items()) {
    if (member(rule, "code") == "out-of-memory") explained = !member(rule, "reason").empty();
  }
  CHECK(explained);
}

TEST_CASE("without the number of GPUs only an identity that none can satisfy is refused") {
  const auto batch = [](int train) {
    return R"({"train_batch_size": )" + std::to_string(train) +
           R"(, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2})";
  };
  CHECK(finding_of(run_on(batch(32), ""), "batch-identity") == nullptr);
  CHECK(finding_of(run_on(batch(33), ""), "batch-identity") != nullptr);
  CHECK(finding_of(run_on(batch(32), "--gpus 8"), "batch-identity") != nullptr);
  CHECK_THROWS_AS(run_on(batch(32), "--gpus 3 --tensor-parallel 2"), InputError);
}

TEST_CASE("a number below one is taken for a wrong sign of its exponent") {
  const auto live = [](const std::string& number) {
    return R"("zero_optimization": {"stage": 3, "stage3_max_live_parameters": )" + number + "}";
  };
  const Run new_release = run_on(live("2e-7"), "");
  REQUIRE(finding_of(new_release, "exponent-sign") != nullptr);
  CHECK(member(*finding_of(new_release, "exponent-sign"), "severity") == "error");
  CHECK(member(*finding_of(new_release, "exponent-sign"), "fix") == "was 20000000 meant?");
  const Run old_release = run_on(live("2e-7"), "--deepspeed 0.14.5");
  CHECK(member(*finding_of(old_release, "exponent-sign"), "severity") == "warning");
}
