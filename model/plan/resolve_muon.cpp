// Muon: which parameters it updates and in which order, and where DeepSpeed leaves its update out.
//
// Sources (DeepSpeed 0.19.6): deepspeed/__init__.py set_optimizer_flags (use_muon),
// runtime/engine.py _configure_basic_optimizer (two groups), runtime/zero/muon/original_muon.py
// MuonWithAuxAdam.__init__ (Muon's sorted by size), runtime/zero/stage_1_and_2.py
// get_flat_partition and runtime/zero/stage3.py _apply_distributed_muon_update (the only callers of
// muon_update).
#include <algorithm>
#include <numeric>

#include "base/written_names.hpp"
#include "model/engine/partition.hpp"
#include "model/plan/resolver.hpp"
#include "model/releases.hpp"

namespace zeroplan {
namespace {

// set_optimizer_flags: matrices whose name says neither. What zero.Init has partitioned is a vector
// to it, so that of a model that is built so only adapters are left (DeepSpeed's pull request
// 8438).
bool uses_muon(const Plan& plan, const Parameter& parameter) {
  if (!parameter.trainable || parameter.shape.size() < 2) return false;
  const std::string lower = folded(parameter.name, "");
  if (lower.find("embed") != std::string::npos || lower.find("lm_head") != std::string::npos) {
    return false;
  }
  const bool partitioned = plan.engine.stage == 3 && plan.engine.stage3.zero_init;
  return !partitioned || plan.workload.method != Method::full;
}

// muon_update: the last two dimensions, of four the first against the others.
MuonMatrices matrices_of(const std::vector<std::int64_t>& shape) {
  const std::int64_t all =
      std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
  MuonMatrices matrices;
  matrices.rows = shape.size() == 4 ? shape.front() : shape[shape.size() - 2];
  matrices.columns = shape.size() == 4 ? all / matrices.rows : shape.back();
  matrices.count = all / (matrices.rows * matrices.columns);
  return matrices;
}

class Checks {
 public:
  explicit Checks(Resolver& r) : r_(r), engine_(r.plan.engine) {}

  void run() {
    const Plan& plan = r_.plan;
    if (plan.workload.engine != TrainingEngine::deepspeed) {
      refuse("engine deepspeed, whose optimizer it is",
             std::string(name(kTrainingEngineNames, plan.workload.engine)),
             "choose another optimizer");
      return;
    }
    if (!engine_.acts(ReleaseRule::has_known_muon)) {
      refuse("DeepSpeed 0.19.0 to 0.19.6, whose Muon is modelled", to_string(engine_.release), "");
      return;
    }
    if (r_.ds_config_is_file && !plan.ds_config.is_set(Knob::optimizer_type)) {
      // Another class of that name, made by the script, is no MuonWithAuxAdam.
      refuse("a ds_config.json whose optimizer is Muon, which DeepSpeed then makes",
             "a file without optimizer",
             "write \"optimizer\": {\"type\": \"Muon\"}");
      return;
    }
    const OptimizerWrapper wrapper = optimizer_wrapper(engine_);
    if (wrapper == OptimizerWrapper::zero12) {
      stages_1_and_2();
    } else if (wrapper == OptimizerWrapper::zero3) {
      stage_3();
    } else {
      // DeepSpeed's issue 8441.
      leaves_it_out(phrase("stage {}", engine_.stage), "use stage 1 or 2");
    }
  }

 private:
  Origin origin() const {
    if (!r_.plan.ds_config.is_set(Knob::optimizer_type)) return r_.origin(ScenarioKey::optimizer);
    return {r_.ds_config_file, std::string(pointer_of(Knob::optimizer_type))};
  }
  void refuse(Phrase expected, Phrase got, Phrase hint) {
    r_.problem(origin(), std::move(expected), std::move(got), std::move(hint));
  }
  void leaves_it_out(Phrase where, Phrase hint) {
    refuse(
        "Muon where DeepSpeed orthogonalises its updates; here it would add plain gradients to the "
        "matrices",
        std::move(where),
        std::move(hint));
  }

  void stages_1_and_2() {
    if (engine_.offload_optimizer.device != OffloadDevice::none) {
      leaves_it_out("an offloaded optimizer", "leave offload_optimizer out");
    } else if (engine_.gradient_accumulation_dtype != engine_.model_dtype) {
      refuse("gradients summed in the model's type, as Muon's momentum is",
             phrase("data_types.grad_accum_dtype {}", name(engine_.gradient_accumulation_dtype)),
             "leave grad_accum_dtype out");
    } else if (!engine_.contiguous_gradients) {
      refuse("contiguous_gradients with Muon: without them it is not modelled",
             "false",
             "leave contiguous_gradients out");
    }
  }

  void stage_3() {
    const std::vector<EngineParameter>& parameters = r_.plan.engine_parameters;
    const bool any = std::any_of(parameters.begin(),
                                 parameters.end(),
                                 [](const EngineParameter& one) { return one.muon.any(); });
    if (any) {
      refuse("Muon at stages 1 and 2: at stage 3 it is modelled where zero.Init leaves all to Adam",
             "weights that are whole when the engine is made",
             "use stage 2");
      return;
    }
    r_.warn(
        "Muon updates nothing at stage 3: zero.Init makes every weight a vector, and DeepSpeed "
        "leaves vectors to Adam, which is predicted; stages 1 and 2 use Muon");
  }

  Resolver& r_;
  const EngineConfig& engine_;
};

}  // namespace

void mark_muon(const Plan& plan, std::vector<EngineParameter>& parameters) {
  if (plan.engine.optimizer != OptimizerKind::muon || !runs_deepspeed(plan.workload)) return;
  std::vector<std::size_t> sorted;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& parameter = plan.model->parameters[i];
    parameters[i].group = 1;
    if (!uses_muon(plan, parameter)) continue;
    parameters[i].group = 0;
    parameters[i].muon = matrices_of(parameter.shape);
    sorted.push_back(i);
  }
  std::stable_sort(sorted.begin(), sorted.end(), [&](std::size_t a, std::size_t b) {
    return plan.model->parameters[a].shape > plan.model->parameters[b].shape;
  });
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    parameters[sorted[i]].place = static_cast<int>(i);
  }
}

void resolve_muon(Resolver& r) {
  if (r.plan.engine.optimizer == OptimizerKind::muon) Checks(r).run();
}

}  // namespace zeroplan
