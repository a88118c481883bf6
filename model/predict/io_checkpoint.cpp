#include "model/predict/io_checkpoint.hpp"

#include "model/predict/io_run_phases.hpp"
#include "model/predict/io_step_result.hpp"

namespace zeroplan {
namespace {

Json problem_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

Json content_json(const CheckpointContent& content) {
  Json files = Json::array();
  for (const CheckpointFiles& entry : content.files) {
    files.push_back(Json::object({{"path", entry.path},
                                  {"written_by", name(kCheckpointWriterNames, entry.written_by)},
                                  {"files", entry.files},
                                  {"tensor_bytes", entry.tensors.count()},
                                  {"bytes", entry.bytes.count()},
                                  {"total_bytes", entry.total.count()}}));
  }
  return Json::object({{"bytes", content.total().count()}, {"files", files}});
}

Json content_json(const std::optional<CheckpointContent>& content, const std::string& problem) {
  Json object = content ? content_json(*content) : Json::object({{"bytes", Json()}});
  object["problem"] = problem_or_null(problem);
  return object;
}

Json work_json(const CheckpointWork& work) {
  return Json::object(
      {{"node_bytes", work.bytes.count()},
       {"gpu_peak_bytes", work.gpu_peak == Bytes::zero() ? Json() : Json(work.gpu_peak.count())},
       {"host_peak_bytes", work.host_peak.count()},
       {"seconds", work.seconds ? Json(work.seconds->seconds()) : Json()}});
}

}  // namespace

Json to_json(const CheckpointPrediction& checkpoint) {
  Json object = Json::object();
  object["native"] = content_json(checkpoint.native);
  object["model"] = content_json(checkpoint.model, checkpoint.model_problem);
  object["universal"] = content_json(checkpoint.universal, checkpoint.universal_problem);
  object["exclude_frozen_parameters"] = checkpoint.exclude_frozen;
  object["native_written_twice"] = checkpoint.native_written_twice;
  object["save"] = work_json(checkpoint.saving);
  object["load"] = work_json(checkpoint.loading);
  object["convert"] = checkpoint.universal ? work_json(checkpoint.converting) : Json();
  if (checkpoint.universal) {
    object["convert"]["disk_peak_bytes"] = checkpoint.converting_disk_peak.count();
  }
  object["load_universal"] = checkpoint.universal ? work_json(checkpoint.loading_other) : Json();
  object["other_ranks"] = Json::object({{"resume", name(kResumeNames, checkpoint.other_ranks)},
                                        {"reason", checkpoint.resume_reason.english()}});
  object["storage_bytes_per_second"] =
      checkpoint.bandwidth ? Json(checkpoint.bandwidth->value()) : Json();
  return object;
}

Json step_document(const Plan& plan, const StepResult& result, const CheckpointOptions& options) {
  Json document = to_json(result);
  const auto checkpoint = predict_checkpoint(plan, options);
  document["checkpoint"] = checkpoint ? to_json(*checkpoint) : Json();
  if (const auto run = run_phases(plan, result)) add_run_phases(*run, document);
  return document;
}

}  // namespace zeroplan
