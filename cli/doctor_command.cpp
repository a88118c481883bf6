// zeroplan doctor: what on this machine makes DeepSpeed runs hang, fail or crawl.
#include <memory>
#include <ostream>

#include "cli/commands.hpp"
#include "cli/doctor/checks.hpp"
#include "cli/language/translation.hpp"
#include "cli/write_file.hpp"
#include "model/hardware/hostfile.hpp"
#include "model/plan/plan.hpp"
#include "simulator/simulate.hpp"

namespace zeroplan::cli {
namespace {

constexpr int kSecondsOfACommand = 60;  // importing deepspeed on a cold disk takes half of that

// Absent where nothing was said about a model and a cluster.
std::optional<PlanNeeds> needs_of(const Arguments& arguments) {
  const Scenario scenario = scenario_of(arguments);
  if (scenario.find(ScenarioKey::model) == nullptr ||
      scenario.find(ScenarioKey::cluster) == nullptr) {
    return std::nullopt;
  }
  const Plan plan = resolve(scenario);
  const StepResult result = simulator::simulate(plan, {});
  PlanNeeds needs;
  needs.gpus = plan.cluster.gpus_per_node();
  needs.gpu_name = plan.cluster.gpu.product_name;
  needs.nodes = plan.cluster.nodes;
  needs.host_memory = result.host.peak;
  needs.pinned_memory = result.host.pinned;
  needs.bf16 = plan.workload.precision == Precision::bf16;
  needs.cpu_optimizer = plan.engine.offload_optimizer.device != OffloadDevice::none;
  needs.nvme = result.nvme;
  if (plan.cluster.node.nvme) needs.nvme_read = plan.cluster.node.nvme->read_bandwidth.value;
  return needs;
}

Questions questions_of(const Arguments& arguments) {
  Questions questions;
  if (const auto path = arguments.text("hostfile")) {
    constexpr std::int64_t kLargestHostfile = 16 << 20;
    for (const Host& host : parse_hostfile(read_text_file(*path, kLargestHostfile), *path)) {
      questions.hosts.push_back(host.name);
    }
  }
  questions.nvme_path = arguments.text("nvme-path");
  questions.measure_nvme = arguments.has("measure-nvme");
  if (questions.measure_nvme && !questions.nvme_path) {
    throw InputError({kCommandLine, "--measure-nvme", "--nvme-path FOLDER with it", "nothing", ""});
  }
  return questions;
}

Json findings_json(const std::vector<DoctorFinding>& findings) {
  Json list = Json::array();
  for (const DoctorFinding& finding : findings) {
    list.push_back(Json::object({{"severity", name(finding.severity)},
                                 {"code", finding.code},
                                 {"message", finding.message.english()},
                                 {"reason", finding.reason.english()},
                                 {"fix", finding.fix.english()}}));
  }
  return Json::object({{"schema", "zeroplan.doctor/1"}, {"findings", list}});
}

void print(const std::vector<DoctorFinding>& findings,
           bool planned,
           std::ostream& out,
           const Translation& words) {
  for (const DoctorFinding& finding : findings) {
    const std::string severity(name(finding.severity));
    out << words.filled(severity + ": {} [{=}]", {finding.message, finding.code}) << "\n"
        << "  " << words.filled("why: {}", {finding.reason}) << "\n";
    if (!finding.fix.empty()) out << "  " << words.filled("fix: {}", {finding.fix}) << "\n";
  }
  if (findings.empty()) out << words.text("nothing found\n");
  if (!planned) {
    out << words.text(
        "not checked without a plan (--scenario, or --model and --cluster): number of GPUs, host "
        "memory, bf16, CPU optimizer, NVMe\n");
  }
}

bool has_error(const std::vector<DoctorFinding>& findings) {
  return !findings.empty() && findings.front().severity == Severity::error;
}

}  // namespace

int run_doctor(const Arguments& arguments, Streams streams) {
  const std::optional<PlanNeeds> needs = needs_of(arguments);
  const Questions questions = questions_of(arguments);
  std::unique_ptr<Probe> source;
  if (const auto recorded = arguments.text("recorded")) {
    source = recorded_probe(read_json_file(*recorded));
  } else {
    source = machine_probe(kSecondsOfACommand);
  }
  RecordingProbe probe(std::move(source));
  const MachineState machine = look_at(probe, questions);
  if (const auto path = arguments.text("record")) {
    write_file(*path, probe.recording().dump(2) + "\n");
  }
  const std::vector<DoctorFinding> findings = examine(machine, needs);
  if (arguments.json) {
    streams.out << findings_json(findings).dump(2) << "\n";
  } else {
    print(findings, needs.has_value(), streams.out, Translation(arguments.language));
  }
  return has_error(findings) ? kAnswerIsNo : kDone;
}

}  // namespace zeroplan::cli
