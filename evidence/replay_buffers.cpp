#include "evidence/replay_buffers.hpp"

#include <algorithm>
#include <string_view>

#include "base/described.hpp"
#include "base/diagnostic.hpp"
#include "evidence/event_text.hpp"
#include "model/releases.hpp"

namespace zeroplan::evidence {

namespace {

// The recorder leaves smaller storages out of its lists.
constexpr Bytes kSmallestRecorded = Bytes::of(64);

std::string line(const std::string& path, Elements numel, DType dtype, Bytes bytes, bool pinned) {
  std::string text = path;
  text += ' ';
  text += std::to_string(numel.count());
  text += ' ';
  text += recorded_dtype(dtype);
  text += ' ';
  text += std::to_string(bytes.count());
  text += pinned ? " pinned" : "";
  return text;
}

std::string indexed(std::string name, std::ptrdiff_t index) {
  name += '[';
  name += std::to_string(index);
  name += ']';
  return name;
}

std::string join(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& item : lines) {
    if (!text.empty()) text += ", ";
    text += item;
  }
  return text.empty() ? "nothing more" : text;
}

std::string recorded_line(const Json& buffer) {
  const Json& path = recorded_member(buffer, "/buffers", "path");
  const Json& dtype = recorded_member(buffer, "/buffers", "dtype");
  std::string text = path.is_string() ? path.as_string() : path.dump();
  text += ' ';
  text += event_text(recorded_member(buffer, "/buffers", "numel"));
  text += ' ';
  text += dtype.is_string() ? dtype.as_string() : dtype.dump();
  text += ' ';
  text += event_text(recorded_member(buffer, "/buffers", "bytes"));
  const Json& pinned = recorded_member(buffer, "/buffers", "pinned");
  text += pinned.is_integer() && pinned.as_integer() != 0 ? " pinned" : "";
  return text;
}

}  // namespace

BufferReplay::BufferReplay(const Json& recording, const RecordedEngine& engine)
    : recording_(recording),
      engine_(engine),
      buffers_(engine_buffers(engine.config, engine.parameters)) {
  if (engine.config.stage == 3) {
    persistent_ = persistent_parameters(engine.config, engine.parameters);
    sub_groups_ = sub_groups(engine.config, engine.parameters);
  }
}

void BufferReplay::follow(const Json& event) {
  const auto& fields = event.items();
  const std::string& kind = fields[0].as_string();
  if (fields.size() < 2) return;
  const auto numel = [&](const Json& field) {
    const std::int64_t index = recorded_integer(field, "/steps");
    if (index < 0 || index >= static_cast<std::int64_t>(engine_.parameters.size())) {
      throw InputError(
          Diagnostic{"recording", "/steps", "the index of a parameter", described(field), ""});
    }
    return engine_.parameters[static_cast<std::size_t>(index)].numel;
  };
  const DType dtype = engine_.config.model_dtype;
  const int ranks = partition_ranks(engine_.config);
  if (kind == "fetch" || kind == "prefetch") {
    // One parameter is a view of its padded gather; several are copied out of a flat one.
    const bool alone = fields[1].items().size() == 1 || engine_.config.stage3.allgather_sequential;
    for (const Json& field : fields[1].items()) {
      const Elements full = numel(field);
      const Elements held = alone ? partitioned_numel(full, ranks) * ranks : full;
      // A single rank's gathered weight is its partition; recordings are made without a device, so
      // that one which is offloaded is not copied either.
      gathered_[static_cast<int>(field.as_integer())] = ranks == 1 ? Bytes::zero() : held * dtype;
    }
  } else if (kind == "R") {
    numel(fields[1]);
    gathered_.erase(static_cast<int>(fields[1].as_integer()));
  }
}

// A partition without a flat buffer is met through its sub-group.
std::string BufferReplay::in_sub_group(int parameter) const {
  for (std::size_t g = 0; g < sub_groups_.size(); ++g) {
    const std::vector<int>& members = sub_groups_[g].parameters;
    const auto found = std::find(members.begin(), members.end(), parameter);
    if (found == members.end()) continue;
    return indexed(indexed("fp16_partitioned_groups", static_cast<std::ptrdiff_t>(g)),
                   found - members.begin());
  }
  return indexed("ds_tensor", parameter);
}

void BufferReplay::add_buffer(const EngineBuffer& buffer, EngineMoment moment, Lines& lines) const {
  const bool needs_step = buffer.lifetime == BufferLifetime::first_step_on;
  if (!exists(buffer.lifetime, moment, engine_.config.gradient_accumulation_steps)) return;
  if ((needs_step && !stepped_) || buffer.lifetime == BufferLifetime::between_steps) return;
  if (!buffer.held_by_optimizer || buffer.place == BufferPlace::nvme) return;
  if (buffer.bytes < kSmallestRecorded) return;
  std::string name = path(buffer);
  Elements elements = buffer.elements;
  const bool gradient_view = stepped_ || !engine_.config.acts(ReleaseRule::leaves_view_at_step);
  if (gradient_view && buffer.name == BufferName::fp32_groups_gradients_flat &&
      engine_.config.gradient_accumulation_dtype == DType::fp32) {
    // BF16_Optimizer's step (up to 0.14 its making) leaves a view of it as the gradient of the
    // master partition, which the recorder meets first.
    name = indexed("fp32_groups_flat_partition", buffer.index);
    name += ".grad";
    elements = buffer.elements / engine_.config.data_parallel_ranks;
  }
  if (buffer.name == BufferName::small_ds_tensor) name = in_sub_group(buffer.index);
  if (buffer.name == BufferName::param_groups_fp16_flat_cpu_memory &&
      engine_.config.offload_parameter.device == OffloadDevice::nvme) {
    // Met through the first partition in it.
    const auto first = std::find_if(sub_groups_.begin(), sub_groups_.end(), [&](const SubGroup& g) {
      return g.group == buffer.index;
    });
    const auto at = static_cast<std::size_t>(first->parameters.front());
    name = in_sub_group(first->parameters.front());
    elements = partitioned_numel(engine_.parameters[at].numel, partition_ranks(engine_.config));
  }
  if (buffer.name == BufferName::lp_param_buffer &&
      !engine_.config.acts(ReleaseRule::names_weight_buffer)) {
    // It had no name of its own: it is met through the partition of the first parameter.
    name = "fp16_partitioned_groups[0][0]";
    const auto first = static_cast<std::size_t>(sub_groups_.front().parameters.front());
    elements = partitioned_numel(engine_.parameters[first].numel, partition_ranks(engine_.config));
  }
  if (buffer.name == BufferName::fp16_partitioned_groups && partition_ranks(engine_.config) == 1) {
    // Without a device a single rank's persistent weights are views of it, and are met first.
    const int group = sub_groups_[static_cast<std::size_t>(buffer.index)].group;
    for (std::size_t i = persistent_.size(); i-- > 0;) {
      if (optimizer_group(persistent_[i]) != group || gathered_.count(persistent_[i]) == 0)
        continue;
      name = indexed("persistent_parameters", static_cast<std::ptrdiff_t>(i));
      elements = engine_.parameters[static_cast<std::size_t>(persistent_[i])].numel;
    }
  }
  bool pinned = buffer.place == BufferPlace::host_pinned;
  if (buffer.name == BufferName::fp32_partitioned_groups_flat && buffer.suffix == ".grad" &&
      engine_.config.offload_optimizer.device != OffloadDevice::none) {
    // Made pinned, and without a device not moved to it.
    pinned = engine_.config.offload_optimizer.pin_memory;
  }
  lines.push_back(line(name, elements, buffer.dtype, buffer.bytes, pinned));
}

// Index of a parameter's optimizer group as sub_groups() counts them.
int BufferReplay::optimizer_group(int parameter) const {
  for (const SubGroup& group : sub_groups_) {
    if (std::find(group.parameters.begin(), group.parameters.end(), parameter) !=
        group.parameters.end()) {
      return group.group;
    }
  }
  return -1;
}

// Gathered weights that the optimizer object leads to: persistent ones and those of its sub-groups.
void BufferReplay::add_gathered(Lines& lines) const {
  for (const auto& [parameter, bytes] : gathered_) {
    if (bytes < kSmallestRecorded) continue;
    std::string name;
    const auto found = std::find(persistent_.begin(), persistent_.end(), parameter);
    if (found != persistent_.end()) {
      name = indexed("persistent_parameters", found - persistent_.begin());
    }
    for (std::size_t g = 0; name.empty() && g < sub_groups_.size(); ++g) {
      const std::vector<int>& members = sub_groups_[g].parameters;
      const auto at = std::find(members.begin(), members.end(), parameter);
      if (at == members.end()) continue;
      name = indexed(indexed("fp16_groups", static_cast<std::ptrdiff_t>(g)), at - members.begin());
    }
    if (name.empty()) continue;
    lines.push_back(line(name,
                         engine_.parameters[static_cast<std::size_t>(parameter)].numel,
                         engine_.config.model_dtype,
                         bytes,
                         false));
  }
}

BufferReplay::Lines BufferReplay::predicted(EngineMoment moment) const {
  Lines lines;
  for (const EngineBuffer& buffer : buffers_) add_buffer(buffer, moment, lines);
  add_gathered(lines);
  return lines;
}

std::int64_t BufferReplay::resident_elements() const {
  std::int64_t sum = 0;
  if (engine_.config.stage == 3) {
    for (const auto& [parameter, bytes] : gathered_) {
      sum += engine_.parameters[static_cast<std::size_t>(parameter)].numel.count();
    }
    return sum;
  }
  for (const EngineParameter& parameter : engine_.parameters) sum += parameter.numel.count();
  return sum;
}

// The recorder knows pinned storages by address. With pinned offload_param the first partitions are
// freed while the engine is built, and what takes their addresses looks pinned: such a mark counts
// only where pinning is predicted.
void BufferReplay::forgive_reused_addresses(const Lines& predicted_lines, Lines& found) const {
  constexpr std::string_view kPinned = " pinned";
  const OffloadParameterConfig& offload = engine_.config.offload_parameter;
  if (offload.device == OffloadDevice::none || !offload.pin_memory) return;
  for (std::string& text : found) {
    if (text.size() < kPinned.size() || !text.ends_with(kPinned)) continue;
    const std::string plain = text.substr(0, text.size() - kPinned.size());
    const bool as_pinned = std::binary_search(predicted_lines.begin(), predicted_lines.end(), text);
    if (!as_pinned && std::binary_search(predicted_lines.begin(), predicted_lines.end(), plain)) {
      text = plain;
    }
  }
}

// The pool behind NVMe is the swapper's; the recorder meets it through a partition that was read.
bool BufferReplay::is_swap_pool(const Json& buffer) const {
  const Json* bytes = buffer.find("bytes");
  if (bytes == nullptr || !bytes->is_integer()) return false;
  return std::any_of(buffers_.begin(), buffers_.end(), [&](const EngineBuffer& known) {
    return known.name == BufferName::param_swap_buffers &&
           known.bytes.count() == bytes->as_integer();
  });
}

void BufferReplay::compare(const Json* recorded,
                           const std::string& what,
                           std::size_t step,
                           EngineMoment moment,
                           std::vector<ReplayMismatch>& out) {
  if (recorded == nullptr) return;
  const int number = moment == EngineMoment::initialised ? -1 : static_cast<int>(step);
  Lines found;
  for (const Json& buffer : recorded_member(*recorded, "/" + what, "buffers").items()) {
    if (!is_swap_pool(buffer)) found.push_back(recorded_line(buffer));
  }
  Lines lines = predicted(moment);
  std::sort(lines.begin(), lines.end());
  forgive_reused_addresses(lines, found);
  std::sort(found.begin(), found.end());
  Lines missing;
  Lines extra;
  std::set_difference(
      found.begin(), found.end(), lines.begin(), lines.end(), std::back_inserter(missing));
  std::set_difference(
      lines.begin(), lines.end(), found.begin(), found.end(), std::back_inserter(extra));
  if (!missing.empty() || !extra.empty()) {
    out.push_back({engine_.id,
                   number,
                   -1,
                   what + " buffers: " + join(missing),
                   what + " buffers: " + join(extra)});
  }
  const Json* resident = recorded->find("param_elems_resident");
  if (resident == nullptr || !resident->is_integer() ||
      resident->as_integer() == resident_elements()) {
    return;
  }
  out.push_back({engine_.id,
                 number,
                 -1,
                 what + " param_elems_resident " + std::to_string(resident->as_integer()),
                 what + " param_elems_resident " + std::to_string(resident_elements())});
}

void BufferReplay::compare_initialised(std::vector<ReplayMismatch>& out) {
  compare(recording_.find("init"), "init", 0, EngineMoment::initialised, out);
}

void BufferReplay::compare_step(std::size_t step, bool skipped, std::vector<ReplayMismatch>& out) {
  const int last = engine_.config.gradient_accumulation_steps - 1;
  const bool zero3 = engine_.config.stage == 3;
  int finished_backwards = -1;
  for (const Json* event : engine_.steps[step]) {
    if (event->items()[0].as_string() == "phase" && event->items().size() > 2 &&
        event->items()[1].is_string() && event->items()[1].as_string() == "step") {
      ++finished_backwards;
      if (step == 0 && finished_backwards == 0) {
        compare(recording_.find("after_bwd0"),
                "after_bwd0",
                step,
                EngineMoment::after_first_backward,
                out);
      }
      if (step + 1 == engine_.steps.size() && finished_backwards == last) {
        compare(recording_.find("before_last_step"),
                "before_last_step",
                step,
                stepped_ ? EngineMoment::before_step : EngineMoment::before_first_step,
                out);
      }
    } else if (zero3) {
      follow(*event);
    }
  }
  if (!skipped) {
    stepped_ = true;
    // _post_step gathers every persistent parameter alone.
    const int ranks = partition_ranks(engine_.config);
    const bool copies =
        persistent_gather(engine_.config, persistent_.size()) != PersistentGather::none;
    for (int parameter : persistent_) {
      const Elements numel = engine_.parameters[static_cast<std::size_t>(parameter)].numel;
      gathered_[parameter] =
          copies ? partitioned_numel(numel, ranks) * ranks * engine_.config.model_dtype
                 : Bytes::zero();
    }
  }
  const Json* after = recording_.find("after_step");
  if (after == nullptr) return;
  for (const Json& entry : after->items()) {
    const Json& number = recorded_member(entry, "/after_step", "step");
    if (recorded_integer(number, "/after_step") == static_cast<std::int64_t>(step)) {
      compare(&entry, "after_step", step, EngineMoment::after_step, out);
    }
  }
}

}  // namespace zeroplan::evidence
