// Gated linear attention: a turn that stands for several chunks against the loop over all of them.
#include "model/implementations/hf_delta_rule.hpp"
#include "tests/catch.hpp"

namespace zeroplan {
namespace {

constexpr std::int64_t kHeads = 4, kDim = 128, kChunk = 64;

struct Question {
  std::int64_t chunks = 0, batch = 1;
  bool checkpoint = false, reentrant = true;
};

// The delta rule of so many chunks as a block, of which at most `turns` are recorded.
Block recorded(const Question& question, std::int64_t turns) {
  Tape::Setup setup;
  setup.name = "delta rule";
  setup.checkpoint = question.checkpoint;
  setup.checkpoint_reentrant = question.reentrant;
  return record_block(std::move(setup), [&](Tape& t) {
    const std::int64_t sequence = question.chunks * kChunk;
    const Tensor in = t.input(Shape{question.batch, sequence, kHeads * kDim}, DType::bf16);
    hf::DeltaRuleInputs given;
    const Shape heads{question.batch, sequence, kHeads, kDim};
    given.query = aten::reshape(t, in, heads);
    given.key = given.query;
    given.value = given.query;
    given.beta = aten::sigmoid(t, aten::slice(t, in, -1, kHeads));
    given.decay = aten::to(t, given.beta, DType::fp32);
    given.most_turns = turns;
    Tensor state;
    return hf::chunk_gated_delta_rule(t, given, state);
  });
}

TEST_CASE("chunks that share a turn do the work of the whole loop and keep what it keeps") {
  for (const Question& question :
       {Question{40}, Question{33, 3}, Question{40, 1, true}, Question{64, 2, true, false}}) {
    CAPTURE(question.chunks, question.batch, question.checkpoint, question.reentrant);
    const Block whole = recorded(question, question.chunks);
    const Block folded = recorded(question, 16);
    CHECK(folded.operations.size() < whole.operations.size());
    for (std::size_t i = 0; i < kPassCount; ++i) {
      const auto pass = static_cast<Pass>(i);
      const PassCost all = cost(whole, pass), few = cost(folded, pass);
      CAPTURE(i);
      CHECK(few.kernels == all.kernels);
      CHECK(few.operations == all.operations);
      CHECK(few.dispatched == all.dispatched);
      CHECK(few.traffic == all.traffic);
      CHECK(few.matmul.value() == Approx(all.matmul.value()));
    }
    const BlockMemory all = summarize(whole), few = summarize(folded);
    CHECK(few.saved == all.saved);
    CHECK(few.recomputed == all.recomputed);
    CHECK(few.forward.total == all.forward.total);
    CHECK(few.recompute.total == all.recompute.total);
    CHECK(few.backward.total == all.backward.total);
  }
}

TEST_CASE("few chunks are recorded as they are") {
  const Question question{16};
  CHECK(recorded(question, 16).operations.size() == recorded(question, 1000).operations.size());
}

TEST_CASE("a million positions are as few operations as a thousand") {
  const Block longest = recorded(Question{std::int64_t{1} << 14}, 16);
  CHECK(longest.operations.size() == recorded(Question{20}, 16).operations.size());
}

}  // namespace
}  // namespace zeroplan
