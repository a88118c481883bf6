// No sentence of the program lacks a translation: every string literal with English words in the
// sources below, cut at its slots and line ends, stands in the English of the catalogue.
#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include "base/embedded.hpp"
#include "base/json.hpp"
#include "cli/language/translation.hpp"
#include "tests/catch.hpp"
#include "tests/support/source_texts.hpp"

using namespace zeroplan;

namespace {

namespace fs = std::filesystem;

const fs::path kRoot = ZEROPLAN_SOURCE_DIR;

// Folders and files whose sentences no translated command prints, each with the reason.
constexpr std::array kLeftOut = {
    "cli/language/",               // about the catalogue itself
    "model/cost/",                 // sources of coefficients
    "model/engine/",               // defects of the program alone
    "model/graph/",                // the same
    "base/check.hpp",              // the same
    "base/embedded.cpp",           // the same
    "model/software.cpp",          // the alphabet of versions
    "model/release",               // sources; releases_test checks what rows say
    "model/chrome_trace.cpp",      // JSON
    "cli/report/report_page.cpp",  // markup of the page, which speaks English
    "model/knobs/knobs.cpp",       // defects of the table of keys
    "model/knobs/knob_reference.cpp",
    "model/knobs/knob_schema.cpp",
    "model/knobs/ds_config.cpp",                   // the same
    "model/lint/lint_reference.cpp",               // docs/lint.md
    "model/hardware/hardware.cpp",                 // defects of profiles
    "model/implementations/assembler.cpp",         // defects
    "model/implementations/embedded_builder.cpp",  // the same
    "tuner/kit/",                                  // files of the kit are English
    "cli/doctor/machine.cpp",                      // commands it runs
    "cli/doctor/probe.cpp",                        // the same
    "cli/foreign_flags.cpp",                       // flags as they are typed
    "foreign/launch.cpp",                          // options of launchers
    "cli/report/report_json.cpp",                  // a command line
    "cli/lint_formats.cpp",                        // documents of other programs
    "cli/models_command.cpp",                      // commands that speak English
    "cli/gpus_command.cpp",
    "cli/knobs_command.cpp",
    "cli/calibrate_command.cpp",
    "cli/profile_command.cpp",
    "cli/validate_command.cpp",
    "cli/validate_text.cpp",
    "cli/verify_command.cpp",
    "cli/run_command.cpp",
    "cli/embedded_plan.cpp",
    "cli/embedded_run.cpp",
    "cli/import_command.cpp",
    "cli/replay_command.cpp",
    "cli/mcp/",                        // a protocol between programs
    "cli/rehearsal_measurement.cpp",   // JSON
    "rehearsal/real_gpu/",             // kernels
    "rehearsal/libraries/",            // what CUDA's libraries say to the program
    "rehearsal/wanted_libraries.cpp",  // sources that it writes
};

bool is_left_out(const std::string& path) {
  return std::any_of(
      kLeftOut.begin(), kLeftOut.end(), [&](const char* start) { return path.starts_with(start); });
}

std::vector<std::string> sources() {
  std::vector<std::string> paths = {"evidence/oom_diagnosis.cpp"};
  for (const char* folder : {"cli", "foreign", "model", "rehearsal", "tuner"}) {
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder)) {
      const std::string path = fs::relative(entry.path(), kRoot).string();
      const bool source = path.ends_with(".cpp") || path.ends_with(".hpp");
      if (source && !is_left_out(path)) paths.push_back(path);
    }
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::string read(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

// The English of all messages, slots as line ends.
std::string all_english() {
  const JsonDocument document =
      parse_json(embedded_file("configs/messages/zh.json"), "configs/messages/zh.json");
  std::string text;
  for (const auto& [group, messages] : document.root.find("messages")->members()) {
    for (const auto& [english, other] : messages.members()) {
      const cli::MessageFormat format(english);
      for (const std::string& piece : format.pieces()) text += piece + "\n";
    }
  }
  return text;
}

// What is typed or named and has no translation: commands, blocks of models, attributes.
bool is_no_sentence(const std::string& text) {
  static const std::regex commands(
      "(zeroplan|--compare-versions|mpirun|torchrun|pip "
      "install|apt-get|python3|nvidia-smi|fuser|which|unset|pgrep|mount|findmnt|df|"
      "ps|kill) .*");
  static const std::regex blocks("\\w+ (inputs|head|encoder output)");
  constexpr std::array kNames = {
      "DeepSpeed / torch / transformers",
      "torch / transformers",
      "gradients outside the bucket's buffer",
      "}-model_states.pt of stage",
      "frozen ds_tensor",
      "import ziglang",
      "import importlib.metadata as m; print('transformers', "
      "m.version('transformers') + ', torch', m.version('torch'), end='')",
      "litgpt's no_backward_sync",
      "accelerate's no_sync",
      ", column",
      "--gradient_checkpointing_kwargs '{\"use_reentrant\": false}'",
      "With the Trainer: --deepspeed ds_config.json "
      "--per_device_train_batch_size"};
  return std::regex_match(text, commands) || std::regex_match(text, blocks) ||
         std::find(kNames.begin(), kNames.end(), text) != kNames.end();
}

std::string trimmed(const std::string& text, const char* what) {
  const std::size_t begin = text.find_first_not_of(what);
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(what) + 1 - begin);
}

// The pieces of a literal between slots and line ends that have a word of small letters beside a
// space.
std::vector<std::string> sentences_of(const SourceText& literal) {
  static const std::regex cut("\\{[^{}]{0,8}\\}|\n");
  static const std::regex words("[a-z]{2,} | [a-z]{2,}");
  std::string text_itself = literal.text;
  if (literal.before.ends_with("phrase(")) {  // doubled braces stand for one
    text_itself = std::regex_replace(text_itself, std::regex("\\{\\{"), "{");
    text_itself = std::regex_replace(text_itself, std::regex("\\}\\}(?!\\})"), "}");
  }
  std::vector<std::string> found;
  for (std::sregex_token_iterator piece(text_itself.begin(), text_itself.end(), cut, -1), end;
       piece != end;
       ++piece) {
    const std::string text = trimmed(*piece, " ");
    if (std::regex_search(text, words)) found.push_back(text);
  }
  return found;
}

bool is_for_programmers(const SourceText& literal) {
  return literal.before.find("ZP_CHECK(") != std::string::npos ||
         literal.before.ends_with(".source=");
}

}  // namespace

TEST_CASE("literals of a source are read with their joins, escapes and lines") {
  const auto texts = SourceTexts(
                         "#include \"a b\"\n// \"c d\"\nf(\"one \"\n  \"two\\n\", 'x', "
                         "R\"(raw \"text\")\", 1'000);\n.source = \"s\"")
                         .read();
  REQUIRE(texts.size() == 3);
  CHECK(texts[0].text == "one two\n");
  CHECK(texts[0].line == 3);
  CHECK(texts[1].text == "raw \"text\"");
  CHECK(texts[2].before.ends_with(".source="));
}

TEST_CASE("no text of the pages lacks a translation") {
  const Json texts = cli::page_texts(cli::Language::zh);
  int count = 0;
  const auto look = [&](const std::string& file, const std::regex& pattern) {
    const std::string text = read(kRoot / file);
    for (std::sregex_iterator at(text.begin(), text.end(), pattern), end; at != end; ++at) {
      ++count;
      INFO(file << ": \"" << (*at)[1].str() << "\" is not in the group \"page\" of zh.json");
      CHECK(texts.find((*at)[1].str()) != nullptr);
    }
  };
  const std::regex said("say\\(\\s*\"([^\"]+)\"");
  for (const char* file : {"configs/report/plots.js",
                           "configs/report/answer.js",
                           "configs/report/shell.js",
                           "page/page.js"}) {
    look(file, said);
  }
  look("configs/report/answer.html", std::regex("<h2>([^<]*[a-z] [^<]*)</h2>"));
  look("configs/report/answer.html", std::regex(" data-say[^>]*>([^<]+)<"));
  look("page/index.html", std::regex(" data-say[^>]*>([^<]+)<"));
  look("page/index.html", std::regex("aria-label=\"([^\"]+)\""));
  CHECK(count > 50);  // the files were found
}

TEST_CASE("no sentence of the commands lacks a translation") {
  const std::string english = all_english();
  int count = 0;
  for (const std::string& path : sources()) {
    for (const SourceText& literal : SourceTexts(read(kRoot / path)).read()) {
      if (is_for_programmers(literal)) continue;
      for (const std::string& sentence : sentences_of(literal)) {
        ++count;
        const bool known = english.find(sentence) != std::string::npos ||
                           english.find(trimmed(sentence, " ,;:.()")) != std::string::npos;
        INFO(path << ":" << literal.line << ": \"" << sentence
                  << "\" is not in configs/messages/zh.json");
        CHECK((known || is_no_sentence(sentence)));
      }
    }
  }
  CHECK(count > 1500);  // the sources were found
}
