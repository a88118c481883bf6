#include "cli/checkpoint_text.hpp"

#include "base/diagnostic.hpp"
#include "cli/table.hpp"

namespace zeroplan::cli {
namespace {

std::string time_of(const CheckpointWork& work) {
  return work.seconds ? seconds_text(*work.seconds) : "-";
}

std::int64_t file_count(const CheckpointContent& content) {
  std::int64_t sum = 0;
  for (const CheckpointFiles& entry : content.files) sum += entry.files;
  return sum;
}

Phrase others_text(const CheckpointPrediction& checkpoint) {
  switch (checkpoint.other_ranks) {
    case Resume::directly:
      return "  with another number of GPUs: goes on from the same files\n";
    case Resume::by_universal:
      return phrase(
          "  with another number of GPUs: ds_to_universal.py first, {} more on disk ({} while it "
          "runs), {} of host memory, {}; then {} to load\n",
          gib_text(checkpoint.universal->total()),
          gib_text(checkpoint.converting_disk_peak),
          gib_text(checkpoint.converting.host_peak),
          time_of(checkpoint.converting),
          time_of(checkpoint.loading_other));
    case Resume::never:
      return phrase("  with another number of GPUs: does not go on; {}\n",
                    checkpoint.resume_reason);
  }
  return "";
}

}  // namespace

CheckpointOptions checkpoint_options_of(const Arguments& arguments) {
  CheckpointOptions options;
  const auto said = arguments.text("checkpoint-bandwidth");
  if (!said) return options;
  ClusterFlagInfo rate{};
  rate.flag = "--checkpoint-bandwidth";
  rate.kind = ClusterFlagInfo::Kind::bytes;
  const double bytes = parse_cluster_flag(rate, *said).as_number();
  if (!(bytes > 0.0)) {
    throw InputError({kCommandLine,
                      "--checkpoint-bandwidth",
                      "bytes a second, more than 0",
                      in_quotes(*said),
                      ""});
  }
  options.bandwidth = BytesPerSecond::of(bytes);
  return options;
}

Phrase checkpoint_text(const CheckpointPrediction& checkpoint) {
  Phrase text = phrase(
      "checkpoint: {} in {} files{}\n",
      gib_text(checkpoint.native.total()),
      file_count(checkpoint.native),
      checkpoint.model ? phrase(", the model alone {} more", gib_text(checkpoint.model->total()))
                       : ", without 16-bit weights");
  text += checkpoint.bandwidth
              ? phrase("  saving takes {} at {:.1f} GB/s per node, loading {}; host {} and {}\n",
                       time_of(checkpoint.saving),
                       checkpoint.bandwidth->value() / 1e9,
                       time_of(checkpoint.loading),
                       gib_text(checkpoint.saving.host_peak),
                       gib_text(checkpoint.loading.host_peak))
              : phrase(
                    "  host {} while saving, {} while loading; seconds with "
                    "--checkpoint-bandwidth\n",
                    gib_text(checkpoint.saving.host_peak),
                    gib_text(checkpoint.loading.host_peak));
  return text + others_text(checkpoint);
}

}  // namespace zeroplan::cli
