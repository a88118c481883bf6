// The embedded runtime's head with a fused loss: how many rows a chunk has and why, what the blocks
// hold and announce, and what a chunk adds to the mean.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "model/cost/gemm.hpp"
#include "model/families/hf_config.hpp"
#include "model/hardware/known_hardware.hpp"
#include "model/implementations/implementations.hpp"
#include "model/implementations/loss_chunks.hpp"
#include "model/plan/plan.hpp"
#include "model/plan/scenario.hpp"
#include "model/plan/scenario_reader.hpp"
#include "model/predict/predict.hpp"
#include "model/step/graph_options.hpp"
#include "runtime/kernels/kernels.hpp"
#include "simulator/simulate.hpp"
#include "tests/catch.hpp"
#include "tests/runtime/hashed_model.hpp"

namespace zeroplan {
namespace {

constexpr std::int64_t kTokens = 150, kHidden = 64, kVocabulary = 320;

// --- how many rows

TEST_CASE("A chunk has Liger's rows where those are enough") {
  // 65,536 / ceil(32,000 / 4,096) = 8,192, on both.
  const LossSizes wide{.tokens = 65'536, .hidden = 4'096, .vocabulary = 32'000};
  CHECK(liger_loss_rows(wide) == 8'192);
  CHECK(embedded_loss_rows(wide, true) == 8'192);
  // Qwen2.5-0.5B: 16,384 / 170 = 97, so 128.
  const LossSizes narrow{.tokens = 16'384, .hidden = 896, .vocabulary = 151'936};
  CHECK(liger_loss_rows(narrow) == 128);
  CHECK(embedded_loss_rows(narrow, true) == 2'048);
  CHECK(embedded_loss_rows(narrow, false) == 128);
}

TEST_CASE("Chunks are even, hold no more than is said, and are all there is at most") {
  for (std::int64_t tokens = 1; tokens < 20'000; tokens += 1 + tokens / 7) {
    for (const std::int64_t vocabulary : {100, 32'000, 151'936}) {
      for (const bool on_gpu : {false, true}) {
        INFO(tokens << " tokens, vocabulary " << vocabulary << (on_gpu ? ", GPU" : ", CPU"));
        const LossSizes sizes{.tokens = tokens, .hidden = 896, .vocabulary = vocabulary};
        const std::int64_t least = on_gpu ? 2'048 : 128;
        const std::int64_t most = std::max(liger_loss_rows(sizes), least);
        const std::int64_t rows = embedded_loss_rows(sizes, on_gpu);
        CHECK(rows <= std::min(tokens, round_up(most, 128)));
        CHECK((rows % 128 == 0 || rows == tokens));
        // No more chunks than the rule needs, and a rest that lacks less than a tile for each.
        const std::int64_t chunks = ceil_div(tokens, rows);
        CHECK(chunks == ceil_div(tokens, most));
        CHECK(tokens - (chunks - 1) * rows > rows - 128 * chunks);
      }
    }
  }
}

// Seconds of the head's three products, a row.
double products(const MatmulTimes& times, const LossSizes& sizes, std::int64_t rows, DType dtype) {
  const std::int64_t h = sizes.hidden;
  const std::int64_t v = sizes.vocabulary;
  const Seconds seconds = times.sustained({1, rows, v, h, dtype}) +
                          times.sustained({1, rows, h, v, dtype}) +
                          times.sustained({1, v, h, rows, dtype});
  return seconds.seconds() / static_cast<double>(rows);
}

TEST_CASE("By a GPU's chunks the products take at most 7 % longer, by Liger's twice and more") {
  constexpr std::int64_t kMany = 32'768;
  const LossSizes models[] = {{kMany, 896, 151'936},
                              {kMany, 1'536, 151'936},
                              {kMany, 2'048, 151'936},
                              {kMany, 4'096, 32'000},
                              {kMany, 4'096, 128'256},
                              {kMany, 768, 50'257}};
  double worst_of_half = 0.0;  // by 1024 rows
  for (const char* name : {"V100-32G", "A100-80G", "RTX4090", "L40S", "H100", "H200"}) {
    const auto found = find_gpu(name, 8);
    REQUIRE(found.has_value());
    const MatmulTimes times(found->gpu, Coefficients(found->gpu.key));
    const DType dtype = found->gpu.bf16_supported ? DType::bf16 : DType::fp16;
    for (const LossSizes& sizes : models) {
      INFO(name << ", " << sizes.vocabulary << " x " << sizes.hidden);
      const double whole = products(times, sizes, kMany, dtype);
      const std::int64_t floor = 2'048;
      CHECK(products(times, sizes, floor, dtype) / whole < 1.075);
      worst_of_half = std::max(worst_of_half, products(times, sizes, floor / 2, dtype) / whole);
    }
  }
  CHECK(worst_of_half > 1.15);
  const auto h100 = find_gpu("H100", 8);
  const MatmulTimes times(h100->gpu, Coefficients(h100->gpu.key));
  CHECK(products(times, models[0], 128, DType::bf16) >
        2.5 * products(times, models[0], kMany, DType::bf16));
}

// --- what a chunk adds to the mean

struct Loss {
  float loss = 0.0F;
  std::vector<float> gradient;
};

Loss cross_entropy(const std::vector<float>& logits,
                   const std::vector<std::int64_t>& labels,
                   std::int64_t columns,
                   std::int64_t chunk) {
  const auto kernels = runtime::cpu_kernels(2);
  const auto all = static_cast<std::int64_t>(labels.size());
  Loss result{-1.0F, logits};
  std::vector<float> lse(static_cast<std::size_t>(chunk));
  const auto operand = [](const void* data, std::int64_t count, DType dtype = DType::fp32) {
    return runtime::Operand{
        static_cast<std::byte*>(const_cast<void*>(data)), Elements::of(count), dtype};
  };
  for (std::int64_t first = 0; first < all; first += chunk) {
    KernelCall call;
    call.rows = std::min(chunk, all - first);
    call.columns = columns;
    call.chunk = {first, all};
    call.operands.resize(4, {KernelOperand::From::storage, 0});
    const runtime::Operand part =
        operand(result.gradient.data() + first * columns, call.rows * columns);
    const runtime::Operand sums = operand(lse.data(), call.rows);
    const runtime::Operand of_all = operand(labels.data(), all, DType::int64);
    call.kernel = Kernel::cross_entropy_forward;
    call.accumulate = first > 0;
    const runtime::Operand forward[] = {operand(&result.loss, 1), sums, part, of_all};
    kernels->run(call, forward);
    call.kernel = Kernel::cross_entropy_backward;
    call.accumulate = false;
    call.scale = 3.0;
    const runtime::Operand backward[] = {part, part, sums, of_all};
    kernels->run(call, backward);
  }
  return result;
}

TEST_CASE("Chunks add up to the mean over all labels, however unevenly those are spread") {
  constexpr std::int64_t kRows = 23, kColumns = 11;
  std::vector<float> logits;
  for (std::int64_t i = 0; i < kRows * kColumns; ++i) {
    logits.push_back(6.0F * testing::uniform(17, i) - 3.0F);
  }
  std::vector<std::int64_t> labels;
  for (std::int64_t i = 0; i < kRows; ++i) {
    // None in the first rows, all in the last: no chunk's own mean is the loss's.
    labels.push_back(i < 9 || (i < 16 && i % 3 != 0) ? -100 : (i * 7) % kColumns);
  }
  const Loss whole = cross_entropy(logits, labels, kColumns, kRows);
  CHECK(whole.loss > 0.5F);
  for (const std::int64_t chunk : {1, 4, 9, 22}) {
    INFO("chunks of " << chunk);
    const Loss parts = cross_entropy(logits, labels, kColumns, chunk);
    CHECK(parts.loss == Approx(whole.loss).epsilon(1e-6));
    CHECK(parts.gradient == whole.gradient);  // to the bit
  }
  const Loss none = cross_entropy(logits, std::vector<std::int64_t>(kRows, -1), kColumns, 4);
  CHECK(none.loss == 0.0F);
  CHECK(*std::max_element(none.gradient.begin(), none.gradient.end()) == 0.0F);
}

// --- what the block holds

Json llama_config(bool tied) {
  return Json::object({{"model_type", "llama"},
                       {"architectures", Json::array({"LlamaForCausalLM"})},
                       {"hidden_size", kHidden},
                       {"intermediate_size", 192},
                       {"num_hidden_layers", 2},
                       {"num_attention_heads", 4},
                       {"num_key_value_heads", 2},
                       {"vocab_size", kVocabulary},
                       {"max_position_embeddings", 4096},
                       {"tie_word_embeddings", tied}});
}

Block head_of(std::int64_t fused_rows, bool tied = false) {
  GraphOptions options;
  options.micro_batch = 1;
  options.sequence_length = kTokens;
  options.embedded = true;
  options.fused_loss = fused_rows > 0;
  options.loss_rows = fused_rows;
  return build_graph(read_model(llama_config(tied), "test"), options).blocks.back();
}

std::vector<std::string> announced(const Block& block) {
  std::vector<std::string> names;
  for (const Event& event : block.of(Pass::backward)) {
    if (event.kind != EventKind::weight_gradient) continue;
    const WeightGradient& gradient = block.weight_gradients[static_cast<std::size_t>(event.index)];
    names.push_back(block.parameters[static_cast<std::size_t>(gradient.parameter)].name +
                    (gradient.complete ? "" : ", a part"));
  }
  return names;
}

TEST_CASE("A fused head holds the logits of one chunk, and keeps the gradients it made") {
  constexpr std::int64_t kChunk = 64;
  const Block fused = head_of(kChunk);
  const Block whole = head_of(0);
  const auto logits = [](const Block& block) {
    Bytes bytes;
    for (const Storage& storage : block.storages) {
      if (storage.category == MemoryCategory::logits && storage.elements > 1_elements) {
        bytes += storage.bytes;
      }
    }
    return bytes;
  };
  CHECK(logits(whole) == Bytes::of(2 * kTokens * kVocabulary));
  CHECK(logits(fused) == Bytes::of(2 * kChunk * kVocabulary));
  // For backward: the hidden states' gradient, the weight's, the norm's statistic.
  const auto block_of_512 = [](std::int64_t bytes) { return Bytes::of(round_up(bytes, 512)); };
  const BlockMemory memory = summarize(fused);
  CHECK(memory.saves_input);
  CHECK(memory.saved == block_of_512(2 * kTokens * kHidden) +
                            block_of_512(2 * kVocabulary * kHidden) + block_of_512(4 * kTokens));
  // At the most the normed hidden states, the chunk's logits and statistic, and the loss besides.
  CHECK(memory.forward.total == memory.saved + block_of_512(2 * kTokens * kHidden) +
                                    block_of_512(2 * kChunk * kVocabulary) +
                                    block_of_512(4 * kChunk) + block_of_512(4));
}

TEST_CASE("A fused head does the same work, all of it in the forward pass") {
  const Block fused = head_of(64);
  const Block whole = head_of(0);
  const auto work = [](const Block& block, Pass pass) { return cost(block, pass).matmul.value(); };
  CHECK(work(fused, Pass::forward) == work(whole, Pass::forward) + work(whole, Pass::backward));
  CHECK(work(fused, Pass::backward) == 0.0);
  // Each of three chunks reads the weight twice, writes its gradient, and reads it but the first.
  const auto moved = [&](const Block& block) {
    constexpr auto kMatmul = static_cast<std::size_t>(OpKind::matmul);
    return cost(block, Pass::forward).traffic[kMatmul] +
           cost(block, Pass::backward).traffic[kMatmul];
  };
  const Bytes weight = Bytes::of(2 * kVocabulary * kHidden);
  CHECK(moved(fused) == moved(whole) + weight * (2 * 3 + 2));
}

TEST_CASE("A fused head announces its gradients in the order of the other head") {
  for (const bool tied : {false, true}) {
    const std::vector<std::string> names = announced(head_of(64, tied));
    CHECK(names == announced(head_of(0, tied)));
    CHECK(names.front() == (tied ? "model.embed_tokens.weight, a part" : "lm_head.weight"));
    CHECK(names.size() == 2);
  }
  // Before anything runs: engines look for gradients in the backward pass.
  const Block block = head_of(64);
  CHECK(block.of(Pass::backward).front().kind == EventKind::weight_gradient);
}

// --- plans

Plan plan_of(const std::string& cluster, bool fused, int stage) {
  Json document = Json::object();
  document["model"] = llama_config(false);
  document["cluster"] = cluster;
  document["workload"] = Json::object({{"engine", "embedded"},
                                       {"fused_loss", fused},
                                       {"precision", "bf16"},
                                       {"sequence_length", 4096},
                                       {"micro_batch_size", 2}});
  document["ds_config"] = Json::object(
      {{"bf16", Json::object({{"enabled", true}})},
       {"zero_optimization", Json::object({{"stage", stage}, {"reduce_bucket_size", 20'000}})}});
  return resolve(parse_scenario(document, "test"));
}

TEST_CASE("A plan's graph has the chunks of its device") {
  // 8,192 / 5 = 1,638, so 2,048 by Liger's rule.
  CHECK(graph_options(plan_of("1x2xcpu", true, 1)).loss_rows == 2'048);
  CHECK(graph_options(plan_of("1x2xH100", true, 1)).loss_rows == 2'048);
  CHECK(graph_options(plan_of("1x2xcpu", false, 1)).loss_rows == 0);
}

TEST_CASE("A fused loss is simulated as it is summed up, and spares the logits") {
  for (const char* cluster : {"1x2xcpu", "1x2xH100"}) {
    for (const int stage : {0, 1, 2, 3}) {
      INFO(cluster << ", stage " << stage);
      const Plan plan = plan_of(cluster, true, stage);
      const StepResult simulated = simulator::simulate(plan);
      CHECK(simulated.gpu.peak_allocated / predict(plan).gpu.peak_allocated ==
            Approx(1.0).epsilon(0.05));
      const StepResult whole = simulator::simulate(plan_of(cluster, false, stage));
      const auto logits = [](const StepResult& result) {
        Bytes most;
        for (const CategoryBytes& phase : result.gpu.by_phase) {
          most = std::max(most, phase[static_cast<std::size_t>(MemoryCategory::logits)]);
        }
        return most;
      };
      CHECK(logits(whole) >= logits(simulated) * 3);
      CHECK(simulated.gpu.peak_allocated < whole.gpu.peak_allocated);
    }
  }
}

}  // namespace
}  // namespace zeroplan
