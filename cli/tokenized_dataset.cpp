#include "cli/tokenized_dataset.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/diagnostic.hpp"
#include "base/embedded.hpp"
#include "cli/arguments.hpp"
#include "rehearsal/process.hpp"

namespace zeroplan::cli {
namespace {

// So many are counted: what a dataset keeps are 512 quantiles (model/plan/resolve_dataset.cpp).
constexpr const char* kMostRows = "20000";

constexpr const char* kOtherPython = "ZEROPLAN_PYTHON names one; --lengths FILE takes the lengths";

std::string python() {
  const char* const named = std::getenv("ZEROPLAN_PYTHON");
  const char* const rehearses = std::getenv("ZEROPLAN_REHEARSAL_PYTHON");
  for (const char* name : {named, rehearses, "python3", "python"}) {
    if (name == nullptr || *name == '\0') continue;
    if (std::string found = rehearsal::find_program(name); !found.empty()) return found;
  }
  throw InputError({kCommandLine,
                    "--tokenizer",
                    "a Python with transformers or tokenizers",
                    "none on the path",
                    kOtherPython});
}

}  // namespace

Json tokenized_dataset(const std::string& file, const std::string& tokenizer) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(file, none)) {
    throw InputError({file, "", "a .jsonl file of samples", "no such file", ""});
  }
  if (!std::filesystem::is_directory(tokenizer, none)) {
    throw InputError({kCommandLine,
                      "--tokenizer",
                      "a folder with tokenizer.json",
                      in_quotes(tokenizer),
                      "nothing is downloaded: name a folder of this machine"});
  }
  const std::string program = python();
  // -I: neither this folder nor the environment says what is imported.
  const rehearsal::Output said =
      rehearsal::run_and_read({program,
                               "-I",
                               "-c",
                               std::string(embedded_file("configs/kit/samples.py")),
                               file,
                               tokenizer,
                               kMostRows});
  // Warnings of libraries stand before it.
  const std::size_t begin = said.text.rfind("\n{", said.text.find_last_not_of('\n'));
  const std::string answer = begin == std::string::npos ? said.text : said.text.substr(begin + 1);
  if (said.exit != 0 || !answer.starts_with('{')) {
    const std::string last = said.text.substr(0, said.text.find_last_not_of('\n') + 1);
    throw InputError(
        {file, "", "samples that the tokenizer reads", last.substr(last.rfind('\n') + 1), ""});
  }
  Json counted = parse_json(answer, file).root;
  if (const Json* missing = counted.find("missing")) {
    throw InputError({kCommandLine,
                      "--tokenizer",
                      "a Python with transformers or tokenizers",
                      phrase("{}, which has no {}", program, missing->as_string()),
                      kOtherPython});
  }
  if (const Json* problem = counted.find("problem")) {
    throw InputError({file,
                      "",
                      "rows with text, messages, prompt and completion, or prompt, chosen and "
                      "rejected",
                      problem->as_string(),
                      ""});
  }
  return counted;
}

}  // namespace zeroplan::cli
