// T5: what both stacks save, the tensors that cross the blocks with a gradient, the loss.
#include <string>

#include "base/json.hpp"
#include "model/families/hf_config.hpp"
#include "model/implementations/implementations.hpp"
#include "tests/catch.hpp"
#include "tests/support/graph_walk.hpp"

namespace zeroplan {
namespace {

// d_model = 1024, 8 heads of 128, d_ff = 4096, b = 2, s = 1024, bf16.
constexpr std::int64_t U = 2 * 2 * 1024 * 1024, F = 4 * U, A = 2 * 2 * 8 * 1024 * 1024;
constexpr std::int64_t N = 4 * 2 * 1024;
constexpr std::int64_t L = 2 * 2048 * 32000;

// Block 0 of a graph are the encoder's inputs; three layers give each stack a first, a middle and a
// last block.
constexpr std::size_t kEncoderMiddle = 2, kEncoderOutput = 4, kDecoderFirst = 6, kDecoderMiddle = 7,
                      kDecoderLast = 8;

Model t5(const std::string& feed_forward, bool tied = true, int layers = 3) {
  const std::string text = R"({"model_type": "t5", "d_model": 1024, "d_kv": 128, "d_ff": 4096,
      "num_heads": 8, "vocab_size": 32000, "dropout_rate": 0.1, "feed_forward_proj": ")" +
                           feed_forward + R"(", "num_layers": )" + std::to_string(layers) +
                           R"(, "tie_word_embeddings": )" + (tied ? "true}" : "false}");
  return read_model(parse_json(text, "config.json").root, "config.json");
}

GraphOptions options() {
  GraphOptions o;
  o.micro_batch = 2;
  o.sequence_length = 1024;
  return o;
}

Bytes saved(const ModelGraph& graph, std::size_t block) {
  const BlockMemory memory = summarize(graph.blocks[block]);
  return memory.saved + (memory.saves_input ? memory.input : Bytes::zero());
}

const SharedTensor& shared(const ModelGraph& graph, const std::string& name) {
  for (const SharedTensor& tensor : graph.shared) {
    if (tensor.name == name) return tensor;
  }
  check_failed(__FILE__, __LINE__, "name", "no such shared tensor");
}

TEST_CASE("A T5 encoder block saves 15U + 3.5A + 2N, with 7.5F gated and 2.5F with relu") {
  CHECK(saved(build_graph(t5("gated-gelu"), options()), kEncoderMiddle) ==
        Bytes::of(15 * U + 7 * A / 2 + 15 * F / 2 + 2 * N));
  CHECK(saved(build_graph(t5("relu"), options()), kEncoderMiddle) ==
        Bytes::of(15 * U + 7 * A / 2 + 5 * F / 2 + 2 * N));
}

TEST_CASE(
    "A T5 decoder block saves 24.5U + 7A + 3N and its feed-forward, the encoder's output not") {
  CHECK(saved(build_graph(t5("gated-gelu"), options()), kDecoderMiddle) ==
        Bytes::of(49 * U / 2 + 7 * A + 15 * F / 2 + 3 * N));
  CHECK(saved(build_graph(t5("relu"), options()), kDecoderMiddle) ==
        Bytes::of(49 * U / 2 + 7 * A + 5 * F / 2 + 3 * N));
}

TEST_CASE("T5 blocks run and peak as recorded with transformers 4.57.1") {
  GraphOptions no_cache = options();
  no_cache.use_cache = false;
  const ModelGraph gated = build_graph(t5("gated-gelu"), no_cache);
  CHECK(cost(gated.blocks[kEncoderMiddle], Pass::forward).operations == 48);
  const BlockMemory encoder = summarize(gated.blocks[kEncoderMiddle]);
  // At the dropout of the gated product: F and a bool of it above what stays.
  CHECK(encoder.forward.total.count() * 10 / U == 755);
  CHECK(encoder.backward_dropping_weight_gradients.count() * 10 / U == 65);
  const BlockMemory decoder = summarize(gated.blocks[kDecoderMiddle]);
  CHECK(decoder.forward.total.count() * 10 / U == 1130);
  const ModelGraph plain = build_graph(t5("relu"), no_cache);
  CHECK(summarize(plain.blocks[kEncoderMiddle]).forward.total.count() * 10 / U == 550);
  CHECK(summarize(plain.blocks[kDecoderMiddle]).forward.total.count() * 10 / U == 925);
}

TEST_CASE("The first T5 block keeps its int64 buckets and makes the bias of its stack") {
  constexpr std::int64_t kBuckets = 8 * 1024 * 1024;
  const ModelGraph graph = build_graph(t5("relu"), options());
  const Bytes difference = saved(graph, 1) - saved(graph, kEncoderMiddle);
  CHECK(difference == Bytes::of(kBuckets + A));
  // The decoder's first block makes the cross attention's bias too.
  CHECK(saved(graph, kDecoderFirst) - saved(graph, kDecoderMiddle) == Bytes::of(kBuckets + 2 * A));
  for (const char* name : {"position_bias", "decoder_position_bias"}) {
    const SharedTensor& bias = shared(graph, name);
    CHECK(graph.storage({bias.producer, bias.storage}).bytes == Bytes::of(A));
    CHECK(bias.first_saver == -1);  // added in place: nobody saves it
    CHECK(bias.gradient_maker == bias.last_user);
  }
  CHECK(shared(graph, "cross_position_bias").gradient_maker == -1);
}

TEST_CASE("The encoder's output lives from its stack to the first decoder block's backward") {
  const ModelGraph graph = build_graph(t5("relu"), options());
  const SharedTensor& states = shared(graph, "encoder_states");
  CHECK(states.producer == static_cast<int>(kEncoderOutput));
  CHECK(states.first_saver == static_cast<int>(kDecoderFirst));
  // Its gradient: made by the last decoder block, summed up in place, taken by the encoder.
  CHECK(states.gradient_maker == static_cast<int>(kDecoderLast));
  CHECK(graph.storage({states.gradient_maker, states.gradient_storage}).bytes == Bytes::of(U));
  CHECK(graph.blocks[kEncoderOutput].output_gradient == -1);
  CHECK(graph.blocks[kEncoderOutput + 1].input == -1);
}

TEST_CASE("T5's loss reads the logits of all positions in their own dtype") {
  const BlockMemory head = summarize(build_graph(t5("relu"), options()).blocks.back());
  CHECK(head.held == Bytes::of(L));
  // Norm 3U + N, dropout's bool and result, scaled result; logits and log-softmax; two scalars.
  CHECK(head.forward.total >= Bytes::of(9 * U / 2 + N + 2 * L + 1024));
  CHECK(head.forward.total <= Bytes::of(6 * U + N + 2 * L + 1024));
}

TEST_CASE("T5 releases what it allocates and yields each gradient once") {
  for (const Model& model :
       {t5("relu"), t5("gated-gelu", false), t5("relu", true, 1), t5("relu", false, 2)}) {
    for (const ActivationCheckpointing checkpointing :
         {ActivationCheckpointing::none, ActivationCheckpointing::full}) {
      for (const bool reentrant : {true, false}) {
        for (const DType dtype : {DType::bf16, DType::fp16, DType::fp32}) {
          for (const bool held : {true, false}) {
            GraphOptions o = options();
            o.checkpointing = checkpointing;
            o.checkpoint_reentrant = reentrant;
            o.outputs_held_in_backward = held;
            o.dtype = dtype;
            CAPTURE(model.shape.layers, reentrant, name(dtype), static_cast<int>(checkpointing));
            const testing::GraphWalk walk(build_graph(model, o));
            CHECK(walk.alive() == 0_B);
            CHECK(walk.gradients() == static_cast<int>(model.parameters.size()));
          }
        }
      }
    }
  }
}

TEST_CASE("The gradient of the encoder's output waits for the encoder through the decoder's end") {
  const ModelGraph graph = build_graph(t5("relu"), options());
  const testing::GraphWalk walk(graph);
  const auto output = static_cast<std::int32_t>(kEncoderOutput);
  const Bytes waiting = walk.after(Pass::backward, output + 1);
  // The output's block gives back what it saved and passes on a gradient of the same size.
  CHECK(waiting - walk.after(Pass::backward, output) == saved(graph, kEncoderOutput));
  CHECK(saved(graph, kEncoderOutput) == Bytes::of(9 * U / 2 + N));
  // Alive then: the encoder's saved tensors, that gradient, the tied weight's, and the loss. The
  // bias of the encoder has died: nobody saves it.
  const Bytes encoder = saved(graph, 0) + saved(graph, 1) - Bytes::of(A) +
                        saved(graph, kEncoderMiddle) * 2 + saved(graph, kEncoderOutput);
  CHECK(waiting == encoder + Bytes::of(U + 2 * 32000 * 1024 + 512));
}

}  // namespace
}  // namespace zeroplan
