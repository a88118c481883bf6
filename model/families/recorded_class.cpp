#include "model/families/recorded_class.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "base/diagnostic.hpp"
#include "base/embedded.hpp"
#include "base/written_names.hpp"
#include "model/families/recorded_layers.hpp"
#include "model/families/recorded_match.hpp"
#include "model/families/recorded_sizes.hpp"

namespace zeroplan {
namespace {

const std::string& attention_of(const Json& document, const std::string& usual) {
  const Json* own = document.find("graph")->find("attention");
  return own != nullptr ? own->as_string() : usual;
}

// The documents of a release of transformers, and the attention that its class has by default.
struct OfRelease {
  ReleaseRange releases;
  std::vector<const Json*> documents;
  std::string usual;

  // The implementations of attention that they are of, the class's own choice first.
  std::vector<std::string> attentions() const {
    std::vector<std::string> known;
    for (const Json* document : documents) {
      const std::string& one = attention_of(*document, usual);
      if (std::find(known.begin(), known.end(), one) == known.end()) known.push_back(one);
    }
    return known;
  }
};

// A recorded release stands for those of its series from its minor number up to the next one that
// was recorded, the first of a series for what is older in it, too, and the first of all for older
// series. Absent: the newest.
OfRelease of_release(const Json& family, const std::optional<Version>& asked) {
  const auto release_of = [](const Json& document) {
    const Json* software = document.find("graph")->find("software");
    const Json* release = software == nullptr ? nullptr : software->find("transformers");
    return release == nullptr ? std::nullopt : parse_version(release->as_string());
  };
  std::map<Version, OfRelease> by_first;  // by the first release that they stand for
  for (const Json& document : family.find("documents")->items()) {
    const Version recorded = release_of(document).value_or(Version{});
    OfRelease& own = by_first[{recorded.major, recorded.minor, 0}];
    own.documents.push_back(&document);
    own.releases.recorded = recorded;
  }
  auto found = std::prev(by_first.end());
  Version from = found->first;
  std::optional<Version> until;
  while (true) {
    const bool is_first = found == by_first.begin();
    from = found->first;
    if (is_first || std::prev(found)->first.major < from.major) from = {from.major, 0, 0};
    if (is_first) from = {};
    if (is_first || !asked || *asked >= from) break;
    until = from;
    --found;
  }
  OfRelease chosen = std::move(found->second);
  chosen.releases.from = from;
  chosen.releases.until = until;
  chosen.usual = attention_of(*chosen.documents.front(), family.find("attention")->as_string());
  return chosen;
}

// Parts that several documents have stand once, and are named by their numbers.
void put_parts(Json& family) {
  const Json parts = *family.find("parts");
  const auto put = [&](Json& whole, const char* name) {
    const Json* number = whole.find(name);
    if (number != nullptr)
      whole[name] = parts.items()[static_cast<std::size_t>(number->as_integer())];
  };
  const Json aliases =
      family.find("aliases") != nullptr ? *family.find("aliases") : Json::object({});
  for (Json& document : family["documents"].items()) {
    document["aliases"] = aliases;
    for (const char* name : {"fixed", "defaults", "lists"}) put(document, name);
    for (const char* name : {"software", "inputs", "buffers", "modules", "stacks"}) {
      put(document["graph"], name);
    }
  }
}

constexpr std::string_view kRecordings = "data/families/", kRecordingEnd = ".json";

// The documents of a class are read once. `name`: a model_type, or with a class behind it that is
// not the type's usual one ("bart+BartForCausalLM").
std::shared_ptr<const Json> family_of(const std::string& name) {
  static std::mutex one_at_a_time;
  static std::map<std::string, std::shared_ptr<const Json>> known;
  const std::lock_guard lock(one_at_a_time);
  const std::string path = fmt::format("{}{}{}", kRecordings, name, kRecordingEnd);
  const auto [place, is_new] = known.try_emplace(path);
  if (!is_new) return place->second;
  for (const EmbeddedFile& file : embedded_files()) {
    if (file.path != path) continue;
    place->second = std::make_shared<const Json>(parse_family(file.text, path));
  }
  return place->second;
}

// The documents of the config's class, where that is not its type's usual one; null: there are
// none.
std::shared_ptr<const Json> family_of_class(const Json& config, const std::string& model_type) {
  const Json* classes = config.find("architectures");
  const bool is_said = classes != nullptr && classes->is_array() && !classes->items().empty() &&
                       classes->items().front().is_string();
  return is_said ? family_of(model_type + "+" + classes->items().front().as_string()) : nullptr;
}

bool is_class(const Json& name, const Json* recorded) {
  return recorded != nullptr && name.is_string() &&
         is_same_class(name.as_string(), recorded->as_string());
}

// A name that stands before the documents of a recording; "" where none does.
std::string_view name_in(std::string_view text, std::string_view key) {
  text = text.substr(0, text.find("\"documents\""));
  const std::size_t at = text.find(key);
  if (at == std::string_view::npos) return "";
  text.remove_prefix(at + key.size());
  return text.substr(0, text.find('"'));
}

// The usual class of a recording.
std::string_view class_in(std::string_view text) { return name_in(text, "\"class\":\""); }

// The class that checkpoints of a recording's type name: of a type that has a config alone, as
// exaone, whose class is LlamaForCausalLM, one that transformers lacks.
std::string_view named_in(std::string_view text) {
  const std::string_view named = name_in(text, "\"named\":\"");
  return named.empty() ? class_in(text) : named;
}

}  // namespace

Json parse_family(std::string_view text, const std::string& file) {
  Json family = parse_json(text, file, {.max_values = kMostRecordedValues}).root;
  put_parts(family);
  return family;
}

RecordedClass read_recorded(const Json& family,
                            const std::string& file,
                            const Json& said,
                            const ModelUse& use) {
  const Json config = spelled_out(family, said);
  const Json* documents = family.find("documents");
  if (documents == nullptr || !documents->is_array() || documents->items().empty()) {
    throw InputError({file, "", "documents", "none", ""});
  }
  const OfRelease recorded = of_release(family, use.transformers);
  const std::string& usual = recorded.usual;
  const std::vector<std::string> attentions = recorded.attentions();
  const auto has = [&](std::string_view name) {
    return std::find(attentions.begin(), attentions.end(), name) != attentions.end();
  };
  // A class that has none of PyTorch's runs its own code where it is asked for what it lacks.
  const bool own_code = !has("sdpa") && !has(use.attention);
  const std::string attention = use.attention.empty() || own_code ? usual : use.attention;
  if (!has(attention)) {
    return {
        {}, {}, {}, "attn_implementation", Phrase(fmt::format("{}", fmt::join(attentions, ", ")))};
  }
  if (const Json* classes = config.find("architectures");
      classes != nullptr && !classes->is_null() && !classes->items().empty() &&
      !is_class(classes->items().front(), family.find("class")) &&
      !is_class(classes->items().front(), family.find("named"))) {
    if (!is_class(classes->items().front(), family.find("scores"))) {
      return {{}, {}, {}, "architectures/0", Phrase(family.find("class")->as_string())};
    }
  }
  RecordedClass nearest;
  int most = -1;
  for (const Json* document : recorded.documents) {
    if (attention_of(*document, usual) != attention) continue;
    const RecordedValues values(config, *document);
    RecordedMatch match = matched(*document, values, use.sequence_length);
    if (!match.problem) {
      try {
        Json graph = unfolded_graph(family, *document, values);
        return {std::move(graph), match.lengths, recorded.releases, "", {}};
      } catch (const NotRecorded& error) {
        match.problem = error;
      }
    }
    if (match.passed > most) {
      most = match.passed;
      nearest.key = match.problem->key;
      std::replace(nearest.key.begin(), nearest.key.end(), '.', '/');
      nearest.expected = match.problem->expected;
    }
  }
  return nearest;
}

std::vector<std::string> recorded_types() {
  std::set<std::string> types;  // a type's classes are one type
  for (const EmbeddedFile& file : embedded_files()) {
    if (!file.path.starts_with(kRecordings)) continue;
    const std::string_view name = file.path.substr(kRecordings.size());
    types.emplace(name.substr(0, std::min(name.find('+'), name.size() - kRecordingEnd.size())));
  }
  return {types.begin(), types.end()};
}

bool is_recorded(const std::string& model_type) { return family_of(model_type) != nullptr; }

bool is_recorded_class(const std::string& model_type, std::string_view architecture) {
  const std::string usual = fmt::format("{}{}{}", kRecordings, model_type, kRecordingEnd);
  const std::string own =
      fmt::format("{}{}+{}{}", kRecordings, model_type, architecture, kRecordingEnd);
  const auto files = embedded_files();
  return std::any_of(files.begin(), files.end(), [&](const EmbeddedFile& file) {
    return file.path == own || (file.path == usual && class_in(file.text) == architecture);
  });
}

std::string recorded_type_of(std::string_view stem) {
  for (const EmbeddedFile& file : embedded_files()) {
    if (!file.path.starts_with(kRecordings)) continue;
    const std::string_view name = file.path.substr(kRecordings.size());
    const bool is_usual = name.find('+') == std::string_view::npos;
    if (is_usual && is_same_class(class_stem(named_in(file.text)), stem)) {
      return std::string(name.substr(0, name.size() - kRecordingEnd.size()));
    }
  }
  return "";
}

std::string_view class_stem(std::string_view class_name) {
  std::size_t end = class_name.size();
  for (const std::string_view part :
       {"For", "LMHead", "WithLMHead", "DoubleHeads", "Model", "Encoder"}) {
    end = std::min(end, class_name.find(part));
  }
  return class_name.substr(0, end);
}

bool is_same_class(std::string_view one, std::string_view other) {
  return folded(one, "_") == folded(other, "_");
}

std::optional<RecordedClass> recorded_class(const Json& config,
                                            const std::string& model_type,
                                            const ModelUse& use) {
  std::shared_ptr<const Json> family = family_of_class(config, model_type);
  if (family == nullptr) family = family_of(model_type);
  if (family == nullptr) return std::nullopt;
  return read_recorded(*family, model_type, config, use);
}

}  // namespace zeroplan
