#include "evidence/importers/kineto.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "evidence/text_scanner.hpp"

namespace zeroplan::evidence {
namespace {

constexpr std::string_view kProfiler = "the profiler's trace";
constexpr SeriesInfo kProfilerStep{Metric::step_seconds, kProfiler, 7};
constexpr SeriesInfo kProfilerAllocated{
    Metric::peak_allocated_bytes, kProfiler, 3, 0.0, false, "GPU"};
constexpr SeriesInfo kProfilerReserved{
    Metric::peak_reserved_bytes, kProfiler, 3, 0.0, false, "GPU"};

std::string_view text_in(const Json& object, std::string_view key) {
  const Json* value = object.find(key);
  return value != nullptr && value->is_string() ? std::string_view(value->as_string()) : "";
}

// Numbers, also as text: old releases write "Group size": "8".
std::optional<double> event_number(const Json& object, std::string_view key) {
  const Json* value = object.find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_number()) return value->as_number();
  return value->is_string() ? TextScanner(value->as_string()).real() : std::nullopt;
}

std::int64_t count_in(const Json& object, std::string_view key) {
  constexpr double kMost = 4e15;
  const std::optional<double> number = event_number(object, key);
  return number && *number > 0.0 && *number <= kMost ? static_cast<std::int64_t>(*number) : 0;
}

struct DtypeWidth {
  std::string_view name;
  std::int64_t bytes;
};

// As ParamCommsUtils prints a tensor's ScalarType.
constexpr std::array<DtypeWidth, 12> kDtypes = {{{"Float", 4},
                                                 {"BFloat16", 2},
                                                 {"Half", 2},
                                                 {"Double", 8},
                                                 {"Long", 8},
                                                 {"Int", 4},
                                                 {"Short", 2},
                                                 {"Char", 1},
                                                 {"Byte", 1},
                                                 {"Bool", 1},
                                                 {"Float8_e4m3fn", 1},
                                                 {"Float8_e5m2", 1}}};

std::int64_t width_of(std::string_view dtype) {
  for (const DtypeWidth& row : kDtypes) {
    if (row.name == dtype) return row.bytes;
  }
  return 0;
}

// The collective of a name such as "_allgather_base", "reduce_scatter_tensor_coalesced".
std::string_view operation_of(std::string_view name) {
  std::string plain;
  for (const char c : name) {
    if (c != '_') plain += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  struct Name {
    std::string_view part, operation;
  };
  constexpr std::array<Name, 8> kNames = {{{"allreduce", "all_reduce"},
                                           {"allgather", "all_gather"},
                                           {"reducescatter", "reduce_scatter"},
                                           {"alltoall", "all_to_all"},
                                           {"broadcast", "broadcast"},
                                           {"send", "send"},
                                           {"recv", "receive"},
                                           {"reduce", "reduce"}}};
  for (const Name& row : kNames) {
    if (plain.find(row.part) != std::string::npos) return row.operation;
  }
  return "";
}

// The durations of what is the same, in seconds.
struct Durations {
  std::vector<double> seconds;

  void add(double micro) { seconds.push_back(micro / 1e6); }
  double total() const {
    double sum = 0.0;
    for (const double value : seconds) sum += value;
    return sum;
  }
  double median() {
    std::sort(seconds.begin(), seconds.end());
    const std::size_t half = seconds.size() / 2;
    return seconds.size() % 2 == 1 ? seconds[half] : 0.5 * (seconds[half - 1] + seconds[half]);
  }
  double fastest() const { return *std::min_element(seconds.begin(), seconds.end()); }
};

class Trace {
 public:
  explicit Trace(RunFindings& findings) : findings_(findings) {}

  void read(const std::vector<Json>& events);

 private:
  struct Launch {
    std::string operation, shapes, dtypes;
  };
  using KernelKey = std::tuple<std::string, std::string, std::string, std::string>;
  // Operation, dtype, elements of the whole tensor, ranks.
  using CollectiveKey = std::tuple<std::string, std::string, std::int64_t, std::int64_t>;

  void read_operation(const Json& event, const Json& arguments);
  void read_kernel(const Json& event, const Json& arguments, double micro);
  void read_memory(const Json& arguments);
  void write();

  RunFindings& findings_;
  std::map<std::int64_t, Launch> launches_;  // by external id
  std::map<KernelKey, Durations> kernels_;
  std::map<CollectiveKey, Durations> collectives_;
};

void Trace::read_operation(const Json& event, const Json& arguments) {
  const std::int64_t id = count_in(arguments, "External id");
  const Json* shapes = arguments.find("Input Dims");
  if (id == 0 || shapes == nullptr) return;
  const Json* dtypes = arguments.find("Input type");
  launches_.try_emplace(id,
                        Launch{std::string(text_in(event, "name")),
                               shapes->is_string() ? shapes->as_string() : shapes->dump(),
                               dtypes == nullptr     ? ""
                               : dtypes->is_string() ? dtypes->as_string()
                                                     : dtypes->dump()});
}

void Trace::read_kernel(const Json& event, const Json& arguments, double micro) {
  const std::string_view operation = operation_of(text_in(arguments, "Collective name"));
  const std::string_view dtype = text_in(arguments, "dtype");
  const std::int64_t elements =
      std::max(count_in(arguments, "In msg nelems"), count_in(arguments, "Out msg nelems"));
  if (!operation.empty() && width_of(dtype) > 0 && elements > 0) {
    collectives_
        [{std::string(operation), std::string(dtype), elements, count_in(arguments, "Group size")}]
            .add(micro);
    return;
  }
  const auto launch = launches_.find(count_in(arguments, "External id"));
  const Launch from = launch == launches_.end() ? Launch{} : launch->second;
  kernels_[{from.operation, from.shapes, from.dtypes, std::string(text_in(event, "name"))}].add(
      micro);
}

void Trace::read_memory(const Json& arguments) {
  constexpr double kCuda = 1.0;  // c10::DeviceType
  if (event_number(arguments, "Device Type").value_or(0.0) != kCuda) return;
  const LogPlace place{
      static_cast<int>(std::min<std::int64_t>(count_in(arguments, "Device Id"), 1024)), 0};
  findings_.sample(
      kProfilerAllocated, event_number(arguments, "Total Allocated").value_or(0.0), place);
  findings_.sample(
      kProfilerReserved, event_number(arguments, "Total Reserved").value_or(0.0), place);
}

void Trace::read(const std::vector<Json>& events) {
  const Json none = Json::object();
  const auto arguments_of = [&](const Json& event) -> const Json& {
    const Json* arguments = event.find("args");
    return arguments != nullptr && arguments->is_object() ? *arguments : none;
  };
  for (const Json& event : events) {
    if (text_in(event, "cat") == "cpu_op" || text_in(event, "cat") == "Operator") {
      read_operation(event, arguments_of(event));
    }
  }
  std::map<std::string, double> steps;  // a name stands on the host and again on the GPU
  for (const Json& event : events) {
    const std::string_view name = text_in(event, "name");
    const std::string_view category = text_in(event, "cat");
    if (name == "[Memory]") read_memory(arguments_of(event));
    const std::optional<double> micro = event_number(event, "dur");
    if (text_in(event, "ph") != "X" || !micro || !(*micro > 0.0)) continue;
    if (category == "kernel" || category == "Kernel") {
      read_kernel(event, arguments_of(event), *micro);
    } else if (name.starts_with("ProfilerStep#") &&
               category.find("gpu") == std::string_view::npos) {
      steps.try_emplace(std::string(name), *micro);
    }
  }
  for (const auto& [name, micro] : steps) findings_.sample(kProfilerStep, micro * 1e-6, LogPlace{});
  if (steps.empty() && kernels_.empty() && collectives_.empty()) {
    findings_.note("the trace has no GPU kernels and no ProfilerStep");
  }
  if (!steps.empty()) {
    findings_.note("a ProfilerStep is taken as a step; profiling makes it slower");
  }
  write();
}

// Those that take the most time first; the others add up to little.
void Trace::write() {
  for (auto& [key, durations] : collectives_) {
    const auto& [operation, dtype, elements, ranks] = key;
    CollectiveTiming timing;
    timing.operation = operation;
    timing.dtype = dtype;
    timing.bytes = Bytes::of(detail::checked_product(elements, width_of(dtype)));
    timing.ranks = ranks;
    timing.count = static_cast<std::int64_t>(durations.seconds.size());
    timing.seconds = Seconds::of(durations.median());
    timing.fastest = Seconds::of(durations.fastest());
    findings_.parts.collectives.push_back(std::move(timing));
  }
  std::vector<KernelTiming> kernels;
  for (auto& [key, durations] : kernels_) {
    KernelTiming timing;
    std::tie(timing.operation, timing.shapes, timing.dtypes, timing.kernel) = key;
    timing.count = static_cast<std::int64_t>(durations.seconds.size());
    timing.seconds = Seconds::of(durations.median());
    timing.total = Seconds::of(durations.total());
    if (!timing.kernel.empty()) kernels.push_back(std::move(timing));
  }
  std::stable_sort(kernels.begin(), kernels.end(), [](const auto& a, const auto& b) {
    return a.total > b.total;
  });
  constexpr std::size_t kMostKernels = 200;
  if (kernels.size() > kMostKernels) {
    findings_.note(fmt::format(
        "the {} kernels with the most time of {} are listed", kMostKernels, kernels.size()));
    kernels.resize(kMostKernels);
  }
  for (KernelTiming& timing : kernels) findings_.parts.kernels.push_back(std::move(timing));
}

void read_machine(const Json& document, RunFindings& findings) {
  if (const Json* devices = document.find("deviceProperties")) {
    if (!devices->items().empty()) {
      const std::string_view name = text_in(devices->items().front(), "name");
      if (!name.empty()) findings.gpu_name = std::string(name);
      findings.gpus_per_node = static_cast<std::int64_t>(devices->items().size());
    }
  }
  if (const Json* job = document.find("distributedInfo")) {
    const std::int64_t ranks = count_in(*job, "world_size");
    if (ranks > 0) findings.gpus = ranks;
  }
}

const std::vector<Json>& events_of(const Json& document) {
  if (document.is_array()) return document.items();
  const Json* events = document.find("traceEvents");
  static const std::vector<Json> kNone;
  return events == nullptr ? kNone : events->items();
}

}  // namespace

bool is_kineto_trace(const Json& document) {
  if (document.is_object()) return document.find("traceEvents") != nullptr;
  return document.is_array() && !document.items().empty() &&
         document.items().front().find("ph") != nullptr;
}

void read_kineto_trace(const Json& document, RunFindings& findings) {
  read_machine(document, findings);
  Trace(findings).read(events_of(document));
}

}  // namespace zeroplan::evidence
