#include "model/predict/job_time.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "model/predict/step_time.hpp"
#include "model/releases.hpp"

namespace zeroplan {
namespace {

// Expected longest of b exponential lengths of scale l, cut at S (Simpson's rule; beyond 40 l
// nothing is left).
double cut_exponential(double scale, double longest, double samples) {
  constexpr int kPieces = 512;
  const double end = std::min(longest, 40.0 * scale);
  const double step = end / kPieces;
  const auto above = [&](double x) { return 1.0 - std::pow(-std::expm1(-x / scale), samples); };
  double sum = above(0.0) + above(end);
  for (int i = 1; i < kPieces; ++i) sum += (i % 2 == 0 ? 2.0 : 4.0) * above(step * i);
  return sum * step / 3.0;
}

// The scale whose cut lengths have that mean: E[min(x, S)] = l (1 - exp(-S / l)).
double scale_of(double mean, double longest) {
  double low = mean;
  double high = 1e6 * longest;
  for (int i = 0; i < 80; ++i) {
    const double middle = std::sqrt(low * high);
    const double got = -middle * std::expm1(-longest / middle);
    (got < mean ? low : high) = middle;
  }
  return std::sqrt(low * high);
}

std::int64_t whole(double value) { return static_cast<std::int64_t>(value); }

// Sequences of one epoch.
double sequences(const Plan& plan) {
  const Dataset& dataset = *plan.workload.dataset;
  const double samples = static_cast<double>(dataset.samples);
  if (dataset.padding != Padding::packed || !dataset.mean_tokens) return samples;
  return std::ceil(samples * *dataset.mean_tokens /
                   static_cast<double>(plan.workload.sequence_length));
}

double padded_length(const Plan& plan) {
  const Workload& workload = plan.workload;
  const double longest = static_cast<double>(workload.sequence_length);
  const Dataset& dataset = *workload.dataset;
  if (dataset.padding != Padding::longest || !dataset.mean_tokens) return longest;
  return expected_longest(*dataset.mean_tokens, longest, workload.micro_batch_size);
}

// A step whose sequences have that length. The slowest rank of a micro-step decides; lengths of
// other ranks are left out.
Seconds step_of_length(const Plan& plan, double length) {
  Plan shorter = plan;
  shorter.workload.dataset.reset();
  shorter.workload.sequence_length = std::max<std::int64_t>(1, std::llround(length));
  if (!shorter.stages.empty()) return pipeline_time(shorter, stage_works(shorter)).total;
  const StepWork work = step_work(shorter);
  return step_time(shorter, work.graph, step_traffic(shorter, work)).total;
}

std::string padding_sentence(const Plan& plan, const JobTime& job) {
  const Dataset& dataset = *plan.workload.dataset;
  const std::int64_t longest = plan.workload.sequence_length;
  switch (dataset.padding) {
    case Padding::longest:
      return fmt::format(
          "job: micro-batches are padded to their longest sample, {:.0f} tokens on average; "
          "lengths "
          "exponential with mean {:.0f} up to {}",
          job.padded_length,
          *dataset.mean_tokens,
          longest);
    case Padding::max:
      return fmt::format("job: every sample is padded to {} tokens", longest);
    case Padding::packed:
      return fmt::format("job: samples of {:.0f} tokens on average are packed into sequences of {}",
                         *dataset.mean_tokens,
                         longest);
  }
  return "";
}

}  // namespace

double expected_longest(double mean, double longest, std::int64_t samples) {
  if (mean >= longest) return longest;
  const double b = static_cast<double>(std::max<std::int64_t>(1, samples));
  return cut_exponential(scale_of(mean, longest), longest, b);
}

std::int64_t job_steps(const Plan& plan) {
  const Workload& workload = plan.workload;
  const double ranks = static_cast<double>(plan.degrees.data);
  const double per_rank = std::ceil(sequences(plan) / ranks);
  const double batches = std::ceil(per_rank / static_cast<double>(workload.micro_batch_size));
  const double G = static_cast<double>(workload.gradient_accumulation_steps);
  const double epochs = workload.dataset->epochs;
  if (workload.frontend == Frontend::native) {
    return std::max<std::int64_t>(1, whole(std::floor(epochs * batches / G)));
  }
  const double an_epoch = plan.software.transformers_act(ReleaseRule::rounds_steps_up)
                              ? std::ceil(batches / G)
                              : std::floor(batches / G);
  return std::max<std::int64_t>(1, whole(std::ceil(epochs * std::max(1.0, an_epoch))));
}

std::optional<JobTime> job_time(const Plan& plan, Seconds full_step) {
  if (!plan.workload.dataset || plan.workload.dataset->samples == 0) return std::nullopt;
  const Dataset& dataset = *plan.workload.dataset;
  JobTime job;
  job.steps = job_steps(plan);
  job.padded_length = padded_length(plan);
  const double longest = static_cast<double>(plan.workload.sequence_length);
  const bool shorter = job.padded_length < longest - 0.5;
  const Seconds step = shorter ? step_of_length(plan, job.padded_length) : full_step;
  job.seconds = step * static_cast<double>(job.steps);
  if (dataset.mean_tokens || dataset.padding == Padding::max) {
    job.assumptions.push_back(padding_sentence(plan, job));
  } else {
    job.assumptions.push_back(fmt::format(
        "job: every sample has {:.0f} tokens, because mean_tokens is not said", longest));
  }
  job.assumptions.push_back(
      "job: steps alone; evaluation, checkpoints and starting up are not counted");
  return job;
}

}  // namespace zeroplan
