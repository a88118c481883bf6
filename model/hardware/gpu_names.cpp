// Names of GPUs: what users, nvidia-smi and our own files call them.

#include <algorithm>
#include <array>
#include <cctype>
#include <string>
#include <vector>

#include "base/phrase_list.hpp"
#include "base/written_names.hpp"
#include "model/hardware/hardware_catalog.hpp"
#include "model/hardware/known_hardware.hpp"
#include "model/hardware/node_names.hpp"
#include "model/known_names.hpp"

namespace zeroplan {
namespace {

// What follows the family in a name.
struct NameRest {
  std::optional<std::int64_t> size_gb;
  std::optional<FormFactor> form;
  bool hbm3 = false;  // nvidia-smi calls the SXM GPU "NVIDIA H100 80GB HBM3"
};

bool consume(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

// "80gb", "80g", "80gib".
bool consume_size(std::string_view& text, NameRest& rest) {
  std::size_t digits = 0;
  while (digits < text.size() && std::isdigit(static_cast<unsigned char>(text[digits]))) ++digits;
  if (digits == 0 || digits > 4 || digits == text.size() || text[digits] != 'g') return false;
  if (rest.size_gb) return false;
  rest.size_gb = std::stoll(std::string(text.substr(0, digits)));
  text.remove_prefix(digits);
  return consume(text, "gib") || consume(text, "gb") || consume(text, "g");
}

bool consume_form(std::string_view& text, NameRest& rest) {
  struct Word {
    std::string_view word;
    FormFactor form;
  };
  constexpr std::array<Word, 9> kWords = {{{"sxm2", FormFactor::sxm},
                                           {"sxm3", FormFactor::sxm},
                                           {"sxm4", FormFactor::sxm},
                                           {"sxm5", FormFactor::sxm},
                                           {"sxm6", FormFactor::sxm},
                                           {"sxm", FormFactor::sxm},
                                           {"hgx", FormFactor::sxm},
                                           {"pcie", FormFactor::pcie},
                                           {"nvl", FormFactor::nvl}}};
  for (const Word& word : kWords) {
    if (!consume(text, word.word)) continue;
    if (rest.form && *rest.form != word.form) return false;
    rest.form = word.form;
    return true;
  }
  return false;
}

// Words that say nothing we need: the kind of memory, "GPU".
bool consume_filler(std::string_view& text, NameRest& rest) {
  if (text.starts_with("hbm3") && !text.starts_with("hbm3e")) rest.hbm3 = true;
  for (const std::string_view word : {"hbm3e",
                                      "hbm3",
                                      "hbm2e",
                                      "hbm2",
                                      "gddr6x",
                                      "gddr6",
                                      "gddr7",
                                      "blackwell",
                                      "tensorcore",
                                      "gpu"}) {
    if (consume(text, word)) return true;
  }
  return false;
}

std::optional<NameRest> parse_rest(std::string_view text) {
  NameRest rest;
  while (!text.empty()) {
    if (!consume_size(text, rest) && !consume_form(text, rest) && !consume_filler(text, rest)) {
      return std::nullopt;
    }
  }
  return rest;
}

struct ParsedName {
  const GpuFamily* family = nullptr;
  NameRest rest;
  bool by_size = false;  // nobody named a GPU
};

// "24G": a GPU of that memory that many have.
std::optional<ParsedName> parse_size_alone(std::string_view name) {
  const std::optional<NameRest> rest = parse_rest(name);
  if (!rest || !rest->size_gb) return std::nullopt;
  const auto usual = gpu_catalog().usual_of_size.find(*rest->size_gb);
  if (usual == gpu_catalog().usual_of_size.end()) return std::nullopt;
  for (const GpuFamily& family : gpu_catalog().families) {
    if (family.name == usual->second) return ParsedName{&family, *rest, true};
  }
  return std::nullopt;
}

// The family with the longest spelling that leaves a readable rest: "v100sxm2" is a V100 with SXM2,
// not a V100S.
std::optional<ParsedName> parse_name(std::string_view name) {
  while (consume(name, "nvidia") || consume(name, "tesla") || consume(name, "geforce")) {
  }
  std::optional<ParsedName> best;
  std::size_t longest = 0;
  for (const GpuFamily& family : gpu_catalog().families) {
    for (const std::string& spelling : family.spellings) {
      if (spelling.size() <= longest || !name.starts_with(spelling)) continue;
      const auto rest = parse_rest(name.substr(spelling.size()));
      if (!rest) continue;
      longest = spelling.size();
      best = ParsedName{&family, *rest};
    }
  }
  return best ? best : parse_size_alone(name);
}

using Candidates = std::vector<const CatalogGpu*>;

template <typename Predicate>
void keep_if(Candidates& candidates, Predicate predicate) {
  std::erase_if(candidates, [&](const CatalogGpu* entry) { return !predicate(*entry); });
}

bool has_size(const CatalogGpu& entry, std::int64_t size) {
  return std::find(entry.sizes_gb.begin(), entry.sizes_gb.end(), size) != entry.sizes_gb.end();
}

Candidates family_members(const GpuFamily& family) {
  Candidates members;
  for (const CatalogGpu& entry : gpu_catalog().gpus) {
    if (entry.family == family.name) members.push_back(&entry);
  }
  return members;
}

bool has_several_forms(const Candidates& candidates) {
  return std::any_of(candidates.begin(), candidates.end(), [&](const CatalogGpu* entry) {
    return entry->gpu.form != candidates.front()->gpu.form;
  });
}

// Boards with SXM sockets carry 4, 8 or 16; everything else is more often built from PCIe GPUs.
FormFactor usual_form(std::int64_t gpus_per_node) {
  const bool board = gpus_per_node == 4 || gpus_per_node == 8 || gpus_per_node == 16;
  return board ? FormFactor::sxm : FormFactor::pcie;
}

// Narrows to one GPU; each choice the name did not make is added to `reasons`.
const CatalogGpu* choose(const ParsedName& parsed,
                         std::int64_t gpus_per_node,
                         std::vector<Phrase>& reasons) {
  if (parsed.by_size) reasons.emplace_back("a usual GPU of that memory");
  Candidates candidates = family_members(*parsed.family);
  const NameRest& rest = parsed.rest;
  if (rest.size_gb) {
    keep_if(candidates, [&](const CatalogGpu& entry) { return has_size(entry, *rest.size_gb); });
  }
  if (rest.form) {
    keep_if(candidates, [&](const CatalogGpu& entry) { return entry.gpu.form == *rest.form; });
  }
  if (!rest.form && rest.hbm3 && has_several_forms(candidates)) {
    keep_if(candidates, [](const CatalogGpu& entry) { return entry.gpu.form == FormFactor::sxm; });
  }
  if (candidates.size() > 1 && has_several_forms(candidates)) {
    const FormFactor form = usual_form(gpus_per_node);
    keep_if(candidates, [&](const CatalogGpu& entry) { return entry.gpu.form == form; });
    reasons.push_back(
        phrase("{} assumed for {} a node", name(kFormFactorNames, form), gpus_per_node));
  }
  if (candidates.size() > 1 && parsed.family->size_gb) {
    const std::int64_t size = *parsed.family->size_gb;
    keep_if(candidates, [&](const CatalogGpu& entry) { return has_size(entry, size); });
    reasons.push_back(phrase("{} GB assumed", size));
  }
  return candidates.empty() ? nullptr : candidates.front();
}

// A key of ours or the product's own name, which leave nothing open.
const CatalogGpu* exact_match(const std::string& folded) {
  for (const CatalogGpu& entry : gpu_catalog().gpus) {
    if (folded == folded_name(entry.gpu.key) || folded == folded_name(entry.gpu.name) ||
        folded == folded_name(entry.gpu.product_name)) {
      return &entry;
    }
  }
  return nullptr;
}

// What a mistyped name is compared with: families, families with a form factor, full names.
std::vector<std::string> all_spellings() {
  std::vector<std::string> spellings = {"cpu"};
  for (const GpuFamily& family : gpu_catalog().families) {
    spellings.push_back(family.name);
    const Candidates members = family_members(family);
    if (!has_several_forms(members)) continue;
    for (const CatalogGpu* entry : members) {
      const std::string_view form = name(kFormFactorNames, entry->gpu.form);
      spellings.push_back(family.name + "-" + std::string(form));
    }
  }
  for (const CatalogGpu& entry : gpu_catalog().gpus) spellings.push_back(entry.gpu.name);
  return spellings;
}

}  // namespace

std::string folded_name(std::string_view text) { return folded(text, " -_.()/\t"); }

std::optional<GpuMatch> find_gpu(std::string_view text, std::int64_t gpus_per_node) {
  const std::string folded = folded_name(text);
  if (folded == "cpu") return GpuMatch{cpu_rank(), ""};
  if (const CatalogGpu* entry = exact_match(folded)) return GpuMatch{entry->gpu, ""};
  const std::optional<ParsedName> parsed = parse_name(folded);
  if (!parsed) return std::nullopt;
  std::vector<Phrase> reasons;
  const CatalogGpu* entry = choose(*parsed, gpus_per_node, reasons);
  if (entry == nullptr) return std::nullopt;
  GpuMatch match{entry->gpu, ""};
  if (!reasons.empty()) {
    match.assumption = phrase("{} is taken as {}: {}", text, entry->gpu.name, phrase_list(reasons));
  }
  return match;
}

Diagnostic unknown_gpu(std::string_view text, std::string file, std::string pointer) {
  Diagnostic diagnostic{std::move(file), std::move(pointer), "the name of a GPU", "", ""};
  diagnostic.got = in_quotes(text);
  if (const std::string reason = why_no_gpu(text); !reason.empty()) {
    diagnostic.got += ", which is known and not modelled";
    diagnostic.hint = reason;
    return diagnostic;
  }
  const std::optional<ParsedName> parsed = parse_name(folded_name(text));
  if (parsed) {
    std::vector<std::string> names;
    for (const CatalogGpu* entry : family_members(*parsed->family)) {
      names.push_back(entry->gpu.name);
    }
    diagnostic.hint = phrase("{} is known as {}", parsed->family->name, phrase_list(names));
    return diagnostic;
  }
  std::vector<std::string> spellings = all_spellings();
  for (std::string& machine : node_names()) spellings.push_back(std::move(machine));
  const std::vector<std::string_view> candidates(spellings.begin(), spellings.end());
  diagnostic.hint = did_you_mean_same_number(text, candidates);
  if (diagnostic.hint.empty()) diagnostic.hint = did_you_mean(text, candidates);
  if (diagnostic.hint.empty()) diagnostic.hint = "`zeroplan gpus` lists all names";
  return diagnostic;
}

}  // namespace zeroplan
