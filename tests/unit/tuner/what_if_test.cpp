#include "tuner/what_if.hpp"

#include "model/plan/scenario_reader.hpp"
#include "simulator/simulate.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

Scenario scenario_with(const Json& workload, const Json& more = Json::object()) {
  Json document =
      Json::object({{"model", "gpt2"}, {"cluster", "1x4xA100-40G"}, {"workload", workload}});
  for (const auto& [key, value] : more.members()) document[key] = value;
  return parse_scenario(document, "test");
}

Json workload(std::int64_t tokens, std::int64_t sequences) {
  return Json::object({{"sequence_length", tokens}, {"micro_batch_size", sequences}});
}

}  // namespace

TEST_CASE("a grid of sizes has each length with each micro-batch, as they are simulated alone") {
  const tuner::Variations variations(scenario_with(workload(512, 2)));
  tuner::SizeGrid grid = tuner::grid_around(variations.base());
  simulate_cells(variations, {}, tuner::Deadline(), grid);
  // gpt2 has 1024 positions; half of two is one, a quarter none.
  CHECK(grid.sequence_lengths == std::vector<std::int64_t>{128, 256, 512, 1024});
  CHECK(grid.micro_batch_sizes == std::vector<std::int64_t>{1, 2, 4, 8});
  REQUIRE(grid.cells.size() == 16);
  const StepResult direct = simulator::simulate(resolve(scenario_with(workload(1024, 4))));
  REQUIRE(grid.cells[3 * 4 + 2].result.has_value());
  CHECK(grid.cells[3 * 4 + 2].result->gpu.peak_total == direct.gpu.peak_total);
  CHECK(grid.cells[3 * 4 + 2].result->step.total == direct.step.total);
}

TEST_CASE("what was assumed is moved, and what was said stays") {
  const auto moves = [](const Json& work, const Json& more) {
    const Scenario asked = scenario_with(work, more);
    std::vector<std::string> said;
    for (const tuner::AssumptionMove& move :
         tuner::if_assumed_wrongly(tuner::Variations(asked), asked, {})) {
      CHECK(move.outcome.result.has_value());
      said.push_back(move.instead.english());
    }
    return said;
  };
  const std::vector<std::string> open = moves(workload(512, 2), Json::object());
  REQUIRE(open.size() == 5);
  CHECK(open[0].starts_with("a node has half the host memory"));
  CHECK(open[1] == "PCIe alone joins the GPUs of a node, 15.8 GB/s each, and no NVLink");
  CHECK(open[2].starts_with("samples are not packed: 256 tokens"));
  CHECK(open[3] == "transformers 4.57.1 is installed");
  CHECK(open[4].starts_with("attention is eager"));
  Json stated = workload(512, 2);
  stated["attention"] = "sdpa";
  stated["dataset"] = Json::object({{"samples", 100}});
  const std::vector<std::string> closed =
      moves(stated, Json::object({{"software", Json::object({{"transformers", "5.17.0"}})}}));
  REQUIRE(closed.size() == 2);
  CHECK(closed[0].starts_with("a node has half the host memory"));
}

TEST_CASE("links within a node that nobody named may be slower, and the step then is") {
  const auto moved = [](const Json& cluster) -> std::optional<tuner::AssumptionMove> {
    const Scenario asked = scenario_with(workload(512, 2), Json::object({{"cluster", cluster}}));
    for (tuner::AssumptionMove& move :
         tuner::if_assumed_wrongly(tuner::Variations(asked), asked, {})) {
      if (move.instead.english().find("PCIe") != std::string::npos) return std::move(move);
    }
    return std::nullopt;
  };
  const auto seconds = [](const Json& cluster) {
    return simulator::simulate(
               resolve(scenario_with(workload(512, 2), Json::object({{"cluster", cluster}}))))
        .step.total;
  };
  const auto cards = moved("8xRTX4090");
  REQUIRE(cards);
  CHECK(cards->instead.english() == "a GPU has half the PCIe lanes that were assumed, 15.8 GB/s");
  CHECK(cards->outcome.result->step.total > seconds("8xRTX4090"));
  const auto board = moved("1x4xA100-40G");
  REQUIRE(board);
  CHECK(board->outcome.result->step.total > seconds("1x4xA100-40G"));
  Json named = Json::object({{"gpu", "A100-40G"}, {"gpus_per_node", 4}});
  named["intra_node"] = Json::object({{"link", "nvlink"}, {"bandwidth", 300e9}});
  CHECK_FALSE(moved(named));
  CHECK_FALSE(moved("aws_p4d.24xlarge"));
  CHECK_FALSE(moved("A100-40G"));
}
