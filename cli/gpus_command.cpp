// zeroplan gpus: the GPUs and machines whose data are built in.
#include <ostream>

#include "cli/commands.hpp"
#include "cli/table.hpp"
#include "model/hardware/hardware.hpp"
#include "model/hardware/known_hardware.hpp"

namespace zeroplan::cli {
namespace {

template <typename T, typename Number>
Json quantity_json(const Quantity<T>& quantity, Number number) {
  return Json::object({{"value", number},
                       {"confidence", name(kConfidenceNames, quantity.confidence)},
                       {"relative_sd", quantity.relative_sd},
                       {"source", quantity.source}});
}

Json gpu_json(const Gpu& gpu) {
  Json document =
      Json::object({{"key", gpu.key},
                    {"name", gpu.name},
                    {"product_name", gpu.product_name},
                    {"form", name(kFormFactorNames, gpu.form)},
                    {"architecture", gpu.architecture},
                    {"compute_capability",
                     std::to_string(gpu.compute_capability.major) + "." +
                         std::to_string(gpu.compute_capability.minor)},
                    {"memory_bytes", quantity_json(gpu.memory, gpu.memory.value.count())},
                    {"memory_bandwidth",
                     quantity_json(gpu.memory_bandwidth, gpu.memory_bandwidth.value.value())},
                    {"fp16_flops", quantity_json(gpu.peak.fp16, gpu.peak.fp16.value.value())},
                    {"bf16_supported", gpu.bf16_supported}});
  if (gpu.peak.bf16) {
    document["bf16_flops"] = quantity_json(*gpu.peak.bf16, gpu.peak.bf16->value.value());
  }
  if (gpu.nvlink) {
    document["nvlink_bandwidth"] = quantity_json(*gpu.nvlink, gpu.nvlink->value.value());
  }
  return document;
}

std::string tera(double flops) { return fixed_text(flops / 1e12, flops < 1e14 ? 1 : 0); }

void print_gpus(std::ostream& out) {
  std::vector<std::vector<std::string>> rows;
  for (const Gpu& gpu : all_gpus()) {
    rows.push_back({gpu.name,
                    gpu.product_name,
                    gib_text(gpu.memory.value),
                    fixed_text(gpu.memory_bandwidth.value.value() / 1e9, 0),
                    tera(gpu.peak.fp16.value.value()),
                    gpu.bf16_supported && gpu.peak.bf16 ? tera(gpu.peak.bf16->value.value()) : "-",
                    gpu.nvlink ? fixed_text(gpu.nvlink->value.value() / 1e9, 0) : "-"});
  }
  out << table({{"name"},
                {"product"},
                {"CUDA memory", Align::right},
                {"GB/s", Align::right},
                {"fp16 TFLOP/s", Align::right},
                {"bf16 TFLOP/s", Align::right},
                {"NVLink GB/s", Align::right}},
               rows);
  out << "\nMachines:\n";
  rows.clear();
  for (const NodeProfile& node : all_nodes()) {
    rows.push_back({node.key,
                    node.name,
                    std::to_string(node.gpus_per_node),
                    node.host_memory ? gib_text(node.host_memory->value) : "?",
                    node.cpu_cores ? std::to_string(node.cpu_cores->value) : "?"});
  }
  out << table({{"key"},
                {"machine"},
                {"GPUs", Align::right},
                {"host memory", Align::right},
                {"cores", Align::right}},
               rows);
}

}  // namespace

int run_gpus(const Arguments& arguments, Streams streams) {
  if (!arguments.json) {
    print_gpus(streams.out);
    return kDone;
  }
  Json gpus = Json::array();
  for (const Gpu& gpu : all_gpus()) gpus.push_back(gpu_json(gpu));
  Json nodes = Json::array();
  for (const NodeProfile& node : all_nodes()) {
    nodes.push_back(Json::object(
        {{"key", node.key}, {"name", node.name}, {"gpus_per_node", node.gpus_per_node}}));
  }
  streams.out
      << Json::object({{"schema", "zeroplan.gpus/1"}, {"gpus", gpus}, {"nodes", nodes}}).dump(2)
      << "\n";
  return kDone;
}

}  // namespace zeroplan::cli
