#include "runtime/cuda/cudnn/slices.hpp"

#include <algorithm>

namespace zeroplan::runtime::cuda {
namespace {

constexpr std::int64_t kElement = 2;  // bytes, of both formats
constexpr std::int64_t kStatistic = 4;

std::byte* moved(std::byte* from, std::int64_t bytes) {
  return from == nullptr ? nullptr : from + bytes;
}

}  // namespace

std::vector<AttentionProblem> slices(const AttentionProblem& problem) {
  std::vector<AttentionProblem> all{problem};
  const std::int64_t group = problem.heads / problem.kv_heads;
  const auto add = [&](const AttentionProblem& slice) {
    const std::int64_t statistics = slice.batch * slice.heads * slice.sequence * kStatistic;
    if (slice != problem && statistics % 16 == 0) all.push_back(slice);
  };
  for (std::int64_t parts = 2; parts <= problem.batch; ++parts) {
    if (problem.batch % parts != 0) continue;
    AttentionProblem slice = problem;
    slice.batch = problem.batch / parts;
    add(slice);
  }
  for (std::int64_t parts = 2; parts <= problem.kv_heads; ++parts) {
    if (problem.kv_heads % parts != 0) continue;
    AttentionProblem slice = problem;
    slice.batch = 1;
    slice.kv_heads = problem.kv_heads / parts;
    slice.heads = slice.kv_heads * group;
    add(slice);
  }
  return all;
}

std::int64_t bytes_of_sums(const AttentionProblem& problem) {
  if (!problem.backward || problem.ordered) return 0;
  constexpr std::int64_t kAlignment = 256;
  const std::int64_t sums = problem.batch * problem.heads * problem.sequence * problem.head_dim;
  return round_up(sums * width(DType::fp32), kAlignment);
}

std::int64_t least_workspace(const AttentionProblem& problem) {
  if (!problem.backward) return 0;
  if (!problem.ordered) {
    const bool shared = problem.heads != problem.kv_heads;
    return (shared ? 2 : 1) * bytes_of_sums(problem);
  }
  return kElement * problem.batch * problem.heads * problem.sequence * problem.sequence;
}

std::vector<AttentionProblem> candidates(const AttentionProblem& problem, std::int64_t room) {
  std::vector<AttentionProblem> all;
  AttentionProblem form = problem;
  for (const bool ordered : {true, false}) {
    if (!ordered && problem.ordered) break;
    form.ordered = ordered;
    for (const AttentionProblem& slice : slices(form)) {
      if (least_workspace(slice) <= room) all.push_back(slice);
    }
  }
  const auto parts = [&](const AttentionProblem& slice) {
    return problem.batch / slice.batch * (problem.kv_heads / slice.kv_heads);
  };
  std::stable_sort(
      all.begin(), all.end(), [&](const auto& a, const auto& b) { return parts(a) < parts(b); });
  return all;
}

std::vector<AttentionMemory> slices_of(const AttentionProblem& problem,
                                       const AttentionProblem& slice,
                                       const AttentionMemory& memory) {
  std::vector<AttentionMemory> all;
  for (std::int64_t batch = 0; batch < problem.batch; batch += slice.batch) {
    for (std::int64_t kv = 0; kv < problem.kv_heads; kv += slice.kv_heads) {
      const std::int64_t head = kv * (problem.heads / problem.kv_heads);
      const auto at = [&](const HeadSteps& steps, std::int64_t first) {
        return (batch * problem.sequence * steps.row + first * steps.head) * kElement;
      };
      const std::int64_t statistic = (batch * problem.heads + head) * problem.sequence * kStatistic;
      all.push_back({.q = moved(memory.q, at(problem.q, head)),
                     .k = moved(memory.k, at(problem.k, kv)),
                     .v = moved(memory.v, at(problem.v, kv)),
                     .out = moved(memory.out, at(problem.out, head)),
                     .lse = moved(memory.lse, statistic),
                     .d_out = moved(memory.d_out, at(problem.out, head)),
                     .d_q = moved(memory.d_q, at(problem.q, head)),
                     .d_k = moved(memory.d_k, at(problem.k, kv)),
                     .d_v = moved(memory.d_v, at(problem.v, kv)),
                     .delta = moved(memory.delta, statistic)});
    }
  }
  return all;
}

}  // namespace zeroplan::runtime::cuda
