#include "runtime/engine/optimizer_swapper.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "model/engine/swapping.hpp"
#include "runtime/engine/tensor_ops.hpp"

namespace zeroplan::runtime {
namespace {

constexpr DType kMaster = DType::fp32;

}  // namespace

OptimizerSwapper::OptimizerSwapper(SwapFile& file,
                                   Device& device,
                                   Timeline* timeline,
                                   const Pool& pool,
                                   const EngineConfig& config)
    : file_(file), device_(device), timeline_(timeline), pool_(pool), config_(config) {
  for (int buffer = pool_.buffers; buffer-- > 0;) free_.push_back(buffer);
}

const OptimizerSwapper::Group* OptimizerSwapper::find(int group) const {
  const auto found = std::find_if(
      groups_.begin(), groups_.end(), [&](const Group& g) { return g.group == group; });
  return found == groups_.end() ? nullptr : &*found;
}

OptimizerSwapper::Group* OptimizerSwapper::find(int group) {
  return const_cast<Group*>(std::as_const(*this).find(group));
}

// Whole pages where the buffer has room for them: past the page cache to the end.
Bytes OptimizerSwapper::whole(Elements elements) const {
  const Bytes pages = Bytes::of(round_up((elements * kMaster).count(), kSwapPage));
  return std::min(pages, pool_.buffer);
}

void OptimizerSwapper::add_group(int group, Elements elements, const std::vector<Part>& parts) {
  Group added{.group = group, .elements = elements, .kept_at = kept_};
  for (const Part& part : parts) {
    const Elements written = swapped_gradient(part.elements, config_);
    added.pieces.push_back({.parameter = part.parameter,
                            .elements = part.elements,
                            .written = written,
                            .at = added.written,
                            .kept_at = kept_});
    added.written += written;
    kept_ += part.elements - written;
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Piece& piece = added.pieces[i];
    const Elements behind = added.written + (piece.kept_at - added.kept_at);
    if (piece.written > Elements::zero()) {
      added.stretches.push_back({parts[i].offset, piece.at, piece.written});
    }
    if (piece.written < piece.elements) {
      added.stretches.push_back(
          {parts[i].offset + piece.written, behind, piece.elements - piece.written});
    }
  }
  groups_.push_back(std::move(added));
}

void OptimizerSwapper::reserve(int group, Tensor tensor) {
  Group& g = *find(group);
  g.offsets[tensor] = file_.reserve(whole(g.elements));
}

float* OptimizerSwapper::borrow(int group) {
  ZP_CHECK(!free_.empty(), "a buffer is free between steps");
  device_.zero(data(free_.back()), whole(find(group)->elements));
  return reinterpret_cast<float*>(data(free_.back()));
}

void OptimizerSwapper::write_now(int group, Tensor tensor) {
  device_.synchronize();
  const Group& g = *find(group);
  SwapBatch batch(file_, timeline_, /*write=*/true);
  batch.write(g.offsets[tensor], data(free_.back()), whole(g.elements));
  batch.wait();
}

// A buffer that nobody uses; writes of earlier ones are waited for where there is none.
int OptimizerSwapper::take() {
  while (free_.empty() && !writing_.empty()) finish_write();
  ZP_CHECK(!free_.empty(), "the pool has as many buffers as the step needs");
  const int buffer = free_.back();
  free_.pop_back();
  return buffer;
}

void OptimizerSwapper::finish_write() {
  Write write = std::move(writing_.front());
  writing_.pop_front();
  write.batch.wait();
  free_.insert(free_.end(), write.buffers.begin(), write.buffers.end());
}

// --- gradients

void OptimizerSwapper::put_gradient(
    int group, std::int32_t parameter, const std::byte* from, Elements real, std::byte* kept) {
  const Group& g = *find(group);
  const auto piece = std::find_if(
      g.pieces.begin(), g.pieces.end(), [&](const Piece& p) { return p.parameter == parameter; });
  ZP_CHECK(piece != g.pieces.end(), "a gradient belongs to its sub-group");
  if (real > piece->written) {
    device_.convert(from + (piece->written * kMaster).count(),
                    kMaster,
                    kept + (piece->kept_at * kMaster).count(),
                    kMaster,
                    real - piece->written);
  }
  if (piece->written == Elements::zero()) return;
  const Bytes bytes = piece->written * kMaster;
  ZP_CHECK(staged_bytes_ + bytes <= pool_.buffer,
           "the policy sends gradients before they overflow");
  if (stage_ < 0) stage_ = take();
  std::byte* to = data(stage_) + staged_bytes_.count();
  const Elements there = std::min(real, piece->written);
  {
    const OnQueue queue(device_, Queue::copy);
    device_.convert(from, kMaster, to, kMaster, there);
  }
  // The last rank's padding.
  if (there < piece->written) {
    device_.zero(to + (there * kMaster).count(), (piece->written - there) * kMaster);
  }
  staged_.push_back({g.offsets[gradient] + piece->at * kMaster, to, bytes});
  staged_bytes_ += bytes;
}

void OptimizerSwapper::send_gradients() {
  if (stage_ < 0) return;
  device_.synchronize();  // the copies have arrived
  Write write{.batch = SwapBatch(file_, timeline_, /*write=*/true), .buffers = {stage_}};
  for (const Staged& staged : staged_) write.batch.write(staged.offset, staged.data, staged.bytes);
  writing_.push_back(std::move(write));
  staged_.clear();
  staged_bytes_ = Bytes::zero();
  stage_ = -1;
}

// --- the step

void OptimizerSwapper::begin_read(Group& group) {
  group.reads = SwapBatch(file_, timeline_, /*write=*/false);
  for (std::size_t tensor = 0; tensor < kTensors; ++tensor) {
    group.buffers[tensor] = take();
    // The remainders come behind the gradient's pieces from elsewhere.
    const Bytes bytes = tensor == gradient ? group.written * kMaster : whole(group.elements);
    if (bytes == Bytes::zero()) continue;
    group.reads.read(group.offsets[tensor], data(group.buffers[tensor]), bytes);
  }
}

OptimizerSwapper::Loaded OptimizerSwapper::swap_in(int group, const std::byte* kept) {
  Group& g = *find(group);
  const bool begun = g.buffers[master] >= 0;
  if (&g == &groups_.front() && !begun) finish();
  if (!begun) begin_read(g);
  const auto next = static_cast<std::size_t>(&g - groups_.data()) + 1;
  g.reads.wait();
  if (config_.offload_optimizer.pipeline_read && next < groups_.size()) begin_read(groups_[next]);
  std::byte* gradients = data(g.buffers[gradient]);
  if (g.written < g.elements) {
    const OnQueue queue(device_, Queue::copy);
    device_.convert(kept + (g.kept_at * kMaster).count(),
                    kMaster,
                    gradients + (g.written * kMaster).count(),
                    kMaster,
                    g.elements - g.written);
  }
  const auto at = [&](Tensor tensor) { return reinterpret_cast<float*>(data(g.buffers[tensor])); };
  return {.master = at(master),
          .first_moment = at(first_moment),
          .second_moment = at(second_moment),
          .gradient = at(gradient)};
}

void OptimizerSwapper::swap_out(int group, bool waits) {
  Group& g = *find(group);
  device_.synchronize();  // the weights were read out of the master
  while (!writing_.empty()) finish_write();
  Write write{.batch = SwapBatch(file_, timeline_, /*write=*/true), .buffers = {}};
  for (const Tensor tensor : {master, first_moment, second_moment}) {
    write.batch.write(g.offsets[tensor], data(g.buffers[tensor]), whole(g.elements));
    write.buffers.push_back(g.buffers[tensor]);
  }
  free_.push_back(g.buffers[gradient]);
  g.buffers.fill(-1);
  writing_.push_back(std::move(write));
  if (waits) finish_write();
}

void OptimizerSwapper::finish() {
  send_gradients();
  while (!writing_.empty()) finish_write();
}

}  // namespace zeroplan::runtime
