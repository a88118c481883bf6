// A model as Megatron-DeepSpeed's GPT holds it on one rank of tensor parallelism: the vocabulary
// padded, column-parallel layers cut by their outputs, row-parallel ones by their inputs, norms and
// the biases behind a reduction whole on every rank.
//
// Sources (bigscience-workshop/Megatron-DeepSpeed, the fork of microsoft's): megatron/model/
// gpt_model.py, language_model.py Embedding, transformer.py ParallelTransformerLayer,
// ParallelAttention, ParallelMLP; megatron/mpu/layers.py VocabParallelEmbedding,
// ColumnParallelLinear, RowParallelLinear; megatron/tokenizer/tokenizer.py
// _vocab_size_with_padding.
#pragma once

#include <cstdint>
#include <string>

#include "base/phrase.hpp"
#include "model/transformer.hpp"

namespace zeroplan {

// --make-vocab-size-divisible-by, by default.
inline constexpr std::int64_t kMegatronVocabularyMultiple = 128;
// --attention-dropout and --hidden-dropout, by default (megatron/arguments.py).
inline constexpr double kMegatronDropout = 0.1;

// v rounded up to a multiple of 128 r, r ranks of tensor parallelism.
std::int64_t megatron_vocabulary(std::int64_t vocabulary, std::int64_t tensor_ranks);

// Whether its GPT is this model: GPT-2's and BLOOM's shape, pre-norm with LayerNorm, biases and
// tied embeddings, learned positions or ALiBi.
bool megatron_has(const Model& model);

// The parameters of one of `tensor_ranks` ranks, all layers, in the modules of GPTModel. The shape
// stays that of the whole model, with the padded vocabulary and Megatron's dropout.
// Preconditions: megatron_has(model), uneven_shares(...) is empty.
Model megatron_model(const Model& model, std::int64_t tensor_ranks);

}  // namespace zeroplan
