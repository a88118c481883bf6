#include "evidence/component_timings.hpp"

#include <cmath>
#include <string_view>

#include "base/described.hpp"

namespace zeroplan::evidence {
namespace {

// Reads the members of one row. Members that nobody here knows are left alone: a row may carry its
// own.
class RowReader {
 public:
  RowReader(const Json& row,
            std::string pointer,
            const std::string& file,
            std::vector<Diagnostic>& problems)
      : row_(row), pointer_(std::move(pointer)), file_(file), problems_(problems) {
    if (!row_.is_object()) wrong("", "an object", described(row_));
  }

  bool good() const { return good_; }

  std::string text(std::string_view key, bool required = false) {
    const Json* value = find(key, required, "a string");
    if (value == nullptr) return "";
    if (value->is_string() && !(required && value->as_string().empty())) return value->as_string();
    wrong(key, "a string", described(*value));
    return "";
  }

  std::int64_t count(std::string_view key, bool required = false) {
    constexpr std::string_view kExpected = "a whole number from 0";
    const Json* value = find(key, required, kExpected);
    if (value == nullptr) return 0;
    constexpr double kMost = 9e15;  // exact as double
    const double number = value->is_number() ? value->as_number() : -1.0;
    if (number >= 0.0 && number <= kMost && number == std::floor(number)) {
      return static_cast<std::int64_t>(number);
    }
    wrong(key, kExpected, described(*value));
    return 0;
  }

  std::optional<Seconds> seconds(std::string_view key, bool required = false) {
    constexpr std::string_view kExpected = "a positive number of seconds";
    const Json* value = find(key, required, kExpected);
    if (value == nullptr) return std::nullopt;
    const double number = value->is_number() ? value->as_number() : 0.0;
    if (number > 0.0 && std::isfinite(number)) return Seconds::of(number);
    wrong(key, kExpected, described(*value));
    return std::nullopt;
  }

  bool flag(std::string_view key) {
    const Json* value = find(key, false, "");
    if (value == nullptr) return false;
    if (value->is_boolean()) return value->as_boolean();
    wrong(key, "true or false", described(*value));
    return false;
  }

 private:
  const Json* find(std::string_view key, bool required, std::string_view expected) {
    const Json* value = row_.find(key);
    if (value != nullptr && !value->is_null()) return value;
    if (required && row_.is_object()) wrong(key, expected, "nothing");
    return nullptr;
  }

  void wrong(std::string_view key, std::string_view expected, const std::string& got) {
    const std::string at = key.empty() ? pointer_ : pointer_ + "/" + std::string(key);
    problems_.push_back({file_, at, std::string(expected), got, ""});
    good_ = false;
  }

  const Json& row_;
  std::string pointer_;
  const std::string& file_;
  std::vector<Diagnostic>& problems_;
  bool good_ = true;
};

CollectiveTiming read_collective(RowReader& row) {
  CollectiveTiming timing;
  timing.operation = row.text("operation", true);
  timing.bytes = Bytes::of(row.count("bytes", true));
  timing.ranks = row.count("ranks");
  timing.nodes = row.count("nodes");
  timing.dtype = row.text("dtype");
  timing.in_place = row.flag("in_place");
  timing.count = row.count("count");
  timing.seconds = row.seconds("seconds", true).value_or(Seconds::zero());
  timing.fastest = row.seconds("fastest_seconds");
  return timing;
}

KernelTiming read_kernel(RowReader& row) {
  KernelTiming timing;
  timing.kernel = row.text("kernel", true);
  timing.operation = row.text("operation");
  timing.shapes = row.text("shapes");
  timing.dtypes = row.text("dtypes");
  timing.count = row.count("count", true);
  timing.seconds = row.seconds("seconds", true).value_or(Seconds::zero());
  timing.total = row.seconds("total_seconds", true).value_or(Seconds::zero());
  return timing;
}

template <typename Timing>
std::vector<Timing> read_rows(const Json* rows,
                              const std::string& pointer,
                              Timing (*reader)(RowReader&),
                              const std::string& file,
                              std::vector<Diagnostic>& problems) {
  std::vector<Timing> timings;
  if (rows == nullptr || rows->is_null()) return timings;
  if (!rows->is_array()) {
    problems.push_back({file, pointer, "an array of rows", described(*rows), ""});
    return timings;
  }
  for (std::size_t i = 0; i < rows->items().size(); ++i) {
    RowReader row(rows->items()[i], pointer + "/" + std::to_string(i), file, problems);
    if (!row.good()) continue;
    Timing timing = reader(row);
    if (row.good()) timings.push_back(std::move(timing));
  }
  return timings;
}

}  // namespace

Json to_json(const CollectiveTiming& timing) {
  Json row = Json::object({{"operation", timing.operation}, {"bytes", timing.bytes.count()}});
  if (timing.ranks > 0) row["ranks"] = timing.ranks;
  if (timing.nodes > 0) row["nodes"] = timing.nodes;
  if (!timing.dtype.empty()) row["dtype"] = timing.dtype;
  row["in_place"] = timing.in_place;
  if (timing.count > 0) row["count"] = timing.count;
  row["seconds"] = timing.seconds.seconds();
  if (timing.fastest) row["fastest_seconds"] = timing.fastest->seconds();
  return row;
}

Json to_json(const KernelTiming& timing) {
  Json row = Json::object({{"kernel", timing.kernel}});
  if (!timing.operation.empty()) row["operation"] = timing.operation;
  if (!timing.shapes.empty()) row["shapes"] = timing.shapes;
  if (!timing.dtypes.empty()) row["dtypes"] = timing.dtypes;
  row["count"] = timing.count;
  row["seconds"] = timing.seconds.seconds();
  row["total_seconds"] = timing.total.seconds();
  return row;
}

ComponentTimings parse_component_timings(const Json* collectives,
                                         const Json* kernels,
                                         const std::string& file,
                                         std::vector<Diagnostic>& problems) {
  return {read_rows(collectives, "/collectives", read_collective, file, problems),
          read_rows(kernels, "/kernels", read_kernel, file, problems)};
}

}  // namespace zeroplan::evidence
