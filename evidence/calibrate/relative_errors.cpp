#include "evidence/calibrate/relative_errors.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace zeroplan::evidence {
namespace {

double quantile(const std::vector<double>& sorted, double p) {
  const double place = p * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

RelativeErrors errors_of(std::vector<double> errors) {
  RelativeErrors result;
  if (errors.empty()) return result;
  std::sort(errors.begin(), errors.end());
  result.bias = quantile(errors, 0.5);
  for (double& error : errors) error = std::abs(error);
  std::sort(errors.begin(), errors.end());
  result.median = quantile(errors, 0.5);
  result.p95 = quantile(errors, 0.95);
  return result;
}

OriginErrors errors_of_origin(const std::vector<RowErrors>& rows,
                              const std::string& origin,
                              bool has_left_out) {
  std::vector<double> before, after, left_out;
  for (const RowErrors& row : rows) {
    if (!origin.empty() && row.origin != origin) continue;
    before.push_back(std::expm1(row.before));
    after.push_back(std::expm1(row.after));
    if (has_left_out) left_out.push_back(std::expm1(row.left_out));
  }
  return {origin,
          before.size(),
          errors_of(before),
          errors_of(after),
          errors_of(left_out),
          has_left_out};
}

}  // namespace

std::vector<OriginErrors> errors_by_origin(const std::vector<RowErrors>& rows, bool has_left_out) {
  std::vector<std::string> origins;
  for (const RowErrors& row : rows) {
    if (origins.empty()) origins.emplace_back();
    if (std::find(origins.begin(), origins.end(), row.origin) == origins.end()) {
      origins.push_back(row.origin);
    }
  }
  std::vector<OriginErrors> result;
  for (const std::string& origin : origins) {
    result.push_back(errors_of_origin(rows, origin, has_left_out));
  }
  return result;
}

double robust_spread(std::vector<double> values) {
  if (values.empty()) return 0.0;
  for (double& value : values) value = std::abs(value);
  std::sort(values.begin(), values.end());
  return 1.4826 * values[values.size() / 2];
}

MeanOfOrigins mean_of_origins(const std::map<std::string, std::vector<double>>& values) {
  MeanOfOrigins result;
  std::vector<double> medians;
  double within = 0.0;
  for (const auto& [origin, of_origin] : values) {
    if (of_origin.empty()) continue;
    std::vector<double> sorted = of_origin;
    std::sort(sorted.begin(), sorted.end());
    medians.push_back(quantile(sorted, 0.5));
    for (double& value : sorted) value -= medians.back();
    within += std::pow(robust_spread(std::move(sorted)), 2.0);
    result.mean += medians.back();
    result.rows += of_origin.size();
  }
  if (medians.empty()) return result;
  const auto count = static_cast<double>(medians.size());
  result.mean /= count;
  double between = 0.0;
  for (const double median : medians) between += std::pow(median - result.mean, 2.0);
  result.sd = std::sqrt(within / count + (count > 1.0 ? between / (count - 1.0) : 0.0));
  return result;
}

}  // namespace zeroplan::evidence
