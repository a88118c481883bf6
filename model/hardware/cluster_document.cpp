#include "model/hardware/cluster_document.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/check.hpp"
#include "base/described.hpp"
#include "base/diagnostic.hpp"
#include "model/hardware/cluster_fields.hpp"
#include "model/hardware/cluster_fill.hpp"
#include "model/hardware/cluster_sentences.hpp"
#include "model/hardware/hardware_catalog.hpp"
#include "model/hardware/hostfile.hpp"
#include "model/hardware/known_hardware.hpp"
#include "model/hardware/node_names.hpp"

namespace zeroplan {
namespace {

constexpr double kLeastFlops = 1e8;
constexpr double kMostFlops = 1e17;
constexpr double kMostLatency = 1.0;
constexpr std::int64_t kMostNodeCores = 4096;

constexpr std::array<std::string_view, 21> kClusterKeys = {"machine",
                                                           "nodes",
                                                           "gpus_per_node",
                                                           "hosts",
                                                           "gpu",
                                                           "intra_node",
                                                           "inter_node",
                                                           "host_memory_bytes",
                                                           "host_memory_bandwidth",
                                                           "host_share",
                                                           "cpu_cores",
                                                           "cpu_sockets",
                                                           "pcie_bandwidth",
                                                           "gpus_per_pcie_uplink",
                                                           "nvme",
                                                           "assumed",
                                                           "required",
                                                           "assumptions",
                                                           "schema",
                                                           "name",
                                                           "notes"};

template <typename T>
Quantity<T> stated(T value) {
  Quantity<T> result;
  result.value = value;
  result.confidence = Confidence::stated;
  result.source = "the cluster's description";
  return result;
}

// Reads one document. Names of keys that a resolved document marks as assumed keep that mark.
class DocumentReader {
 public:
  DocumentReader(const Json& document, const std::string& file, const std::string& pointer)
      : fields_(document, file, pointer, diagnostics_) {}

  Cluster read() {
    fields_.only(kClusterKeys);
    read_marks();
    given_.nodes = fields_.integer("nodes", 1, kMostGpus).value_or(1);
    const auto gpus = fields_.integer("gpus_per_node", 1, kMostGpus);
    read_machine();
    given_.gpus_per_node = gpus.value_or(given_.machine ? given_.machine->gpus_per_node : 1);
    check_machine();
    check_total();
    say_missing_counts();
    read_gpu();
    read_links();
    read_host();
    read_nvme();
    std::vector<std::string> hosts = read_hosts();
    if (!diagnostics_.empty()) throw InputError(std::move(diagnostics_));
    recognise_sentences(given_);
    Cluster cluster = fill_cluster(std::move(given_));
    cluster.hosts = std::move(hosts);
    return cluster;
  }

 private:
  void read_marks() {
    for (const std::string_view key : {"assumed", "required", "assumptions"}) {
      const Json* list = fields_.find(key);
      if (list == nullptr) continue;
      const bool texts =
          list->is_array() && std::all_of(list->items().begin(),
                                          list->items().end(),
                                          [](const Json& item) { return item.is_string(); });
      if (!texts) {
        fields_.complain(key, "a list of texts", described(*list));
        continue;
      }
      for (const Json& item : list->items()) {
        if (key == "assumed") {
          assumed_.insert(item.as_string());
        } else if (key == "assumptions") {
          given_.assumptions.push_back(item.as_string());
        }
      }
    }
  }

  // Names of the nodes, as a hostfile gives them.
  std::vector<std::string> read_hosts() {
    const Json* list = fields_.find("hosts");
    if (list == nullptr) return {};
    std::vector<std::string> hosts;
    std::set<std::string_view> known;
    for (const Json& item : list->items()) {
      const bool good = item.is_string() && is_host_name(item.as_string()) &&
                        known.insert(item.as_string()).second;
      if (!good) {
        fields_.complain("hosts", "a host's name, each host once", described(item));
        return {};
      }
      hosts.push_back(item.as_string());
    }
    if (!list->is_array() || static_cast<std::int64_t>(hosts.size()) != given_.nodes) {
      fields_.complain("hosts", "a list of as many hosts as there are nodes", described(*list));
    }
    return hosts;
  }

  void check_total() {
    for (Diagnostic& diagnostic : check_counts(
             given_.nodes, given_.gpus_per_node, fields_.file(), fields_.pointer("nodes"))) {
      diagnostics_.push_back(std::move(diagnostic));
    }
  }

  void say_missing_counts() {
    if (fields_.find("nodes") == nullptr) given_.assumptions.push_back("one node: assumed");
    if (fields_.find("gpus_per_node") == nullptr && !given_.machine) {
      given_.assumptions.push_back("one GPU per node: assumed");
    }
  }

  template <typename T>
  std::optional<Quantity<T>> marked(std::optional<T> value, const std::string& key) const {
    if (!value) return std::nullopt;
    Quantity<T> result = stated(*value);
    if (assumed_.count(key) != 0) {
      result.confidence = Confidence::assumed;
      result.relative_sd = key == "inter_node" ? kAssumedNetworkSpread : kAssumedSpread;
    }
    return result;
  }

  // --- a machine by name

  void read_machine() {
    const std::optional<std::string> said = fields_.text("machine");
    if (!said) return;
    const std::optional<NodeMatch> match = find_node(*said);
    if (!match) {
      diagnostics_.push_back(unknown_gpu(*said, fields_.file(), fields_.pointer("machine")));
      diagnostics_.back().expected = "the name of a machine";
      return;
    }
    given_.machine = match->node;
    if (!match->assumption.empty()) given_.assumptions.push_back(match->assumption);
  }

  void check_machine() {
    if (!given_.machine || given_.gpus_per_node <= given_.machine->gpus_per_node) return;
    fields_.complain(
        "gpus_per_node",
        phrase("at most {}, what a {} has", given_.machine->gpus_per_node, given_.machine->key),
        std::to_string(given_.gpus_per_node));
  }

  // --- the GPU

  void read_gpu() {
    const Json* value = fields_.find("gpu");
    if (value == nullptr && given_.machine) {
      given_.gpu = gpu_of_key(given_.machine->gpus.front());
    } else if (value == nullptr) {
      fields_.complain("gpu", "the name of a GPU", "nothing", "\"gpu\": \"A100-80G\"");
    } else if (value->is_string()) {
      take_named(value->as_string(), fields_.pointer("gpu"));
    } else if (value->is_object()) {
      read_gpu_object(*value);
    } else {
      fields_.complain("gpu", "the name of a GPU or an object", described(*value));
    }
  }

  bool take_named(const std::string& text, const std::string& pointer) {
    const std::optional<GpuMatch> match = find_gpu(text, given_.gpus_per_node);
    if (!match) {
      diagnostics_.push_back(unknown_gpu(text, fields_.file(), pointer));
      return false;
    }
    given_.gpu = match->gpu;
    if (!match->assumption.empty()) given_.assumptions.push_back(match->assumption);
    return true;
  }

  struct GpuNumbers {
    std::optional<Bytes> memory;
    std::optional<BytesPerSecond> bandwidth;
    std::optional<ComputeCapability> capability;
    std::optional<double> peak;  // of 16 bits with fp32 accumulation
    bool any() const { return memory || bandwidth || capability || peak; }
  };

  void read_gpu_object(const Json& value) {
    static constexpr std::array<std::string_view, 6> kKeys = {
        "name", "like", "memory_bytes", "memory_bandwidth", "peak_flops", "compute_capability"};
    Fields gpu(value, fields_.file(), fields_.pointer("gpu"), diagnostics_);
    gpu.only(kKeys);
    const std::size_t errors = diagnostics_.size();
    const std::optional<std::string> name = gpu.text("name");
    const std::optional<std::string> like = gpu.text("like");
    GpuNumbers numbers;
    numbers.memory = gpu.bytes("memory_bytes");
    numbers.bandwidth = gpu.rate("memory_bandwidth");
    numbers.capability = read_capability(gpu);
    const std::optional<Fields> by_type = peak_object(gpu);
    numbers.peak = by_type                             ? peak_of(*by_type, "fp16")
                   : gpu.find("peak_flops") == nullptr ? std::nullopt
                                                       : peak_of(gpu, "peak_flops");
    if (diagnostics_.size() > errors || !choose_base(gpu, name, like, numbers)) return;
    apply(numbers, by_type);
    if (name && like) given_.gpu.name = *name;
  }

  static std::optional<Fields> peak_object(Fields& gpu) {
    const Json* value = gpu.find("peak_flops");
    if (value == nullptr || !value->is_object()) return std::nullopt;
    static constexpr std::array<std::string_view, 5> kTypes = {
        "fp32", "tf32", "fp16", "bf16", "fp8"};
    std::optional<Fields> types = gpu.object("peak_flops", "FLOP/s by number format");
    types->only(kTypes);
    return types;
  }

  static std::optional<double> peak_of(Fields fields, std::string_view key) {
    return fields.number(key,
                         kLeastFlops,
                         kMostFlops,
                         "floating-point operations per second",
                         "312 TFLOP/s is 312e12");
  }

  static std::optional<ComputeCapability> read_capability(Fields& gpu) {
    const Json* value = gpu.find("compute_capability");
    if (value == nullptr) return std::nullopt;
    const std::string text = value->is_string()   ? value->as_string()
                             : value->is_number() ? fmt::format("{:.1f}", value->as_number())
                                                  : "";
    ComputeCapability result;
    const char* end = text.data() + text.size();
    const auto [dot, error] = std::from_chars(text.data(), end, result.major);
    if (error == std::errc() && dot + 1 < end && *dot == '.') {
      const auto [last, wrong] = std::from_chars(dot + 1, end, result.minor);
      const bool plausible = result.major >= 1 && result.major <= 99 && result.minor >= 0;
      if (wrong == std::errc() && last == end && plausible) return result;
    }
    gpu.complain("compute_capability", "a version such as \"8.0\"", described(*value));
    return std::nullopt;
  }

  // The GPU that fills the gaps: the one named, the one it is said to be like, or the nearest.
  bool choose_base(Fields& gpu,
                   const std::optional<std::string>& name,
                   const std::optional<std::string>& like,
                   const GpuNumbers& numbers) {
    if (like) return take_named(*like, gpu.pointer("like"));
    if (name && (!numbers.any() || find_gpu(*name, given_.gpus_per_node))) {
      return take_named(*name, gpu.pointer("name"));
    }
    if (!numbers.any()) {
      gpu.complain("name", "the name of a GPU", "nothing", "\"name\": \"A100-80G\"");
      return false;
    }
    given_.gpu = nearest_gpu(numbers);
    given_.assumptions.push_back((name ? phrase("{} is no known GPU: ", *name) : Phrase("GPU: ")) +
                                 "what is not given is assumed as for " + given_.gpu.name +
                                 ", the nearest known GPU");
    if (name) given_.gpu.name = printable(*name);  // a page shows it, too
    return true;
  }

  // Least distance in the given numbers, each as a ratio; a generation counts as a factor of e.
  static Gpu nearest_gpu(const GpuNumbers& numbers) {
    const auto ratio = [](double a, double b) { return std::abs(std::log(a / b)); };
    const Gpu* best = nullptr;
    double least = 0.0;
    for (const CatalogGpu& entry : gpu_catalog().gpus) {
      const Gpu& gpu = entry.gpu;
      if (gpu.shares_host_memory()) continue;  // one pool has to be said by its name
      double distance = 0.0;
      if (numbers.memory) distance += ratio(*numbers.memory / gpu.memory.value, 1.0);
      if (numbers.bandwidth)
        distance += ratio(*numbers.bandwidth / gpu.memory_bandwidth.value, 1.0);
      if (numbers.peak) distance += ratio(*numbers.peak, gpu.peak.fp16.value.value());
      if (numbers.capability) {
        const ComputeCapability& own = gpu.compute_capability;
        distance += std::abs(numbers.capability->major + numbers.capability->minor / 10.0 -
                             own.major - own.minor / 10.0);
      }
      if (best == nullptr || distance < least) {
        best = &gpu;
        least = distance;
      }
    }
    return *best;
  }

  void apply(const GpuNumbers& numbers, const std::optional<Fields>& by_type) {
    Gpu& gpu = given_.gpu;
    if (numbers.memory) gpu.memory = stated(*numbers.memory);
    if (numbers.bandwidth) gpu.memory_bandwidth = stated(*numbers.bandwidth);
    if (by_type) {
      apply_peaks(*by_type);
    } else if (numbers.peak) {
      scale_tensor_peaks(*numbers.peak);
    }
    if (!numbers.capability) return;
    gpu.compute_capability = *numbers.capability;
    if (gpu.compute_capability.major < 8) {
      gpu.bf16_supported = false;
      gpu.peak.bf16.reset();
      gpu.peak.tf32.reset();
      gpu.peak.fp8.reset();
    } else if (!gpu.bf16_supported) {
      gpu.bf16_supported = true;
      gpu.peak.bf16 = gpu.peak.fp16;
    }
  }

  // One number is the dense 16-bit peak; the other tensor-core rates keep their ratio to it.
  void scale_tensor_peaks(double peak) {
    PeakFlops& peaks = given_.gpu.peak;
    const double factor = peak / peaks.fp16.value.value();
    peaks.fp16 = stated(FlopsPerSecond::of(peak));
    if (peaks.bf16) peaks.bf16 = peaks.fp16;
    for (auto* other : {&peaks.tf32, &peaks.fp8}) {
      if (*other) *other = stated((*other)->value * factor);
    }
  }

  void apply_peaks(const Fields& by_type) {
    PeakFlops& peaks = given_.gpu.peak;
    const auto set = [&](std::string_view key, auto& quantity) {
      const std::optional<double> given = peak_of(by_type, key);
      if (given) quantity = stated(FlopsPerSecond::of(*given));
    };
    set("fp32", peaks.fp32);
    set("tf32", peaks.tf32);
    set("fp16", peaks.fp16);
    set("bf16", peaks.bf16);
    set("fp8", peaks.fp8);
    given_.gpu.bf16_supported = given_.gpu.bf16_supported || peaks.bf16.has_value();
  }

  // --- links, host, drives

  LinkGiven read_link(Fields& link, const std::string& key, std::span<const LinkKind> kinds) {
    LinkGiven given;
    given.kind = link.choice<LinkKind>("link", kLinkKindNames, kinds);
    given.bandwidth = marked(link.rate("bandwidth"), key);
    const auto latency = link.number("latency", 0.0, kMostLatency, "seconds", "");
    if (latency) given.latency = stated(Seconds::of(*latency));
    return given;
  }

  void read_links() {
    static constexpr std::array<LinkKind, 3> kIntra = {
        LinkKind::nvlink, LinkKind::pcie, LinkKind::host};
    static constexpr std::array<LinkKind, 5> kInter = {
        LinkKind::ib, LinkKind::roce, LinkKind::opa, LinkKind::tcp, LinkKind::vxlan};
    static constexpr std::array<std::string_view, 4> kIntraKeys = {
        "link", "topology", "bandwidth", "latency"};
    static constexpr std::array<std::string_view, 3> kInterKeys = {"link", "bandwidth", "latency"};
    if (std::optional<Fields> link = fields_.object("intra_node", "an object with a link")) {
      link->only(kIntraKeys);
      given_.intra_node = read_link(*link, "intra_node", kIntra);
      given_.topology = read_topology(*link);
      const bool needs_rate =
          given_.intra_node.kind == LinkKind::nvlink && !given_.intra_node.bandwidth;
      if (needs_rate && !given_.gpu.key.empty() && !given_.gpu.nvlink) {
        link->complain("bandwidth",
                       "the rate of NVLink per GPU and direction",
                       "nothing",
                       phrase("{} has no NVLink that we know of", given_.gpu.name));
      }
    }
    if (std::optional<Fields> link = fields_.object("inter_node", "an object with a link")) {
      link->only(kInterKeys);
      given_.inter_node = read_link(*link, "inter_node", kInter);
    }
  }

  static std::optional<Topology> read_topology(Fields& link) {
    static constexpr std::array<Topology, 8> kAll = {Topology::single,
                                                     Topology::nvswitch,
                                                     Topology::nvlink_mesh,
                                                     Topology::hybrid_cube_mesh,
                                                     Topology::nvlink_pairs,
                                                     Topology::pcie,
                                                     Topology::pcie_no_p2p,
                                                     Topology::shared_memory};
    return link.choice<Topology>("topology", kTopologyNames, kAll);
  }

  void read_host() {
    given_.host_memory = marked(fields_.bytes("host_memory_bytes"), "host_memory_bytes");
    given_.host_memory_bandwidth =
        marked(fields_.rate("host_memory_bandwidth"), "host_memory_bandwidth");
    given_.host_share = fields_.number(
        "host_share", 1e-6, 1.0, "the share of the machine that the bandwidth is of", "0.25");
    given_.cpu_cores = marked(fields_.integer("cpu_cores", 1, kMostNodeCores), "cpu_cores");
    given_.cpu_sockets = fields_.integer("cpu_sockets", 1, 64);
    given_.pcie_bandwidth = marked(fields_.rate("pcie_bandwidth"), "pcie_bandwidth");
    given_.gpus_per_pcie_uplink = fields_.integer("gpus_per_pcie_uplink", 1, 64);
  }

  void read_nvme() {
    static constexpr std::array<std::string_view, 3> kKeys = {
        "read_bandwidth", "write_bandwidth", "capacity_bytes"};
    const Json* value = fields_.find("nvme");
    if (value != nullptr && value->is_boolean() && !value->as_boolean()) {
      given_.nvme.none = true;
      return;
    }
    std::optional<Fields> nvme = fields_.object("nvme", "an object, or false where there is none");
    if (!nvme) return;
    nvme->only(kKeys);
    given_.nvme.read_bandwidth = marked(nvme->rate("read_bandwidth"), "nvme");
    given_.nvme.write_bandwidth = marked(nvme->rate("write_bandwidth"), "nvme");
    given_.nvme.capacity = marked(nvme->bytes("capacity_bytes"), "nvme");
  }

  std::vector<Diagnostic> diagnostics_;
  Fields fields_;
  ClusterGiven given_;
  std::set<std::string> assumed_;
};

}  // namespace

Cluster parse_cluster_document(const Json& document,
                               const std::string& file,
                               const std::string& pointer) {
  ZP_CHECK(document.is_object(), "an inline cluster is an object");
  return DocumentReader(document, file, pointer).read();
}

std::vector<Diagnostic> check_counts(std::int64_t nodes,
                                     std::int64_t gpus_per_node,
                                     const std::string& file,
                                     const std::string& pointer) {
  if (nodes <= kMostGpus / gpus_per_node) return {};
  return {{file,
           pointer,
           phrase("at most {} GPUs in all", kMostGpus),
           phrase("{} nodes of {}", nodes, gpus_per_node),
           ""}};
}

}  // namespace zeroplan
