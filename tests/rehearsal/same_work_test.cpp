// The same work: what the simulated program of a scenario puts on the GPU beside what the real
// program did when it was rehearsed (tests/reference/rehearsal/work.jsonl, made by
// scripts/rehearse_matrix.py --count-work of the lines that work_lines.py writes).
#include <cmath>
#include <cstdlib>
#include <fstream>

#include "base/json.hpp"
#include "model/plan/plan.hpp"
#include "model/plan/scenario_reader.hpp"
#include "model/step/step_graph.hpp"
#include "simulator/planned_ranks.hpp"
#include "simulator/work_count.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

struct Run {
  std::string id;
  simulator::WorkByPhase real, simulated;
  bool deepspeed = false;
};

std::vector<Run> kept_runs() {
  std::vector<Run> runs;
  std::ifstream lines(ZEROPLAN_SOURCE_DIR "/tests/reference/rehearsal/work.jsonl");
  for (std::string line; std::getline(lines, line);) {
    const Json document = parse_json(line, "work.jsonl").root;
    const Plan plan = resolve(parse_scenario(*document.find("scenario"), "work.jsonl"));
    const simulator::RankProgram rank = simulator::write_rank_program(plan, step_graph(plan), 0);
    runs.push_back({document.find("id")->as_string(),
                    simulator::work_from_json(*document.find("work")),
                    simulator::count_work(rank.program, rank.steady),
                    runs_deepspeed(plan.workload)});
  }
  return runs;
}

// Bytes of "all_gather of 8 ranks, 4096 bytes" and "to host, 8 bytes, pinned".
std::int64_t bytes_of(const std::string& what) {
  return std::atoll(what.c_str() + what.find(", ") + 2);
}

// What moves data: numbers that the host asks for, flags and token ids are left out.
std::map<std::string, std::int64_t> large(const std::map<std::string, std::int64_t>& counts) {
  constexpr std::int64_t kSmallest = 1024;
  constexpr std::int64_t kTokenIds[] = {8192, 16384};
  std::map<std::string, std::int64_t> kept;
  for (const auto& [what, count] : counts) {
    const std::int64_t bytes = bytes_of(what);
    const bool ids = bytes == kTokenIds[0] || bytes == kTokenIds[1];
    if (bytes >= kSmallest && !ids && !what.starts_with("all_reduce of 1 ranks")) {
      kept[what] = count;
    }
  }
  return kept;
}

// Rotary embeddings' angles: an outer product on which pointwise multiplication would do as well.
std::map<std::string, std::int64_t> without_angles(std::map<std::string, std::int64_t> products) {
  std::erase_if(products, [](const auto& entry) {
    return entry.first.starts_with("fp32 ") && entry.first.ends_with(" x 1");
  });
  return products;
}

const simulator::PhaseWork& of(const simulator::WorkByPhase& work, Phase phase) {
  return work[static_cast<std::size_t>(phase)];
}

constexpr Phase kPhases[] = {Phase::forward, Phase::backward, Phase::step};

}  // namespace

TEST_CASE("Simulated steps run the products and attention calls of the rehearsed programs") {
  const std::vector<Run> runs = kept_runs();
  REQUIRE(runs.size() >= 35);
  for (const Run& run : runs) {
    for (const Phase phase : kPhases) {
      CAPTURE(run.id, name(kPhaseNames, phase));
      const simulator::PhaseWork& real = of(run.real, phase);
      const simulator::PhaseWork& simulated = of(run.simulated, phase);
      CHECK(without_angles(real.products) == without_angles(simulated.products));
      CHECK(real.attention == simulated.attention);
    }
  }
}

TEST_CASE("Simulated steps of DeepSpeed move the bytes of the rehearsed programs") {
  for (const Run& run : kept_runs()) {
    if (!run.deepspeed) continue;
    for (const Phase phase : kPhases) {
      CAPTURE(run.id, name(kPhaseNames, phase));
      const simulator::PhaseWork& real = of(run.real, phase);
      const simulator::PhaseWork& simulated = of(run.simulated, phase);
      CHECK(large(real.collectives) == large(simulated.collectives));
      CHECK(large(real.copies) == large(simulated.copies));
      CHECK(real.updated_on_host == simulated.updated_on_host);
    }
  }
}

// What is missing are kernels of a few numbers: masks, positions, memsets before reductions.
TEST_CASE("Other kernels of the passes are those of the rehearsed programs within a seventh") {
  constexpr double kMost = 1.0 / 7.0;
  for (const Run& run : kept_runs()) {
    if (!run.deepspeed) continue;
    std::int64_t real = 0;
    std::int64_t simulated = 0;
    for (const Phase phase : {Phase::forward, Phase::backward}) {
      real += of(run.real, phase).kernels;
      simulated += of(run.simulated, phase).kernels;
    }
    CAPTURE(run.id, real, simulated);
    const double difference = static_cast<double>(simulated - real) / static_cast<double>(real);
    CHECK(std::abs(difference) < kMost);
  }
}

TEST_CASE("The host waits for every gather of parameters that are offloaded") {
  int seen = 0;
  for (const Run& run : kept_runs()) {
    if (run.id.find("offall") == std::string::npos) continue;
    ++seen;
    CAPTURE(run.id);
    const std::int64_t real = of(run.real, Phase::forward).host_waits;
    const std::int64_t simulated = of(run.simulated, Phase::forward).host_waits;
    // Of the token ids and of transformers' question whether a mask is needed nothing is simulated.
    CHECK(simulated <= real);
    CHECK(static_cast<double>(simulated) > 0.8 * static_cast<double>(real));
  }
  CHECK(seen >= 3);
}
