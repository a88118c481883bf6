#include "cli/command_line.hpp"

#include <algorithm>
#include <cerrno>
#include <iostream>
#include <new>
#include <string>
#include <string_view>

#include <unistd.h>

#include "base/check.hpp"
#include "base/too_large.hpp"
#include "cli/arguments.hpp"
#include "cli/errors.hpp"
#include "cli/flags.hpp"
#include "cli/help.hpp"
#include "cli/interrupt.hpp"
#include "cli/language/translation.hpp"
#include "cli/rank_end.hpp"
#include "cli/terminal_text.hpp"
#include "cli/unknown_model.hpp"

namespace zeroplan::cli {
namespace {

const CommandInfo& find_command(const std::string& name) {
  if (const CommandInfo* command = command_named(name)) return *command;
  std::vector<std::string_view> names;
  for (const CommandInfo& command : commands()) names.push_back(command.name);
  const Phrase hint = name.starts_with('-') ? "the command comes first: zeroplan fit ..."
                                            : did_you_mean(name, names);
  throw InputError({kCommandLine,
                    "",
                    "a command",
                    name.empty() ? "nothing" : in_quotes(name),
                    hint.empty() ? "zeroplan --help lists the commands" : hint});
}

bool asks_for_help(const std::vector<std::string>& words) {
  // What stands behind "--" is another program's.
  const auto end = std::find(words.begin(), words.end(), "--");
  return std::any_of(
      words.begin(), end, [](const std::string& word) { return word == "--help" || word == "-h"; });
}

bool wants_all(const std::vector<std::string>& words) {
  const auto end = std::find(words.begin(), words.end(), "--");
  return std::find(words.begin(), end, "--all") != end;
}

// `help` takes no flags but --lang and --all, which are read already.
std::vector<std::string> without_flags(const std::vector<std::string>& words) {
  std::vector<std::string> rest;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--lang") {
      ++i;  // its value
    } else if (!words[i].starts_with("--lang=") && words[i] != "--all") {
      rest.push_back(words[i]);
    }
  }
  return rest;
}

int run_words(std::vector<std::string> words,
              DocumentSentences sentences,
              const Translation& translation,
              Streams streams) {
  // `deepspeed --no_python` puts it before the program's own words (launcher/launch.py); LOCAL_RANK
  // says the same.
  if (!words.empty() && words[0].starts_with("--local_rank=")) words.erase(words.begin());
  if (words.empty()) words.emplace_back();
  const std::string name = words[0];
  words.erase(words.begin());
  if (name == "--version") {
    streams.out << "zeroplan " << ZEROPLAN_VERSION << "\n";
    return kDone;
  }
  const bool help = name == "help" || name == "--help" || name == "-h";
  const bool all = wants_all(words);
  if (help) words = without_flags(words);
  if (help && words.empty()) {
    streams.out << overview_help(translation, all);
    return kDone;
  }
  const CommandInfo& command = find_command(help ? words[0] : name);
  if (help || asks_for_help(words)) {
    streams.out << command_help(command, translation, all);
    return kDone;
  }
  Arguments arguments = parse_words(command, words);
  if (sentences == DocumentSentences::of_the_reader) {
    arguments.document_language = arguments.language;
  }
  // What --from read: it is no answer, so not on standard output.
  streams.log << translation.text(arguments.from_said);
  if (command.takes_scenario) trace_unknown_model(arguments, streams.log, translation);
  return command.run(arguments, streams);
}

int report(const InputError& error, bool json, const Translation& translation, Streams streams) {
  streams.log << translation.text(error.text()) << "\n";
  if (json) streams.out << Json::object({{"error", error_json(error)}}).dump(2) << "\n";
  return kBadInput;
}

// To the user, then to the ranks that wait for this one.
int report_to_all(const InputError& error,
                  const std::vector<std::string>& words,
                  bool json,
                  const Translation& translation,
                  Streams streams) {
  const int code = report(error, json, translation, streams);
  streams.out.flush();
  tell_other_ranks(error, words);
  return code;
}

// `no_memory` becomes what is said of that in the user's language, while there is some.
int run_in_language(int argc,
                    const char* const* argv,
                    DocumentSentences sentences,
                    std::string& no_memory) {
  const TerminalText safe_out(std::cout);
  const TerminalText safe_log(std::cerr);
  const std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  const Translation translation(language_of_words(words));
  no_memory = translation.text("error: out of memory") + "\n";
  install_interrupts(translation);
  const int code = run_and_report(words, sentences, translation, {std::cout, std::cerr});
  std::cout.flush();
  if (interrupted() == code) std::cerr << interrupted_text() << "\n";
  if (std::cout) return code;
  std::cerr << translation.text(
      "error: standard output: expected a place that can be written to, got a full disk or a "
      "closed stream\n");
  return kInternalError;
}

}  // namespace

int run_and_report(const std::vector<std::string>& words,
                   DocumentSentences sentences,
                   const Translation& translation,
                   Streams streams) {
  const auto end = std::find(words.begin(), words.end(), "--");
  const bool json = std::find(words.begin(), end, "--json") != end;
  try {
    return run_words(words, sentences, translation, streams);
  } catch (const InputError& error) {
    return report_to_all(error, words, json, translation, streams);
  } catch (const SizeOverflow&) {
    return report_to_all(too_large(), words, json, translation, streams);
  } catch (const std::bad_alloc&) {
    throw;  // no defect
  } catch (const std::exception& error) {
    streams.log << "error: " << error.what() << "\n"
                << translation.text("hint: this is a defect of zeroplan; please report it") << "\n";
    return kInternalError;
  }
}

int run_command_line(int argc, const char* const* argv, DocumentSentences sentences) {
  std::string line;
  try {
    return run_in_language(argc, argv, sentences, line);
  } catch (const std::bad_alloc&) {
    return out_of_memory(line);
  }
}

// By the system's call, which holds no memory.
int out_of_memory(std::string_view line) noexcept {
  if (line.empty()) line = "error: out of memory\n";
  while (!line.empty()) {
    const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) break;  // nobody is left to be told
    line.remove_prefix(static_cast<std::size_t>(written));
  }
  return kInternalError;
}

}  // namespace zeroplan::cli
