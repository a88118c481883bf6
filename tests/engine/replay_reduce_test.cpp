// The engine policies besides the fetch coordinator against recordings of the real engine, and the
// replay driver.
#include "evidence/replay_reduce.hpp"

#include <fstream>
#include <sstream>
#include <string>

#include "base/json.hpp"
#include "evidence/replay.hpp"
#include "tests/catch.hpp"
#include "tests/support/data.hpp"

namespace zeroplan {
namespace {

const std::string kTiny = std::string(ZEROPLAN_SOURCE_DIR) + "/tests/engine/data/reduce/tiny.jsonl";

std::vector<Json> recordings(const std::string& path) {
  std::ifstream file(path);
  std::vector<Json> found;
  for (std::string line; std::getline(file, line);) {
    found.push_back(parse_json(line, path).root);
  }
  return found;
}

Json recording(const std::string& id) {
  for (Json& candidate : recordings(kTiny)) {
    if (candidate.find("id")->as_string() == id) return candidate;
  }
  FAIL("no recording " << id);
  return {};
}

int expect_reproduced(const std::string& path) {
  int count = 0;
  for (const Json& item : recordings(path)) {
    ++count;
    for (const evidence::ReplayMismatch& mismatch : evidence::replay_reduce(item)) {
      UNSCOPED_INFO(to_json(mismatch).dump());
      CHECK(mismatch.id == "no mismatch");
    }
  }
  return count;
}

// The first array of events among the steps.
Json& events_of_first_step(Json& item) { return item.find("steps")->items()[0]; }

bool is_event(const Json& event, std::string_view kind) {
  return event.items()[0].as_string() == kind;
}

// Adds one to the last integer of an event; false where it has none.
bool change(Json& event) {
  for (std::size_t i = event.items().size(); i-- > 1;) {
    Json& field = event.items()[i];
    if (!field.is_integer()) continue;
    field = Json(field.as_integer() + 1);
    return true;
  }
  return false;
}

}  // namespace

TEST_CASE("every compared event and buffer of the small recordings is reproduced") {
  CHECK(expect_reproduced(kTiny) == 55);
}

TEST_CASE("every compared event and buffer of the full set of recordings is reproduced") {
  const char* other = std::getenv("ZEROPLAN_REDUCE_TRACES");
  const std::string path =
      other != nullptr ? other : testing::unpacked_data_path("engine_traces.jsonl");
  CHECK(expect_reproduced(path) >= (other != nullptr ? 1 : 100));
}

TEST_CASE("any changed number in a reduction or step event is noticed") {
  for (const char* id :
       {"tiny_z1_plain", "tiny_z2_overlap", "tiny_z2_offload", "tiny_z2_owner_reduce"}) {
    const Json original = recording(id);
    const std::size_t events = original.find("steps")->items()[0].items().size();
    for (std::size_t e = 0; e < events; ++e) {
      Json changed = original;
      Json& event = events_of_first_step(changed).items()[e];
      if (is_event(event, "phase") || is_event(event, "g") || !change(event)) continue;
      INFO(id << " event " << e << ": " << event.dump());
      const std::vector<evidence::ReplayMismatch> found = evidence::replay_reduce(changed);
      REQUIRE(!found.empty());
      CHECK(found.front().step == 0);
      CHECK(found.front().event == static_cast<int>(e));
      CHECK(found.front().expected != found.front().got);
    }
  }
}

TEST_CASE("a changed stage-3 reduction is noticed where it happens") {
  const Json original = recording("tiny_z3_offload");
  int tried = 0;
  for (std::string_view kind :
       {"flush", "cat", "rs", "pg", "off3", "opt", "er", "es", "ss", "gap"}) {
    Json changed = original;
    Json& events = events_of_first_step(changed);
    for (std::size_t e = events.items().size(); e-- > 0;) {
      if (!is_event(events.items()[e], kind)) continue;
      // Module events before a removed one could hide it: only what follows is compared.
      events.items().erase(events.items().begin() + static_cast<std::ptrdiff_t>(e));
      ++tried;
      break;
    }
    INFO(kind);
    CHECK(!evidence::replay_reduce(changed).empty());
  }
  CHECK(tried == 10);
}

TEST_CASE("a changed buffer, plan or counter of a recording is noticed") {
  const auto mismatches_after = [](const std::string& id, const auto& edit) {
    Json changed = recording(id);
    edit(changed);
    return evidence::replay_reduce(changed).size();
  };
  CHECK(mismatches_after("tiny_z2_plain", [](Json&) {}) == 0);
  CHECK(mismatches_after("tiny_z2_plain", [](Json& item) {
          (*item.find("init")->find("buffers")).items()[0]["bytes"] = Json(2);
        }) == 1);
  CHECK(mismatches_after("tiny_z2_offload", [](Json& item) {
          for (Json& buffer : item.find("init")->find("buffers")->items()) {
            if (buffer.find("pinned")->as_integer() == 1) buffer["pinned"] = Json(0);
          }
        }) == 1);
  CHECK(mismatches_after("tiny_z2_plain", [](Json& item) {
          item.find("after_bwd0")->find("buffers")->items().pop_back();
        }) == 1);
  CHECK(mismatches_after("tiny_z2_plain", [](Json& item) {
          item.find("init")->find("groups")->items()[0].items().pop_back();
        }) == 1);
  CHECK(mismatches_after("tiny_z3_sub_groups", [](Json& item) {
          item.find("init")->find("sub_group_numel")->items()[0] = Json(7);
        }) == 1);
  CHECK(mismatches_after("tiny_z3_plain", [](Json& item) {
          item.find("init")->find("events")->find("bar")->items()[0] = Json(2);
        }) == 1);
  CHECK(mismatches_after("tiny_z1_plain", [](Json& item) { item["skipped_steps"] = Json(1); }) ==
        1);
}

TEST_CASE("a line that is no recording becomes a diagnostic and the others go on") {
  std::ostringstream lines;
  lines << "{\"id\": \"broken\"\n\n[1, 2]\n";
  lines << recording("tiny_z1_plain").dump() << "\n";
  Json wrong = recording("tiny_z3_plain");
  wrong["world_size"] = Json("four");
  lines << wrong.dump() << "\n";
  Json index = recording("tiny_z2_plain");
  for (Json& event : events_of_first_step(index).items()) {
    if (is_event(event, "g")) event.items()[1] = Json(1000);
  }
  lines << index.dump() << "\n" << recording("tiny_z3_plain").dump() << "\n";
  const evidence::ReplayReport report = evidence::replay_text(lines.str(), "traces.jsonl");
  CHECK(report.configurations == 2);
  CHECK(report.reproduced == 2);
  CHECK(report.mismatches.empty());
  REQUIRE(report.bad_lines.size() == 4);
  CHECK(report.bad_lines[0].file == "traces.jsonl");
  CHECK(report.bad_lines[0].pointer.rfind("line 1", 0) == 0);
  CHECK(report.bad_lines[1].pointer.rfind("line 3", 0) == 0);
  CHECK(report.bad_lines[2].pointer == "line 5: /world_size");
  CHECK(report.bad_lines[3].pointer == "line 6: /steps/0");
}

TEST_CASE("a report counts recordings and lists mismatches") {
  Json changed = recording("tiny_z1_plain");
  changed["global_steps"] = Json(9);
  const std::string lines = changed.dump() + "\n" + recording("tiny_z1_overlap").dump();
  const Json report = to_json(evidence::replay_text(lines, "traces.jsonl"));
  CHECK(report.find("schema")->as_string() == "zeroplan.replay/1");
  CHECK(report.find("configurations")->as_integer() == 2);
  CHECK(report.find("reproduced")->as_integer() == 1);
  REQUIRE(report.find("mismatches")->items().size() == 1);
  const Json& mismatch = report.find("mismatches")->items()[0];
  CHECK(mismatch.find("id")->as_string() == "tiny_z1_plain");
  CHECK(mismatch.find("expected")->as_string() == "global_steps 9");
  CHECK(mismatch.find("got")->as_string() == "global_steps 3");
}

}  // namespace zeroplan
