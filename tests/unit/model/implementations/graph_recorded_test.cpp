// The graph against PyTorch itself: rows recorded from transformers' classes on meta tensors
// (tests/reference/record_activations.py). What is counted, and how: docs/families.md.
#include <algorithm>
#include <cstdlib>
#include <string>

#include "tests/catch.hpp"
#include "tests/support/recorded_activations.hpp"

namespace zeroplan {
namespace {

using testing::ActivationNumbers;
using testing::ActivationRow;

// Both sides are exact but for this: positions that a checkpoint keeps, router indices, and the
// rotary tables that Falcon makes beside ALiBi, kilobytes that the graph does not follow.
constexpr std::int64_t kUntracked = 16 * 1024;

bool is(const ActivationRow& row, std::string_view part) {
  return row.id.find(part) != std::string::npos;
}
bool checkpointed(const ActivationRow& row) {
  return row.options.checkpointing != ActivationCheckpointing::none;
}

// Why a number may be off by more than the untracked kilobytes, as a share of it.
double saved_tolerance(const ActivationRow& row) {
  if (is(row, " mixtral/")) return 0.02;  // nonzero's pairs are one storage for three indices
  return row.on_gpu ? 0.005 : 0.0;
}
// Bytes: Falcon's indices of single heads, and what GPT-2 divides its scores by, which their
// recordings have as numbers.
std::int64_t saved_slack(const ActivationRow& row) {
  if (is(row, " gpt2")) return row.options.attention == Attention::eager ? 8 : 0;
  return is(row, " falcon-") ? 32 : 0;
}
double live_tolerance(const ActivationRow& row) {
  if (is(row, " mixtral/")) return 0.02;
  // T5's recording is of a run without checkpoints, with which the zeros of the cross attention's
  // bias, (1, heads, s, s), require a gradient; and it keeps numbers of buckets, (s, s), a line
  // longer than the class.
  if (is(row, " t5")) return checkpointed(row) ? 0.075 : 0.045;
  if (!checkpointed(row)) return 0.005;
  // GPT2Model's frame holds the embeddings of tokens and positions, which matters where a layer's
  // forward is the peak.
  if (is(row, " gpt2/")) return 0.06;
  // Eager layers give their attention weights back, and the model's frame holds those of one layer.
  const bool gives_weights = is(row, " bloom/") || is(row, " falcon") || is(row, " bert");
  const bool eager = row.options.attention == Attention::eager;
  if (gives_weights && eager && row.options.transformers >= Version{4, 53}) return 0.16;
  return 0.005;
}

bool near(Bytes ours, Bytes recorded, double share, std::int64_t slack) {
  const double difference = std::abs(static_cast<double>(ours.count() - recorded.count()));
  const double allowed =
      std::max(static_cast<double>(slack), share * static_cast<double>(recorded.count()));
  return difference <= allowed;
}

TEST_CASE("The graph saves byte for byte what transformers' classes save") {
  int rows = 0;
  for (const ActivationRow& row : testing::recorded_activations()) {
    // The hooks see a checkpoint's tensor arguments only: its rows are judged by what is alive.
    if (checkpointed(row)) continue;
    ++rows;
    const ActivationNumbers ours = testing::predicted_activations(row);
    INFO(row.id << ": " << ours.saved.count() << " saved, recorded " << row.recorded.saved.count());
    CHECK(near(ours.saved, row.recorded.saved, saved_tolerance(row), saved_slack(row)));
  }
  CHECK(rows >= 100);
}

TEST_CASE("As many bytes live after forward, and at both peaks, as PyTorch keeps alive") {
  int rows = 0;
  for (const ActivationRow& row : testing::recorded_activations()) {
    ++rows;
    const ActivationNumbers ours = testing::predicted_activations(row);
    const double share = live_tolerance(row);
    const auto check = [&](const char* what, Bytes mine, Bytes recorded) {
      INFO(row.id << ": " << what << " " << mine.count() << ", recorded " << recorded.count());
      CHECK(near(mine, recorded, share, kUntracked));
    };
    check("alive after forward", ours.after_forward, row.recorded.after_forward);
    check("peak of forward", ours.forward_peak, row.recorded.forward_peak);
    check("peak", ours.peak, row.recorded.peak);
  }
  CHECK(rows >= 200);
}

// What meta tensors cannot show is added by rule; a rule applies where the operation was seen.
TEST_CASE("The operations with memory of their own are those that were recorded") {
  for (const ActivationRow& row : testing::recorded_activations()) {
    if (row.on_gpu) continue;
    CAPTURE(row.id);
    CHECK(testing::predicted_activations(row).cuda_only == row.recorded.cuda_only);
  }
}

}  // namespace
}  // namespace zeroplan
