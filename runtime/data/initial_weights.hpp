// Weights at the start: a function of seed, parameter and place in it, so that every ZeRO stage and
// every number of ranks starts from the same model, and a rank makes its own part alone.
#pragma once

#include <cstdint>
#include <span>

#include "base/units.hpp"
#include "model/transformer.hpp"

namespace zeroplan::runtime {

// Fills values with elements [first, first + size) of the parameter: vectors named bias are 0,
// other vectors (norms) 1, everything else is drawn from N(0, 0.02).
// Source: transformers' initializer_range, 0.02 in LLaMA, GPT-2, BLOOM and BERT.
void initial_weights(const Parameter& parameter,
                     std::uint64_t seed,
                     Elements first,
                     std::span<float> values);

// A number from 0 to 2^64 - 1 that looks random: splitmix64 (Steele, Lea, Flood 2014).
constexpr std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

}  // namespace zeroplan::runtime
