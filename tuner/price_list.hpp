// What GPUs and machines cost an hour, from profiles/prices.json or a file of the user's own:
//
//   {"schema": "zeroplan.prices/1", "currency": "USD", "prices": [
//     {"gpu": "RTX-4090", "per_gpu_hour": 0.6, "counts": ["1", "2", "4", "2x8"]},
//     {"cluster": "2xaws_p4d.24xlarge", "per_hour": 65.5}]}
//
// `counts` are the clusters of that GPU which can be had (1, 2, 4 and 8 where nothing is said).
// Checked by tests/unit/tuner/which_gpu_test.cpp.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "model/hardware/hardware.hpp"

namespace zeroplan::tuner {

struct PriceRow {
  std::string gpu_key;  // of a GPU: the price of one of them
  std::string cluster;  // of a cluster as it is written: the price of all of it
  double per_hour = 0.0;
  std::vector<std::string> clusters;  // as they are written, that this row offers
};

struct PriceList {
  std::string currency;
  std::string source;  // with the date; empty for a user's file that names none
  std::vector<PriceRow> rows;
};

// Throws InputError for what is no price list, unknown GPUs and prices that are no numbers.
PriceList read_price_list(const JsonDocument& document);
PriceList built_in_prices();

// Of the whole cluster, an hour; absent where its GPU stands in no row. `text` is how it was
// written.
std::optional<double> price_of(const PriceList& list,
                               const std::string& text,
                               const Cluster& cluster);

// Every cluster that the list offers, as it is written.
std::vector<std::string> offered_clusters(const PriceList& list);

}  // namespace zeroplan::tuner
