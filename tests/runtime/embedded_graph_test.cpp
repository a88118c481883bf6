// The blocks of the embedded runtime as a graph: what they hold, how they checkpoint, what they
// refuse, and that the simulator plays them as the analytic estimates sum them.
#include "base/diagnostic.hpp"
#include "base/json.hpp"
#include "model/families/hf_config.hpp"
#include "model/graph/kernel_cost.hpp"
#include "model/implementations/implementations.hpp"
#include "model/plan/plan.hpp"
#include "model/plan/scenario.hpp"
#include "model/plan/scenario_reader.hpp"
#include "model/predict/predict.hpp"
#include "simulator/simulate.hpp"
#include "tests/catch.hpp"

namespace zeroplan {
namespace {

constexpr std::int64_t kBatch = 2, kSequence = 64, kTokens = kBatch * kSequence;
constexpr std::int64_t kHidden = 64, kWidth = 192, kKeys = 32, kHeads = 4;

Json llama_config(const std::string& extra = "") {
  return parse_json(R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"],
      "hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 2,
      "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 320,
      "max_position_embeddings": 128, "tie_word_embeddings": false)" +
                        extra + "}",
                    "test")
      .root;
}

GraphOptions options(ActivationCheckpointing checkpointing, DType dtype = DType::fp32) {
  GraphOptions o;
  o.micro_batch = kBatch;
  o.sequence_length = kSequence;
  o.dtype = dtype;
  o.embedded = true;
  o.checkpointing = checkpointing;
  return o;
}

Block layer(ActivationCheckpointing checkpointing) {
  return build_graph(read_model(llama_config(), "test"), options(checkpointing)).blocks[1];
}

TEST_CASE("A layer saves what its weight gradients and its norms read, and no more") {
  const Block block = layer(ActivationCheckpointing::none);
  // Two normalized inputs, the sum between the branches, queries, attention's result; keys and
  // values; gate, up, product; statistics: two norms and the scores' sums.
  const std::int64_t wide = 5 * kHidden + 2 * kKeys + 3 * kWidth;
  const std::int64_t statistics = 2 + kHeads;
  CHECK(summarize(block).saved == Bytes::of(4 * kTokens * (wide + statistics)));
  CHECK(block.saves_input);
  CHECK(block.input_gradient == block.output_gradient);  // the residual stream's, in place
}

TEST_CASE("Selective checkpointing keeps products and attention, full nothing") {
  const Block selective = layer(ActivationCheckpointing::selective);
  const auto left = [](const Block& block) {
    Bytes alive;
    for (const Event& event : block.of(Pass::forward_no_grad)) {
      const Storage& storage = block.storages[static_cast<std::size_t>(event.index)];
      if (event.kind == EventKind::allocate) alive += storage.bytes;
      if (event.kind == EventKind::release) alive -= storage.bytes;
    }
    return alive - block.storages[static_cast<std::size_t>(block.output)].bytes;
  };
  const std::int64_t kept = 3 * kHidden + 2 * kKeys + 2 * kWidth + kHeads;
  CHECK(left(selective) == Bytes::of(4 * kTokens * kept));
  // Two norms and SwiGLU run again; no product.
  CHECK(cost(selective, Pass::recompute).operations == 3);
  CHECK(cost(selective, Pass::recompute).matmul.value() == 0.0);

  const Block full = layer(ActivationCheckpointing::full);
  CHECK(left(full) == Bytes::zero());
  // Everything but the last product and sum.
  CHECK(cost(full, Pass::recompute).operations == cost(full, Pass::forward_no_grad).operations - 2);
}

TEST_CASE("A layer's backward does twice the products of its forward") {
  const Block block = layer(ActivationCheckpointing::none);
  CHECK(cost(block, Pass::backward).matmul.value() ==
        2.0 * cost(block, Pass::forward).matmul.value());
  CHECK(cost(block, Pass::backward).attention.value() ==
        2.5 * cost(block, Pass::forward).attention.value());
  CHECK(block.calls.size() == block.operations.size());
}

TEST_CASE("A call is priced by its operands, each counted once") {
  KernelCall call;
  call.kernel = Kernel::add;
  call.rows = 10;
  call.columns = 6;
  const KernelOperand a{KernelOperand::From::storage, 0};
  const KernelOperand b{KernelOperand::From::storage, 1};
  call.operands = {a, a, b};  // y is a: written and read
  CHECK(kernel_cost(call, DType::bf16).traffic == Bytes::of(3 * 60 * 2));
  call.kernel = Kernel::linear_backward_weight;
  call.inner = 5;
  call.accumulate = true;
  call.operands = {{KernelOperand::From::gradient, 0}, a, b};
  const KernelCost product = kernel_cost(call, DType::fp32);
  CHECK(product.traffic == Bytes::of(4 * (2 * 30 + 60 + 50)));
  CHECK(product.flops.value() == 2.0 * 10 * 6 * 5);
  CHECK(product.product->k == 10);
}

TEST_CASE("What the runtime does not compute is refused by name") {
  const auto refused = [](const Json& config) {
    try {
      build_graph(read_model(config, "test"), options(ActivationCheckpointing::none));
    } catch (const InputError& error) {
      return error.diagnostics().front().got.english();
    }
    return std::string();
  };
  CHECK(refused(llama_config(R"(, "rope_scaling": {"rope_type": "linear", "factor": 2.0})"))
            .find("rope_scaling") != std::string::npos);
  CHECK(refused(llama_config(R"(, "hidden_act": "gelu")")).find("SiLU") != std::string::npos);
  CHECK(refused(llama_config()).empty());
}

TEST_CASE("The simulator plays the embedded engine; on CPU ranks nothing is reserved in vain") {
  for (const std::string stage : {"0", "1", "2", "3"}) {
    for (const std::string checkpointing : {"none", "selective", "full"}) {
      INFO("stage " << stage << ", checkpointing " << checkpointing);
      Json document =
          parse_json(
              R"({"cluster": "1x4xcpu", "workload": {"engine": "embedded", "precision": "fp32",
              "sequence_length": 64, "micro_batch_size": 2, "activation_checkpointing": ")" +
                  checkpointing + R"("}, "ds_config": {"zero_optimization": {"stage": )" + stage +
                  R"(, "reduce_bucket_size": 20000, "allgather_bucket_size": 20000}}})",
              "test")
              .root;
      document.members().emplace_back("model", llama_config());
      const Plan plan = resolve(parse_scenario(document, "test"));
      REQUIRE(simulator::is_simulated(plan));
      const StepResult simulated = simulator::simulate(plan);
      const StepResult summed = predict(plan);
      CHECK(simulated.gpu.peak_reserved == simulated.gpu.peak_allocated);
      CHECK(simulated.gpu.peak_total == simulated.gpu.peak_allocated);
      CHECK(simulated.gpu.peak_allocated / summed.gpu.peak_allocated == Approx(1.0).epsilon(0.05));
      // Simulated buffers are whole blocks of 512 bytes.
      CHECK(simulated.gpu.static_allocated / summed.gpu.static_allocated ==
            Approx(1.0).epsilon(0.01));
    }
  }
}

}  // namespace
}  // namespace zeroplan
