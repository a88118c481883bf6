#include "runtime/train/checkpoint.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <span>
#include <system_error>
#include <utility>

#include "base/diagnostic.hpp"
#include "base/json.hpp"
#include "runtime/data/safetensors.hpp"
#include "runtime/train/checkpoint_folder.hpp"
#include "runtime/train/checkpoint_state.hpp"

namespace zeroplan::runtime {
namespace {

constexpr const char* kWeights = kCheckpointFiles[1];
constexpr const char* kMoments = kCheckpointFiles[2];
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

// Names with a prefix; the file must have all of the model's parameters in their shapes.
ValueReader reader_of(const std::string& path, const Model& model, const std::string& prefix) {
  const auto file = std::make_shared<const SafetensorsFile>(path);
  std::vector<std::string> names;
  for (const Parameter& parameter : model.parameters) {
    names.push_back(prefix + parameter.name);
    const TensorInfo* info = file->find(names.back());
    if (info == nullptr) {
      refuse_checkpoint(path, "/" + names.back(), "a tensor of that name", "none");
    }
    if (info->shape != parameter.shape) {
      refuse_checkpoint(path, "/" + names.back() + "/shape", "the model's shape", "another");
    }
  }
  return [file, names = std::move(names)](
             std::int32_t parameter, Elements first, std::span<float> values) {
    file->read(names[static_cast<std::size_t>(parameter)], first, values);
  };
}

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
  CheckpointState state{
      .progress = progress, .updates = engine.updates(), .loss_scaler = engine.loss_scaler()};
  state.weights = write_tensors(path + kWeights, weights, writes, [&](SafetensorsWriter* writer) {
    each(writer, {&StateSlice::master});
  });
  state.moments = write_tensors(path + kMoments, moments, writes, [&](SafetensorsWriter* writer) {
    each(writer, {&StateSlice::first_moment, &StateSlice::second_moment});
  });
  if (!writes) return;
  DiskFile file(path + kStateFile);
  file.write(state_text(state));
  file.finish();
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
void check_file(const std::string& path, const FileFacts& expected) {
  const FileFacts facts = facts_of(path);
  if (facts.bytes != expected.bytes) {
    refuse_checkpoint(path,
                      "",
                      std::to_string(expected.bytes) + " bytes, as were written",
                      std::to_string(facts.bytes) + " bytes");
  }
  if (facts.crc32 != expected.crc32) {
    refuse_checkpoint(
        path, "", "the bytes that were written", "others: the checksum (CRC-32) differs");
  }
}

}  // namespace

Checkpoint open_checkpoint(const std::string& said_folder, const Model& model) {
  const std::string folder = find_checkpoint(said_folder);
  const std::string state_path = folder + "/" + kStateFile;
  const CheckpointState state = parse_state(read_text_file(state_path), state_path);
  const std::string weights = folder + "/" + kWeights;
  const std::string moments = folder + "/" + kMoments;
  check_file(weights, state.weights);
  check_file(moments, state.moments);
  Checkpoint checkpoint{.progress = state.progress};
  checkpoint.state.updates = state.updates;
  checkpoint.state.loss_scaler = state.loss_scaler;
  checkpoint.weights = reader_of(weights, model, "");
  checkpoint.state.first_moment = reader_of(moments, model, kMomentNames[0]);
  checkpoint.state.second_moment = reader_of(moments, model, kMomentNames[1]);
  return checkpoint;
}

void require_same_curve(const Checkpoint& checkpoint,
                        const Fingerprint& curve,
                        const std::string& folder) {
  if (checkpoint.progress.curve.entries().empty()) return;  // of a release that kept none
  std::vector<Diagnostic> problems;
  for (const FingerprintDifference& one : differences(checkpoint.progress.curve, curve)) {
    problems.push_back({.file = "--resume " + folder,
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
