#include "tuner/price_list.hpp"

#include <utility>

#include "base/described.hpp"
#include "base/diagnostic.hpp"
#include "base/embedded.hpp"
#include "model/hardware/cluster.hpp"
#include "model/hardware/known_hardware.hpp"

namespace zeroplan::tuner {
namespace {

constexpr std::string_view kBuiltIn = "profiles/prices.json";
constexpr double kMostPerHour = 1e9;

class PriceReader {
 public:
  explicit PriceReader(const JsonDocument& document) : document_(document) {}

  PriceList read() {
    const Json& root = document_.root;
    const Json* rows = root.find("prices");
    if (rows == nullptr || !rows->is_array()) {
      complain("/prices", "a list of prices", rows == nullptr ? "nothing" : described(*rows));
      throw InputError(problems_);
    }
    PriceList list;
    list.currency = text_of(root, "currency");
    list.source = text_of(root, "source");
    for (std::size_t i = 0; i < rows->items().size(); ++i) {
      read_row(rows->items()[i], "/prices/" + std::to_string(i), list);
    }
    if (!problems_.empty()) throw InputError(problems_);
    return list;
  }

 private:
  static std::string text_of(const Json& object, std::string_view key) {
    const Json* value = object.find(key);
    return value != nullptr && value->is_string() ? printable(value->as_string()) : "";
  }

  void complain(std::string pointer, Phrase expected, Phrase got) {
    if (problems_.size() >= kMostProblems) return;
    problems_.push_back(
        {document_.file, std::move(pointer), std::move(expected), std::move(got), ""});
  }

  std::optional<double> price(const Json& row, std::string_view key, const std::string& pointer) {
    const Json* value = row.find(key);
    const bool good = value != nullptr && value->is_number() && value->as_number() > 0.0 &&
                      value->as_number() <= kMostPerHour;
    if (good) return value->as_number();
    complain(pointer + "/" + std::string(key),
             "a price above 0",
             value == nullptr ? "nothing" : described(*value));
    return std::nullopt;
  }

  void read_row(const Json& row, const std::string& pointer, PriceList& list) {
    const std::string gpu = text_of(row, "gpu");
    const std::string cluster = text_of(row, "cluster");
    PriceRow entry;
    if (!cluster.empty()) {
      const auto per_hour = price(row, "per_hour", pointer);
      parse_cluster_text(cluster, document_.file, pointer + "/cluster");  // throws
      entry.cluster = cluster;
      entry.clusters = {cluster};
      entry.per_hour = per_hour.value_or(0.0);
    } else if (const auto found = find_gpu(gpu, 8); found && !gpu.empty()) {
      entry.gpu_key = found->gpu.key;
      entry.per_hour = price(row, "per_gpu_hour", pointer).value_or(0.0);
      for (const std::string& count : counts_of(row, pointer)) {
        entry.clusters.push_back(count + "x" + gpu);
      }
    } else {
      complain(pointer + "/gpu", "the name of a GPU", gpu.empty() ? "nothing" : in_quotes(gpu));
    }
    list.rows.push_back(std::move(entry));
  }

  std::vector<std::string> counts_of(const Json& row, const std::string& pointer) {
    const Json* counts = row.find("counts");
    if (counts == nullptr) return {"1", "2", "4", "8"};
    std::vector<std::string> texts;
    for (const Json& count : counts->items()) {
      if (count.is_integer()) {
        texts.push_back(std::to_string(count.as_integer()));
      } else if (count.is_string()) {
        texts.push_back(count.as_string());
      } else {
        complain(pointer + "/counts", "counts such as \"8\" or \"2x8\"", described(count));
      }
    }
    return texts;
  }

  const JsonDocument& document_;
  std::vector<Diagnostic> problems_;
};

}  // namespace

PriceList read_price_list(const JsonDocument& document) { return PriceReader(document).read(); }

PriceList built_in_prices() {
  return read_price_list(parse_json(embedded_file(kBuiltIn), std::string(kBuiltIn)));
}

std::optional<double> price_of(const PriceList& list,
                               const std::string& text,
                               const Cluster& cluster) {
  for (const PriceRow& row : list.rows) {
    if (!row.cluster.empty() && row.cluster == text) return row.per_hour;
  }
  for (const PriceRow& row : list.rows) {
    if (row.gpu_key.empty() || row.gpu_key != cluster.gpu.key) continue;
    return row.per_hour * static_cast<double>(cluster.total_gpus());
  }
  return std::nullopt;
}

std::vector<std::string> offered_clusters(const PriceList& list) {
  std::vector<std::string> clusters;
  for (const PriceRow& row : list.rows) {
    clusters.insert(clusters.end(), row.clusters.begin(), row.clusters.end());
  }
  return clusters;
}

}  // namespace zeroplan::tuner
