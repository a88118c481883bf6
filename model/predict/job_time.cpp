#include "model/predict/job_time.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "model/plan/trainer.hpp"
#include "model/predict/checkpoint.hpp"
#include "model/predict/inference_time.hpp"
#include "model/predict/run_phases.hpp"
#include "model/predict/step_time.hpp"
#include "model/releases.hpp"
#include "model/step/sample_lengths.hpp"

namespace zeroplan {
namespace {

std::int64_t whole(double value) { return static_cast<std::int64_t>(value); }

// Tokens of a sample as it is: what is packed is neither padded nor cut.
double mean_tokens(const Dataset& dataset) {
  if (dataset.lengths.empty()) return *dataset.mean_tokens;
  const double sum = std::accumulate(dataset.lengths.begin(), dataset.lengths.end(), 0.0);
  return sum / static_cast<double>(dataset.lengths.size());
}

// Sequences of one epoch.
double sequences(const Plan& plan) {
  const Dataset& dataset = *plan.workload.dataset;
  const double samples = static_cast<double>(dataset.samples);
  if (dataset.padding != Padding::packed || !dataset.tells_lengths()) return samples;
  return std::ceil(samples * mean_tokens(dataset) /
                   static_cast<double>(plan.workload.sequence_length));
}

double padded_length(const Plan& plan) {
  const Workload& workload = plan.workload;
  const Dataset& dataset = *workload.dataset;
  if (dataset.padding != Padding::longest || !dataset.tells_lengths()) {
    return static_cast<double>(workload.sequence_length);
  }
  return SampleLengths(dataset, workload.sequence_length)
      .expected_longest(workload.micro_batch_size);
}

// The slowest rank of a micro-step decides; lengths of other ranks are left out.
Seconds step_of(const Plan& shorter) {
  if (!shorter.stages.empty()) return pipeline_time(shorter, stage_works(shorter)).total;
  const StepWork work = step_work(shorter);
  return step_time(shorter, work.graph, step_traffic(shorter, work)).total;
}

// Of the tokens that are computed, those that only fill a sequence up.
std::optional<double> padding_share(const Plan& plan, double padded) {
  const Dataset& dataset = *plan.workload.dataset;
  if (!dataset.tells_lengths()) return std::nullopt;
  if (dataset.padding == Padding::packed) return 0.0;
  const double filled = SampleLengths(dataset, plan.workload.sequence_length).mean();
  return std::max(0.0, 1.0 - filled / padded);
}

std::optional<double> longer_share(const Plan& plan) {
  const std::vector<std::int64_t>& lengths = plan.workload.dataset->lengths;  // ascending
  if (lengths.empty()) return std::nullopt;
  const auto first =
      std::upper_bound(lengths.begin(), lengths.end(), plan.workload.sequence_length);
  return static_cast<double>(lengths.end() - first) / static_cast<double>(lengths.size());
}

Phrase lengths_in_words(const Plan& plan) {
  const Dataset& dataset = *plan.workload.dataset;
  const std::int64_t longest = plan.workload.sequence_length;
  if (!dataset.lengths.empty()) {
    return phrase("{} lengths were given", dataset.lengths.size());
  }
  if (dataset.tokens_sd) {
    return phrase("lengths lognormal with mean {:.0f} and standard deviation {:.0f} up to {}",
                  *dataset.mean_tokens,
                  *dataset.tokens_sd,
                  longest);
  }
  return phrase("lengths exponential with mean {:.0f} up to {}", *dataset.mean_tokens, longest);
}

Phrase padding_sentence(const Plan& plan, const JobTime& job) {
  const Dataset& dataset = *plan.workload.dataset;
  switch (dataset.padding) {
    case Padding::longest:
      return phrase(
          "job: micro-batches are padded to their longest sample, {:.0f} tokens on average; {}",
          job.padded_length,
          lengths_in_words(plan));
    case Padding::max:
      return phrase("job: every sample is padded to {} tokens", plan.workload.sequence_length);
    case Padding::packed:
      return phrase("job: samples of {:.0f} tokens on average are packed into sequences of {}",
                    mean_tokens(dataset),
                    plan.workload.sequence_length);
  }
  return "";
}

// --- [J3] beside the steps

Seconds dataloader_seconds(const Plan& plan, const JobTime& job, Seconds step) {
  const Coefficients& c = plan.coefficients;
  const Workload& workload = plan.workload;
  const double tokens = static_cast<double>(workload.micro_batch_size) * job.padded_length;
  const double batch =
      c[Coefficient::dataloader_batch_seconds] + c[Coefficient::dataloader_token_seconds] * tokens;
  const double batches =
      static_cast<double>(workload.gradient_accumulation_steps) * static_cast<double>(job.steps);
  const std::int64_t workers = plan.loop.dataloader_workers.value_or(0);
  if (workers == 0) return Seconds::of(batch * batches);
  const double slower = batch * batches / static_cast<double>(workers) -
                        step.seconds() * static_cast<double>(job.steps);
  return Seconds::of(std::max(0.0, slower));
}

void add_saving(const Plan& plan,
                const JobQuestion& question,
                double checkpoints,
                JobTime& job,
                std::vector<Phrase>& sentences) {
  if (checkpoints == 0.0) return;
  const auto made =
      predict_checkpoint(plan, CheckpointOptions{.bandwidth = question.checkpoint_bandwidth});
  if (!made) {
    sentences.push_back(phrase(
        "job: saving {} times is not counted, because checkpoints of this engine are not planned",
        whole(checkpoints)));
  } else if (!made->saving.seconds) {
    sentences.push_back(
        phrase("job: saving {} times is not counted, because nobody said what the folder's "
               "storage takes a "
               "second (--checkpoint-bandwidth)",
               whole(checkpoints)));
  } else {
    job[JobPart::saving] = *made->saving.seconds * checkpoints;
  }
}

void add_evaluation(const Plan& plan,
                    double evaluations,
                    JobTime& job,
                    std::vector<Phrase>& sentences) {
  if (plan.evaluation == nullptr || evaluations == 0.0) return;
  if (plan.evaluation->samples == 0) {
    sentences.push_back(phrase(
        "job: evaluating {} times is not counted, because the evaluation's samples are not said",
        whole(evaluations)));
    return;
  }
  const std::int64_t batches =
      ceil_div(plan.evaluation->samples, plan.evaluation->batch_size * plan.degrees.data);
  job[JobPart::evaluation] =
      inference_seconds(evaluation_plan(plan)) * (evaluations * static_cast<double>(batches));
}

// --- [J4] failures

// The time of `work` where failures come at random, one in `mean` on the average, with a
// checkpoint after each `interval` of work: infinite where so much work is hardly ever done.
double seconds_with_failures(double work, double interval, double checkpoint, double mean) {
  constexpr double kHardlyEver = 50.0;
  const double between = (interval + checkpoint) / mean;
  if (between > kHardlyEver) return std::numeric_limits<double>::infinity();
  return mean * std::exp(checkpoint / mean) * std::expm1(between) * work / interval;
}

// The interval with which least is lost.
double best_interval(double checkpoint, double mean) {
  if (checkpoint >= 2.0 * mean) return mean;
  const double ratio = checkpoint / (2.0 * mean);
  return std::sqrt(2.0 * checkpoint * mean) * (1.0 + std::sqrt(ratio) / 3.0 + ratio / 9.0) -
         checkpoint;
}

void add_failures(const Plan& plan,
                  double checkpoints,
                  JobTime& job,
                  std::vector<Phrase>& sentences) {
  constexpr double kSecondsInAnHour = 3600.0;
  if (!plan.loop.mtbf) return;
  const double saving = job[JobPart::saving].seconds();
  if (checkpoints == 0.0 || saving == 0.0) {
    sentences.emplace_back(
        "job: failures are not counted, because nothing that is counted saves the run");
    return;
  }
  const double nodes = static_cast<double>(plan.cluster.nodes);
  const double mean = static_cast<double>(*plan.loop.mtbf) * kSecondsInAnHour / nodes;
  const double work = job.seconds().seconds() - saving;
  const double checkpoint = saving / checkpoints;
  const double now = seconds_with_failures(work, work / checkpoints, checkpoint, mean);
  const double step = work / static_cast<double>(job.steps);
  const std::int64_t best_steps =
      std::clamp<std::int64_t>(std::llround(best_interval(checkpoint, mean) / step), 1, job.steps);
  const double best =
      seconds_with_failures(work, static_cast<double>(best_steps) * step, checkpoint, mean);
  const auto lost = [&](double seconds) { return 100.0 * (1.0 - work / seconds); };
  if (!std::isfinite(now)) {
    sentences.push_back(
        phrase("job: failures are not counted: with one in {:.2g} hours the work between two "
               "checkpoints is hardly ever done; save_steps {} loses {:.1f} % of the time",
               mean / kSecondsInAnHour,
               best_steps,
               lost(best)));
    return;
  }
  job[JobPart::failures] = Seconds::of(std::max(0.0, now - work - saving));
  sentences.push_back(phrase(
      "job: one failure in {:.3g} hours: checkpoints and failures take {:.1f} % of the time, "
      "with save_steps {} {:.1f} %; work since the last checkpoint is done again, and "
      "reading one takes as long as saving it",
      mean / kSecondsInAnHour,
      lost(now),
      best_steps,
      lost(best)));
}

// `step`: the mean one.
void add_beside_steps(const Plan& plan,
                      const JobQuestion& question,
                      Seconds step,
                      JobTime& job,
                      std::vector<Phrase>& sentences) {
  const TrainingLoop& loop = plan.loop;
  const double epochs = plan.workload.dataset->epochs;
  // A loop of the user's own saves when it says; the Trainer after its last step, too.
  const bool at_the_end = plan.workload.frontend == Frontend::hf_trainer;
  const auto often = [&](const std::optional<Every>& every) {
    return every ? static_cast<double>(times(*every, job.steps, epochs, at_the_end)) : 0.0;
  };
  if (loop.dataloader_workers) {
    job[JobPart::dataloader] = dataloader_seconds(plan, job, step);
  } else {
    sentences.emplace_back("job: making batches is not counted (--dataloader-num-workers)");
  }
  if (loop.log) {
    job[JobPart::logging] =
        Seconds::of(plan.coefficients[Coefficient::log_line_seconds]) * often(loop.log);
  }
  if (!loop.save) sentences.emplace_back("job: saving is not counted (--save-steps)");
  add_saving(plan, question, often(loop.save), job, sentences);
  add_evaluation(plan, often(loop.evaluate), job, sentences);
  add_failures(plan, often(loop.save), job, sentences);
  sentences.emplace_back("job: starting up is not counted");
}

}  // namespace

std::optional<Plan> mean_step_plan(const Plan& plan) {
  if (!plan.workload.dataset) return std::nullopt;
  const double length = padded_length(plan);
  if (length >= static_cast<double>(plan.workload.sequence_length) - 0.5) return std::nullopt;
  Plan shorter = plan;
  shorter.workload.dataset.reset();
  shorter.workload.sequence_length = std::max<std::int64_t>(1, std::llround(length));
  return shorter;
}

double tokens_of_a_sequence(const Plan& plan) {
  const Workload& workload = plan.workload;
  const bool padded = workload.dataset && workload.dataset->tells_lengths() &&
                      workload.dataset->padding == Padding::longest;
  if (!padded) return static_cast<double>(workload.sequence_length);
  return SampleLengths(*workload.dataset, workload.sequence_length).mean();
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

std::optional<JobTime> job_time(const Plan& plan,
                                const JobQuestion& question,
                                std::vector<Phrase>& sentences) {
  if (!plan.workload.dataset || plan.workload.dataset->samples == 0) return std::nullopt;
  const Dataset& dataset = *plan.workload.dataset;
  JobTime job;
  job.steps = job_steps(plan);
  job.padded_length = padded_length(plan);
  job.padding_share = padding_share(plan, job.padded_length);
  job.longer_share = longer_share(plan);
  job.drops_longer = dataset.longer == LongSamples::drop;
  const double longest = static_cast<double>(plan.workload.sequence_length);
  const std::optional<Plan> shorter = mean_step_plan(plan);
  const Seconds step = shorter ? step_of(*shorter) * question.of_analytic : question.full_step;
  const Seconds all = step * static_cast<double>(job.steps);
  job[JobPart::padding] = all * job.padding_share.value_or(0.0);
  job[JobPart::steps] = all - job[JobPart::padding];
  if (dataset.tells_lengths() || dataset.padding == Padding::max) {
    sentences.push_back(padding_sentence(plan, job));
  } else {
    sentences.push_back(phrase(
        "job: every sample has {:.0f} tokens, because neither mean_tokens nor lengths are said",
        longest));
  }
  add_beside_steps(plan, question, step, job, sentences);
  return job;
}

}  // namespace zeroplan
