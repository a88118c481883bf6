#include "runtime/train/checkpoint.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "model/diagnostic.hpp"
#include "model/json.hpp"
#include "runtime/data/safetensors.hpp"
#include "runtime/train/checkpoint_folder.hpp"

namespace zeroplan::runtime {
namespace {

constexpr const char* kWeights = kCheckpointFiles[1];
constexpr const char* kMoments = kCheckpointFiles[2];
constexpr const char* kSchema = "zeroplan.checkpoint/2";
// Without a checksum of its own, and of a loss scaler only the scale.
constexpr const char* kOldSchema = "zeroplan.checkpoint/1";
// Behind everything else in state.json: the checksum of the bytes before it.
constexpr std::string_view kChecksumKey = ",\n  \"crc32\": ";
constexpr std::array<const char*, 2> kMomentNames = {"exp_avg.", "exp_avg_sq."};

using Values = StateValues StateSlice::*;

// One parameter's values, put together from the ranks' slices, on every rank.
class Collector {
 public:
  Collector(const RankEngine& engine, const Model& model, Communicator& group, Memory& memory)
      : engine_(engine), slices_(engine.state()), group_(group) {
    Elements largest;
    for (const Parameter& parameter : model.parameters) {
      largest = std::max(largest, parameter.numel);
    }
    whole_ = memory.allocate(largest * DType::fp32,
                             MemoryCategory::temporaries,
                             Place::pageable,
                             "a parameter to be saved");
  }

  std::span<const float> collect(std::int32_t parameter, Elements numel, Values values) {
    const auto size = static_cast<std::size_t>(numel.count());
    auto* whole = whole_.as<float>();
    std::fill_n(whole, size, 0.0F);
    const bool gives = group_.rank() < engine_.state_ranks();  // the others have copies
    for (const StateSlice& slice : slices_) {
      if (!gives || slice.parameter != parameter) continue;
      const StateValues& from = slice.*values;
      if (!from.there()) continue;
      engine_.read(from,
                   {whole + slice.first.count(), static_cast<std::size_t>(slice.elements.count())});
    }
    // Where it is not all on one rank, each element stands on one of those that give, the others
    // have 0.
    if (engine_.state_ranks() == 1) {
      group_.run({.kind = CollectiveKind::broadcast,
                  .elements = numel,
                  .input = whole_.data(),
                  .output = whole_.data()});
    } else {
      group_.all_reduce(whole, numel);
    }
    return {whole, size};
  }

 private:
  const RankEngine& engine_;
  std::vector<StateSlice> slices_;
  Communicator& group_;
  Buffer whole_;
};

// Writes one file; `write` is called by all ranks and gets null on all but the first.
template <typename Write>
FileFacts write_tensors(const std::string& path,
                        const std::vector<SafetensorsWriter::Tensor>& tensors,
                        bool writes,
                        Write&& write) {
  std::unique_ptr<SafetensorsWriter> writer;
  if (writes) writer = std::make_unique<SafetensorsWriter>(path, tensors);
  write(writer.get());
  return writer ? writer->finish() : FileFacts();
}

Json facts_json(const FileFacts& facts) {
  return Json::object({{"bytes", facts.bytes}, {"crc32", static_cast<std::int64_t>(facts.crc32)}});
}

std::uint32_t crc32_of(std::string_view text) { return crc32(std::as_bytes(std::span(text))); }

// The document with its own checksum as the last member.
std::string sealed(const Json& state) {
  std::string text = state.dump(2);
  text.resize(text.size() - std::string_view("\n}").size());
  const std::uint32_t sum = crc32_of(text);
  return fmt::format("{}{}{}\n}}\n", text, kChecksumKey, sum);
}

// What sealed() made is whole.
bool has_own_checksum(const std::string& text) {
  const std::size_t at = text.rfind(kChecksumKey);
  if (at == std::string::npos) return false;
  const std::string expected =
      fmt::format("{}{}\n}}\n", kChecksumKey, crc32_of(std::string_view(text).substr(0, at)));
  return std::string_view(text).substr(at) == expected;
}

Json scaler_json(const std::optional<LossScalerState>& scaler) {
  if (!scaler) return {};
  return Json::object({{"scale", scaler->scale},
                       {"hysteresis", scaler->hysteresis},
                       {"iteration", scaler->iteration},
                       {"last_overflow", scaler->last_overflow}});
}

Json curve_json(const Fingerprint& curve) {
  Json object = Json::object();
  for (const auto& [key, value] : curve.entries()) object[key] = value;
  return object;
}

void write_state(const std::string& path,
                 const RankEngine& engine,
                 const Progress& progress,
                 const FileFacts& weights,
                 const FileFacts& moments) {
  const Json state = Json::object(
      {{"schema", kSchema},
       {"run", progress.run},
       {"steps", progress.steps},
       {"rows", progress.rows},
       {"updates", engine.updates()},
       {"loss_scaler", scaler_json(engine.loss_scaler())},
       {"curve", curve_json(progress.curve)},
       {"files",
        Json::object({{kWeights, facts_json(weights)}, {kMoments, facts_json(moments)}})}});
  DiskFile file(path);
  file.write(sealed(state));
  file.finish();
}

[[noreturn]] void refuse(const std::string& file,
                         std::string pointer,
                         std::string expected,
                         std::string got) {
  throw InputError(Diagnostic{.file = file,
                              .pointer = std::move(pointer),
                              .expected = std::move(expected),
                              .got = std::move(got),
                              .hint = ""});
}

// Names with a prefix; the file must have all of the model's parameters in their shapes.
ValueReader reader_of(const std::string& path, const Model& model, const std::string& prefix) {
  const auto file = std::make_shared<const SafetensorsFile>(path);
  std::vector<std::string> names;
  for (const Parameter& parameter : model.parameters) {
    names.push_back(prefix + parameter.name);
    const TensorInfo* info = file->find(names.back());
    if (info == nullptr) refuse(path, "/" + names.back(), "a tensor of that name", "none");
    if (info->shape != parameter.shape) {
      refuse(path, "/" + names.back() + "/shape", "the model's shape", "another");
    }
  }
  return [file, names = std::move(names)](
             std::int32_t parameter, Elements first, std::span<float> values) {
    file->read(names[static_cast<std::size_t>(parameter)], first, values);
  };
}

}  // namespace

namespace {

// Written by rank 0, collected from all.
void write_files(const std::string& folder,
                 const RankEngine& engine,
                 const Model& model,
                 const Progress& progress,
                 Communicator& group,
                 Memory& memory) {
  const bool writes = group.rank() == 0;
  Collector collector(engine, model, group, memory);
  std::vector<SafetensorsWriter::Tensor> weights;
  std::vector<SafetensorsWriter::Tensor> moments;
  for (const Parameter& parameter : model.parameters) {
    weights.push_back({parameter.name, parameter.shape});
    for (const char* moment : kMomentNames) {
      moments.push_back({moment + parameter.name, parameter.shape});
    }
  }
  const auto each = [&](SafetensorsWriter* writer, std::initializer_list<Values> values) {
    for (std::size_t p = 0; p < model.parameters.size(); ++p) {
      for (const Values which : values) {
        const std::span<const float> whole =
            collector.collect(static_cast<std::int32_t>(p), model.parameters[p].numel, which);
        if (writer != nullptr) writer->append(whole);
      }
    }
  };
  const std::string path = folder + "/";
  const FileFacts of_weights =
      write_tensors(path + kWeights, weights, writes, [&](SafetensorsWriter* writer) {
        each(writer, {&StateSlice::master});
      });
  const FileFacts of_moments =
      write_tensors(path + kMoments, moments, writes, [&](SafetensorsWriter* writer) {
        each(writer, {&StateSlice::first_moment, &StateSlice::second_moment});
      });
  if (writes) write_state(path + kStateFile, engine, progress, of_weights, of_moments);
}

}  // namespace

void save_checkpoint(CheckpointFolder* folder,
                     const RankEngine& engine,
                     const Model& model,
                     const Progress& progress,
                     Communicator& group,
                     Memory& memory) {
  try {
    write_files(folder != nullptr ? folder->begin() : "", engine, model, progress, group, memory);
    if (folder != nullptr) folder->finish(progress.steps);
  } catch (...) {
    if (folder != nullptr) folder->abandon();
    throw;
  }
  group.barrier();
}

namespace {

// The bytes that were written, every one of them.
void check_file(const std::string& folder, const Json& state, const char* name) {
  const std::string state_path = folder + "/" + kStateFile;
  const std::string pointer = std::string("/files/") + name;
  const Json* files = state.find("files");
  const Json* file = files != nullptr && files->is_object() ? files->find(name) : nullptr;
  const auto number = [&](const char* key) -> std::int64_t {
    const Json* value = file != nullptr && file->is_object() ? file->find(key) : nullptr;
    if (value != nullptr && value->is_integer()) return value->as_integer();
    refuse(state_path, pointer + "/" + key, "a whole number", "none");
  };
  const std::int64_t bytes = number("bytes");
  const std::int64_t crc32 = number("crc32");
  const std::string path = folder + "/" + name;
  const FileFacts facts = facts_of(path);
  if (facts.bytes != bytes) {
    refuse(path,
           "",
           std::to_string(bytes) + " bytes, as were written",
           std::to_string(facts.bytes) + " bytes");
  }
  if (facts.crc32 != static_cast<std::uint32_t>(crc32)) {
    refuse(path, "", "the bytes that were written", "others: the checksum (CRC-32) differs");
  }
}

// A member that counts something. No run gets as far as 2^53: what is larger was not written here,
// and sums with it might overflow.
std::int64_t count_in(const std::string& path, const Json& object, const char* key) {
  constexpr std::int64_t kMost = std::int64_t{1} << 53;
  const Json* value = object.find(key);
  const bool good = value != nullptr && value->is_integer() && value->as_integer() >= 0 &&
                    value->as_integer() <= kMost;
  if (good) return value->as_integer();
  refuse(path,
         std::string("/") + key,
         "a whole number from 0 to 2^53",
         value != nullptr ? value->describe() : "none");
}

double scale_in(const std::string& path, const std::string& pointer, const Json* value) {
  const bool good = value != nullptr && value->is_number() && value->as_number() > 0.0 &&
                    std::isfinite(value->as_number());
  if (good) return value->as_number();
  refuse(path, pointer, "a number above 0", value != nullptr ? value->describe() : "none");
}

std::optional<LossScalerState> scaler_in(const std::string& path, const Json& state) {
  const Json* scaler = state.find("loss_scaler");
  if (scaler == nullptr || scaler->is_null()) return std::nullopt;
  if (!scaler->is_object()) refuse(path, "/loss_scaler", "an object or null", scaler->describe());
  LossScalerState read;
  read.scale = scale_in(path, "/loss_scaler/scale", scaler->find("scale"));
  read.hysteresis = count_in(path, *scaler, "hysteresis");
  read.iteration = count_in(path, *scaler, "iteration");
  const Json* overflow = scaler->find("last_overflow");
  const bool never = overflow != nullptr && *overflow == Json(-1);
  read.last_overflow = never ? -1 : count_in(path, *scaler, "last_overflow");
  return read;
}

// The first release of the format kept the scale alone.
std::optional<LossScalerState> old_scaler_in(const std::string& path,
                                             const Json& state,
                                             std::int64_t steps) {
  const double scale = scale_in(path, "/loss_scale", state.find("loss_scale"));
  if (scale == 1.0) return std::nullopt;  // of runs without a scaler
  return LossScalerState{.scale = scale, .iteration = steps};
}

Fingerprint curve_in(const Json& state) {
  Fingerprint curve;
  const Json* object = state.find("curve");
  if (object == nullptr || !object->is_object()) return curve;
  // Through the reader of texts, which takes none but good keys, each once.
  std::string text;
  for (const auto& [key, value] : object->members()) {
    if (value.is_string()) text += key + "=" + value.as_string() + "\n";
  }
  return Fingerprint::parse(text).value_or(Fingerprint());
}

std::string schema_of(const Json& state) {
  const Json* schema = state.find("schema");
  return schema != nullptr && schema->is_string() ? schema->as_string() : "";
}

}  // namespace

bool holds_checkpoint(const std::string& folder) {
  const std::string path = folder + "/" + kStateFile;
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  try {
    const std::string schema = schema_of(read_json_file(path).root);
    return schema == kSchema || schema == kOldSchema;
  } catch (const InputError&) {
    return false;
  }
}

Checkpoint open_checkpoint(const std::string& said_folder, const Model& model) {
  const std::string folder = find_checkpoint(said_folder);
  const std::string state_path = folder + "/" + kStateFile;
  const std::string text = read_text_file(state_path);
  const Json state = parse_json(text, state_path).root;
  const std::string schema = schema_of(state);
  const bool old = schema == kOldSchema;
  if (schema != kSchema && !old) {
    refuse(state_path, "/schema", kSchema, schema.empty() ? "none" : in_quotes(schema));
  }
  if (!old && !has_own_checksum(text)) {
    refuse(state_path, "", "the bytes that were written", "others: the checksum (CRC-32) differs");
  }
  Checkpoint checkpoint;
  checkpoint.progress.steps = count_in(state_path, state, "steps");
  checkpoint.progress.rows = count_in(state_path, state, "rows");
  checkpoint.state.updates = count_in(state_path, state, "updates");
  checkpoint.state.loss_scaler = old ? old_scaler_in(state_path, state, checkpoint.progress.steps)
                                     : scaler_in(state_path, state);
  checkpoint.progress.curve = curve_in(state);
  const Json* run = state.find("run");
  if (run != nullptr && run->is_string()) checkpoint.progress.run = run->as_string();
  check_file(folder, state, kWeights);
  check_file(folder, state, kMoments);
  checkpoint.weights = reader_of(folder + "/" + kWeights, model, "");
  checkpoint.state.first_moment = reader_of(folder + "/" + kMoments, model, kMomentNames[0]);
  checkpoint.state.second_moment = reader_of(folder + "/" + kMoments, model, kMomentNames[1]);
  return checkpoint;
}

void require_same_curve(const Checkpoint& checkpoint,
                        const Fingerprint& curve,
                        const std::string& folder) {
  if (checkpoint.progress.curve.entries().empty()) return;  // of a release that kept none
  std::vector<Diagnostic> problems;
  for (const FingerprintDifference& one : differences(checkpoint.progress.curve, curve)) {
    problems.push_back(
        {.file = "--resume " + folder,
         .pointer = one.key,
         .expected = one.first + ", as the run had it",
         .got = one.second,
         .hint = "--allow-changes goes on all the same, as another run"});
  }
  if (!problems.empty()) throw InputError(problems);
}

ValueReader open_weights(const std::string& file, const Model& model) {
  return reader_of(file, model, "");
}

}  // namespace zeroplan::runtime
