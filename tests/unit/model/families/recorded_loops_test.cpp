// Loops of a recorded block, which stand once in data/families (zeroplan_trace/loops.py).
#include "model/families/recorded_loops.hpp"

#include "base/json.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

Json json(const char* text) { return parse_json(text, "test").root; }

}  // namespace

TEST_CASE("A loop of a recorded block, over experts, is unfolded into its passes") {
  Json graph = json(R"({
    "modules": [{"name": "experts"}, {"name": "experts.0", "repeat": 3, "modules": [
      {"name": "", "type": "MLP"}, {"name": ".up", "parameters": {"weight": [4, 8]}}]}, {"name": "norm"}],
    "blocks": [{"name": "plain", "events": [{"op": "slice", "step": 2, "in": [0], "out": [1]}], "tensors": [{}, {}]},
      {"name": "looped", "output": 9,
       "tensors": [{"shape": [3]}, {"repeat": 3, "tensors": [{"shape": [1], "of": 0}]},
                   {"repeat": 3, "tensors": [{"shape": [2]}, {"shape": [2], "of": {"at": 4, "step": 2}}]}],
       "events": [
         {"op": "unbind", "in": [0], "out": [{"repeat": 3, "at": 1, "step": 1}]},
         {"repeat": 3, "events": [
           {"op": "linear", "in": [{"at": 1, "step": 1}, {"text": "parameter:experts.{}.up.weight", "at": 0}], "out": [{"at": 4, "step": 2}]},
           {"op": "view", "in": [{"at": 4, "step": 2}], "out": [{"at": 5, "step": 2}], "dims": [7]}]},
         {"drop": [0, 9]}]}]})");
  const Json plain = graph["blocks"].items().front();
  unfold_loops(graph);
  CHECK(graph["blocks"].items().front() == plain);
  const Json& looped = graph["blocks"].items().back();
  CHECK(*looped.find("tensors") == json(R"([{"shape": [3]},
    {"shape": [1], "of": 0}, {"shape": [1], "of": 0}, {"shape": [1], "of": 0},
    {"shape": [2]}, {"shape": [2], "of": 4}, {"shape": [2]}, {"shape": [2], "of": 6}, {"shape": [2]}, {"shape": [2], "of": 8}])"));
  CHECK(*looped.find("events") == json(R"([{"op": "unbind", "in": [0], "out": [1, 2, 3]},
    {"op": "linear", "in": [1, "parameter:experts.0.up.weight"], "out": [4]}, {"op": "view", "in": [4], "out": [5], "dims": [7]},
    {"op": "linear", "in": [2, "parameter:experts.1.up.weight"], "out": [6]}, {"op": "view", "in": [6], "out": [7], "dims": [7]},
    {"op": "linear", "in": [3, "parameter:experts.2.up.weight"], "out": [8]}, {"op": "view", "in": [8], "out": [9], "dims": [7]},
    {"drop": [0, 9]}])"));
  CHECK(*graph.find("modules") == json(R"([{"name": "experts"},
    {"name": "experts.0", "type": "MLP"}, {"name": "experts.0.up", "parameters": {"weight": [4, 8]}},
    {"name": "experts.1", "type": "MLP"}, {"name": "experts.1.up", "parameters": {"weight": [4, 8]}},
    {"name": "experts.2", "type": "MLP"}, {"name": "experts.2.up", "parameters": {"weight": [4, 8]}}, {"name": "norm"}])"));
}
