#include "model/cost/host_time.hpp"

#include <algorithm>

namespace zeroplan {

HostCosts host_costs(const HostSoftware& software, const Coefficients& c) {
  const auto seconds = [&](Coefficient id) { return Seconds::of(c[id]); };
  HostCosts costs;
  if (!software.launches) return costs;
  costs.forward_operation = seconds(Coefficient::host_forward_operation_seconds);
  costs.backward_operation = seconds(Coefficient::host_backward_operation_seconds);
  costs.view = seconds(Coefficient::host_view_seconds);
  costs.launch = seconds(Coefficient::host_launch_seconds);
  costs.module_hook = seconds(Coefficient::host_module_hook_seconds);
  costs.zero3_event = seconds(Coefficient::host_seconds_per_zero3_tensor);
  costs.gradient_hook = seconds(software.stage == 3 ? Coefficient::host_zero3_gradient_seconds
                                                    : Coefficient::host_gradient_hook_seconds);
  costs.fsdp_unit = seconds(Coefficient::host_fsdp_unit_seconds);
  costs.collective_call = seconds(Coefficient::host_collective_call_seconds);
  if (software.implementation == Implementation::composer) {
    costs.step = seconds(Coefficient::composer_step_seconds);
    costs.micro_step = seconds(Coefficient::micro_step_fixed_seconds);
  } else if (software.frontend == Frontend::hf_trainer) {
    costs.step = seconds(Coefficient::step_fixed_seconds);
    costs.micro_step = seconds(Coefficient::micro_step_fixed_seconds);
  } else {
    costs.step = seconds(Coefficient::native_step_seconds);
    costs.micro_step = seconds(Coefficient::native_micro_step_seconds);
  }
  if (software.engine == TrainingEngine::embedded) {
    // C++ without dispatcher, autograd and hooks: launches alone.
    costs.forward_operation = costs.backward_operation = costs.launch;
    costs.view = costs.module_hook = costs.gradient_hook = Seconds::zero();
    costs.zero3_event = costs.collective_call = costs.launch * 2.0;
    costs.step = costs.micro_step = Seconds::zero();
  }
  return costs;
}

Seconds HostCosts::operation(const Operation& operation, Pass pass) const {
  const auto times = static_cast<double>(operation.times);
  if (operation.kind == OpKind::view || operation.kernels <= 0) return view * times;
  const Seconds first = pass == Pass::backward ? backward_operation : forward_operation;
  return (first + launch * static_cast<double>(operation.kernels - 1)) * times;
}

Seconds HostCosts::pass(const Block& block, Pass which) const {
  Seconds total;
  for (const Event& event : block.of(which)) {
    if (event.kind != EventKind::operation) continue;
    total += operation(block.operations[static_cast<std::size_t>(event.index)], which);
  }
  return total;
}

}  // namespace zeroplan
