#include "model/engine/optimizer_states.hpp"

#include <array>

namespace zeroplan {

namespace {

constexpr std::array<OptimizerState, 2> kAdam = {
    {{.suffix = "[exp_avg]"}, {.suffix = "[exp_avg_sq]"}}};
constexpr std::array<OptimizerState, 1> kLion = {{{.suffix = "[exp_avg]"}}};
constexpr std::array<OptimizerState, 1> kCpuAdagrad = {{{.suffix = "[exp_avg_sq]"}}};
constexpr std::array<OptimizerState, 1> kTorchAdagrad = {{{.suffix = "[sum]"}}};
constexpr std::array<OptimizerState, 1> kMomentum = {{{.suffix = "[momentum_buffer]"}}};
constexpr std::array<OptimizerState, 1> kAdafactor = {{{.suffix = "[exp_avg_sq]"}}};
constexpr std::array<OptimizerState, 4> kAdam8 = {
    {{.suffix = "[state1]", .in_state_dtype = false, .dtype = DType::uint8},
     {.suffix = "[state2]", .in_state_dtype = false, .dtype = DType::uint8},
     {.suffix = "[absmax1]",
      .in_state_dtype = false,
      .dtype = DType::fp32,
      .elements_per_entry = 256},
     {.suffix = "[absmax2]",
      .in_state_dtype = false,
      .dtype = DType::fp32,
      .elements_per_entry = 256}}};
constexpr std::array<OptimizerState, 2> kAdam8Small = {
    {{.suffix = "[state1]", .in_state_dtype = false, .dtype = DType::fp32},
     {.suffix = "[state2]", .in_state_dtype = false, .dtype = DType::fp32}}};
constexpr Elements kSmallest8Bit = Elements::of(4096);

}  // namespace

std::span<const OptimizerState> optimizer_states(OptimizerKind kind, Elements numel, bool wide) {
  switch (kind) {
    case OptimizerKind::fused_adam:
    case OptimizerKind::cpu_adam:
    case OptimizerKind::torch_adam:
    case OptimizerKind::fused_lamb:
    case OptimizerKind::cpu_lion:
    case OptimizerKind::muon:
      return kAdam;
    case OptimizerKind::fused_lion:
      return kLion;
    case OptimizerKind::cpu_adagrad:
      return kCpuAdagrad;
    case OptimizerKind::torch_adagrad:
      return kTorchAdagrad;
    case OptimizerKind::sgd:
      return {};
    case OptimizerKind::sgd_momentum:
      return kMomentum;
    case OptimizerKind::adafactor:
      return kAdafactor;
    case OptimizerKind::adamw_8bit:
      if (wide || numel < kSmallest8Bit) return kAdam8Small;
      return kAdam8;
  }
  return {};
}

std::string_view momentum_state() { return kMomentum.front().suffix; }

}  // namespace zeroplan
