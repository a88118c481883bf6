#include "tests/engine/fetch_step.hpp"

namespace zeroplan {

std::span<const FetchEvent> FetchStep::micro_step(std::size_t index) const {
  const auto begin = static_cast<std::size_t>(micro_steps[index]);
  const auto end =
      static_cast<std::size_t>(index + 1 < micro_steps.size() ? micro_steps[index + 1] : optimizer);
  return std::span(log.events).subspan(begin, end - begin);
}

std::span<const FetchEvent> FetchStep::optimizer_step() const {
  return std::span(log.events).subspan(static_cast<std::size_t>(optimizer));
}

void FetchStep::clear() {
  log.clear();
  micro_steps.clear();
  optimizer = 0;
}

void play_micro_step(FetchCoordinator& coordinator,
                     std::span<const ModuleEvent> order,
                     FetchLog& log) {
  coordinator.begin_micro_step(log);
  for (const ModuleEvent& event : order) {
    switch (event.kind) {
      case ModuleEventKind::forward_enter:
        coordinator.enter(event.module, FetchPass::forward, log);
        break;
      case ModuleEventKind::forward_exit:
        coordinator.exit(event.module, FetchPass::forward, log);
        break;
      case ModuleEventKind::backward_begin:
        coordinator.begin_backward(log);
        break;
      case ModuleEventKind::backward_enter:
        coordinator.enter(event.module, FetchPass::backward, log);
        break;
      case ModuleEventKind::backward_exit:
        coordinator.exit(event.module, FetchPass::backward, log);
        break;
    }
  }
  coordinator.end_backward(log);
}

void play_step(FetchCoordinator& coordinator,
               std::span<const ModuleEvent> order,
               int micro_steps,
               FetchStep& step) {
  step.clear();
  for (int i = 0; i < micro_steps; ++i) {
    step.micro_steps.push_back(static_cast<std::int32_t>(step.log.events.size()));
    play_micro_step(coordinator, order, step.log);
  }
  step.optimizer = static_cast<std::int32_t>(step.log.events.size());
  coordinator.begin_optimizer_step(step.log);
  coordinator.end_optimizer_step(step.log);
}

FetchSchedule schedule_fetches(const FetchModel& model,
                               const EngineConfig& config,
                               std::span<const ModuleEvent> order) {
  FetchCoordinator coordinator(model, config);
  FetchSchedule schedule;
  for (FetchStep* step : {&schedule.first, &schedule.second, &schedule.steady}) {
    play_step(coordinator, order, config.gradient_accumulation_steps, *step);
  }
  return schedule;
}

}  // namespace zeroplan
