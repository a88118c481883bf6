// Clusters as text and inline: what is read has no gaps, and its document reads back the same.
#include "model/hardware/cluster.hpp"
#include "tests/fuzz/fuzz_support.hpp"

namespace fuzz = zeroplan::fuzz;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using zeroplan::Cluster;
  using zeroplan::Json;
  const std::string_view text = fuzz::text_of(data, size);
  const bool inline_form = text.substr(0, 64).find('{') != std::string_view::npos;
  // Paths are not for a fuzzer: it would read whatever it finds.
  const bool path = text.find('/') != std::string_view::npos ||
                    text.find(".json") != std::string_view::npos ||
                    text.find("hostfile:") != std::string_view::npos;
  if (!inline_form && path) return 0;
  fuzz::reads([&] {
    const Cluster cluster =
        inline_form
            ? parse_cluster(zeroplan::parse_json(text, "cluster.json").root, "f", "/cluster")
            : zeroplan::parse_cluster_text(text);
    if (inline_form && path && text.substr(0, 1) != "{") return;
    const Json document = to_json(cluster);
    const Json printed = zeroplan::parse_json(document.dump(), "printed.json").root;
    const Cluster again = parse_cluster(printed, "printed.json", "");
    fuzz::require(to_json(again) == document, "the cluster's document reads differently");
    fuzz::require(again.assumptions == cluster.assumptions, "reading it again assumes more");
    short_name(cluster);
  });
  return 0;
}
