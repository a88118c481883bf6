// The fetch coordinator and the order of modules against recordings of the real engine.
#include <string>
#include <vector>

#include "base/diagnostic.hpp"
#include "evidence/recorded_fetch.hpp"
#include "evidence/replay_fetch.hpp"
#include "tests/catch.hpp"
#include "tests/engine/llama_like.hpp"
#include "tests/engine/module_calls.hpp"
#include "tests/engine/recordings.hpp"

namespace zeroplan {
namespace {

std::int64_t number(const Json& object, const char* key) {
  const Json* value = object.find(key);
  return value == nullptr ? 0 : value->is_boolean() ? value->as_boolean() : value->as_integer();
}

LlamaLike llama_of(const Json& recording) {
  const Json& source = *recording.find("model");
  const Json* found = source.find("variant");
  const std::string variant = found != nullptr ? found->as_string() : "";
  const auto has = [&](const char* word) { return variant.find(word) != std::string::npos; };
  return make_llama_like({.hidden = number(source, "h"),
                          .intermediate = number(source, "f"),
                          .layers = number(source, "L"),
                          .vocabulary = number(source, "V"),
                          .heads = number(source, "nh"),
                          .kv_heads = number(source, "kv"),
                          .biases = number(source, "bias") != 0,
                          .tied = number(source, "tied") != 0,
                          .keyword_attention = has("keyword"),
                          .parallel_residual = has("parallel"),
                          .dropout = has("dropout")});
}

Recompute recompute_of(const Json& recording) {
  const Json& kind = *recording.find("workload")->find("ckpt");
  if (kind.is_string()) return Recompute::reentrant;
  return kind.as_integer() != 0 ? Recompute::non_reentrant : Recompute::none;
}

// Modules and parameters that the test's builder makes are those of the recording.
void expect_same_model(const FetchModel& built, const FetchModel& recorded) {
  REQUIRE(built.modules.size() == recorded.modules.size());
  REQUIRE(built.parameters.size() == recorded.parameters.size());
  for (std::size_t m = 0; m < built.modules.size(); ++m) {
    CHECK(built.modules[m].parameters == recorded.modules[m].parameters);
    CHECK(built.modules[m].parent == recorded.modules[m].parent);
  }
  for (std::size_t p = 0; p < built.parameters.size(); ++p) {
    CHECK(built.parameters[p].numel == recorded.parameters[p].numel);
  }
}

// Entries and exits of each recorded micro-step.
std::vector<std::vector<ModuleEvent>> recorded_orders(const evidence::RecordedFetch& recorded) {
  std::vector<std::vector<ModuleEvent>> orders;
  for (const auto& step : recorded.steps) {
    for (const Json* event : step) {
      const auto& items = event->items();
      const std::string& kind = items[0].as_string();
      if (kind == "phase" && items[1].as_string() == "fwd") orders.emplace_back();
      if (kind == "phase" && items[1].as_string() == "bwd") {
        orders.back().push_back({ModuleEventKind::backward_begin, -1});
      }
      if (kind != "F" && kind != "X") continue;
      const bool forward = items[2].as_string() == "f";
      const auto module = static_cast<ModuleIndex>(items[1].as_integer());
      orders.back().push_back(
          {kind == "F"
               ? (forward ? ModuleEventKind::forward_enter : ModuleEventKind::backward_enter)
               : (forward ? ModuleEventKind::forward_exit : ModuleEventKind::backward_exit),
           module});
    }
  }
  return orders;
}

}  // namespace

TEST_CASE("every recorded event is reproduced, and the order of modules follows from the calls") {
  for_each_known_recording([](const Json& recording) {
    for (const evidence::ReplayMismatch& mismatch : evidence::replay_fetch(recording)) {
      UNSCOPED_INFO(to_json(mismatch).dump());
      CHECK(mismatch.id == "no mismatch");
    }
    const evidence::RecordedFetch recorded = evidence::read_recorded_fetch(recording);
    if (recorded.id.find("layer_skipped") != std::string::npos) return;  // its order changes
    LlamaLike llama = llama_of(recording);
    expect_same_model(llama.model, recorded.model);
    llama.model = recorded.model;  // with what is frozen
    const auto order = module_order(llama.calls, llama.model, recompute_of(recording));
    INFO(recorded.id);
    for (const auto& expected : recorded_orders(recorded)) CHECK(order == expected);
  });
}

TEST_CASE("a recording of another stage has nothing to compare") {
  CHECK(evidence::replay_fetch(parse_json(R"({"wrapper": "DeepSpeedZeroOptimizer"})", "f").root)
            .empty());
}

TEST_CASE("a document that is no recording is an input error") {
  const std::string text = R"json({
    "wrapper": "DeepSpeedZeroOptimizer_Stage3", "id": "x", "world_size": 8, "rank": 0,
    "ds_config": {"zero_optimization": {}}, "init": {"persistent": []}, "steps": [],
    "model": {"params": [["a", 4]], "modules": [["(root)", "Model", [1]]]}})json";
  CHECK_THROWS_AS(evidence::replay_fetch(parse_json(text, "f").root), InputError);
}

}  // namespace zeroplan
