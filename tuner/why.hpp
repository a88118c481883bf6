// Why the recommended plan is what it is: the same plan with one thing otherwise, simulated for the
// same question. Checked by tests/unit/tuner/why_test.cpp.
#pragma once

#include <optional>
#include <vector>

#include "tuner/fit_answer.hpp"
#include "tuner/fit_question.hpp"

namespace zeroplan::tuner {

enum class WhyKind {
  lower_stage,
  higher_stage,
  no_checkpointing,
  checkpointing,
  less_offload,
  one_node,
  communication,
  smaller_micro_batch,
  larger_micro_batch
};
inline constexpr EnumNames<WhyKind, 9> kWhyKindNames{{"lower_stage",
                                                      "higher_stage",
                                                      "no_checkpointing",
                                                      "checkpointing",
                                                      "less_offload",
                                                      "one_node",
                                                      "communication",
                                                      "smaller_micro_batch",
                                                      "larger_micro_batch"}};

struct Alternative {
  WhyKind kind = WhyKind::lower_stage;
  // With the micro-batch that is its best; where none fits, with the smallest. Of communication: on
  // a network between nodes that is twice as fast; nothing where there is one node.
  std::optional<StrategyResult> other;
  // Where that is another micro-batch than the recommended plan has: with the plan's.
  std::optional<StrategyResult> same_batch;
  // Of the recommended plan's step: what is recomputed (no_checkpointing), what waits for offload
  // (less_offload) or for other GPUs (communication).
  std::optional<double> share;
};

// The reasons that apply, in the order of WhyKind. What the question refuses is no alternative; one
// that a defect ends is missing (Question::missing). `chosen` answers `question` and was simulated.
std::vector<Alternative> why(const Question& question,
                             const StrategyResult& chosen,
                             const PredictOptions& options);

}  // namespace zeroplan::tuner
