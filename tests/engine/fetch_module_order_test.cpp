// The order of module entries and exits, one rule a sentence. Whole models: recordings.
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/engine/module_calls.hpp"

namespace zeroplan {
namespace {

// root(0) calls embedding(1), block(2), head(6); the block calls norm(3), linear(4), dropout(5).
struct Small {
  FetchModel model;
  std::vector<ModuleCall> calls;
};

Small small_model() {
  Small result;
  const std::vector<std::vector<ParameterIndex>> own = {{}, {0}, {}, {1}, {2}, {}, {3}};
  const std::vector<ModuleIndex> parents = {-1, 0, 0, 2, 2, 2, 0};
  for (std::size_t m = 0; m < own.size(); ++m) {
    result.model.modules.push_back({own[m], parents[m], false});
  }
  result.model.parameters.assign(4, {.numel = Elements::of(10)});
  result.calls = {
      {.module = 0, .caller = -1, .inputs = {kModelInput}, .results = {6}, .keeps_tensors = false},
      {.module = 1, .caller = 0, .inputs = {kCallerInput}},
      {.module = 2,
       .caller = 0,
       .inputs = {1},
       .results = {kCallerInput, 5},
       .keeps_tensors = false,
       .checkpointed = true},
      {.module = 3, .caller = 2, .inputs = {kCallerInput}},
      {.module = 4, .caller = 2, .inputs = {3}},
      {.module = 5, .caller = 2, .inputs = {4}, .keeps_tensors = false},
      {.module = 6, .caller = 0, .inputs = {2}},
  };
  return result;
}

// "f3" entry, "F3" exit of the forward; "b3" and "B3" of the backward; "|" the backward begins.
std::string text(const std::vector<ModuleEvent>& events) {
  std::string result;
  for (const ModuleEvent& event : events) {
    if (event.kind == ModuleEventKind::backward_begin) {
      result += "| ";
      continue;
    }
    result += "fFxbB"[static_cast<int>(event.kind)];
    result += std::to_string(event.module) + " ";
  }
  return result;
}

std::string order_of(const Small& small, Recompute recompute = Recompute::none) {
  return text(module_order(small.calls, small.model, recompute));
}

const std::string kForward = "f0 f1 F1 f2 f3 F3 f4 F4 f5 F5 F2 f6 F6 F0 | ";

}  // namespace

TEST_CASE("module order: backward reverses forward, and modules fed by integers never end") {
  CHECK(order_of(small_model()) == kForward + "b0 b6 B6 b2 b5 B5 b4 B4 b3 B3 B2 b1 ");
}

TEST_CASE("module order: a module whose output needs no gradient has no backward at all") {
  Small small = small_model();
  small.model.parameters[0].trainable = false;  // embedding
  small.model.parameters[1].trainable = false;  // norm
  // The linear is trained, but no gradient flows into it: its backward begins and never ends.
  CHECK(order_of(small) == kForward + "b0 b6 B6 b2 b5 B5 b4 ");
}

TEST_CASE("module order: a module that gets its input by keyword never ends its backward") {
  Small small = small_model();
  small.calls[4].positional = false;
  CHECK(order_of(small) == kForward + "b0 b6 B6 b2 b5 B5 b4 b3 B3 B2 b1 ");
}

TEST_CASE("module order: every returned tensor with a gradient begins the backward once more") {
  Small small = small_model();
  small.calls[3].outputs = 2;
  CHECK(order_of(small) == kForward + "b0 b6 B6 b2 b5 B5 b4 B4 b3 b3 B3 B2 b1 ");
}

TEST_CASE("module order: reentrant checkpointing runs the whole block again before its backward") {
  CHECK(order_of(small_model(), Recompute::reentrant) ==
        kForward + "b0 b6 B6 f2 f3 F3 f4 F4 f5 F5 F2 b2 b5 B5 b4 B4 b3 B3 B2 b1 ");
}

TEST_CASE("module order: a reentrant block without a gradient in its input is not trained") {
  Small small = small_model();
  small.model.parameters[0].trainable = false;
  // Nor does a gradient flow into the head, whose weight is trained.
  CHECK(order_of(small, Recompute::reentrant) == kForward + "b0 b6 ");
}

TEST_CASE("module order: non-reentrant checkpointing recomputes when a kept tensor is asked for") {
  // The dropout here keeps nothing, so its backward is over before; the recomputation stops inside
  // the linear, which keeps the last tensor.
  CHECK(order_of(small_model(), Recompute::non_reentrant) ==
        kForward + "b0 b6 B6 b2 b5 B5 b4 f2 f3 F3 f4 B4 b3 B3 B2 b1 ");
  Small keeping = small_model();
  keeping.calls[5].keeps_tensors = true;
  CHECK(order_of(keeping, Recompute::non_reentrant) ==
        kForward + "b0 b6 B6 b2 b5 f2 f3 F3 f4 F4 f5 B5 b4 B4 b3 B3 B2 b1 ");
  Small container = small_model();
  container.calls[2].keeps_tensors = true;  // the block itself, after all its calls
  CHECK(order_of(container, Recompute::non_reentrant) ==
        kForward + "b0 b6 B6 b2 f2 f3 F3 f4 F4 f5 F5 b5 B5 b4 B4 b3 B3 B2 b1 ");
}

TEST_CASE("module order: modules inside a leaf module have no hooks") {
  Small small = small_model();
  small.model.modules[2].leaf = true;
  CHECK(order_of(small) == "f0 f1 F1 f2 F2 f6 F6 F0 | b0 b6 B6 b2 B2 b1 ");
}

}  // namespace zeroplan
