#include "runtime/train/checkpoint.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "model/diagnostic.hpp"
#include "model/json.hpp"
#include "runtime/data/safetensors.hpp"

namespace zeroplan::runtime {
namespace {

constexpr const char* kWeights = "model.safetensors";
constexpr const char* kMoments = "optimizer.safetensors";
constexpr const char* kState = "state.json";
constexpr const char* kSchema = "zeroplan.checkpoint/1";
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

void write_state(const std::string& path,
                 const RankEngine& engine,
                 const Progress& progress,
                 const FileFacts& weights,
                 const FileFacts& moments) {
  const Json state = Json::object(
      {{"schema", kSchema},
       {"steps", progress.steps},
       {"rows", progress.rows},
       {"updates", engine.updates()},
       {"loss_scale", engine.loss_scale()},
       {"files",
        Json::object({{kWeights, facts_json(weights)}, {kMoments, facts_json(moments)}})}});
  DiskFile file(path);
  file.write(state.dump(2) + "\n");
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
  if (writes) write_state(path + kState, engine, progress, of_weights, of_moments);
}

void make_empty_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  std::filesystem::create_directories(path, error);
  if (error) throw WriteError("cannot write " + path + ": " + error.message());
}

}  // namespace

void save_checkpoint(const std::string& folder,
                     const RankEngine& engine,
                     const Model& model,
                     const Progress& progress,
                     Communicator& group,
                     Memory& memory) {
  namespace fs = std::filesystem;
  fs::path whole = fs::path(folder).lexically_normal();
  if (!whole.has_filename()) whole = whole.parent_path();  // "checkpoint/"
  const std::string temporary = whole.string() + ".tmp";
  const bool writes = group.rank() == 0;
  try {
    if (writes) make_empty_folder(temporary);
    write_files(temporary, engine, model, progress, group, memory);
    if (writes) {
      sync_folder(temporary);
      replace_folder(temporary, whole.string());
    }
  } catch (...) {
    // What is half written is worth nothing, and its space may be what is missing.
    std::error_code ignored;
    if (writes) fs::remove_all(temporary, ignored);
    throw;
  }
  group.barrier();
}

namespace {

// The bytes that were written, every one of them.
void check_file(const std::string& folder, const Json& state, const char* name) {
  const std::string state_path = folder + "/" + kState;
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

// A crash between two renames left the checkpoint under its second name (disk_file.hpp).
std::string whole_folder(const std::string& folder) {
  namespace fs = std::filesystem;
  fs::path path = fs::path(folder).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  const fs::path old = path.string() + ".old";
  return !fs::exists(path) && fs::exists(old) ? old.string() : path.string();
}

}  // namespace

Checkpoint open_checkpoint(const std::string& said_folder, const Model& model) {
  const std::string folder = whole_folder(said_folder);
  const std::string state_path = folder + "/" + kState;
  const Json state = read_json_file(state_path).root;
  const Json* schema = state.find("schema");
  if (schema == nullptr || !schema->is_string() || schema->as_string() != kSchema) {
    refuse(state_path, "/schema", kSchema, schema != nullptr ? schema->describe() : "none");
  }
  const auto number = [&](const char* key) -> double {
    const Json* value = state.find(key);
    const bool good = value != nullptr && value->is_number() && value->as_number() >= 0.0;
    if (good) return value->as_number();
    refuse(state_path, std::string("/") + key, "a number of at least 0", "none");
  };
  check_file(folder, state, kWeights);
  check_file(folder, state, kMoments);
  Checkpoint checkpoint;
  checkpoint.progress.steps = static_cast<std::int64_t>(number("steps"));
  checkpoint.progress.rows = static_cast<std::int64_t>(number("rows"));
  checkpoint.state.updates = static_cast<std::int64_t>(number("updates"));
  checkpoint.state.loss_scale = number("loss_scale");
  checkpoint.weights = reader_of(folder + "/" + kWeights, model, "");
  checkpoint.state.first_moment = reader_of(folder + "/" + kMoments, model, kMomentNames[0]);
  checkpoint.state.second_moment = reader_of(folder + "/" + kMoments, model, kMomentNames[1]);
  return checkpoint;
}

ValueReader open_weights(const std::string& file, const Model& model) {
  return reader_of(file, model, "");
}

}  // namespace zeroplan::runtime
