#include "model/families/recorded_class.hpp"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <vector>

#include "base/diagnostic.hpp"
#include "base/embedded.hpp"

namespace zeroplan {
namespace {

// An exact share: sizes are whole, what a token has of its experts is not.
struct Share {
  std::int64_t above = 1;
  std::int64_t below = 1;
};

Share reduced(Share share) {
  const std::int64_t common = std::gcd(share.above, share.below);
  return common > 1 ? Share{share.above / common, share.below / common} : share;
}

// The values of the config's keys, with the class's defaults for those that it does not say.
class Values {
 public:
  Values(const Json& config, const Json& document)
      : config_(config), defaults_(*document.find("defaults")), heads_(document.find("heads")) {}

  const Json* find(std::string_view key) const {
    const Json* said = config_.find(key);
    if (said != nullptr && !said->is_null()) return said;
    if (heads_ != nullptr && heads_->find("key")->as_string() == key) {
      return find(heads_->find("of")->as_string());  // as many as there are heads
    }
    return said != nullptr ? said : defaults_.find(key);
  }

  std::optional<std::int64_t> size(std::string_view key) const {
    const Json* value = find(key);
    if (key == "head_dim" && (value == nullptr || value->is_null())) return share_of_a_head();
    if (value == nullptr || !value->is_integer() || value->as_integer() < 0) return std::nullopt;
    return value->as_integer();
  }

  // The head_dim of a config that does not say one.
  std::optional<std::int64_t> share_of_a_head() const {
    const auto hidden = size("hidden_size");
    const auto heads = size("num_attention_heads");
    if (!hidden || !heads || *heads == 0 || *hidden % *heads != 0) return std::nullopt;
    return *hidden / *heads;
  }

 private:
  const Json& config_;
  const Json& defaults_;
  const Json* heads_;
};

// "hidden_size*3/num_attention_heads+2*head_dim".
class Formula {
 public:
  Formula(std::string_view text, const Values& values) : rest_(text), values_(values) {}

  // Nothing where a key has no value, or the sum is too large.
  std::optional<Share> value() {
    Share sum{0, 1};
    while (!rest_.empty()) {
      const bool minus = rest_.front() == '-';
      if (minus || rest_.front() == '+') rest_.remove_prefix(1);
      const std::optional<Share> term = product();
      if (!term || overflows(sum, *term)) return std::nullopt;
      const std::int64_t other = term->above * sum.below;
      sum = reduced({sum.above * term->below + (minus ? -other : other), sum.below * term->below});
    }
    return sum;
  }

 private:
  static constexpr std::int64_t kLargest = std::int64_t{1} << 30;

  static bool overflows(const Share& a, const Share& b) {
    const auto large = [](std::int64_t x) { return x > kLargest || x < -kLargest; };
    return large(a.above) || large(a.below) || large(b.above) || large(b.below);
  }

  std::string_view word() {
    const std::size_t end = std::min(rest_.find_first_of("*/+-"), rest_.size());
    const std::string_view word = rest_.substr(0, end);
    rest_.remove_prefix(end);
    return word;
  }

  std::optional<std::int64_t> factor() {
    const std::string_view name = word();
    std::int64_t number = 0;
    const auto read = std::from_chars(name.data(), name.data() + name.size(), number);
    if (read.ec == std::errc() && read.ptr == name.data() + name.size()) return number;
    return values_.size(name);
  }

  std::optional<Share> product() {
    Share product;
    bool divides = false;
    while (true) {
      const std::optional<std::int64_t> next = factor();
      if (!next || (divides && *next == 0) || overflows(product, {*next, 1})) return std::nullopt;
      (divides ? product.below : product.above) *= *next;
      product = reduced(product);
      if (rest_.empty() || rest_.front() == '+' || rest_.front() == '-') return product;
      divides = rest_.front() == '/';
      rest_.remove_prefix(1);
    }
  }

  std::string_view rest_;
  const Values& values_;
};

// Raised where a formula has no value for this config.
struct NotRecorded {};

// "=" and a sum that is a whole number, "~" and one that may be a share.
Json number(std::string_view formula, const Values& values) {
  const std::optional<Share> found = Formula(formula.substr(1), values).value();
  if (!found) throw NotRecorded();
  if (found->below == 1) return Json(found->above);
  if (formula.front() == '=') throw NotRecorded();  // the class rounds it in a way that nobody saw
  return Json(static_cast<double>(found->above) / static_cast<double>(found->below));
}

bool is_formula(const Json& value) {
  return value.is_string() && !value.as_string().empty() &&
         (value.as_string().front() == '=' || value.as_string().front() == '~');
}

void put_numbers(Json& value, const Values& values) {
  if (is_formula(value)) {
    value = number(value.as_string(), values);
  } else if (value.is_array()) {
    for (Json& item : value.items()) put_numbers(item, values);
  } else if (value.is_object()) {
    for (auto& [key, member] : value.members()) put_numbers(member, values);
  }
}

// A layer's part of a rule, by its key: the item of a list for layer `i` of `count`, for "<key"
// whether it is one of the first so many, for "%key" whether it ends a period. Null: nothing.
Json said_of_layer(std::string_view key, std::size_t i, std::size_t count, const Values& values) {
  const char sort = key.front();
  if (sort != '<' && sort != '%') {
    const Json* list = values.find(key);
    return list != nullptr && list->items().size() == count ? list->items()[i] : Json();
  }
  const auto size = values.size(key.substr(1));
  if (!size) return {};
  const auto at = static_cast<std::int64_t>(i);
  if (sort == '<') return Json(at < *size);
  return *size > 0 ? Json((at + 1) % *size == 0) : Json();
}

std::optional<std::size_t> kind_by(const Json& rule,
                                   std::size_t i,
                                   std::size_t count,
                                   const Values& values) {
  Json row = Json::array();
  for (const Json& key : rule.find("by")->items()) {
    row.push_back(said_of_layer(key.as_string(), i, count, values));
  }
  if (row.items().empty()) return 0;
  for (const Json& known : rule.find("values")->items()) {
    if (known.items()[0] == row) return static_cast<std::size_t>(known.items()[1].as_integer());
  }
  return std::nullopt;
}

// The kind of each layer by the first rule whose keys the config has.
std::vector<std::size_t> kinds_of(const Json& layers, const Values& values) {
  constexpr std::int64_t kMostLayers = 1024;
  const auto layers_said = values.size(layers.find("count")->as_string());
  if (!layers_said || *layers_said < 1 || *layers_said > kMostLayers) throw NotRecorded();
  const auto count = static_cast<std::size_t>(*layers_said);
  for (const Json& rule : layers.find("rules")->items()) {
    std::vector<std::size_t> kinds;
    for (std::size_t i = 0; i < count; ++i) {
      const std::optional<std::size_t> kind = kind_by(rule, i, count, values);
      if (!kind) break;
      kinds.push_back(*kind);
    }
    if (kinds.size() == count) return kinds;
  }
  throw NotRecorded();
}

// The rows of all layers in the place of the mark that stands for them.
void unfold(Json& rows,
            const Json& layers,
            const std::vector<std::size_t>& kinds,
            std::string_view what) {
  const std::string name = what == "modules" ? "name" : "prefix";
  const std::string& prefix = layers.find("prefix")->as_string();
  Json whole = Json::array();
  for (Json& row : rows.items()) {
    if (row.find("layers") == nullptr) {
      whole.push_back(std::move(row));
      continue;
    }
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      const std::string own = prefix + std::to_string(i);
      for (const Json& part : layers.find("kinds")->items()[kinds[i]].find(what)->items()) {
        Json made = part;
        made[name] = what == "modules" ? own + part.find("name")->as_string() : own + ".";
        whole.push_back(std::move(made));
      }
    }
  }
  rows = std::move(whole);
}

// The rows of a pool that a list names by their numbers.
Json rows_of(const Json& pool, const Json& numbers) {
  Json rows = Json::array();
  for (const Json& number : numbers.items()) {
    rows.push_back(pool.items()[static_cast<std::size_t>(number.as_integer())]);
  }
  return rows;
}

void unfold_buffers(Json& buffers, const Json& layers, const std::vector<std::size_t>& kinds) {
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    const Json& kind = layers.find("kinds")->items()[kinds[i]];
    for (const auto& [name, row] : kind.find("buffers")->members()) {
      buffers[layers.find("prefix")->as_string() + std::to_string(i) + name] = row;
    }
  }
}

// Whether rotary embeddings of the config's sort turn the same tensors as those that were recorded.
// `layers`: the type of layers that it is of; empty: all.
bool same_rotary(const Json& said, const Json& rope, const std::string& layers = "") {
  for (const auto& [key, value] : said.members()) {
    if (value.is_object() && !same_rotary(value, rope, key)) return false;
    if (key == "rope_type" || key == "type") {
      const std::vector<Json>& same = rope.find("types")->items();
      if (std::find(same.begin(), same.end(), value) == same.end()) return false;
    }
    const Json* partial = rope.find("partial");
    if (partial != nullptr && !layers.empty()) partial = partial->find(layers);
    if (key == "partial_rotary_factor" && partial != nullptr && !(value == *partial)) return false;
  }
  return true;
}

bool same_rotary_of(const Json& config, const Json& rope) {
  for (const std::string_view key : {"rope_parameters", "rope_scaling"}) {
    const Json* said = config.find(key);
    if (said != nullptr && !same_rotary(*said, rope)) return false;
  }
  const Json* partial = config.find("partial_rotary_factor");
  return partial == nullptr || rope.find("partial") == nullptr || *partial == *rope.find("partial");
}

// Whether lists of layers that tell no layer's kind say what they said when it was recorded.
bool same_lists(const Json& config, const Json& lists) {
  for (const auto& [key, known] : lists.members()) {
    const Json* said = config.find(key);
    if (said == nullptr) continue;
    const bool same =
        std::all_of(said->items().begin(), said->items().end(), [&known = known](const Json& item) {
          return std::find(known.items().begin(), known.items().end(), item) != known.items().end();
        });
    if (!same) return false;
  }
  return true;
}

// Whether the document was recorded with what the config says of all that decides more than sizes.
bool is_for(const Json& document,
            const Json& config,
            const Values& values,
            const RecordedUse& use) {
  for (const auto& [key, value] : document.find("when")->members()) {
    const Json* said = values.find(key);
    if (said == nullptr || !(*said == value)) return false;
  }
  for (const auto& [key, value] : document.find("fixed")->members()) {
    const Json* said = values.find(key);
    if (said != nullptr && !(*said == value)) return false;
  }
  if (!same_lists(config, *document.find("lists"))) return false;
  if (!same_rotary_of(config, *document.find("rope"))) return false;
  if (const Json* wide = document.find("wide_values")) {
    const auto value = values.size("v_head_dim"), plain = values.size("qk_nope_head_dim"),
               turned = values.size("qk_rope_head_dim");
    if (!value || !plain || !turned || (*value == *plain + *turned) != wide->as_boolean()) {
      return false;
    }
  }
  // Classes read one that their config does not have by default.
  const bool knows_head = document.find("defaults")->find("head_dim") != nullptr ||
                          config.find("qk_rope_head_dim") != nullptr;
  if (!knows_head && values.size("head_dim") != values.share_of_a_head()) return false;
  if (const Json* heads = document.find("heads")) {
    const auto all = values.size(heads->find("of")->as_string());
    const auto shared = values.size(heads->find("key")->as_string());
    if (!all || !shared || (*all != *shared) != heads->find("grouped")->as_boolean()) return false;
  }
  if (const Json* windows = document.find("windows")) {
    for (const Json& key : windows->items()) {
      const auto window = values.size(key.as_string());
      const bool longer = window && use.sequence_length > *window;
      if (!window || longer != document.find("longer")->as_boolean()) return false;
    }
  }
  return true;
}

}  // namespace

std::optional<Json> document_of_family(const Json& family,
                                       const std::string& file,
                                       const Json& config,
                                       const RecordedUse& use) {
  const Json* documents = family.find("documents");
  if (documents == nullptr || !documents->is_array()) {
    throw InputError({file, "", "documents", "none", ""});
  }
  const Json* attention = family.find("attention");
  if (!use.attention.empty() && attention != nullptr && attention->as_string() != use.attention) {
    return std::nullopt;
  }
  if (const Json* classes = config.find("architectures");
      classes != nullptr && !classes->items().empty()) {
    if (!(classes->items().front() == *family.find("class"))) return std::nullopt;
  }
  for (const Json& document : documents->items()) {
    const Values values(config, document);
    if (!is_for(document, config, values, use)) continue;
    try {
      Json graph = *document.find("graph");
      Json layers = *graph.find("layers");
      layers["kinds"] = rows_of(*family.find("kinds"), *layers.find("kinds"));
      const std::vector<std::size_t> kinds = kinds_of(layers, values);
      graph.erase("layers");
      graph["blocks"] = rows_of(*family.find("blocks"), *graph.find("blocks"));
      for (Json& block : graph["blocks"].items()) {
        for (const std::string_view name : {"tensors", "events"}) {
          block[name] = rows_of(*family.find(name), *block.find(name));
        }
      }
      unfold(graph["modules"], layers, kinds, "modules");
      unfold(graph["calls"], layers, kinds, "calls");
      unfold_buffers(graph["buffers"], layers, kinds);
      put_numbers(graph, values);
      return graph;
    } catch (const NotRecorded&) {
      return std::nullopt;
    }
  }
  return std::nullopt;
}

std::optional<Json> recorded_document(const Json& config, const RecordedUse& use) {
  const Json* type = config.find("model_type");
  if (type == nullptr || !type->is_string()) return std::nullopt;
  const std::string path = "data/families/" + type->as_string() + ".json";
  const auto files = embedded_files();
  const auto file = std::find_if(
      files.begin(), files.end(), [&](const EmbeddedFile& one) { return one.path == path; });
  if (file == files.end()) return std::nullopt;
  const Json family = parse_json(file->text, path, {.max_values = kMostRecordedValues}).root;
  return document_of_family(family, path, config, use);
}

}  // namespace zeroplan
