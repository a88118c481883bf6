// [M3] Micro-batches that are padded to their longest sample have different lengths. PyTorch's
// allocator keeps the blocks that each length asked for, and the longest finds them too small: a
// run whose lengths vary reserves more than one whose micro-batches are all as long as the longest.
#pragma once

#include <cstdint>
#include <vector>

#include "model/graph/graph.hpp"
#include "model/plan/plan.hpp"

namespace zeroplan {

// Lengths of the micro-batches that are taken to come before the longest, in tokens, by the steps
// that they belong to and in their order: of those of padded_lengths() (sample_lengths.hpp) the
// ones that are longer or shorter than all before them, and with them the last of their step. A
// step of more micro-batches repeats the last but one. Empty where all are as long as the longest:
// nobody told lengths, or samples are packed or padded to the longest of all. Pipelines and the
// embedded runtime take micro-batches of one length.
std::vector<std::vector<std::int64_t>> varied_lengths(const Plan& plan);

// What a micro-batch of each of these lengths does, in the same order. Its instances are those of
// `longest`, the plan's own graph; a length whose graph has others (tiles of a sequence) is left
// out. Throws InputError where a graph cannot be built.
using VariedGraphs = std::vector<std::vector<ModelGraph>>;
VariedGraphs varied_graphs(const Plan& plan, const ModelGraph& longest);

}  // namespace zeroplan
