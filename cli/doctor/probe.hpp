// How `zeroplan doctor` looks at a machine: by commands alone, so that a recording of their outputs
// stands for a machine in tests, and a user's recording (--record) for the user's machine.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "base/json.hpp"

namespace zeroplan::cli {

struct CommandOutput {
  int exit = 127;    // 127: no such command
  std::string text;  // standard output and standard error
  bool worked() const { return exit == 0; }
};

class Probe {
 public:
  virtual ~Probe() = default;
  // Runs a line of sh. Nothing that is asked changes the machine.
  virtual CommandOutput run(const std::string& command) = 0;
};

// This machine; a command that takes longer than `seconds` is ended.
std::unique_ptr<Probe> machine_probe(int seconds);

// What a recording says; commands that are not in it do not exist. Throws InputError where the
// document is none: {"schema":"zeroplan.machine/1","commands":{"COMMAND":{"exit":0,"text":"..."}}}.
std::unique_ptr<Probe> recorded_probe(const JsonDocument& recording);

// Passes everything on and keeps it.
class RecordingProbe : public Probe {
 public:
  explicit RecordingProbe(std::unique_ptr<Probe> probe) : probe_(std::move(probe)) {}
  CommandOutput run(const std::string& command) override;
  Json recording() const;

 private:
  std::unique_ptr<Probe> probe_;
  std::map<std::string, CommandOutput> seen_;
};

}  // namespace zeroplan::cli
