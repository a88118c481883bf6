#include "model/implementations/implementations.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/check.hpp"
#include "base/diagnostic.hpp"
#include "model/graph/traced_graph.hpp"
#include "model/implementations/families.hpp"
#include "model/implementations/hf_chunk_scan.hpp"
#include "model/implementations/hf_delta_rule.hpp"
#include "model/implementations/hf_mamba_ssm.hpp"
#include "model/implementations/hf_tiled.hpp"
#include "model/implementations/traced.hpp"

namespace zeroplan {

namespace {

struct Family {
  std::string_view name;  // Model::implementation_family
  void (*build)(GraphAssembler&, const hf::Context&);
  void (*embedded)(GraphAssembler&, const hf::Context&) = nullptr;  // the embedded runtime's
};

constexpr std::array kFamilies = {
    Family{"llama", hf::build_llama, embedded::build_llama},
    Family{"decoder", hf::build_decoder},
    Family{"internlm2", hf::build_internlm2},
    Family{"gpt2", nullptr, embedded::build_gpt2},
    Family{"clipped_decoder", hf::build_decoder},
    Family{"bloom", nullptr, embedded::build_bloom},
    Family{"bert", nullptr, embedded::build_bert},
    Family{"glm", hf::build_glm},
    Family{"chatglm", hf::build_chatglm},
    Family{"mpt", nullptr},       // composer's code alone
    Family{"litgpt", nullptr},    // families/litgpt.hpp
    Family{"megatron", nullptr},  // families/megatron.hpp
};

// The forward pass of a family as an implementation writes it, or null.
using Build = void (*)(GraphAssembler&, const hf::Context&);
Build build_of(const Family& family, const GraphOptions& options) {
  if (options.embedded) return family.embedded;
  switch (options.implementation) {
    case Implementation::hf:
      return family.build;
    case Implementation::composer:
      return family.name == "mpt" ? composer::build_mpt : nullptr;
    case Implementation::fms:
      return family.name == "llama" ? fms::build_llama : nullptr;
    case Implementation::litgpt:
      return family.name == "litgpt" ? litgpt::build : nullptr;
    case Implementation::megatron:
      return family.name == "megatron" ? megatron::build : nullptr;
  }
  return nullptr;
}

[[noreturn]] void fail(const std::string& pointer, const Phrase& expected, const Phrase& got) {
  throw InputError(Diagnostic{"", pointer, expected, got, ""});
}

const Family& family_of(const Model& model) {
  for (const Family& family : kFamilies) {
    if (family.name == model.implementation_family) return family;
  }
  fail("/model", "a family with a description of its forward pass", model.implementation_family);
}

// The forward pass of one model, into the assembler.
void build_model(GraphAssembler& assembler, const Model& model, const GraphOptions& options) {
  const hf::Context context{model,
                            options,
                            options.micro_batch,
                            options.sequence_length / options.sequence_parallel,
                            options.attention};
  if (const TracedGraph* traced = traced_graph_of(model)) {
    return build_traced(assembler, context, *traced);
  }
  const Family& family = family_of(model);
  const Build build = build_of(family, options);
  if (build == nullptr && options.embedded) {
    fail("/workload/engine", "a model that the embedded runtime trains", model.model_type);
  }
  if (build == nullptr) {
    fail("/workload/implementation",
         phrase("an implementation that is modelled for {}", model.model_type),
         std::string(name(kImplementationNames, options.implementation)));
  }
  const bool values = options.scores.code == TokenScores::values;
  if (!model.shape.has_logits && !values) {
    fail(
        "/model", "a model with a vocabulary head", phrase("{}, not modelled", model.architecture));
  }
  if (options.checkpointing == ActivationCheckpointing::selective &&
      options.implementation != Implementation::fms && !options.embedded) {
    assembler.assume("selective checkpointing is not described for this code: none is applied.");
  }
  build(assembler, context);
}

// A value model's: adapters, checkpoints and fused losses are the policy's alone, and of its
// outputs the values alone outlive the forward pass.
GraphOptions value_options(const GraphOptions& options) {
  GraphOptions value = options;
  value.scores.code = TokenScores::values;
  value.lora.reset();
  value.weights = {};
  value.fused_loss = false;
  value.checkpointing = ActivationCheckpointing::none;
  value.outputs_held_in_backward = false;
  return value;
}

// PolicyAndValueWrapper.forward: the value model first, then the policy, whose loss reads the
// values.
ModelGraph build_two(const Model& model, const GraphOptions& options) {
  GraphAssembler assembler(model, options);
  if (options.part != ModelPart::policy) {
    const GraphOptions value = value_options(options);
    assembler.begin_part(std::string(kValuePrefix), value);
    build_model(assembler, *model.value_model, value);
  }
  if (options.part != ModelPart::value) {
    assembler.begin_part(std::string(kPolicyPrefix), options);
    build_model(assembler, *model.policy, options);
  }
  return assembler.take();
}

}  // namespace

LinearAttention kernels_of(const Model& model) {
  const TracedGraph* traced = traced_graph_of(model);
  const auto has = [&](std::string_view name) {
    return traced != nullptr && has_operation(*traced, name);
  };
  if (has(hf::kDeltaRule)) return LinearAttention::fla;
  return has(hf::kSplitScan) ? LinearAttention::mamba_ssm : LinearAttention::torch;
}

bool has_tiled_mlp(const Model& model) { return hf::has_gated_mlp(model); }

// transformers hands its attention interface whole heads, from which UlyssesSPAttentionHF exchanges
// them (runtime/sequence_parallel/ulysses_sp.py).
bool has_ulysses(const Model& model, Attention attention) {
  if (attention == Attention::eager) return false;
  const TracedGraph* traced = traced_graph_of(model);
  if (traced == nullptr) {
    const std::vector<LayerAttention>& layers = model.shape.layer_attention;
    const bool windows = std::any_of(
        layers.begin(), layers.end(), [](const LayerAttention& layer) { return layer.sliding; });
    // flash-attn has windows and softcaps itself, sdpa a mask of this rank's tokens.
    return model.implementation_family == "llama" || (model.implementation_family == "decoder" &&
                                                      (attention == Attention::flash || !windows));
  }
  const auto reads_other_tokens = [&](std::string_view name) {
    return has_operation(*traced, name);
  };
  constexpr std::array kOthers{
      hf::kDeltaRule, hf::kChunkScan, hf::kSplitScan, std::string_view("convolution")};
  if (model.shape.encoder_layers > 0 ||
      std::any_of(kOthers.begin(), kOthers.end(), reads_other_tokens)) {
    return false;
  }
  bool attends = false;
  for (const TracedBlock& block : traced->blocks) {
    for (const TracedEvent& event : block.events) {
      const bool is_sdpa = event.name == "scaled_dot_product_attention";
      if (is_sdpa && event.in.size() > 3 && event.in[3].kind != TracedOperand::Kind::none) {
        return false;  // a mask of this rank's tokens alone
      }
      attends = attends || is_sdpa || event.name == "flash_attention";
    }
  }
  return attends;
}

ModelGraph build_graph(const Model& model, const GraphOptions& options) {
  if (!model.planned)
    fail("/model", "a model whose operations are known", model.not_planned_reason);
  if (model.policy != nullptr) return build_two(model, options);
  GraphAssembler assembler(model, options);
  build_model(assembler, model, options);
  return assembler.take();
}

}  // namespace zeroplan
