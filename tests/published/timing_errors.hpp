// Errors of a cost function on a published curve, |log(predicted / measured)|: the median and the
// 95th percentile of a group of rows, held to the bounds that stand with them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "base/check.hpp"
#include "base/units.hpp"
#include "tests/catch.hpp"
#include "tests/support/data.hpp"

namespace zeroplan::testing {

class TimingErrors {
 public:
  void add(Seconds predicted, double measured_us) {
    errors_.push_back(std::abs(std::log(predicted.seconds() * 1e6 / measured_us)));
  }
  std::size_t size() const { return errors_.size(); }
  double median() const { return quantile(0.5); }
  double p95() const { return quantile(0.95); }

 private:
  double quantile(double share) const {
    ZP_CHECK(!errors_.empty(), "no rows");
    std::vector<double> sorted = errors_;
    std::sort(sorted.begin(), sorted.end());
    const auto last = static_cast<double>(sorted.size() - 1);
    return sorted[static_cast<std::size_t>(std::llround(share * last))];
  }
  std::vector<double> errors_;
};

// ZEROPLAN_SHOW_ERRORS=1 prints each group, for new bounds.
inline void check_errors(const std::string& group,
                         const TimingErrors& errors,
                         double median,
                         double p95) {
  INFO(group << ": " << errors.size() << " rows, median " << errors.median() << " of at most "
             << median << ", 95th percentile " << errors.p95() << " of at most " << p95);
  if (std::getenv("ZEROPLAN_SHOW_ERRORS") != nullptr) {
    std::cout << group << '\t' << errors.size() << '\t' << errors.median() << '\t' << errors.p95()
              << '\n';
  }
  CHECK(errors.median() <= median);
  CHECK(errors.p95() <= p95);
}

// Rows of a comma-separated table with a header; quotes enclose commas. Empty where the file is not
// there.
inline std::vector<std::map<std::string, std::string>> read_table(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> header;
  std::vector<std::map<std::string, std::string>> rows;
  for (std::string line; std::getline(file, line);) {
    std::vector<std::string> cells(1);
    bool quoted = false;
    for (const char c : line) {
      if (c == '"') {
        quoted = !quoted;
      } else if (c == ',' && !quoted) {
        cells.emplace_back();
      } else if (c != '\r') {
        cells.back() += c;
      }
    }
    if (header.empty()) {
      header = cells;
      continue;
    }
    std::map<std::string, std::string>& row = rows.emplace_back();
    for (std::size_t i = 0; i < header.size() && i < cells.size(); ++i) row[header[i]] = cells[i];
  }
  return rows;
}

inline std::string measured_times(const std::string& file) {
  return unpacked_data_path("timing/" + file);
}

}  // namespace zeroplan::testing
