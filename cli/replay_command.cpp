// zeroplan replay: the engine policies held against recordings of DeepSpeed, the replica of
// PyTorch's allocator against its recorded histories.
#include <ostream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "cli/commands.hpp"
#include "cli/language/translation.hpp"
#include "evidence/allocator_replay.hpp"
#include "evidence/importers/unpickle.hpp"
#include "evidence/replay.hpp"
#include "model/diagnostic.hpp"
#include "model/json.hpp"

namespace zeroplan {
namespace {

constexpr double kGib = 1024.0 * 1024.0 * 1024.0;

int run_allocator_replay(const std::string& snapshot,
                         const std::string& file,
                         const Arguments& arguments,
                         Streams streams) {
  const std::vector<AllocatorReplay> replays = replay_allocator(snapshot, file);
  const Translation words(arguments.language);
  bool equal = true;
  if (arguments.json) streams.out << to_json(replays).dump(2) << "\n";
  for (const AllocatorReplay& replay : replays) {
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
  constexpr std::int64_t kLargest = std::int64_t{1} << 30;
  const std::string bytes = read_text_file(file, kLargest);
  if (is_pickle(bytes)) return run_allocator_replay(bytes, file, arguments, streams);
  const ReplayReport report = replay_text(bytes, file);
  const Translation words(arguments.language);
  for (const Diagnostic& problem : report.bad_lines) {
    streams.log << words.text(to_string(problem)) << "\n";
  }
  if (arguments.json) {
    streams.out << to_json(report).dump(2) << "\n";
  } else {
    for (const ReplayMismatch& mismatch : report.mismatches) {
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

}  // namespace zeroplan
