#include "tuner/missing_rows.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace zeroplan::tuner {

void MissingRows::add(const Phrase& name, const Phrase& why, std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  const bool known = std::any_of(rows_.begin(), rows_.end(), [&](const Row& row) {
    return row.name == name && row.why == why;
  });
  if (!known) rows_.push_back({name, why, std::move(error)});
}

Phrase MissingRows::sentence() const {
  const std::lock_guard lock(mutex_);
  if (rows_.empty()) return {};
  std::vector<Phrase> rows;
  for (const Row& row : rows_) rows.push_back(phrase("{} ({})", row.name, row.why));
  std::sort(rows.begin(), rows.end());
  const Phrase all = phrase_list(rows, "; ");
  return rows.size() == 1 ? phrase("1 row is left out of this answer: {}", all)
                          : phrase("{} rows are left out of this answer: {}", rows.size(), all);
}

void MissingRows::rethrow() const {
  const std::lock_guard lock(mutex_);
  ZP_CHECK(!rows_.empty(), "no row is missing");
  const auto first = std::min_element(rows_.begin(), rows_.end(), [](const Row& a, const Row& b) {
    return std::pair(a.name, a.why) < std::pair(b.name, b.why);
  });
  std::rethrow_exception(first->error);
}

}  // namespace zeroplan::tuner
