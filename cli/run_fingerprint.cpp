#include "cli/run_fingerprint.hpp"

#include <string>

#include "base/json.hpp"
#include "runtime/data/fnv1a.hpp"

namespace zeroplan::cli {
namespace {

std::int64_t number_of(auto enumerator) { return static_cast<std::int64_t>(enumerator); }

void add_model(runtime::Fingerprint& print, const Model& model) {
  const TransformerShape& shape = model.shape;
  print.add("model.type", model.model_type);
  print.add("model.architecture", model.architecture);
  const std::pair<const char*, std::int64_t> counts[] = {
      {"layers", shape.layers},
      {"hidden", shape.hidden},
      {"heads", shape.heads},
      {"kv_heads", shape.kv_heads},
      {"head_dim", shape.head_dim},
      {"intermediate", shape.intermediate},
      {"vocabulary", shape.vocabulary},
      {"max_positions", shape.max_positions},
      {"rotary_dim", shape.rotary_dim},
      {"sliding_window", shape.sliding_window},
      {"kind", number_of(shape.kind)},
      {"norm", number_of(shape.norm)},
      {"position", number_of(shape.position)},
      {"activation", number_of(shape.activation)}};
  for (const auto& [key, count] : counts) print.add(std::string("model.") + key, count);
  const std::pair<const char*, bool> switches[] = {{"gated_mlp", shape.gated_mlp},
                                                   {"parallel_residual", shape.parallel_residual},
                                                   {"tied_embeddings", shape.tied_embeddings},
                                                   {"rotary_scaled", shape.rotary_scaled}};
  for (const auto& [key, on] : switches) print.add(std::string("model.") + key, on);
  const std::pair<const char*, double> reals[] = {{"norm_epsilon", shape.norm_epsilon},
                                                  {"rotary_base", shape.rotary_base},
                                                  {"attention_dropout", shape.attention_dropout},
                                                  {"hidden_dropout", shape.hidden_dropout},
                                                  {"embedding_dropout", shape.embedding_dropout}};
  for (const auto& [key, value] : reals) print.add(std::string("model.") + key, value);
  runtime::Fnv1a names;
  for (const Parameter& parameter : model.parameters) {
    names.add_text(parameter.name + "\n");
    for (const std::int64_t extent : parameter.shape) {
      names.add(static_cast<std::uint64_t>(extent));
    }
  }
  print.add("model.parameters", count_parameters(model).total.count());
  print.add("model.parameter_names", std::to_string(names.value()));
}

void add_data(runtime::Fingerprint& print,
              const Arguments& arguments,
              const Model& model,
              std::uint64_t seed) {
  const bool masked = model.architecture.ends_with("ForMaskedLM");
  const auto file = arguments.text("data");
  print.add("data.source", file ? runtime::file_fingerprint(*file) : "random tokens");
  if (file) print.add("data.tokens", file->ends_with(".bin") ? "16-bit" : "bytes");
  // A file is read as it stands, but for what a masked language model does not see.
  if (!file || masked) print.add("data.seed", std::to_string(seed));
}

void add_optimizer(runtime::Fingerprint& print, const runtime::AdamWOptions& adamw) {
  print.add("optimizer.lr", adamw.learning_rate);
  print.add("optimizer.beta1", adamw.beta1);
  print.add("optimizer.beta2", adamw.beta2);
  print.add("optimizer.eps", adamw.epsilon);
  print.add("optimizer.weight_decay", adamw.weight_decay);
}

// Where a rank's machine has its drive, and what is printed, is its own.
bool may_differ(std::string_view pointer) {
  constexpr std::string_view kOwn[] = {
      "/nvme_path", "/steps_per_print", "/wall_clock_breakdown", "/memory_breakdown"};
  for (const std::string_view end : kOwn) {
    if (pointer.ends_with(end)) return true;
  }
  return false;
}

// What a user called a key, as part of one of a fingerprint's.
std::string key_text(const std::string& pointer) {
  constexpr std::size_t kLongest = 120;
  std::string key = pointer.substr(0, kLongest);
  for (char& c : key) {
    if (c <= ' ' || c > '~' || c == '=') c = '_';
  }
  return key;
}

// The leaves of a document, by pointer.
void add_leaves(runtime::Fingerprint& print,
                const std::string& section,
                const std::string& pointer,
                const Json& value) {
  if (may_differ(pointer)) return;
  if (value.is_object()) {
    for (const auto& [key, inner] : value.members()) {
      add_leaves(print, section, pointer + "/" + key, inner);
    }
    return;
  }
  constexpr std::size_t kMost = 400;  // a document of more is nobody's ds_config
  const std::string key = section + key_text(pointer);
  if (print.find(key) != nullptr || print.entries().size() >= kMost) return;
  print.add(key, value.is_string() ? value.as_string() : value.dump());
}

}  // namespace

runtime::Fingerprint fingerprint_of(const EmbeddedRun& run,
                                    const Arguments& arguments,
                                    const runtime::TrainingSetup& setup,
                                    const runtime::TrainingOptions& options) {
  runtime::Fingerprint print;
  print.add("run.release", ZEROPLAN_VERSION);
  // As the curve has them: a data file is not summed twice.
  const runtime::Fingerprint trained = setup.curve.part({"model.", "data.", "optimizer."});
  for (const auto& [key, value] : trained.entries()) print.add(key, value);
  const Json scenario = scenario_document(run.plan, run.said);
  if (const Json* workload = scenario.find("workload")) {
    add_leaves(print, "workload.", "", *workload);
  }
  add_leaves(print, "ds_config.", "", emit(run.plan.ds_config));
  const auto weights = arguments.text("weights");
  print.add("run.seed", std::to_string(setup.seed));
  print.add("run.weights", weights ? runtime::file_fingerprint(*weights) : "seeded");
  print.add("run.begins_at_step", setup.begun.steps);
  print.add("run.begins_at_row", setup.begun.rows);
  print.add("run.steps", static_cast<std::int64_t>(options.steps));
  print.add("run.saves", !options.save.empty());
  print.add("run.save_every", static_cast<std::int64_t>(options.save_every));
  print.add("run.device", run.on_gpus() ? "cuda" : "cpu");
  return print;
}

runtime::Fingerprint curve_of(const EmbeddedRun& run,
                              const Arguments& arguments,
                              const runtime::TrainingSetup& setup) {
  runtime::Fingerprint print;
  add_model(print, *run.plan.model);
  add_data(print, arguments, *run.plan.model, setup.seed);
  add_optimizer(print, setup.adamw);
  const EngineConfig& config = setup.config;
  print.add("batch.sequence_length", setup.sequence);
  print.add("batch.sequences_a_step",
            setup.micro_batch * config.gradient_accumulation_steps * config.data_parallel_ranks);
  print.add("plan.precision", name(kPrecisionNames, run.plan.workload.precision));
  print.add("plan.gradient_clipping", config.gradient_clipping);
  const runtime::LossScaling& scaling = setup.loss_scaling;
  print.add("loss_scale.dynamic", scaling.dynamic);
  if (!scaling.dynamic) print.add("loss_scale.scale", scaling.initial);
  if (scaling.dynamic) {
    print.add("loss_scale.window", scaling.window);
    print.add("loss_scale.hysteresis", scaling.hysteresis);
    print.add("loss_scale.smallest", scaling.smallest);
  }
  return print;
}

}  // namespace zeroplan::cli
