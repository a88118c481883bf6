#include "model/families/recorded_class.hpp"

#include <algorithm>
#include <array>
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
#include "model/families/recorded_sizes.hpp"

namespace zeroplan {
namespace {

using Values = RecordedValues;

// Lists with an entry for each layer (layer_types) as the config says them; a list that it lacks as
// the class repeats its entries.
class LayerLists {
 public:
  // `layers`: of a recorded document. Throws NotRecorded where the class would make a list that it
  // lacks by other keys, which have other values than when it was recorded.
  LayerLists(const Json& layers, std::size_t count, const Values& values)
      : absent_(layers.find("absent")), count_(count), values_(values) {
    if (absent_ == nullptr) return;
    for (const auto& [key, made] : absent_->members()) {
      const Json* read = is_said(key) ? nullptr : made.find("by");
      if (read == nullptr) continue;
      for (const auto& [name, usual] : read->members()) {
        const Json* said = values_.find(name);
        if (said != nullptr && !said->is_null() && *said != usual) {
          throw NotRecorded{name,
                            usual.is_null() ? phrase("no such key") : phrase("{}", usual.dump())};
        }
      }
    }
  }

  bool is_said(std::string_view key) const {
    const Json* said = values_.find(key);
    return said != nullptr && !said->is_null();
  }

  // Null: nothing.
  Json item(std::string_view key, std::size_t i) const {
    if (is_said(key)) {
      const Json& said = *values_.find(key);
      return said.is_array() && said.items().size() == count_ ? said.items()[i] : Json();
    }
    const Json* made = absent_ == nullptr ? nullptr : absent_->find(key);
    const Json* cycle = made == nullptr ? nullptr : made->find("cycle");
    if (cycle == nullptr) return {};
    const Json* first = made->find("first");
    const std::size_t before = first == nullptr ? 0 : first->items().size();
    return i < before ? first->items()[i] : cycle->items()[(i - before) % cycle->items().size()];
  }

  std::size_t count() const { return count_; }

  bool is_last_of_its_value(std::string_view key, std::size_t i) const {
    const Json own = item(key, i);
    for (std::size_t next = i + 1; next < count_; ++next) {
      if (item(key, next) == own) return false;
    }
    return true;
  }

 private:
  const Json* absent_;
  std::size_t count_;
  const Values& values_;
};

// A layer's part of a rule, by its key: the item of a list, for "<key" and "<1" whether it is one
// of the first so many, for ">1" whether it is the last, for "%key" whether it ends a period, for
// "^key" whether it begins one, for
// "$key" whether it is the last of its value in a list, for "@key" whether a list has its number.
// Null: nothing.
Json said_of_layer(std::string_view key,
                   std::size_t i,
                   const LayerLists& lists,
                   const Values& values) {
  const char sort = key.front();
  if (sort == '$') {
    key.remove_prefix(1);
    return lists.item(key, i).is_null() ? Json() : Json(lists.is_last_of_its_value(key, i));
  }
  if (std::string_view("<>%^@").find(sort) == std::string_view::npos) return lists.item(key, i);
  const auto at = static_cast<std::int64_t>(i);
  if (sort == '@') {
    const Json* numbers = values.find(key.substr(1));
    if (numbers == nullptr || !numbers->is_array()) return Json(false);
    const std::vector<Json>& all = numbers->items();
    return Json(std::find(all.begin(), all.end(), Json(at)) != all.end());
  }
  if (key == "<1") return Json(at < 1);
  if (key == ">1") return Json(i + 1 == lists.count());
  const auto size = values.size(key.substr(1));
  if (!size) return {};
  if (sort == '<') return Json(at < *size);
  const std::int64_t place = sort == '%' ? at + 1 : at;
  return *size > 0 ? Json(place % *size == 0) : Json();
}

// Whether the config has all lists of the rule.
bool is_asked(const Json& rule, const LayerLists& lists, const Values& values) {
  const std::vector<Json>& keys = rule.find("by")->items();
  return std::all_of(keys.begin(), keys.end(), [&](const Json& key) {
    return !said_of_layer(key.as_string(), 0, lists, values).is_null();
  });
}

std::optional<std::size_t> kind_by(const Json& rule,
                                   std::size_t i,
                                   const LayerLists& lists,
                                   const Values& values) {
  Json row = Json::array();
  for (const Json& key : rule.find("by")->items()) {
    row.push_back(said_of_layer(key.as_string(), i, lists, values));
  }
  if (row.items().empty()) return 0;
  for (const Json& known : rule.find("values")->items()) {
    if (known.items()[0] == row) return static_cast<std::size_t>(known.items()[1].as_integer());
  }
  return std::nullopt;
}

std::int64_t layers_of(const Values& values, const std::string& key) {
  constexpr std::int64_t kMostLayers = 1024;
  const auto said = values.size(key);
  if (!said || *said < 1 || *said > kMostLayers) {
    throw NotRecorded{key, phrase("1 to {}", kMostLayers)};
  }
  return *said;
}

// The kind of each layer by the first rule whose keys the config has.
std::vector<std::size_t> kinds_of(const Json& layers, const Values& values) {
  const auto count = static_cast<std::size_t>(layers_of(values, layers.find("count")->as_string()));
  const LayerLists lists(layers, count, values);
  for (const Json& rule : layers.find("rules")->items()) {
    std::vector<std::size_t> kinds;
    for (std::size_t i = 0; i < count; ++i) {
      const std::optional<std::size_t> kind = kind_by(rule, i, lists, values);
      if (!kind) break;
      kinds.push_back(*kind);
    }
    if (kinds.size() == count) return kinds;
    // The first rule, the lists of the config, is not overruled by those behind it.
    if (&rule == &layers.find("rules")->items().front() && is_asked(rule, lists, values)) break;
  }
  const std::vector<Json>& by = layers.find("rules")->items().front().find("by")->items();
  const std::string key = by.empty() ? "" : by.front().as_string();
  throw NotRecorded{key.find_first_of("<>%^$@") == 0 ? key.substr(1) : key,
                    phrase("layers of the kinds that were recorded")};
}

// Layers that follow each other, and the row of a document that stands for them.
struct Stack {
  Json mark;
  Json layers;
  std::vector<std::size_t> kinds;  // by layer
};

// The rows of all layers in the place of the mark that stands for them.
void unfold(Json& rows, const Stack& stack, std::string_view what) {
  const std::string name = what == "modules" ? "name" : "prefix";
  const std::string& prefix = stack.layers.find("prefix")->as_string();
  const bool is_one = stack.layers.find("again") != nullptr;  // called once for each
  Json whole = Json::array();
  for (Json& row : rows.items()) {
    if (row != stack.mark) {
      whole.push_back(std::move(row));
      continue;
    }
    for (std::size_t i = 0; i < stack.kinds.size(); ++i) {
      const std::string own = prefix + std::to_string(is_one ? 0 : i);
      const Json& kind = stack.layers.find("kinds")->items()[stack.kinds[i]];
      for (const Json& part : kind.find(what)->items()) {
        Json made = part;
        made[name] = what == "modules" ? own + part.find("name")->as_string() : own + ".";
        whole.push_back(std::move(made));
      }
    }
  }
  rows = std::move(whole);
}

void unfold_buffers(Json& buffers, const Stack& stack) {
  for (std::size_t i = 0; i < stack.kinds.size(); ++i) {
    const Json& kind = stack.layers.find("kinds")->items()[stack.kinds[i]];
    for (const auto& [name, row] : kind.find("buffers")->members()) {
      buffers[stack.layers.find("prefix")->as_string() + std::to_string(i) + name] = row;
    }
  }
}

// The rows of a pool that a list names by their numbers.
Json rows_of(const Json& pool, const Json& numbers) {
  Json rows = Json::array();
  for (const Json& number : numbers.items()) {
    rows.push_back(pool.items()[static_cast<std::size_t>(number.as_integer())]);
  }
  return rows;
}

// A tower that is not run has the modules of a layer, and no kinds.
Stack stack_of(const Json& family, const Json& layers, Json mark, const Values& values) {
  Stack stack{std::move(mark), layers, {}};
  if (const Json* modules = layers.find("modules")) {
    const std::int64_t count = layers_of(values, layers.find("count")->as_string());
    const Json kind = Json::object({{"modules", *modules}, {"buffers", Json::object()}});
    stack.layers["kinds"] = Json::array({kind});
    stack.kinds.assign(static_cast<std::size_t>(count), 0);
  } else {
    stack.layers["kinds"] = rows_of(*family.find("kinds"), *layers.find("kinds"));
    stack.kinds = kinds_of(stack.layers, values);
  }
  return stack;
}

// The layers of a recorded graph, and those of its other stacks.
std::vector<Stack> stacks_of(const Json& family, const Json& graph, const Values& values) {
  const Json mark = Json::object({{"layers", Json(true)}});
  std::vector<Stack> stacks{stack_of(family, *graph.find("layers"), mark, values)};
  const Json* others = graph.find("stacks");
  if (others == nullptr) return stacks;
  for (const Json& layers : others->items()) {
    stacks.push_back(
        stack_of(family, layers, Json::object({{"stack", *layers.find("count")}}), values));
  }
  return stacks;
}

// Rotary embeddings that turn other tensors than those that were recorded. `layers`: the type of
// layers that they are of; empty: all.
std::optional<NotRecorded> other_rotary(const Json& said,
                                        const Json& rope,
                                        const std::string& layers = "") {
  for (const auto& [key, value] : said.members()) {
    if (value.is_object()) {
      if (auto found = other_rotary(value, rope, key)) return found;
    }
    if (key == "rope_type" || key == "type") {
      const std::vector<Json>& same = rope.find("types")->items();
      // "mrope" was the name before 4.57; "dynamic" and "longrope" take other frequencies, as many,
      // for sequences longer than the original ones (modeling_rope_utils.py dynamic_rope_update).
      const bool usual =
          value == Json("mrope") || value == Json("dynamic") || value == Json("longrope");
      const Json sort = usual ? Json("default") : value;
      if (std::find(same.begin(), same.end(), sort) == same.end()) {
        return NotRecorded{key, rope.find("types")->dump()};
      }
    }
    const Json* partial = rope.find("partial");
    if (partial != nullptr && !layers.empty()) partial = partial->find(layers);
    if (key == "partial_rotary_factor" && partial != nullptr && !(value == *partial)) {
      return NotRecorded{key, partial->dump()};
    }
  }
  return std::nullopt;
}

std::optional<NotRecorded> other_rotary_of(const Values& values, const Json& rope) {
  for (const std::string_view name : {"rope_parameters", "rope_scaling"}) {
    const std::string key = values.of_text(name);
    const Json* said = values.said(key);
    if (said == nullptr) continue;
    if (auto found = other_rotary(*said, rope)) {
      return NotRecorded{fmt::format("{}/{}", key, found->key), found->expected};
    }
  }
  const std::string key = values.of_text("partial_rotary_factor");
  const Json *said = values.said(key), *partial = rope.find("partial");
  if (said == nullptr || partial == nullptr || *said == *partial) return std::nullopt;
  const bool of_layers = partial->is_object();  // one share for each type of layers
  if (of_layers && std::ranges::all_of(partial->members(),
                                       [&](const auto& own) { return own.second == *said; })) {
    return std::nullopt;
  }
  return NotRecorded{key, partial->dump()};
}

// A config's list or table of layers that tells no layer's kind must say what it said when the
// class was recorded; the first that does not is returned.
std::optional<NotRecorded> other_list(const Values& config, const Json& lists) {
  for (const auto& [key, known] : lists.members()) {
    const Json* said = config.said(key);
    if (said == nullptr || said->is_null()) continue;
    std::vector<Json> values = said->is_object() ? std::vector<Json>() : said->items();
    if (said->is_object()) {
      for (const auto& [layer, value] : said->members()) values.push_back(value);
    }
    const bool same = std::all_of(values.begin(), values.end(), [&known = known](const Json& item) {
      return std::find(known.items().begin(), known.items().end(), item) != known.items().end();
    });
    if (!same) return NotRecorded{key, known.dump()};
  }
  return std::nullopt;
}

// A config against one document: each check says which key is another than when it was recorded.
class Match {
 public:
  Match(const Json& document, const Values& values, std::int64_t sequence)
      : document_(document), values_(values), sequence_(sequence) {}

  // Nothing where the document is for the config; checks of what has documents of its own first.
  std::optional<NotRecorded> problem() {
    using Check = std::optional<NotRecorded> (Match::*)() const;
    for (const Check check : {&Match::core_sizes,
                              &Match::when,
                              &Match::heads,
                              &Match::unlike,
                              &Match::windows,
                              &Match::wide_values,
                              &Match::width,
                              &Match::head_dim,
                              &Match::lists,
                              &Match::rotary,
                              &Match::fixed}) {
      if (auto found = (this->*check)()) return found;
      ++passed_;
    }
    return std::nullopt;
  }
  int passed() const { return passed_; }

  // Sequences on the same side of all windows. One as long as a window has its mask
  // (masking_utils.py _ignore_causal_mask_sdpa).
  SequenceRange lengths() const {
    SequenceRange range;
    const Json* windows = document_.find("windows");
    if (windows == nullptr) return range;
    const bool longer = document_.find("longer")->as_boolean();
    for (const Json& key : windows->items()) {
      const std::int64_t window = values_.size(key.as_string()).value_or(0);
      if (longer) {
        range.shortest = std::max(range.shortest, window);
      } else {
        range.longest = std::min(range.longest, window - 1);
      }
    }
    return range;
  }

 private:
  std::optional<NotRecorded> same(const char* part, bool needed) const {
    for (const auto& [key, value] : document_.find(part)->members()) {
      const Json *said = values_.find(key), *wanted = values_.resolved(&value);
      const bool is_same = said != nullptr && wanted != nullptr && *said == *wanted;
      if (said == nullptr ? needed : !is_same) return NotRecorded{key, value.dump()};
    }
    return std::nullopt;
  }

  // Sizes that a config must say (docs/families.md). Configs of several that are released leave
  // out what is the class's own.
  std::optional<NotRecorded> core_sizes() const {
    constexpr std::array kSizes{"hidden_size",
                                "num_hidden_layers",
                                "num_attention_heads",
                                "intermediate_size",
                                "vocab_size"};
    if (values_.names_text()) return std::nullopt;
    constexpr std::size_t kOfParts = 2;
    for (std::size_t i = 0; i < (values_.has_parts() ? kOfParts : kSizes.size()); ++i) {
      const std::string key = values_.of_text(kSizes[i]);
      const Json* usual = document_.find("defaults")->find(key);
      if (usual != nullptr && usual->is_integer() && values_.said(key) == nullptr) {
        return NotRecorded{key, phrase("a size; the class's own is {}", usual->as_integer())};
      }
    }
    return std::nullopt;
  }

  std::optional<NotRecorded> when() const { return same("when", true); }
  std::optional<NotRecorded> fixed() const { return same("fixed", false); }

  std::optional<NotRecorded> heads() const {
    const Json* heads = document_.find("heads");
    if (heads == nullptr) return std::nullopt;
    const std::string &key = heads->find("key")->as_string(), &of = heads->find("of")->as_string();
    const auto all = values_.size(of), shared = values_.size(key);
    if (all && shared && (*all != *shared) == heads->find("grouped")->as_boolean()) {
      return std::nullopt;
    }
    return NotRecorded{key, phrase("a number that divides {}", of)};
  }

  // Sizes that decide which modules there are by being equal, and are not in this document.
  std::optional<NotRecorded> unlike() const {
    const Json* unlike = document_.find("unlike");
    if (unlike == nullptr) return std::nullopt;
    for (const auto& [key, other] : unlike->members()) {
      if (values_.size(key) != values_.size(other.as_string())) continue;
      return NotRecorded{key, phrase("another size than {}", other.as_string())};
    }
    return std::nullopt;
  }

  std::optional<NotRecorded> windows() const {
    const Json* windows = document_.find("windows");
    if (windows == nullptr) return std::nullopt;
    for (const Json& key : windows->items()) {
      const auto window = values_.size(key.as_string());
      if (!window || (sequence_ >= *window) != document_.find("longer")->as_boolean()) {
        return NotRecorded{key.as_string(),
                           phrase("windows that all sequences are within, or as long as")};
      }
    }
    return std::nullopt;
  }

  std::optional<NotRecorded> wide_values() const {
    const Json* wide = document_.find("wide_values");
    if (wide == nullptr) return std::nullopt;
    const std::string key = values_.of_text("v_head_dim");
    const auto value = values_.size(key), plain = values_.size(values_.of_text("qk_nope_head_dim")),
               turned = values_.size(values_.of_text("qk_rope_head_dim"));
    const bool as_wide = value && plain && turned && *value == *plain + *turned;
    // flash-attn alone wants values padded that are not as wide.
    const Json* attention = document_.find("graph")->find("attention");
    const bool pads = attention != nullptr && attention->as_string().starts_with("flash");
    if (value && plain && turned && (as_wide == wide->as_boolean() || (as_wide && !pads))) {
      return std::nullopt;
    }
    return NotRecorded{key,
                       wide->as_boolean() ? phrase("qk_nope_head_dim + qk_rope_head_dim")
                                          : phrase("another than queries have")};
  }

  // Heads of one width, with which alone the class runs: sections of rotary embeddings.
  std::optional<NotRecorded> width() const {
    const Json* width = document_.find("width");
    if (width == nullptr) return std::nullopt;
    const std::string &key = width->find("key")->as_string(), &of = width->find("of")->as_string();
    const std::int64_t times = width->find("times")->as_integer();
    const auto hidden = values_.size(key), heads = values_.size(of);
    if (hidden && heads && *hidden == times * *heads) return std::nullopt;
    return NotRecorded{key, phrase("{} x {}", times, of)};
  }

  // Classes read one that their config does not have by default.
  std::optional<NotRecorded> head_dim() const {
    const std::string key = values_.of_text("head_dim");
    const bool known = document_.find("defaults")->find(key) != nullptr ||
                       document_.find("fixed")->find(key) != nullptr ||
                       values_.said(values_.of_text("qk_rope_head_dim")) != nullptr;
    if (known || values_.size(key) == values_.share_of_a_head()) return std::nullopt;
    return NotRecorded{key, phrase("hidden_size / num_attention_heads")};
  }

  std::optional<NotRecorded> lists() const {
    if (const Json* lengths = document_.find("lengths")) {
      for (const auto& [key, length] : lengths->members()) {
        const Json* said = values_.said(key);
        if (said == nullptr || said->is_null()) continue;
        const bool same = said->is_array() && Json(said->items().size()) == length;
        if (!same) return NotRecorded{key, phrase("a list of {}", length.as_integer())};
      }
    }
    return other_list(values_, *document_.find("lists"));
  }
  std::optional<NotRecorded> rotary() const {
    return other_rotary_of(values_, *document_.find("rope"));
  }

  const Json& document_;
  const Values& values_;
  std::int64_t sequence_;
  int passed_ = 0;
};

// The elements that a token leaves in the cache of keys and values, by the usual keys of a config.
void put_cache(Json& shape, const Values& values) {
  const auto size = [&](std::string_view key) { return values.size(values.of_text(key)); };
  const auto heads = size("num_attention_heads");
  const auto plain = size("qk_nope_head_dim"), turned = size("qk_rope_head_dim");
  const bool latent = plain && turned;
  const auto shared = latent ? heads : size("num_key_value_heads");
  const auto width = latent ? std::optional(*plain + *turned) : size("head_dim");
  if (const auto count = shared ? shared : heads) shape["kv_heads"] = *count;
  if (width) shape["head_dim"] = *width;
}

Json document_of(const Json& family, const Json& document, const Values& values) {
  Json graph = *document.find("graph");
  const std::vector<Stack> stacks = stacks_of(family, graph, values);
  for (const char* name : {"layers", "stacks"}) graph.erase(name);
  graph["blocks"] = rows_of(*family.find("blocks"), *graph.find("blocks"));
  for (Json& block : graph["blocks"].items()) {
    for (const std::string_view name : {"tensors", "events"}) {
      block[name] = rows_of(*family.find(name), *block.find(name));
    }
  }
  for (const Stack& stack : stacks) {
    for (const char* name : {"modules", "calls"}) unfold(graph[name], stack, name);
    unfold_buffers(graph["buffers"], stack);
  }
  put_numbers(graph, values);
  put_cache(graph["shape"], values);
  return graph;
}

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

// A recorded release stands for those up to the next one that was recorded, the oldest for what is
// older, too. Absent: the newest.
OfRelease of_release(const Json& family, const std::optional<Version>& asked) {
  const auto release_of = [](const Json& document) {
    const Json* software = document.find("graph")->find("software");
    const Json* release = software == nullptr ? nullptr : software->find("transformers");
    return release == nullptr ? std::nullopt : parse_version(release->as_string());
  };
  const std::vector<Json>& all = family.find("documents")->items();
  std::map<Version, OfRelease> by_release;
  for (const Json& document : all) {
    by_release[release_of(document).value_or(Version{})].documents.push_back(&document);
  }
  auto found = by_release.begin();
  while (std::next(found) != by_release.end() && (!asked || std::next(found)->first <= *asked)) {
    ++found;
  }
  OfRelease chosen = std::move(found->second);
  if (found != by_release.begin()) chosen.releases.from = found->first;
  if (++found != by_release.end()) chosen.releases.until = found->first;
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

// The usual class of a recording, which stands in its first line.
std::string_view class_in(std::string_view text) {
  constexpr std::string_view kKey = "\"class\":\"";
  text = text.substr(0, text.find("\"documents\""));
  const std::size_t at = text.find(kKey);
  if (at == std::string_view::npos) return "";
  text.remove_prefix(at + kKey.size());
  return text.substr(0, text.find('"'));
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
  // A class that has none of PyTorch's runs its own code, whatever is asked for.
  const bool own_code = usual == "eager" && attentions.size() == 1;
  const std::string attention = use.attention.empty() || own_code ? usual : use.attention;
  if (std::find(attentions.begin(), attentions.end(), attention) == attentions.end()) {
    return {
        {}, {}, {}, "attn_implementation", Phrase(fmt::format("{}", fmt::join(attentions, ", ")))};
  }
  if (const Json* classes = config.find("architectures");
      classes != nullptr && !classes->is_null() && !classes->items().empty() &&
      !is_class(classes->items().front(), family.find("class"))) {
    if (!is_class(classes->items().front(), family.find("scores"))) {
      return {{}, {}, {}, "architectures/0", Phrase(family.find("class")->as_string())};
    }
  }
  RecordedClass nearest;
  int most = -1;
  for (const Json* document : recorded.documents) {
    if (attention_of(*document, usual) != attention) continue;
    const Values values(config, *document);
    Match match(*document, values, use.sequence_length);
    std::optional<NotRecorded> problem = match.problem();
    if (!problem) {
      try {
        return {document_of(family, *document, values), match.lengths(), recorded.releases, "", {}};
      } catch (const NotRecorded& error) {
        problem = error;
      }
    }
    if (match.passed() > most) {
      most = match.passed();
      nearest.key = problem->key;
      std::replace(nearest.key.begin(), nearest.key.end(), '.', '/');
      nearest.expected = problem->expected;
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

std::string recorded_type_of(std::string_view stem) {
  for (const EmbeddedFile& file : embedded_files()) {
    if (!file.path.starts_with(kRecordings)) continue;
    const std::string_view name = file.path.substr(kRecordings.size());
    const bool is_usual = name.find('+') == std::string_view::npos;
    if (is_usual && is_same_class(class_stem(class_in(file.text)), stem)) {
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
