#include "tests/identical/rehearsed.hpp"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/parallel_for.hpp"
#include "tests/support/data.hpp"

namespace zeroplan::identical {
namespace {

namespace fs = std::filesystem;

std::vector<Rehearsed> lines() {
  std::vector<fs::path> files = {testing::data_path("rehearsal") + "/dev.jsonl"};
  for (const auto& entry :
       fs::directory_iterator(ZEROPLAN_SOURCE_DIR "/tests/reference/rehearsal/matrix")) {
    files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<Rehearsed> read;
  for (const fs::path& file : files) {
    for (evidence::Measurement& run : evidence::read_measurements(file.string()).measurements) {
      read.push_back({file.stem().string(), std::move(run), {}});
    }
  }
  return read;
}

std::vector<Rehearsed> simulated() {
  std::vector<Rehearsed> all = lines();
  parallel_for(all.size(), 2, [&](std::size_t i) {
    Rehearsed& one = all[i];
    const std::string id = "rehearsed/" + one.file + "/" + one.run.id;
    one.answer = answer_to(id, one.run.scenario, one.run.rank);
  });
  return all;
}

}  // namespace

const std::vector<Rehearsed>& all_rehearsed() {
  static const std::vector<Rehearsed> all = simulated();
  return all;
}

}  // namespace zeroplan::identical
