#include "cli/doctor/probe.hpp"

#include <array>
#include <cstdio>

#include <sys/wait.h>

#include "base/described.hpp"
#include "base/diagnostic.hpp"
#include "base/quoting.hpp"

namespace zeroplan::cli {
namespace {

constexpr std::string_view kSchema = "zeroplan.machine/1";

class MachineProbe : public Probe {
 public:
  explicit MachineProbe(int seconds) : seconds_(seconds) {}

  CommandOutput run(const std::string& command) override {
    const std::string line =
        "timeout " + std::to_string(seconds_) + " sh -c " + sh_quoted(command) + " 2>&1 </dev/null";
    FILE* pipe = popen(line.c_str(), "r");
    if (pipe == nullptr) return {};
    CommandOutput output;
    std::array<char, 4096> buffer{};
    constexpr std::size_t kLongest = 1 << 20;
    while (const std::size_t count = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
      if (output.text.size() < kLongest) output.text.append(buffer.data(), count);
    }
    const int status = pclose(pipe);
    output.exit = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return output;
  }

 private:
  int seconds_;
};

class RecordedProbe : public Probe {
 public:
  explicit RecordedProbe(std::map<std::string, CommandOutput> commands)
      : commands_(std::move(commands)) {}

  CommandOutput run(const std::string& command) override {
    const auto found = commands_.find(command);
    return found == commands_.end() ? CommandOutput{} : found->second;
  }

 private:
  std::map<std::string, CommandOutput> commands_;
};

[[noreturn]] void no_recording(const JsonDocument& document,
                               const std::string& pointer,
                               const Phrase& expected,
                               const Json* got) {
  throw InputError({document.file,
                    pointer,
                    expected,
                    got == nullptr ? "nothing" : described(*got),
                    "zeroplan doctor --record FILE writes one"});
}

}  // namespace

std::unique_ptr<Probe> machine_probe(int seconds) {
  return std::make_unique<MachineProbe>(seconds);
}

std::unique_ptr<Probe> recorded_probe(const JsonDocument& document) {
  const Json& root = document.root;
  const Json* schema = root.is_object() ? root.find("schema") : nullptr;
  if (schema == nullptr || !schema->is_string() || schema->as_string() != kSchema) {
    no_recording(document, "/schema", in_quotes(kSchema), schema);
  }
  const Json* commands = root.find("commands");
  if (commands == nullptr || !commands->is_object()) {
    no_recording(document, "/commands", "an object", commands);
  }
  std::map<std::string, CommandOutput> outputs;
  for (const auto& [command, output] : commands->members()) {
    const Json* exit = output.is_object() ? output.find("exit") : nullptr;
    const Json* text = output.is_object() ? output.find("text") : nullptr;
    if (exit == nullptr || !exit->is_integer() || text == nullptr || !text->is_string()) {
      no_recording(document, "/commands/" + command, "an object with exit and text", &output);
    }
    if (exit->as_integer() < 0 || exit->as_integer() > 255) {
      no_recording(document,
                   "/commands/" + command + "/exit",
                   phrase("an integer between {} and {}", 0, 255),
                   exit);
    }
    outputs[command] = {static_cast<int>(exit->as_integer()), text->as_string()};
  }
  return std::make_unique<RecordedProbe>(std::move(outputs));
}

CommandOutput RecordingProbe::run(const std::string& command) {
  return seen_[command] = probe_->run(command);
}

Json RecordingProbe::recording() const {
  Json commands = Json::object();
  for (const auto& [command, output] : seen_) {
    commands[command] = Json::object({{"exit", output.exit}, {"text", output.text}});
  }
  return Json::object({{"schema", kSchema}, {"commands", commands}});
}

}  // namespace zeroplan::cli
