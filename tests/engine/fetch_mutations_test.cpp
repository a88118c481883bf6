// The comparison with recordings bites: a recording that differs in one place is not reproduced,
// and a wrong rule (put in through the configuration that the replay reads) fails.
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "evidence/replay_fetch.hpp"
#include "tests/catch.hpp"
#include "tests/engine/recordings.hpp"

namespace zeroplan {
namespace {

Json kept(const std::string& id) {
  std::ifstream file(kept_fetch_recordings());
  const std::string start = "{\"id\":\"" + id + "\",";
  for (std::string line; std::getline(file, line);) {
    if (line.compare(0, start.size(), start) == 0) return parse_json(line, id).root;
  }
  FAIL("no kept recording " << id);
  return {};
}

bool is_kind(const Json& event, const std::string& kind) {
  return event.items()[0].as_string() == kind;
}

// The first event of `step` from `from` on that satisfies `wanted`.
Json* find_event(Json& recording,
                 std::size_t step,
                 const std::function<bool(const Json&)>& wanted,
                 std::size_t from = 0) {
  auto& events = recording.find("steps")->items()[step].items();
  for (std::size_t i = from; i < events.size(); ++i) {
    if (wanted(events[i])) return &events[i];
  }
  FAIL("no such event");
  return nullptr;
}

void remove_event(Json& recording, std::size_t step, const Json* event) {
  auto& events = recording.find("steps")->items()[step].items();
  events.erase(events.begin() + (event - events.data()));
}

constexpr const char* kCheckpointed = "z3_ckpt1_reuse6e04";

}  // namespace

TEST_CASE("a changed size, count, stream or order of one recorded event is noticed") {
  struct Mutation {
    const char* what;
    const char* kind;
    std::size_t item;  // of the event, made another value; 0: the event is taken out
    Json value;
  };
  const std::vector<Mutation> mutations = {
      {"n_available at an entry", "F", 4, 12345}, {"step id of an entry", "F", 3, 777},
      {"n_available at an exit", "X", 3, 12345},  {"size of a gather", "ag", 1, 12344},
      {"dtype of a gather", "ag", 2, "fp32"},     {"ranks of a gather", "ag", 3, 2},
      {"asynchrony of a gather", "ag", 4, 0},     {"stream of a gather", "ag", 5, "C"},
      {"own piece in the buffer", "ag", 6, 7},    {"pieces of a copy", "cat", 1, 99},
      {"size of a copy", "cat", 2, 12345},        {"trace mode", "trace", 1, "INVALID"},
      {"size of a broadcast", "bc", 1, 4242},     {"a missing wait", "W", 0, {}},
      {"a missing release", "R", 0, {}},          {"a missing gather", "ag", 0, {}},
      {"a missing event", "er", 0, {}},           {"a missing host wait", "es", 0, {}},
      {"a missing stream wait", "ws", 0, {}},     {"a missing end of leftovers", "L", 0, {}},
  };
  const Json original = kept(kCheckpointed);
  REQUIRE(evidence::replay_fetch(original).empty());
  for (const Mutation& mutation : mutations) {
    INFO(mutation.what);
    Json recording = original;
    // Copies of gathered weights, not of gradients: right after a wait.
    bool after_wait = false;
    Json* event = find_event(recording, 1, [&](const Json& candidate) {
      const bool matches =
          is_kind(candidate, mutation.kind) && (mutation.kind != std::string("cat") || after_wait);
      after_wait = is_kind(candidate, "W");
      return matches;
    });
    if (mutation.item == 0) {
      remove_event(recording, 1, event);
    } else {
      event->items()[mutation.item] = mutation.value;
    }
    const auto mismatches = evidence::replay_fetch(recording);
    REQUIRE_FALSE(mismatches.empty());
    CHECK(mismatches.front().step == 1);
    CHECK(mismatches.front().expected != mismatches.front().got);
  }
}

TEST_CASE("a fetched, prefetched, waited for or released parameter that is another is noticed") {
  for (const std::string kind : {"fetch", "prefetch"}) {
    Json recording = kept(kCheckpointed);
    const std::size_t step = kind == "fetch" ? 0 : 1;
    Json* event = find_event(recording, step, [&](const Json& e) { return is_kind(e, kind); });
    event->items()[1] = parse_json("[2, 3]", "test").root;
    CHECK_FALSE(evidence::replay_fetch(recording).empty());
  }
  for (const std::string kind : {"W", "R"}) {
    Json recording = kept(kCheckpointed);
    Json* event = find_event(recording, 1, [&](const Json& e) { return is_kind(e, kind); });
    event->items()[1] = event->items()[1].as_integer() == 5 ? 6 : 5;
    CHECK_FALSE(evidence::replay_fetch(recording).empty());
  }
}

TEST_CASE("the order of releases in a row is free, their set is not") {
  Json recording = kept("small_everything_fits");
  auto& events = recording.find("steps")->items()[0].items();
  std::size_t swapped = 0;
  for (std::size_t i = 0; i + 1 < events.size(); ++i) {
    if (!is_kind(events[i], "R") || !is_kind(events[i + 1], "R")) continue;
    std::swap(events[i], events[i + 1]);
    ++swapped;
  }
  CHECK(swapped > 0);
  CHECK(evidence::replay_fetch(recording).empty());
}

TEST_CASE("every knob of the coordinator matters for some kept recording") {
  struct Knob {
    const char* key;
    Json wrong;
  };
  const std::vector<Knob> knobs = {
      {"stage3_prefetch_bucket_size", 299},
      {"stage3_prefetch_bucket_size", 0},
      {"stage3_max_live_parameters", 1000},
      {"stage3_max_reuse_distance", 600},
      {"stage3_param_persistence_threshold", 15},
      {"stage3_model_persistence_threshold", 15},
      {"stage3_allgather_sequential", true},
      {"stage3_use_all_reduce_for_fetch_params", true},
      {"overlap_comm", false},
      {"zero_hpz_partition_size", 1},
  };
  std::vector<int> failing(knobs.size(), 0);
  for_each_stage3_recording(kept_fetch_recordings(), [&](const Json& original) {
    for (std::size_t i = 0; i < knobs.size(); ++i) {
      if (failing[i] > 0) continue;
      Json recording = original;
      (*recording.find("ds_config")->find("zero_optimization"))[knobs[i].key] = knobs[i].wrong;
      if (!evidence::replay_fetch(recording).empty()) ++failing[i];
    }
  });
  for (std::size_t i = 0; i < knobs.size(); ++i) {
    INFO(knobs[i].key);
    CHECK(failing[i] > 0);
  }
}

TEST_CASE("frozen parameters, leaf modules, ranks and dtype matter for the replay") {
  const auto fails_with = [](const std::string& id, const std::function<void(Json&)>& change) {
    Json recording = kept(id);
    change(recording);
    return !evidence::replay_fetch(recording).empty();
  };
  CHECK(fails_with("small_frozen_mixed_reentrant",
                   [](Json& r) { (*r.find("model"))["frozen"] = Json::array(); }));
  CHECK(fails_with("small_leaf_mlp_attn_ckpt1",
                   [](Json& r) { (*r.find("model"))["leaf"] = Json::array(); }));
  CHECK(fails_with(kCheckpointed, [](Json& r) { r["world_size"] = 4; }));
  CHECK(fails_with(kCheckpointed, [](Json& r) { r.find("ds_config")->erase("bf16"); }));
  CHECK(fails_with("small_overflow_fp16", [](Json& r) {
    // As if the step had not been skipped.
    r.find("steps")->items()[0].push_back(Json::array({"opt", 0, 100, "fp32"}));
  }));
}

}  // namespace zeroplan
