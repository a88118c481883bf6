// 432 drawn scenarios: for each of 48 models nine, of each engine, stage, place of offload, trainer
// and method, on GPUs that some of them nearly fill.
//
// A scenario's draws depend on its model and number alone: a model that is added moves no other's.
#pragma once

#include <string>
#include <vector>

#include "base/json.hpp"
#include "tests/identical/answer.hpp"

namespace zeroplan::identical {

struct Drawn {
  std::string id;  // "drawn/gpt2/3"
  Json scenario;   // what the user said
};

const std::vector<Drawn>& drawn_scenarios();

// Of each its line; simulated on two threads.
std::vector<Line> drawn_lines();

}  // namespace zeroplan::identical
