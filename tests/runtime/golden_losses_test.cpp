// The embedded runtime's blocks and kernels against PyTorch: gradients of the first step and the
// losses of 20 steps of AdamW, as tests/reference/record_losses.py recorded them.
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>

#include "base/json.hpp"
#include "model/families/hf_config.hpp"
#include "model/implementations/implementations.hpp"
#include "tests/catch.hpp"
#include "tests/runtime/graph_runner.hpp"

namespace zeroplan {
namespace {

using testing::GraphRunner;

constexpr int kThreads = 2;

const Json& recorded() {
  static const Json document =
      read_json_file(ZEROPLAN_SOURCE_DIR "/tests/reference/losses.json").root;
  return document;
}

const Json& member(const Json& object, const char* key) {
  const Json* found = object.find(key);
  REQUIRE(found != nullptr);
  return *found;
}

float* floats(GraphRunner::Buffer& buffer) { return reinterpret_cast<float*>(buffer.data()); }
const float* floats(std::span<const std::byte> buffer) {
  return reinterpret_cast<const float*>(buffer.data());
}

// A model with its weights and AdamW's states, on one rank.
class Trainer {
 public:
  // fused_rows: of a chunk of a fused loss; 0: the loss is not fused.
  Trainer(const std::string& name,
          ActivationCheckpointing checkpointing,
          int threads = kThreads,
          std::int64_t fused_rows = 0)
      : json_(member(member(recorded(), "models"), name.c_str())),
        model_(read_model(member(json_, "config"), "losses.json", "", {.embedded = true})),
        kernels_(runtime::cpu_kernels(threads)) {
    sizes_.batch = member(recorded(), "batch").as_integer();
    sizes_.sequence = member(recorded(), "sequence").as_integer();
    sizes_.vocabulary = model_.shape.vocabulary;
    sizes_.masked_language_model = model_.architecture.ends_with("ForMaskedLM");
    sizes_.mask_token = member(recorded(), "mask_token").as_integer();
    GraphOptions options;
    options.micro_batch = sizes_.batch;
    options.sequence_length = sizes_.sequence;
    options.dtype = DType::fp32;
    options.embedded = true;
    options.checkpointing = checkpointing;
    options.fused_loss = fused_rows > 0;
    options.loss_rows = fused_rows;
    graph_ = build_graph(model_, options);
    for (const Parameter& parameter : model_.parameters) {
      const std::vector<float> values = testing::hashed_weights(parameter);
      GraphRunner::Buffer bytes(values.size() * sizeof(float));
      std::memcpy(bytes.data(), values.data(), bytes.size());
      weights_.push_back(std::move(bytes));
      moments_.emplace_back(values.size());
    }
    runner_ = std::make_unique<GraphRunner>(graph_, *kernels_, weights_);
  }

  float forward_and_backward(int step) {
    testing::TokenBatch batch = testing::hashed_batch(step % 2, sizes_);
    return runner_->run(batch);
  }

  // torch.optim.AdamW (_single_tensor_adamw).
  void update(int step) {
    const double rate = member(recorded(), "learning_rate").as_number();
    const double decay = member(recorded(), "weight_decay").as_number();
    const double first = 1.0 - std::pow(0.9, step + 1);
    const double second = 1.0 - std::pow(0.999, step + 1);
    for (std::size_t p = 0; p < weights_.size(); ++p) {
      float* weight = floats(weights_[p]);
      const float* gradient = floats(runner_->gradient(static_cast<std::int32_t>(p)));
      for (std::size_t i = 0; i < moments_[p].size(); ++i) {
        auto& [m, v] = moments_[p][i];
        const double g = static_cast<double>(gradient[i]);
        m = static_cast<float>(0.9 * static_cast<double>(m) + 0.1 * g);
        v = static_cast<float>(0.999 * static_cast<double>(v) + 0.001 * g * g);
        const double decayed = static_cast<double>(weight[i]) * (1.0 - rate * decay);
        const double size = std::sqrt(static_cast<double>(v)) / std::sqrt(second) + 1e-8;
        weight[i] = static_cast<float>(decayed - rate / first * static_cast<double>(m) / size);
      }
    }
  }

  const Json& json() const { return json_; }
  const Model& model() const { return model_; }
  const GraphRunner& runner() const { return *runner_; }

 private:
  const Json& json_;
  Model model_;
  std::unique_ptr<runtime::Kernels> kernels_;
  testing::BatchSizes sizes_;
  ModelGraph graph_;
  std::vector<GraphRunner::Buffer> weights_;
  std::vector<std::vector<std::array<float, 2>>> moments_;
  std::unique_ptr<GraphRunner> runner_;
};

void check_gradients(const Trainer& trainer) {
  const Json& gradients = member(trainer.json(), "gradients");
  for (std::size_t p = 0; p < trainer.model().parameters.size(); ++p) {
    const Parameter& parameter = trainer.model().parameters[p];
    INFO(parameter.name);
    const Json& expected = member(gradients, parameter.name.c_str());
    const float* gradient = floats(trainer.runner().gradient(static_cast<std::int32_t>(p)));
    double square = 0.0;
    for (std::int64_t i = 0; i < parameter.numel.count(); ++i) {
      square += static_cast<double>(gradient[i]) * static_cast<double>(gradient[i]);
    }
    const double norm = member(expected, "norm").as_number();
    // A bias of keys moves all scores of a query alike: its gradient is rounding.
    const double size = std::max(norm, 1e-4);
    CHECK(std::abs(std::sqrt(square) - norm) < 1e-4 * size);
    const double typical = size / std::sqrt(static_cast<double>(parameter.numel.count()));
    for (const Json& entry : member(expected, "entries").items()) {
      const std::int64_t i = entry.items()[0].as_integer();
      const double value = entry.items()[1].as_number();
      CHECK(std::abs(static_cast<double>(gradient[i]) - value) <
            1e-4 * std::max(std::abs(value), typical));
    }
  }
}

void check_losses(Trainer& trainer) {
  const std::vector<Json>& losses = member(trainer.json(), "losses").items();
  for (int step = 0; step < static_cast<int>(losses.size()); ++step) {
    INFO("step " << step);
    const double loss = static_cast<double>(trainer.forward_and_backward(step));
    if (step == 0) check_gradients(trainer);
    CHECK(loss == Approx(losses[static_cast<std::size_t>(step)].as_number()).epsilon(2e-5));
    trainer.update(step);
  }
  CHECK(trainer.runner().alive() == trainer.model().parameters.size());
}

TEST_CASE("LLaMA trains as in PyTorch: gradients and twenty losses") {
  Trainer trainer("llama", ActivationCheckpointing::none);
  check_losses(trainer);
}

TEST_CASE("LLaMA with tied embeddings, biases and one key head trains as in PyTorch") {
  Trainer trainer("llama_tied", ActivationCheckpointing::none);
  check_losses(trainer);
}

TEST_CASE("GPT-2 trains as in PyTorch") {
  Trainer trainer("gpt2", ActivationCheckpointing::none);
  check_losses(trainer);
}

TEST_CASE("BLOOM with a number of heads that is no power of two trains as in PyTorch") {
  Trainer trainer("bloom", ActivationCheckpointing::none);
  check_losses(trainer);
}

TEST_CASE("BERT's masked language model trains as in PyTorch") {
  Trainer trainer("bert", ActivationCheckpointing::none);
  check_losses(trainer);
}

TEST_CASE("A fused loss trains as in PyTorch, by chunks of any size") {
  const std::string name =
      GENERATE(as<std::string>(), "llama", "llama_tied", "gpt2", "bloom", "bert");
  const std::int64_t rows = GENERATE(7, 1, 1000);  // some and a rest, one, all
  INFO(name << ", chunks of " << rows << " rows");
  Trainer trainer(name, ActivationCheckpointing::full, kThreads, rows);
  check_losses(trainer);
}

TEST_CASE("Checkpointing changes no bit of the loss or of a gradient, and needs less memory") {
  const std::string name =
      GENERATE(as<std::string>(), "llama", "llama_tied", "gpt2", "bloom", "bert");
  INFO(name);
  Trainer plain(name, ActivationCheckpointing::none);
  const float loss = plain.forward_and_backward(0);
  Bytes before = plain.runner().peak();
  for (const ActivationCheckpointing checkpointing :
       {ActivationCheckpointing::selective, ActivationCheckpointing::full}) {
    Trainer trainer(name, checkpointing);
    CHECK(trainer.forward_and_backward(0) == loss);
    CHECK(trainer.runner().peak() < before);
    before = trainer.runner().peak();
    for (std::int32_t p = 0; p < static_cast<std::int32_t>(plain.model().parameters.size()); ++p) {
      const auto a = plain.runner().gradient(p);
      const auto b = trainer.runner().gradient(p);
      CHECK(std::memcmp(a.data(), b.data(), a.size()) == 0);
    }
  }
}

TEST_CASE("The same bits come out for any number of threads") {
  Trainer one("llama", ActivationCheckpointing::none, 1);
  Trainer three("llama", ActivationCheckpointing::none, 3);
  CHECK(one.forward_and_backward(0) == three.forward_and_backward(0));
  for (std::int32_t p = 0; p < static_cast<std::int32_t>(one.model().parameters.size()); ++p) {
    const auto a = one.runner().gradient(p);
    const auto b = three.runner().gradient(p);
    CHECK(std::memcmp(a.data(), b.data(), a.size()) == 0);
  }
}

}  // namespace
}  // namespace zeroplan
