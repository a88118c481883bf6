// Layers with states: the delta rule, whose turns stand for several chunks, against its loop over
// all of them, and Mamba 2's scan.
#include "model/graph/aten_recurrent.hpp"
#include "model/implementations/hf_chunk_scan.hpp"
#include "model/implementations/hf_delta_rule.hpp"
#include "tests/catch.hpp"

namespace zeroplan {
namespace {

constexpr std::int64_t kHeads = 4, kDim = 128, kChunk = 64;

struct Question {
  std::int64_t chunks = 0, batch = 1;
  bool checkpoint = false, reentrant = true;
  std::int64_t served = 1;  // heads of values by one of keys
  LinearAttention by = LinearAttention::torch;
  bool repeated = false;  // before the rule
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
    given.value = aten::reshape(t, in, Shape{question.batch, sequence, kHeads, kDim});
    given.query = given.value;
    if (question.served > 1) {
      const std::int64_t heads = kHeads / question.served;
      const Tensor part = aten::slice(t, in, -1, heads * kDim);
      given.query = aten::reshape(t, part, Shape{question.batch, sequence, heads, kDim});
      if (question.repeated) given.query = aten::repeat_heads(t, given.query, question.served);
    }
    given.key = given.query;
    given.beta = aten::sigmoid(t, aten::slice(t, in, -1, kHeads));
    given.decay = aten::to(t, given.beta, DType::fp32);
    given.most_turns = turns;
    Tensor state;
    return hf::gated_delta_rule(t, question.by, given, false, state);
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

TEST_CASE(
    "heads of keys that serve several of values are repeated by PyTorch's rule, not by fla's") {
  Question question{.chunks = 8, .served = 2};
  const Bytes keys = Bytes::of(question.chunks * kChunk * kHeads * kDim * 2);
  for (const LinearAttention by : {LinearAttention::torch, LinearAttention::fla}) {
    CAPTURE(static_cast<int>(by));
    question.by = by;
    question.repeated = true;
    const BlockMemory before = summarize(recorded(question, 16));
    question.repeated = false;
    const BlockMemory within = summarize(recorded(question, 16));
    // fla keeps half as many heads of queries and of keys, each with the reciprocals of their
    // lengths.
    const Bytes less = by == LinearAttention::fla ? keys + keys * 2 / kDim : Bytes::zero();
    CHECK(within.saved == before.saved - less);
    CHECK(within.backward.total <= before.backward.total);
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

TEST_CASE("einsum multiplies what lies as it needs it, and copies of the rest") {
  const auto saved = [](std::string_view of_a, std::string_view of_b, std::string_view out) {
    return summarize(record_block({.name = "einsum"},
                                  [&](Tape& t) {
                                    const Tensor in = t.input(Shape{3, 64, 64, 64}, DType::fp32);
                                    return aten::einsum(t, in, of_a, in, of_b, out);
                                  }))
        .saved;
  };
  const Bytes one = Bytes::of(std::int64_t{3} * 64 * 64 * 64 * 4);
  // Rows of one batch lie together, rows of a head of (b, s, heads, d) do not.
  CHECK(saved("bhln", "bhns", "bhls") == Bytes::zero());  // but what goes in
  CHECK(saved("bhln", "bnhs", "bhls") == one);
  CHECK(saved("blhn", "bshn", "blsh") == one * 2);
}

TEST_CASE("Mamba 2's scan allocates a dimension less where it multiplies matrices") {
  const auto memory = [](bool multiplies) {
    return summarize(record_block({.name = "scan"}, [&](Tape& t) {
      constexpr std::int64_t kSequence = 600, kGroups = 2, kStates = 64;
      const Tensor in = t.input(Shape{1, kSequence, kHeads * kDim}, DType::bf16);
      hf::ChunkScanInputs given;
      given.x = aten::reshape(t, in, Shape{1, kSequence, kHeads, kDim});
      given.dt = aten::sigmoid(t, aten::slice(t, in, -1, kHeads));
      given.decay = t.empty(Shape{kHeads}, DType::fp32);
      const Tensor part = aten::slice(t, in, -1, kGroups * kStates);
      given.written = given.read = aten::reshape(t, part, Shape{1, kSequence, kGroups, kStates});
      given.chunk = 256;
      given.multiplies = multiplies;
      return hf::mamba_chunk_scan(t, given);
    }));
  };
  const BlockMemory whole = memory(false), matrices = memory(true);
  // A score of each pair of positions times the width of a head, once.
  CHECK(whole.forward.total - matrices.forward.total >
        Bytes::of(std::int64_t{3} * 256 * 256 * kHeads * kDim * 4 / 2));
}

}  // namespace
}  // namespace zeroplan
