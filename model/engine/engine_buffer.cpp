#include "model/engine/engine_buffer.hpp"

#include <bit>
#include <map>
#include <tuple>

namespace zeroplan {

namespace {

void append_index(std::string& text, int index) {
  if (index < 0) return;
  text += '[';
  text += std::to_string(index);
  text += ']';
}

}  // namespace

std::string path(const EngineBuffer& buffer) {
  std::string text(path_of(buffer.name));
  if (buffer.name == BufferName::state) {
    text += "[p";
    text += std::to_string(buffer.index);
    text += ']';
  } else {
    append_index(text, buffer.index);
    append_index(text, buffer.second_index);
  }
  text += buffer.suffix;
  return text;
}

bool exists(BufferLifetime lifetime, EngineMoment moment, int gradient_accumulation_steps) {
  const bool stepped = moment == EngineMoment::before_step || moment == EngineMoment::after_step;
  const bool before =
      moment == EngineMoment::before_step || moment == EngineMoment::before_first_step;
  const bool inside_window =
      moment == EngineMoment::after_first_backward && gradient_accumulation_steps > 1;
  // With one micro-step a window the first backward is the boundary's.
  const bool boundary_done =
      before || (moment == EngineMoment::after_first_backward && gradient_accumulation_steps == 1);
  switch (lifetime) {
    case BufferLifetime::resident:
      return true;
    case BufferLifetime::first_backward_on:
      return moment != EngineMoment::initialised;
    case BufferLifetime::first_step_on:
    case BufferLifetime::between_steps:
      return stepped;
    case BufferLifetime::window:
      return inside_window;
    case BufferLifetime::window_to_step:
      return inside_window || boundary_done;
    case BufferLifetime::window_to_next_backward:
      return moment != EngineMoment::initialised;
    case BufferLifetime::first_boundary_on:
    case BufferLifetime::boundary_to_next_backward:
      return boundary_done || moment == EngineMoment::after_step;
    case BufferLifetime::boundary_to_step:
    case BufferLifetime::after_boundary:
    case BufferLifetime::updates_to_step:
      return boundary_done;
    case BufferLifetime::backward:
    case BufferLifetime::boundary_backward:
    case BufferLifetime::later_backward:
    case BufferLifetime::step:
      return false;
  }
  return false;
}

Bytes pinned_allocation(Bytes requested, PinBackend backend) {
  if (backend == PinBackend::native || requested == Bytes::zero()) return requested;
  return Bytes::of(
      static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(requested.count()))));
}

bool is_waiting_gradient(const EngineBuffer& buffer) {
  const bool waits = buffer.lifetime == BufferLifetime::window ||
                     buffer.lifetime == BufferLifetime::window_to_step ||
                     buffer.lifetime == BufferLifetime::boundary_to_step;
  const bool whole_gradients = buffer.suffix == ".grad" || buffer.name == BufferName::grad_accum ||
                               buffer.name == BufferName::module_gradients;
  return waits && whole_gradients && buffer.category == MemoryCategory::gradients;
}

bool is_kept_gradient(const EngineBuffer& buffer) {
  return buffer.suffix == ".grad" && buffer.lifetime == BufferLifetime::first_backward_on &&
         buffer.place == BufferPlace::gpu;
}

bool is_reduce_bucket(const EngineBuffer& buffer) { return buffer.name == BufferName::ipg_bucket; }

bool is_outside_bucket(const EngineBuffer& buffer) {
  return buffer.name == BufferName::outside_bucket;
}

bool is_unbuffered_gradient(const EngineBuffer& buffer, const EngineConfig& config) {
  const bool contiguous =
      config.contiguous_gradients ||
      (config.stage < 3 && config.offload_optimizer.device != OffloadDevice::none);
  return contiguous && is_outside_bucket(buffer);
}

std::vector<HandedBuffer> handed_buffers(std::span<const EngineBuffer> buffers) {
  using Key = std::tuple<int, int, Bytes>;
  const auto key = [](const EngineBuffer& buffer) {
    return Key{buffer.index, buffer.second_index, buffer.bytes};
  };
  std::map<Key, std::size_t> windows;
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    const bool is_gradient = buffers[i].category == MemoryCategory::gradients;
    if (buffers[i].lifetime == BufferLifetime::window && is_gradient) windows[key(buffers[i])] = i;
  }
  std::vector<HandedBuffer> handed;
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    if (buffers[i].lifetime != BufferLifetime::after_boundary) continue;
    const auto window = windows.find(key(buffers[i]));
    if (window != windows.end()) handed.push_back({window->second, i});
  }
  return handed;
}

}  // namespace zeroplan
