#include "model/step/kernel_workspaces.hpp"

#include <algorithm>
#include <array>

#include "model/graph/cublas_workspace.hpp"
#include "model/implementations/embedded_memory.hpp"
#include "model/plan/plan.hpp"
#include "model/releases.hpp"

namespace zeroplan {
namespace {

Bytes of_cublas(const Plan& plan) {
  const ComputeCapability& capability = plan.cluster.gpu.compute_capability;
  return cublas_workspace(capability.major * 10 + capability.minor);
}

// PyTorch 2 on a GPU.
bool has_workspaces(const Plan& plan) {
  return !plan.cluster.gpu.is_cpu() && plan.workload.engine != TrainingEngine::embedded &&
         plan.software.torch.major >= 2;
}

// Of the thread that runs the forward pass, and of autograd's.
constexpr std::array kForwardPasses{Pass::forward, Pass::forward_no_grad};
constexpr std::array kBackwardPasses{Pass::recompute, Pass::backward};

bool calls_lt(const Block& block, Pass pass) {
  const auto& events = block.of(pass);
  return std::any_of(events.begin(), events.end(), [&](const Event& event) {
    return event.kind == EventKind::operation &&
           block.operations[static_cast<std::size_t>(event.index)].library == Library::cublaslt;
  });
}

}  // namespace

KernelWorkspaces kernel_workspaces(const Plan& plan) {
  if (plan.cluster.gpu.is_cpu()) return {};
  if (plan.workload.engine == TrainingEngine::embedded) {
    return {Bytes::of(kEmbeddedWorkspace), Bytes::zero(), Bytes::zero()};
  }
  const Software& software = plan.software;
  if (!has_workspaces(plan) || software.torch_acts(ReleaseRule::makes_workspace_per_product)) {
    return {};
  }
  const bool own_lt = software.torch_acts(ReleaseRule::keeps_lt_workspace) &&
                      !software.torch_acts(ReleaseRule::shares_lt_workspace);
  return {of_cublas(plan), of_cublas(plan), own_lt ? Bytes::of(kLtWorkspace) : Bytes::zero()};
}

Bytes kept_workspaces(const Plan& plan, const ModelGraph& graph) {
  const KernelWorkspaces workspaces = kernel_workspaces(plan);
  if (workspaces.lt == Bytes::zero()) return workspaces.total();
  Bytes bytes = workspaces.total();
  for (const auto& passes : {kForwardPasses, kBackwardPasses}) {
    const bool calls = std::any_of(passes.begin(), passes.end(), [&](Pass pass) {
      return std::any_of(graph.blocks.begin(), graph.blocks.end(), [pass](const Block& block) {
        return calls_lt(block, pass);
      });
    });
    if (calls) bytes += workspaces.lt;
  }
  return bytes;
}

Bytes product_workspace(const Plan& plan) {
  const bool makes =
      has_workspaces(plan) && plan.software.torch_acts(ReleaseRule::makes_workspace_per_product);
  return makes ? of_cublas(plan) : Bytes::zero();
}

}  // namespace zeroplan
