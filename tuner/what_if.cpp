#include "tuner/what_if.hpp"

#include <algorithm>
#include <utility>

#include "model/hardware/cluster.hpp"
#include "tuner/headroom.hpp"

namespace zeroplan::tuner {
namespace {

constexpr std::int64_t kShortestSequence = 128;

// A quarter, a half, one, two and four times, of whole numbers from `least` to `most`.
std::vector<std::int64_t> around(std::int64_t now, std::int64_t least, std::int64_t most) {
  std::vector<std::int64_t> values;
  for (const std::int64_t quarters : {1, 2, 4, 8, 16}) {
    const std::int64_t value = now * quarters / 4;
    const bool whole = value * 4 == now * quarters;
    if (whole && (quarters == 4 || (value >= least && value <= most))) values.push_back(value);
  }
  return values;
}

class Assumed {
 public:
  Assumed(const Plan& plan, const Scenario& asked) : plan_(plan), asked_(asked) {
    add_host_memory();
    add_links();
    add_lengths();
    add_release();
    add_attention();
  }

  std::vector<AssumptionMove> moves;
  std::vector<Variation> variations;

 private:
  bool is_said(ScenarioKey key) const { return asked_.find(key) != nullptr; }
  void add(Phrase instead, Variation variation) {
    moves.push_back({std::move(instead), {}});
    variations.push_back(std::move(variation));
  }

  void add_host_memory() {
    const Node& node = plan_.cluster.node;
    if (node.host_memory.confidence != Confidence::assumed) return;
    const Bytes half = node.host_memory.value / 2;
    add(phrase("a node has half the host memory that was assumed, {:.0f} GiB", half.gib()),
        {{}, std::nullopt, half});
  }

  // How the GPUs of a node reach each other: an SXM board's NVLink may be PCIe cards, a slot's 16
  // lanes may be 8.
  void add_links() {
    const Cluster& cluster = plan_.cluster;
    const ExplicitValue* asked = asked_.find(ScenarioKey::cluster);
    const bool has_links =
        cluster.gpus_per_node() > 1 && !cluster.gpu.is_cpu() && !cluster.gpu.shares_host_memory();
    if (!has_links || asked == nullptr || cluster.gpu.form == FormFactor::superchip) return;
    const Json said = cluster_document(asked->value, asked->origin.file, asked->origin.pointer);
    if (said.find("intra_node") != nullptr || said.find("machine") != nullptr) return;
    const bool nvlink = cluster.node.intra_node.kind == LinkKind::nvlink;
    const BytesPerSecond to_host = cluster.node.pcie_bandwidth.value;
    const BytesPerSecond rate = nvlink ? to_host : to_host / 2.0;
    const bool peers = cluster.gpu.pcie_peer_to_peer;
    Json slower = to_json(cluster);
    slower["pcie_bandwidth"] = rate.value();
    slower["intra_node"] = Json::object(
        {{"link", name(kLinkKindNames, LinkKind::pcie)},
         {"bandwidth", rate.value()},
         {"topology", name(kTopologyNames, peers ? Topology::pcie : Topology::pcie_no_p2p)}});
    const double gigabytes = rate.value() / 1e9;
    add(nvlink ? phrase("PCIe alone joins the GPUs of a node, {:.1f} GB/s each, and no NVLink",
                        gigabytes)
               : phrase("a GPU has half the PCIe lanes that were assumed, {:.1f} GB/s", gigabytes),
        {{{ScenarioKey::cluster, std::move(slower)}}});
  }

  // As in most collections of chats: half as long in the mean, and as spread.
  void add_lengths() {
    const Workload& workload = plan_.workload;
    const bool can = plan_.trainer == nullptr && plan_.stages.empty() &&
                     workload.images.count == 0 && workload.frontend == Frontend::hf_trainer;
    if (is_said(ScenarioKey::dataset) || !can) return;
    const std::int64_t mean = workload.sequence_length / 2;
    const Json dataset = Json::object({{"mean_tokens", mean}, {"tokens_sd", mean}});
    add(phrase("samples are not packed: {} tokens in the mean and as much of spread, padded in "
               "their micro-batch",
               mean),
        {{{ScenarioKey::dataset, dataset}}});
  }

  void add_release() {
    if (is_said(ScenarioKey::transformers_version) || is_said(ScenarioKey::torch_version)) return;
    constexpr Version kBefore{4, 57, 1};  // the last series before transformers 5
    if (plan_.workload.implementation != Implementation::hf ||
        plan_.software.transformers <= kBefore)
      return;
    add(phrase("transformers {} is installed", to_string(kBefore)),
        {{{ScenarioKey::transformers_version, Json(to_string(kBefore))}}});
  }

  void add_attention() {
    if (is_said(ScenarioKey::attention) || plan_.workload.attention != Attention::sdpa) return;
    add("attention is eager: attn_implementation=\"eager\"",
        {{{ScenarioKey::attention, Json(name(kAttentionNames, Attention::eager))}}});
  }

  const Plan& plan_;
  const Scenario& asked_;
};

}  // namespace

SizeGrid grid_around(const Plan& plan) {
  SizeGrid grid;
  grid.sequence_lengths =
      around(plan.workload.sequence_length, kShortestSequence, sequence_limit(*plan.model));
  grid.micro_batch_sizes = around(plan.workload.micro_batch_size, 1, most_micro_batch(*plan.model));
  return grid;
}

void simulate_cells(const Variations& variations,
                    const PredictOptions& options,
                    const Deadline& deadline,
                    SizeGrid& grid) {
  std::vector<Variation> cells;
  for (const std::int64_t tokens : grid.sequence_lengths) {
    for (const std::int64_t sequences : grid.micro_batch_sizes) {
      cells.push_back({{{ScenarioKey::sequence_length, Json(tokens)},
                        {ScenarioKey::micro_batch_size, Json(sequences)}}});
    }
  }
  grid.cells = variations.simulate_all(cells, options, deadline);
}

std::vector<AssumptionMove> if_assumed_wrongly(const Variations& variations,
                                               const Scenario& asked,
                                               const PredictOptions& options,
                                               const Deadline& deadline) {
  Assumed assumed(variations.base(), asked);
  std::vector<VariedResult> outcomes =
      variations.simulate_all(assumed.variations, options, deadline);
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    assumed.moves[i].outcome = std::move(outcomes[i]);
  }
  return std::move(assumed.moves);
}

}  // namespace zeroplan::tuner
