// Recordings of machines: read into facts and examined, with and without a plan; what is said is in
// whole sentences, and a recording of the recording is the same machine.
#include <string>

#include "cli/doctor/checks.hpp"
#include "cli/doctor/machine.hpp"
#include "cli/doctor/probe.hpp"
#include "tests/fuzz/fuzz_support.hpp"

namespace fuzz = zeroplan::fuzz;

namespace {

using zeroplan::Bytes;
using zeroplan::Json;
using zeroplan::cli::DoctorFinding;
using zeroplan::cli::MachineState;
using zeroplan::cli::PlanNeeds;
using zeroplan::cli::Questions;
using zeroplan::cli::RecordingProbe;

PlanNeeds large_plan() {
  PlanNeeds needs;
  needs.gpus = 8;
  needs.gpu_name = "H100-80G-SXM";
  needs.nodes = 2;
  needs.host_memory = Bytes::of(std::int64_t{1} << 40);
  needs.pinned_memory = Bytes::of(std::int64_t{1} << 38);
  needs.bf16 = needs.cpu_optimizer = true;
  needs.nvme = Bytes::of(std::int64_t{1} << 42);
  needs.nvme_read = zeroplan::BytesPerSecond::of(6e9);
  return needs;
}

Questions all_questions() {
  Questions questions;
  questions.hosts = {"worker-1", "worker-2"};
  questions.nvme_path = "/local_nvme";
  questions.measure_nvme = true;
  return questions;
}

std::string said_of(const MachineState& machine, bool planned) {
  std::string said;
  const auto findings =
      zeroplan::cli::examine(machine, planned ? std::optional(large_plan()) : std::nullopt);
  for (const DoctorFinding& finding : findings) {
    fuzz::require(!finding.code.empty() && !finding.message.empty() && !finding.reason.empty(),
                  "a finding without a name, a message or a reason");
    said +=
        finding.code + "\n" + finding.message + "\n" + finding.reason + "\n" + finding.fix + "\n";
  }
  return said;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::reads([&] {
    const auto document = zeroplan::parse_json(fuzz::text_of(data, size), "machine.json");
    RecordingProbe probe(zeroplan::cli::recorded_probe(document));
    const MachineState machine = zeroplan::cli::look_at(probe, all_questions());
    auto again = zeroplan::cli::recorded_probe(
        zeroplan::parse_json(probe.recording().dump(2), "recording.json"));
    const MachineState same = zeroplan::cli::look_at(*again, all_questions());
    for (const bool planned : {false, true}) {
      fuzz::require(said_of(machine, planned) == said_of(same, planned),
                    "a recording that was recorded again is another machine");
    }
  });
  return 0;
}
