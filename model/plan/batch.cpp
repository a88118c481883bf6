#include "model/plan/batch.hpp"

#include <algorithm>
#include <bit>

#include "base/diagnostic.hpp"

namespace zeroplan {
namespace {

// Beyond it a micro-batch is no faster: its kernels fill the GPU long before.
constexpr std::int64_t kMostSearched = 256;

std::int64_t usual_batch(std::int64_t sequence_length) {
  return std::clamp(
      kMostUsualTokens / std::max<std::int64_t>(1, sequence_length), std::int64_t{1}, kUsualBatch);
}

// `share` sequences of a rank, by micro-batches that divide it.
std::vector<BatchSizes> divisions(std::int64_t share) {
  std::vector<BatchSizes> sizes;
  for (std::int64_t micro = 1; micro <= std::min(share, kMostSearched); ++micro) {
    if (share % micro == 0) sizes.push_back({micro, share / micro});
  }
  return sizes;
}

Phrase assumed(std::int64_t batch, std::int64_t ranks) {
  return Phrase(std::to_string(batch)) + (batch == 1 ? " sequence" : " sequences") + " a step (" +
         std::to_string(batch / ranks) + " for each of " + std::to_string(ranks) +
         " data-parallel ranks): assumed, about what fine-tuning uses; --global-batch says "
         "otherwise";
}

// Precondition: the ranks can share it.
BatchChoices of_global(const SaidBatch& said, std::int64_t ranks) {
  const std::int64_t share = *said.global / ranks;
  BatchChoices choices;
  for (const BatchSizes& sizes : divisions(share)) {
    const bool micro = !said.micro_batch || sizes.micro_batch == *said.micro_batch;
    const bool steps = !said.accumulation || sizes.accumulation == *said.accumulation;
    if (micro && steps) choices.sizes.push_back(sizes);
  }
  if (choices.sizes.empty()) {  // a micro-batch beyond those that are searched
    const std::int64_t micro =
        said.micro_batch.value_or(share / std::max<std::int64_t>(1, said.accumulation.value_or(1)));
    choices.sizes.push_back({std::max<std::int64_t>(1, micro),
                             std::max<std::int64_t>(1, share / std::max<std::int64_t>(1, micro))});
  }
  return choices;
}

}  // namespace

SaidBatch said_batch(const Scenario& scenario, const DsConfig* file) {
  const auto said = [&](ScenarioKey key, Knob knob) -> std::optional<std::int64_t> {
    if (const ExplicitValue* value = scenario.find(key)) return value->value.as_integer();
    return file != nullptr ? file->integer(knob) : std::nullopt;
  };
  return {said(ScenarioKey::micro_batch_size, Knob::train_micro_batch_size_per_gpu),
          said(ScenarioKey::gradient_accumulation_steps, Knob::gradient_accumulation_steps),
          said(ScenarioKey::global_batch_size, Knob::train_batch_size)};
}

std::int64_t usual_share(std::int64_t ranks, std::int64_t sequence_length) {
  const std::int64_t batch = usual_batch(sequence_length);
  if (batch <= ranks) return 1;
  const auto below =
      static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(batch / ranks)));
  // Nearest by ratio: 2 * below where batch / ranks is beyond below * sqrt(2).
  const bool up = static_cast<double>(batch) * static_cast<double>(batch) >
                  2.0 * static_cast<double>(below * ranks) * static_cast<double>(below * ranks);
  return up ? 2 * below : below;
}

BatchChoices batch_choices(const SaidBatch& said,
                           std::int64_t ranks,
                           std::int64_t sequence_length) {
  if (said.global && *said.global % ranks != 0) {
    const std::int64_t below = *said.global / ranks * ranks;
    throw InputError(
        {"command line",
         "--global-batch-size",
         phrase("a multiple of the {} data-parallel ranks", ranks),
         std::to_string(*said.global),
         below > 0 ? phrase("{} or {}", below, below + ranks) : Phrase(std::to_string(ranks))});
  }
  if (said.global) return of_global(said, ranks);
  if (said.micro_batch && said.accumulation) return {{{*said.micro_batch, *said.accumulation}}, ""};
  const std::int64_t share = usual_share(ranks, sequence_length);
  BatchChoices choices;
  if (said.micro_batch) {
    const std::int64_t micro = *said.micro_batch;
    choices.sizes = {{micro, std::max<std::int64_t>(1, (share + micro / 2) / micro)}};
  } else if (said.accumulation) {
    const std::int64_t steps = *said.accumulation;
    for (std::int64_t micro = 1; micro == 1 || micro * steps <= share; micro *= 2) {
      choices.sizes.push_back({micro, steps});
    }
    choices.assumption = phrase(
        "at most {} sequences a step: assumed, about what fine-tuning uses; --global-batch says "
        "otherwise",
        choices.sizes.back().micro_batch * steps * ranks);
    return choices;
  } else {
    choices.sizes = divisions(share);
  }
  const BatchSizes& first = choices.sizes.front();
  choices.assumption = assumed(first.micro_batch * first.accumulation * ranks, ranks);
  return choices;
}

BatchChoices without_accumulation(const BatchChoices& choices, std::int64_t ranks) {
  BatchChoices steps = choices;
  for (BatchSizes& sizes : steps.sizes) sizes.accumulation = 1;
  steps.assumption = phrase(
      "micro-batches without accumulation ({} sequences a step and more), because nothing fits "
      "that sums gradients over several: assumed; --global-batch says otherwise",
      steps.sizes.front().micro_batch * ranks);
  return steps;
}

}  // namespace zeroplan
