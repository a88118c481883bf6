// Megatron-DeepSpeed's GPT: its parameters on each rank, its blocks, its pipeline stages.
#include "model/families/megatron.hpp"

#include <algorithm>
#include <cstdint>
#include <string>

#include "model/families/hf_config.hpp"
#include "model/families/pipeline_stage.hpp"
#include "model/implementations/implementations.hpp"
#include "model/plan/plan.hpp"
#include "model/plan/scenario_reader.hpp"
#include "model/predict/predict.hpp"
#include "model/step/graph_options.hpp"
#include "simulator/simulate.hpp"
#include "tests/catch.hpp"
#include "tests/support/graph_walk.hpp"
#include "tuner/fit.hpp"

using namespace zeroplan;

namespace {

constexpr const char* kGpt2Of52b = R"({"model_type":"gpt2","n_embd":8192,"n_layer":64,"n_head":32,
  "n_positions":1024,"vocab_size":50257})";
// BLOOM: 250,680 tokens, which four ranks of tensor parallelism pad to 250,880.
constexpr const char* kBloom = R"({"model_type":"bloom","hidden_size":14336,"n_layer":70,
  "n_head":112,"vocab_size":250680})";
constexpr const char* kSmall = R"({"model_type":"gpt2","n_embd":512,"n_layer":8,"n_head":8,
  "n_positions":256,"vocab_size":50257})";

Model model_of(const std::string& config) {
  const ModelUse megatron{.implementation = Implementation::megatron};
  return load_model(parse_json(config, "c.json").root, "c.json", "", megatron);
}

std::int64_t total(const Model& model) { return count_parameters(model).total.count(); }

std::int64_t named(const Model& model, const std::string& name) {
  for (const Parameter& parameter : model.parameters) {
    if (parameter.name == name) return parameter.numel.count();
  }
  return 0;
}

Scenario scenario_of(const std::string& model,
                     const std::string& workload,
                     const std::string& stage = "1",
                     const std::string& cluster = "4x8xA100-80G") {
  const std::string text =
      R"({"model":)" + model + R"(,"cluster":")" + cluster +
      R"(","workload":{"frontend":"native","implementation":"megatron","precision":"fp16",
          "sequence_length":256,"micro_batch_size":2)" +
      (workload.find("gradient_accumulation_steps") == std::string::npos
           ? R"(,"gradient_accumulation_steps":16)" + workload
           : workload) +
      R"(},"ds_config":{"fp16":{"enabled":true},"zero_optimization":{"stage":)" + stage + "}}}";
  return parse_scenario(parse_json(text, "s.json").root, "s.json");
}

Plan planned(const std::string& workload, const std::string& stage = "1") {
  return resolve(scenario_of(kSmall, workload, stage));
}

std::string refusal(const std::string& model,
                    const std::string& workload,
                    const std::string& stage = "1") {
  try {
    resolve(scenario_of(model, workload, stage));
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

Bytes moved(const ModelGraph& graph, Pass pass, OpKind kind) {
  Bytes sum;
  for (const BlockInstance& instance : graph.instances) {
    sum += testing::traffic_of(graph.block_of(instance), pass, kind);
  }
  return sum;
}

ModelGraph graph_of(const Plan& plan) { return build_graph(*plan.model, graph_options(plan)); }

}  // namespace

TEST_CASE("The vocabulary is padded to a multiple of 128 for each rank") {
  CHECK(megatron_vocabulary(50257, 1) == 50304);
  CHECK(megatron_vocabulary(50257, 4) == 50688);
  CHECK(megatron_vocabulary(250680, 4) == 250880);
  CHECK(megatron_vocabulary(50304, 1) == 50304);
}

// BLOOM's model GPU: 176,247,271,424 parameters, 3,596,615,680 of them in the embedding.
TEST_CASE("BLOOM's parameters are those it was published with") {
  const Model whole = megatron_model(model_of(kBloom), 1);
  const Model padded = model_of(R"({"model_type":"bloom","hidden_size":14336,"n_layer":70,
    "n_head":112,"vocab_size":250880})");
  CHECK(total(megatron_model(padded, 1)) == 176'247'271'424);
  CHECK(total(whole) == 176'247'271'424 - 14336 * (250'880 - 250'752));
  CHECK(4 * named(megatron_model(model_of(kBloom), 4),
                  "language_model.embedding.word_embeddings.weight") ==
        3'596'615'680);
}

// A layer: 12 h^2 + 13 h parameters, of which 4/8 (products) and the biases of the column-parallel
// layers are cut (chronicles-prequel.md of bigscience's tr11 for 12 h^2 + 13 h).
TEST_CASE("A rank has its part of the products and all of norms and row-parallel biases") {
  const Model model = model_of(kGpt2Of52b);
  const std::int64_t h = 8192, layers = 64;
  const std::int64_t whole = layers * (12 * h * h + 13 * h) + 2 * h + 1024 * h + 50304 * h;
  CHECK(total(megatron_model(model, 1)) == whole);
  const std::int64_t t = 4;
  const std::int64_t rank =
      layers * (12 * h * h / t + 7 * h / t + 6 * h) + 2 * h + 1024 * h + 50688 / t * h;
  CHECK(total(megatron_model(model, t)) == rank);
}

TEST_CASE("Stages share out a rank's parameters; the tied embedding is on both ends") {
  const Model model = megatron_model(model_of(kSmall), 2);
  REQUIRE(has_stages(model));
  std::int64_t sum = 0;
  for (std::int64_t stage = 0; stage < 4; ++stage) {
    const Model part = stage_of(model, {stage * 2, 2, stage == 0, stage == 3});
    sum += total(part);
    CHECK(named(part, "language_model.encoder.layers.3.mlp.dense_h_to_4h.weight") ==
          (stage == 1 ? 512 * 2048 / 2 : 0));
    const bool end = stage == 0 || stage == 3;
    CHECK((named(part, "language_model.embedding.word_embeddings.weight") > 0) == end);
    for (const Module& module : part.modules) {
      for (const int parameter : module.parameters) {
        CHECK(part.parameters[static_cast<std::size_t>(parameter)].name.starts_with(
            module.name == "lm_logits" ? "language_model.embedding" : module.name));
      }
    }
  }
  const std::int64_t word = named(model, "language_model.embedding.word_embeddings.weight");
  CHECK(sum == total(model) + word);
}

// Two all-reduces a layer forward, two backward, two more where a layer runs again; one behind the
// embedding and one before the head's product. Shoeybi et al. 2019, arXiv:1909.08053, section 3.
TEST_CASE("Layers add up their results over the ranks twice each way") {
  const Bytes hidden = Bytes::of(256LL * 2 * 512 * 2);
  const Bytes rows = Bytes::of(256LL * 2 * 4);  // of the loss, three times
  const ModelGraph whole = graph_of(planned(R"(,"tensor_parallel":4)"));
  CHECK(moved(whole, Pass::forward, OpKind::tensor_reduce) == hidden * (2 * 8 + 1) + rows * 3);
  CHECK(moved(whole, Pass::backward, OpKind::tensor_reduce) == hidden * (2 * 8 + 1));
  const ModelGraph again =
      graph_of(planned(R"(,"tensor_parallel":4,"activation_checkpointing":"full")"));
  CHECK(moved(again, Pass::recompute, OpKind::tensor_reduce) == hidden * (2 * 8));
  const ModelGraph alone = graph_of(planned(""));
  CHECK(moved(alone, Pass::forward, OpKind::tensor_reduce) == Bytes::zero());
}

TEST_CASE("Stages send hidden states on and gradients back, cut by the tensor ranks") {
  const Bytes hidden = Bytes::of(256LL * 2 * 512 * 2);
  const Plan plan = planned(R"(,"tensor_parallel":2,"pipeline_parallel":4)");
  for (std::int64_t stage = 0; stage < 4; ++stage) {
    const ModelGraph graph = graph_of(stage_plan(plan, stage));
    const std::int64_t ends = (stage > 0 ? 1 : 0) + (stage < 3 ? 1 : 0);
    CHECK(moved(graph, Pass::forward, OpKind::stage_transfer) == hidden * ends / 2);
    CHECK(moved(graph, Pass::backward, OpKind::stage_transfer) == hidden * ends / 2);
  }
}

TEST_CASE("One rank and one stage are the model itself") {
  const Plan plan = planned("");
  CHECK(total(*plan.model) == total(megatron_model(model_of(kSmall), 1)));
  CHECK(plan.stages.empty());
  CHECK(predict(plan).parameters_total == count_parameters(model_of(kSmall)).total);
}

TEST_CASE("Memory falls with the ranks that share a model") {
  const auto peak = [](const std::string& degrees) {
    return simulator::simulate(planned(degrees + R"(,"activation_checkpointing":"full")"))
        .gpu.peak_allocated;
  };
  CHECK(peak(R"(,"tensor_parallel":2)") < peak(""));
  CHECK(peak(R"(,"tensor_parallel":8)") < peak(R"(,"tensor_parallel":2)"));
  CHECK(peak(R"(,"pipeline_parallel":2)") < peak(""));
  CHECK(peak(R"(,"tensor_parallel":2,"pipeline_parallel":4)") < peak(R"(,"tensor_parallel":2)"));
}

TEST_CASE("Every group that a rank is in has NCCL's buffers, those within a node the larger") {
  const auto outside = [](const std::string& workload) {
    return at(predict(planned(workload), {}).gpu.breakdown_at_peak, MemoryCategory::cuda_context);
  };
  // All 32 ranks and the data-parallel ones; then those of a layer, twice: Megatron's
  // model-parallel group has them, too.
  const Bytes data = outside("");
  CHECK(outside(R"(,"tensor_parallel":4)") - data == Bytes::mib(1200));
  // Data-parallel ranks lie eight apart: one a node.
  CHECK(outside(R"(,"tensor_parallel":8)") - data == Bytes::mib(1200 - 600 + 200));
  // Four stages of a node each: the stages' group and two neighbours over the network.
  CHECK(outside(R"(,"pipeline_parallel":4)") - data == Bytes::mib(3 * 200));
}

TEST_CASE("A pipeline's step is no shorter than its busiest stage and no longer than all of them") {
  const StepTime step = predict(planned(R"(,"pipeline_parallel":8)")).step;
  CHECK(step.lower_bound <= step.total);
  CHECK(step.total <= step.upper_bound);
  // With more micro-batches the bubble is a smaller part: tokens a second grow.
  const auto speed = [](const char* steps) {
    return predict(planned(std::string(R"(,"pipeline_parallel":8,"gradient_accumulation_steps":)") +
                           steps))
        .step.tokens_per_second_per_gpu;
  };
  CHECK(speed("64") > speed("16"));
}

TEST_CASE("In flight are as many micro-batches as stages follow") {
  const Plan plan = planned(R"(,"pipeline_parallel":4)");
  CHECK(live_micro_batches(stage_plan(plan, 0)) == 4);
  CHECK(live_micro_batches(stage_plan(plan, 3)) == 1);
  CHECK(distinct_stages(plan) == std::vector<std::int64_t>{0, 1, 3});
  CHECK(representative_stage(plan, 2) == 1);
}

// pipe/engine.py _exec_backward_pass returns on the last stage before it empties the buffer.
TEST_CASE(
    "The last stage keeps the logits of two micro-batches, and of one where there is no more") {
  const Bytes logits = Bytes::of(2LL * 256 * 50304 * 4);
  CHECK(graph_of(planned("")).kept_outputs == logits * 2);
  CHECK(graph_of(planned(R"(,"gradient_accumulation_steps":1)")).kept_outputs == logits);
  const Plan plan = planned(R"(,"pipeline_parallel":4)");
  CHECK(graph_of(stage_plan(plan, 0)).kept_outputs == Bytes::zero());
  CHECK(graph_of(stage_plan(plan, 3)).kept_outputs == logits * 2);
  CHECK(graph_of(planned("", "3")).kept_outputs == Bytes::zero());
}

TEST_CASE(
    "Transformers' classes have pipelines too, whose stages make their own masks and tables") {
  const std::string text = R"({"model":"llama-2-7b","cluster":"1x8xA100-80G","workload":{
      "frontend":"native","sequence_length":256,"gradient_accumulation_steps":32,
      "attention":"eager","precision":"fp16","pipeline_parallel":8},
      "ds_config":{"fp16":{"enabled":true},"zero_optimization":{"stage":0}}})";
  const Plan plan = resolve(parse_scenario(parse_json(text, "s.json").root, "s.json"));
  Elements sum;
  for (std::int64_t stage = 0; stage < 8; ++stage) {
    const Plan one = stage_plan(plan, stage);
    sum += count_parameters(*one.model).total;
    const ModelGraph graph = graph_of(one);
    for (const SharedTensor& shared : graph.shared) {
      CHECK((shared.last_user < 0 || shared.producer == 0));
    }
  }
  CHECK(sum == count_parameters(*plan.whole_model).total);
  CHECK(simulator::simulate(plan).fits);
}

TEST_CASE("fit answers for the degrees that are given") {
  const Scenario scenario = scenario_of(kSmall, R"(,"tensor_parallel":2,"pipeline_parallel":4)");
  const tuner::FitAnswer answer = tuner::fit(scenario, {});
  REQUIRE(answer.recommended);
  for (const tuner::StrategyResult& strategy : answer.strategies) {
    CHECK(strategy.strategy.stage <= 1);
    CHECK(strategy.plan.degrees.data == 4);
  }
}

TEST_CASE("What Megatron and pipelines cannot do is refused") {
  CHECK(refusal(kSmall, R"(,"tensor_parallel":16)").find("8 attention heads") != std::string::npos);
  CHECK(refusal(kSmall, R"(,"pipeline_parallel":16)").find("at most 8 stages") !=
        std::string::npos);
  CHECK(refusal(kSmall, R"(,"pipeline_parallel":2)", "3").find("ZeRO stage 0 or 1") !=
        std::string::npos);
  CHECK(refusal(kSmall, R"(,"attention":"flash")").find("eager under megatron") !=
        std::string::npos);
  CHECK(refusal(R"("llama-2-7b")", "").find("gpt2 or bloom") != std::string::npos);
}
