#include "model/hardware/cluster_sentences.hpp"

#include <algorithm>
#include <utility>

namespace zeroplan {
namespace {

// The sentences that fill_cluster() says of a cluster with these GPUs and this host, of which
// nothing else is known: more than the document's own cluster assumes, where it was told more.
std::vector<Phrase> usual_sentences(const ClusterGiven& given) {
  ClusterGiven bare;
  bare.nodes = given.nodes;
  bare.gpus_per_node = given.gpus_per_node;
  bare.gpu = given.gpu;
  bare.machine = given.machine;
  const auto is_said = [](const auto& quantity) {
    return quantity && quantity->confidence != Confidence::assumed;
  };
  if (is_said(given.host_memory)) bare.host_memory = given.host_memory;
  if (is_said(given.cpu_cores)) bare.cpu_cores = given.cpu_cores;
  return fill_cluster(std::move(bare)).assumptions;
}

}  // namespace

void recognise_sentences(ClusterGiven& given) {
  if (given.assumptions.empty()) return;
  const std::vector<Phrase> usual = usual_sentences(given);
  for (Phrase& sentence : given.assumptions) {
    const auto same = std::find(usual.begin(), usual.end(), sentence);
    if (same != usual.end()) sentence = *same;
  }
}

}  // namespace zeroplan
