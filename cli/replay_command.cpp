// zeroplan replay: the engine policies compared with recordings of DeepSpeed, the replica of
// PyTorch's allocator against its recorded histories.
#include <algorithm>
#include <ostream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/diagnostic.hpp"
#include "base/json.hpp"
#include "cli/commands.hpp"
#include "cli/language/translation.hpp"
#include "evidence/allocator_replay.hpp"
#include "evidence/importers/unpickle.hpp"
#include "evidence/replay.hpp"
#include "evidence/request_comparison.hpp"

namespace zeroplan::cli {
namespace {

constexpr double kGib = 1024.0 * 1024.0 * 1024.0;
constexpr double kMib = 1024.0 * 1024.0;
constexpr std::int64_t kLargestFile = std::int64_t{1} << 30;
// Smaller requests share segments of 2 MiB, and there are very many.
constexpr Bytes kSmallestRequest = Bytes::mib(1);
constexpr std::size_t kShownDifferences = 20;

// The device whose history is the longest.
const evidence::RecordedDevice& main_device(const evidence::RecordedMemory& memory,
                                            const std::string& file) {
  const auto longest = std::max_element(
      memory.devices.begin(), memory.devices.end(), [](const auto& a, const auto& b) {
        return a.history.size() < b.history.size();
      });
  if (longest != memory.devices.end() && !longest->history.empty()) return *longest;
  throw InputError({file,
                    "",
                    "a memory snapshot with a history",
                    "none",
                    "call torch.cuda.memory._record_memory_history() before training"});
}

const char* words_for(evidence::RequestDifferenceKind kind) {
  switch (kind) {
    case evidence::RequestDifferenceKind::recorded_only:
      return "recorded only";
    case evidence::RequestDifferenceKind::simulated_only:
      return "simulated only";
    case evidence::RequestDifferenceKind::stream:
      return "on another stream";
    case evidence::RequestDifferenceKind::lifetime:
      break;
  }
  return "freed earlier or later";
}

void print_comparison(const evidence::RequestComparison& comparison,
                      const Translation& words,
                      std::ostream& out) {
  out << words.text(fmt::format(
             "{} requests of at least 1 MiB recorded, {} simulated: {} in both, of these {} on "
             "another stream, {} freed earlier or later",
             comparison.recorded,
             comparison.simulated,
             comparison.both,
             comparison.other_stream,
             comparison.other_lifetime))
      << "\n";
  for (std::size_t i = 0; i < std::min(kShownDifferences, comparison.differences.size()); ++i) {
    const evidence::RequestDifference& difference = comparison.differences[i];
    out << fmt::format("{:>11.2f} MiB x {:<6} {:<24} {}  {}\n",
                       static_cast<double>(difference.size.count()) / kMib,
                       difference.times,
                       words.text(words_for(difference.kind)),
                       printable(difference.module),
                       printable(difference.place));
  }
}

int run_comparison(const std::string& recorded,
                   const std::string& file,
                   const std::string& other,
                   const Arguments& arguments,
                   Streams streams) {
  const std::string simulated = read_text_file(other, kLargestFile);
  const evidence::RecordedMemory one = evidence::read_recorded_memory(recorded, file);
  const evidence::RecordedMemory two = evidence::read_recorded_memory(simulated, other);
  const evidence::RequestComparison comparison = evidence::compare_requests(
      main_device(one, file), main_device(two, other), kSmallestRequest, file);
  if (arguments.json) {
    streams.out << to_json(comparison).dump(2) << "\n";
  } else {
    print_comparison(comparison, Translation(arguments.language), streams.out);
  }
  return comparison.differences.empty() ? kDone : kAnswerIsNo;
}

int run_allocator_replay(const std::string& snapshot,
                         const std::string& file,
                         const Arguments& arguments,
                         Streams streams) {
  const std::vector<evidence::AllocatorReplay> replays = evidence::replay_allocator(snapshot, file);
  const Translation words(arguments.language);
  bool equal = true;
  if (arguments.json) streams.out << to_json(replays).dump(2) << "\n";
  for (const evidence::AllocatorReplay& replay : replays) {
    equal = equal && replay.difference.empty();
    if (arguments.json) continue;
    streams.out
        << words.text(
               fmt::format(
                   "device {}: {} allocations, {} segments, {:.2f} GiB reserved at the peak, "
                   "{} bytes at the end: ",
                   replay.device,
                   replay.allocations,
                   replay.segments,
                   static_cast<double>(replay.peak_reserved.count()) / kGib,
                   replay.reserved.count()) +
               (replay.difference.empty() ? "equal to the byte" : replay.difference))
        << "\n";
  }
  return equal ? kDone : kAnswerIsNo;
}

}  // namespace

int run_replay(const Arguments& arguments, Streams streams) {
  const std::string& file = arguments.positionals.front();
  const std::string bytes = read_text_file(file, kLargestFile);
  if (const auto other = arguments.text("against")) {
    return run_comparison(bytes, file, *other, arguments, streams);
  }
  if (evidence::is_pickle(bytes)) return run_allocator_replay(bytes, file, arguments, streams);
  const evidence::ReplayReport report = evidence::replay_text(bytes, file);
  const Translation words(arguments.language);
  for (const Diagnostic& problem : report.bad_lines) {
    streams.log << words.text(to_string(problem)) << "\n";
  }
  if (arguments.json) {
    streams.out << to_json(report).dump(2) << "\n";
  } else {
    for (const evidence::ReplayMismatch& mismatch : report.mismatches) {
      streams.out << printable(mismatch.id) << " step " << mismatch.step << " event "
                  << mismatch.event << ": expected " << printable(mismatch.expected) << ", got "
                  << printable(mismatch.got) << "\n";
    }
    streams.out << report.reproduced << " of " << report.configurations
                << " recordings reproduced\n";
  }
  if (!report.mismatches.empty()) return kAnswerIsNo;
  return report.bad_lines.empty() ? kDone : kSomeBadLines;
}

}  // namespace zeroplan::cli
