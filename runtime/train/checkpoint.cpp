#include "runtime/train/checkpoint.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
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

using Values = const float* StateSlice::*;

// One parameter's values, put together from the ranks' slices, on every rank.
class Collector {
 public:
  Collector(const RankEngine& engine, const Model& model, Communicator& group, Memory& memory)
      : slices_(engine.state()), group_(group) {
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
    bool replicated = false;
    for (const StateSlice& slice : slices_) {
      if (slice.parameter != parameter) continue;
      replicated = slice.elements == numel && group_.ranks() > 1;
      const float* from = slice.*values;
      if (from == nullptr) continue;
      std::copy_n(from, slice.elements.count(), whole + slice.first.count());
    }
    // Stage 0: everybody has all of it. Elsewhere each element stands on one rank, the others
    // have 0.
    double owners = replicated ? 1.0 : 0.0;
    group_.all_reduce(&owners, Elements::of(1));
    if (owners > 1.0) {
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
  std::vector<StateSlice> slices_;
  Communicator& group_;
  Buffer whole_;
};

// Writes one file; `write` is called by all ranks and gets null on all but the first.
template <typename Write>
void write_tensors(const std::string& path,
                   const std::vector<SafetensorsWriter::Tensor>& tensors,
                   bool writes,
                   Write&& write) {
  std::unique_ptr<SafetensorsWriter> writer;
  if (writes) writer = std::make_unique<SafetensorsWriter>(path, tensors);
  write(writer.get());
  if (writer) writer->finish();
}

void write_state(const std::string& path, const RankEngine& engine, const Progress& progress) {
  const Json state = Json::object({{"schema", kSchema},
                                   {"steps", progress.steps},
                                   {"rows", progress.rows},
                                   {"updates", engine.updates()},
                                   {"loss_scale", engine.loss_scale()}});
  {
    std::ofstream file(path, std::ios::trunc);
    file << state.dump(2) << "\n";
    if (!file.flush()) throw std::runtime_error("cannot write " + path);
  }
  sync_to_disk(path);
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

void save_checkpoint(const std::string& folder,
                     const RankEngine& engine,
                     const Model& model,
                     const Progress& progress,
                     Communicator& group,
                     Memory& memory) {
  namespace fs = std::filesystem;
  const fs::path final_folder = fs::path(folder).lexically_normal();
  const fs::path temporary = final_folder.string() + ".tmp";
  const bool writes = group.rank() == 0;
  if (writes) {
    fs::remove_all(temporary);
    fs::create_directories(temporary);
  }
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
  write_tensors((temporary / kWeights).string(), weights, writes, [&](SafetensorsWriter* writer) {
    each(writer, {&StateSlice::master});
  });
  write_tensors((temporary / kMoments).string(), moments, writes, [&](SafetensorsWriter* writer) {
    each(writer, {&StateSlice::first_moment, &StateSlice::second_moment});
  });
  if (writes) {
    write_state((temporary / kState).string(), engine, progress);
    sync_to_disk(temporary.string());
    // A folder cannot be exchanged for another in one step: the old one goes when the new one is
    // whole.
    fs::remove_all(final_folder);
    fs::rename(temporary, final_folder);
    const fs::path parent = final_folder.parent_path();
    sync_to_disk(parent.empty() ? "." : parent.string());
  }
  group.barrier();
}

Checkpoint open_checkpoint(const std::string& folder, const Model& model) {
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
