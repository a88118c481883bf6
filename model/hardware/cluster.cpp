#include "model/hardware/cluster.hpp"

#include <array>
#include <charconv>
#include <filesystem>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "base/described.hpp"
#include "model/hardware/cluster_document.hpp"
#include "model/hardware/hostfile.hpp"
#include "model/hardware/known_hardware.hpp"
#include "model/hardware/node_names.hpp"

namespace zeroplan {
namespace {

constexpr std::string_view kGrammar = "NODESxGPUSxGPU (2x4xA800-80G), GPUSxGPU (8xH100) or a GPU";
constexpr std::string_view kHostfile = "hostfile:";

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

// A path as it is written, or beside the file that names it.
std::string located(std::string_view path, const std::string& named_in) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path plain(path);
  if (plain.is_absolute() || fs::exists(plain, ignored)) return plain.string();
  const fs::path beside = fs::path(named_in).parent_path() / plain;
  return fs::exists(beside, ignored) ? beside.string() : plain.string();
}

bool is_count_character(char c) { return (c >= '0' && c <= '9') || c == '.'; }

// What people say behind a count: "2 nodes x 4 A800".
bool skip_unit(std::string_view& text) {
  constexpr std::array<std::string_view, 9> kUnits = {
      "nodes", "node", "machines", "machine", "hosts", "host", "GPUs", "gpus", "cards"};
  for (const std::string_view unit : kUnits) {
    if (!text.starts_with(unit)) continue;
    text = trimmed(text.substr(unit.size()));
    for (const std::string_view word : {"of ", "with "}) {
      if (text.starts_with(word)) text = trimmed(text.substr(word.size()));
    }
    return true;
  }
  return false;
}

// Takes "12x" off the front; the separator is x, X, * or the multiplication sign. What stands
// before it need not be a good number yet ("-1", "1.5"), so that the message can name it.
std::optional<std::string_view> take_count(std::string_view& text) {
  std::size_t end = 0;
  if (end < text.size() && (text[end] == '-' || text[end] == '+')) ++end;
  const std::size_t first_digit = end;
  while (end < text.size() && is_count_character(text[end])) ++end;
  if (end == first_digit) return std::nullopt;
  std::string_view rest = trimmed(text.substr(end));
  const bool counted = skip_unit(rest) || (end < text.size() && text[end] == ' ');
  bool separated = false;
  for (const std::string_view sign : {"x", "X", "*", "\xc3\x97"}) {
    if (!rest.starts_with(sign)) continue;
    rest.remove_prefix(sign.size());
    separated = true;
    break;
  }
  // "8 A100", "2 nodes of 8 H100"; the numbers of GPUs that stand alone have four digits: 2080 Ti.
  constexpr std::size_t kMostDigits = 3;
  const bool loose = counted && end <= kMostDigits && !rest.empty() && !find_gpu(text, 1);
  separated = separated || loose;  // "24 GB" is no count
  if (!separated) return std::nullopt;
  const std::string_view count = text.substr(0, end);
  text = trimmed(rest);
  return count;
}

// A positive whole number, or a diagnostic.
std::int64_t read_count(std::string_view text,
                        std::string_view what,
                        const std::string& file,
                        const std::string& pointer,
                        std::vector<Diagnostic>& diagnostics) {
  if (text.starts_with('+')) text.remove_prefix(1);
  std::int64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  const bool too_big = error == std::errc::result_out_of_range;
  if (!too_big && error == std::errc() && end == text.data() + text.size() && count >= 1) {
    return count;
  }
  diagnostics.push_back({file,
                         pointer,
                         phrase("{} from 1 to {}", what, kMostGpus),
                         in_quotes(text),
                         phrase("a cluster is written {}", kGrammar)});
  return 0;
}

// A cluster as text says it.
struct NamedCluster {
  std::int64_t nodes = 1;
  std::int64_t gpus_per_node = 1;
  std::string gpu;                 // empty where a machine was named
  std::string machine;             // "aws_p4d.24xlarge"
  bool divided = false;            // among nodes of the usual size, which nobody said
  std::vector<std::string> hosts;  // of a hostfile
};

// The count that people put behind a name: "A100-80Gx8", "RTX 4090 x 2".
bool take_count_behind(std::string_view& text, std::string_view& count) {
  std::size_t digits = text.size();
  while (digits > 0 && is_count_character(text[digits - 1])) --digits;
  const std::string_view front = trimmed(text.substr(0, digits));
  if (digits == text.size() || front.size() < 2) return false;
  if (front.back() != 'x' && front.back() != 'X' && front.back() != '*') return false;
  const std::string_view name = trimmed(front.substr(0, front.size() - 1));
  if (!find_gpu(name, 1)) return false;
  count = text.substr(digits);
  text = name;
  return true;
}

// 64xH100: no machine has so many.
void divide_among_nodes(NamedCluster& named,
                        const std::string& file,
                        const std::string& pointer,
                        std::vector<Diagnostic>& diagnostics) {
  const std::int64_t gpus = named.gpus_per_node;
  const std::int64_t size = usual_node_size(named.gpu, gpus);
  if (size == gpus) return;
  if (size == 0) {
    diagnostics.push_back({file,
                           pointer,
                           "NODESxGPUSxGPU for more GPUs than a machine has",
                           phrase("{} GPUs, which nodes of the usual size do not make", gpus),
                           phrase("1x{}x{} is one machine", gpus, named.gpu)});
    return;
  }
  named.nodes = gpus / size;
  named.gpus_per_node = size;
  named.divided = true;
}

// NODESxGPUSxGPU, GPUSxGPU, GPU; NODESxMACHINE, MACHINE.
NamedCluster read_grammar(std::string_view text,
                          const std::string& file,
                          const std::string& pointer) {
  std::string_view rest = text;
  std::optional<std::string_view> first = take_count(rest);
  const std::optional<std::string_view> second = first ? take_count(rest) : std::nullopt;
  std::string_view behind;
  if (!first && !find_gpu(rest, 1) && take_count_behind(rest, behind)) first = behind;
  std::vector<Diagnostic> diagnostics;
  NamedCluster named;
  const bool is_machine = !rest.empty() && !find_gpu(rest, 1) && find_node(rest);
  (is_machine ? named.machine : named.gpu) = rest;
  if (second) {
    named.nodes = read_count(*first, "a number of nodes", file, pointer, diagnostics);
    named.gpus_per_node =
        read_count(*second, "a number of GPUs per node", file, pointer, diagnostics);
  } else if (is_machine) {
    if (first) named.nodes = read_count(*first, "a number of nodes", file, pointer, diagnostics);
    named.gpus_per_node = find_node(rest)->node.gpus_per_node;
  } else if (first) {
    named.gpus_per_node = read_count(*first, "a number of GPUs", file, pointer, diagnostics);
    if (diagnostics.empty()) divide_among_nodes(named, file, pointer, diagnostics);
  }
  if (rest.empty()) {
    diagnostics.push_back({file, pointer, std::string(kGrammar), in_quotes(text), ""});
  }
  if (!diagnostics.empty()) throw InputError(std::move(diagnostics));
  return named;
}

// "hostfile:PATH@GPU" after the colon.
NamedCluster read_hostfile(std::string_view text,
                           const std::string& file,
                           const std::string& pointer) {
  const std::size_t at = text.rfind('@');
  const std::string_view path = trimmed(text.substr(0, at));
  const std::string_view gpu =
      at == std::string_view::npos ? std::string_view() : trimmed(text.substr(at + 1));
  if (path.empty() || gpu.empty()) {
    throw InputError(Diagnostic{file,
                                pointer,
                                "hostfile:PATH@GPU",
                                in_quotes(std::string(kHostfile) + std::string(text)),
                                "a hostfile does not say which GPU its slots are: "
                                "hostfile:/job/hostfile@A100-80G"});
  }
  const std::string where = located(path, file);
  constexpr std::int64_t kLargestHostfile = 16 << 20;
  const std::vector<Host> hosts = parse_hostfile(read_text_file(where, kLargestHostfile), where);
  NamedCluster named{
      static_cast<std::int64_t>(hosts.size()), hosts.front().slots, std::string(gpu), {}, {}};
  for (const Host& host : hosts) named.hosts.push_back(host.name);
  return named;
}

NamedCluster read_name(std::string_view text, const std::string& file, const std::string& pointer) {
  const NamedCluster named = text.starts_with(kHostfile)
                                 ? read_hostfile(text.substr(kHostfile.size()), file, pointer)
                                 : read_grammar(text, file, pointer);
  std::vector<Diagnostic> diagnostics =
      check_counts(named.nodes, named.gpus_per_node, file, pointer);
  if (named.machine.empty() && !find_gpu(named.gpu, named.gpus_per_node)) {
    diagnostics.push_back(unknown_gpu(named.gpu, file, pointer));
  }
  if (!diagnostics.empty()) throw InputError(std::move(diagnostics));
  return named;
}

Json inline_form(const NamedCluster& named) {
  Json document = Json::object({{"nodes", named.nodes}, {"gpus_per_node", named.gpus_per_node}});
  if (named.machine.empty()) {
    document["gpu"] = named.gpu;
  } else {
    document["machine"] = named.machine;
  }
  if (named.divided) {
    document["assumptions"] =
        Json::array({"nodes of the usual size: assumed; NODESxGPUSxGPU says another"});
  }
  if (named.hosts.empty()) return document;
  Json& hosts = document["hosts"] = Json::array();
  for (const std::string& host : named.hosts) hosts.push_back(host);
  return document;
}

bool is_path(std::string_view text) {
  return !text.starts_with(kHostfile) &&
         (text.ends_with(".json") || text.find('/') != std::string_view::npos);
}

JsonDocument read_cluster_file(std::string_view path, const std::string& named_in) {
  JsonDocument document = read_json_file(located(path, named_in));
  std::vector<Diagnostic> problems = duplicate_key_problems(document);
  if (!problems.empty()) throw InputError(std::move(problems));
  if (!document.root.is_object()) {
    throw InputError(Diagnostic{
        document.file, "/", "an object that describes a cluster", described(document.root), ""});
  }
  return document;
}

}  // namespace

Cluster parse_cluster_text(std::string_view text,
                           const std::string& file,
                           const std::string& pointer) {
  const std::string_view whole = trimmed(text);
  if (whole.starts_with('{')) {
    const JsonDocument document = parse_json(whole, file);
    return parse_cluster_document(document.root, file, pointer);
  }
  if (is_path(whole)) {
    const JsonDocument document = read_cluster_file(whole, file);
    return parse_cluster_document(document.root, document.file, "");
  }
  const NamedCluster named = read_name(whole, file, pointer);
  return parse_cluster_document(inline_form(named), file, pointer);
}

Json cluster_document(const Json& value, const std::string& file, const std::string& pointer) {
  if (!value.is_string()) return value;
  const std::string_view text = trimmed(value.as_string());
  if (text.starts_with('{')) return parse_json(text, file).root;
  if (is_path(text)) return read_cluster_file(text, file).root;
  return inline_form(read_name(text, file, pointer));
}

Cluster parse_cluster(const Json& value, const std::string& file, const std::string& pointer) {
  if (value.is_string()) return parse_cluster_text(value.as_string(), file, pointer);
  if (value.is_object()) return parse_cluster_document(value, file, pointer);
  throw InputError(Diagnostic{file,
                              pointer,
                              "a cluster: text such as \"2x4xA800-80G\", a path, or an object",
                              described(value),
                              ""});
}

std::string short_name(const Cluster& cluster) {
  return std::to_string(cluster.nodes) + "x" + std::to_string(cluster.gpus_per_node()) + "x" +
         cluster.gpu.name;
}

}  // namespace zeroplan
