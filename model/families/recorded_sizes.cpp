#include "model/families/recorded_sizes.hpp"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <vector>

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

// "hidden_size*3/num_attention_heads+2*head_dim".
class Formula {
 public:
  Formula(std::string_view text, const RecordedValues& values) : rest_(text), values_(values) {}

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
    if (name.starts_with("up(")) return rounded_up(name.substr(3));
    // "image_size|patch_size": whole patches.
    const std::size_t bar = name.find('|');
    if (bar == std::string_view::npos) return number_of(name);
    const auto over = values_.size(name.substr(0, bar)), under = values_.size(name.substr(bar + 1));
    if (!over || !under || *under == 0) return std::nullopt;
    return *over / *under;
  }

  // "intermediate_size,2,3,block_multiple_of)": whole two thirds of the size, up to a multiple.
  std::optional<std::int64_t> rounded_up(std::string_view text) {
    const auto next = [&] {
      const std::size_t end = std::min(text.find_first_of(",)"), text.size());
      const std::string_view word = text.substr(0, end);
      text.remove_prefix(std::min(end + 1, text.size()));
      return number_of(word);
    };
    const auto size = next(), above = next(), below = next(), unit = next();
    if (!size || !above || !below || !unit || *below == 0 || *unit == 0) return std::nullopt;
    if (overflows({*size, *above}, {*below, *unit})) return std::nullopt;
    const std::int64_t whole = *size * *above / *below;
    return (whole + *unit - 1) / *unit * *unit;
  }

  // A number, or the size that a key has.
  std::optional<std::int64_t> number_of(std::string_view name) const {
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
  const RecordedValues& values_;
};

// The class rounds it in a way that nobody saw, or has no such size.
[[noreturn]] void fail_size(std::string_view formula) {
  const std::size_t begin = formula.find_first_not_of("=~-0123456789*");
  const std::size_t end = formula.find_first_of("*/+-", begin);
  throw NotRecorded{std::string(formula.substr(begin, end - begin)),
                    phrase("sizes of which {} is a whole number, not 0", formula.substr(1))};
}

// "=" and a sum that is a whole number, "~" and one that may be a share.
Json number(std::string_view formula, const RecordedValues& values) {
  // The share of what is dropped.
  const Json* share = formula.front() == '~' ? values.find(formula.substr(1)) : nullptr;
  const bool is_number = share != nullptr && share->is_number();
  if (is_number && (!share->is_integer() || share->as_integer() == 0)) return *share;
  const std::optional<Share> found = Formula(formula.substr(1), values).value();
  const bool some = found && found->above != 0;
  if (some && found->below == 1) return Json(found->above);
  if (!some || formula.front() == '=') fail_size(formula);
  return Json(static_cast<double>(found->above) / static_cast<double>(found->below));
}

constexpr std::int64_t kMostLayers = 1024;

bool is_formula(const Json& value) {
  return value.is_string() && !value.as_string().empty() &&
         (value.as_string().front() == '=' || value.as_string().front() == '~');
}

Json split(std::string_view text, std::string_view between) {
  Json values = Json::array();
  while (true) {
    const std::size_t end = text.find(between);
    values.push_back(Json(std::string(text.substr(0, end))));
    if (end == std::string_view::npos) return values;
    text.remove_prefix(end + between.size());
  }
}

// The kinds of as many layers as the config says, by a list that has a number for each ("numbers":
// it may go on) or by how many are of one kind before those of another ("first").
std::optional<Json> kinds_by_numbers(const Json& config, const Json& how) {
  const Json* layers = how.find("layers");
  const Json* count = layers == nullptr ? nullptr : config.find(layers->as_string());
  if (count == nullptr || !count->is_integer()) return std::nullopt;
  const std::int64_t most = std::clamp<std::int64_t>(count->as_integer(), 0, kMostLayers);
  const Json* key = how.find("numbers");
  const Json* numbers = key == nullptr ? nullptr : config.find(key->as_string());
  Json kinds = Json::array();
  if (numbers != nullptr && numbers->is_array()) {
    for (const Json& number : numbers->items()) {
      if (static_cast<std::int64_t>(kinds.items().size()) < most) kinds.push_back(number.dump());
    }
    return kinds;
  }
  const Json* first = how.find("first");
  const Json* of_first = first == nullptr ? nullptr : config.find(first->find("by")->as_string());
  if (of_first == nullptr || !of_first->is_integer()) return std::nullopt;
  const std::vector<Json>& names = first->find("kinds")->items();
  for (std::int64_t i = 0; i < most; ++i) {
    kinds.push_back(names[i < of_first->as_integer() ? 0 : 1]);
  }
  return kinds;
}

// The name that a key has in its part of the config: "layer_types" of "text_config.layer_types".
std::string name_in_part(const std::string& key) { return key.substr(key.rfind('.') + 1); }

// A list of layers' kinds as a config, or the part of it that has the key, says it: by its key, by
// another name of it, as numbers, or as a text.
Json said_kinds(const Json& family, const Json& part, const std::string& key, const Json& how) {
  std::vector<std::string> names{name_in_part(key)};
  if (const Json* aliases = family.find("aliases")) {
    for (const auto& [alias, name] : aliases->members()) {
      if (name.as_string() == key) names.push_back(name_in_part(alias));
    }
  }
  for (const std::string& name : names) {
    const Json* list = part.find(name);
    if (list != nullptr && list->is_array()) return *list;
    const Json* between = how.find("between");
    if (list != nullptr && list->is_string() && between != nullptr) {
      return split(list->as_string(), between->as_string());
    }
  }
  if (std::optional<Json> kinds = kinds_by_numbers(part, how)) return *std::move(kinds);
  const Json* letters = how.find("letters");
  const Json* text = letters == nullptr ? nullptr : part.find(letters->as_string());
  if (text == nullptr || !text->is_string()) return {};
  Json kinds = Json::array();
  for (const char letter : text->as_string()) kinds.push_back(Json(std::string(1, letter)));
  return kinds;
}

void spell_out(const Json& family, const std::string& key, const Json& how, Json& part) {
  Json kinds = said_kinds(family, part, key, how);
  if (!kinds.is_array()) return;
  for (Json& kind : kinds.items()) {
    const Json* own = kind.is_string() ? how.find("words")->find(kind.as_string()) : nullptr;
    if (own != nullptr) kind = *own;
  }
  if (const Json* count = how.find("count")) {
    part[count->as_string()] = Json(static_cast<std::int64_t>(kinds.items().size()));
  }
  part[name_in_part(key)] = std::move(kinds);
}

// A table of overrides by layer number (per_layer_config) becomes the config's keys for that kind
// of layers, where it overrides exactly these and all alike; what a row leaves out is the config's
// own value. Any other table stays, and is refused.
void take_table(const std::string& name, const Json& how, Json& part) {
  const Json* table = part.find(name);
  const Json* list = part.find(how.find("list")->as_string());
  if (table == nullptr || !table->is_object() || list == nullptr || !list->is_array()) return;
  const Json* row = nullptr;
  std::size_t rows = 0;
  for (std::size_t i = 0; i < list->items().size(); ++i) {
    if (list->items()[i] != *how.find("kind")) continue;
    const Json* own = table->find(std::to_string(i));
    if (own == nullptr || !own->is_object() || (row != nullptr && *own != *row)) return;
    row = own;
    ++rows;
  }
  if (row == nullptr || rows != table->members().size()) return;
  const Json& keys = *how.find("keys");
  const Json said = *row;
  for (const auto& [own, value] : said.members()) {
    if (keys.find(own) == nullptr) return;  // something else is said of them
  }
  for (const auto& [own, of_all] : keys.members()) {
    const Json* value = said.find(own) != nullptr ? said.find(own) : part.find(own);
    if (value == nullptr || part.find(of_all.as_string()) != nullptr) continue;
    Json taken = *value;
    part[of_all.as_string()] = std::move(taken);
  }
  part[name] = Json();
}

// Parts by the names that the class has for them ("llm_config": "text_config").
void name_parts(const Json& aliases, Json& config) {
  for (const auto& [alias, name] : aliases.members()) {
    const Json* part = config.find(alias);
    const bool is_part = part != nullptr && part->is_object();
    if (!is_part || config.find(name.as_string()) != nullptr) continue;
    Json own = *part;
    config[name.as_string()] = std::move(own);
  }
}

}  // namespace

Json spelled_out(const Json& family, Json config) {
  if (const Json* aliases = family.find("aliases")) name_parts(*aliases, config);
  const auto in_parts = [&](std::string_view what, const auto& change) {
    const Json* rows = family.find(what);
    if (rows == nullptr) return;
    for (const auto& [key, how] : rows->members()) {
      const std::size_t dot = key.find('.');
      Json* part = dot == std::string::npos ? &config : config.find(key.substr(0, dot));
      if (part != nullptr && part->is_object()) change(key, how, *part);
    }
  };
  in_parts("spelling", [&](const std::string& key, const Json& how, Json& part) {
    spell_out(family, key, how, part);
  });
  in_parts("tables", [](const std::string& key, const Json& how, Json& part) {
    take_table(name_in_part(key), how, part);
  });
  return config;
}

RecordedValues::RecordedValues(const Json& config, const Json& document)
    : config_(config),
      defaults_(*document.find("defaults")),
      heads_(document.find("heads")),
      aliases_(document.find("aliases")) {
  const Json* text = document.find("text");
  if (text != nullptr) text_ = text->as_string();
}

const Json* RecordedValues::said(std::string_view key) const {
  const Json* own = said_by_name(key);
  if (own != nullptr || aliases_ == nullptr) return own;
  for (const auto& [alias, name] : aliases_->members()) {
    if (name.as_string() != key) continue;
    if (const Json* other = said_by_name(alias)) return other;
  }
  return nullptr;
}

// An older config of several says what is of the text among its own keys.
const Json* RecordedValues::said_by_name(std::string_view key) const {
  const std::size_t dot = key.find('.');
  if (dot == std::string_view::npos) return config_.find(key);
  const Json* part = config_.find(key.substr(0, dot));
  if (part != nullptr && part->is_object()) return part->find(key.substr(dot + 1));
  return key.substr(0, dot + 1) == text_ ? config_.find(key.substr(dot + 1)) : nullptr;
}

bool RecordedValues::names_text() const {
  const Json* part = has_parts() ? config_.find(text_.substr(0, text_.size() - 1)) : nullptr;
  return part != nullptr && part->is_object() && part->find("model_type") != nullptr;
}

const Json* RecordedValues::find(std::string_view key) const {
  const Json* own = said(key);
  if (own != nullptr && !own->is_null()) return own;
  if (heads_ != nullptr && heads_->find("key")->as_string() == key) {
    return find(heads_->find("of")->as_string());  // as many as there are heads
  }
  const Json* usual = defaults_.find(key);
  if (const Json* other = resolved(usual); other != usual) return other;
  if (own != nullptr) return own;
  // A checkpoint whose config says nothing is tied as its text is: transformers keeps a head that
  // the checkpoint has (modeling_utils.py tie_weights of 5.17), whatever the default of the whole.
  const bool ties = !text_.empty() && key == "tie_word_embeddings";
  const Json* of_text_alone = ties ? find(of_text(key)) : nullptr;
  return of_text_alone != nullptr && !of_text_alone->is_null() ? of_text_alone : usual;
}

const Json* RecordedValues::resolved(const Json* value) const {
  const bool names_another = value != nullptr && is_formula(*value);
  return names_another ? find(std::string_view(value->as_string()).substr(1)) : value;
}

std::optional<std::int64_t> RecordedValues::size(std::string_view key) const {
  const Json* value = find(key);
  const bool is_open = value == nullptr || value->is_null();
  if (is_open && (key == of_text("head_dim") || key == of_text("v_head_dim"))) {
    return share_of_a_head();
  }
  const Json* usual = is_open ? defaults_.find(key) : nullptr;
  if (usual != nullptr && is_formula(*usual)) return sum(usual->as_string());  // "=4*n_embd"
  const Json* labels = key == "num_labels" && said(key) == nullptr ? said("id2label") : nullptr;
  if (labels != nullptr) return static_cast<std::int64_t>(labels->members().size());
  if (value != nullptr && value->is_array() && !value->items().empty()) {  // one for each layer
    const std::vector<Json>& each = value->items();
    const bool is_one = std::count(each.begin(), each.end(), each.front()) == std::ssize(each);
    value = is_one ? &each.front() : nullptr;
  }
  if (value == nullptr || !value->is_integer() || value->as_integer() < 0) return std::nullopt;
  return value->as_integer();
}

std::optional<std::int64_t> RecordedValues::sum(std::string_view said) const {
  if (!said.starts_with('=')) return size(said);
  const std::optional<Share> found = Formula(said.substr(1), *this).value();
  return found && found->below == 1 ? std::optional(found->above) : std::nullopt;
}

std::optional<std::int64_t> RecordedValues::share_of_a_head() const {
  const auto hidden = size(of_text("hidden_size"));
  const auto heads = size(of_text("num_attention_heads"));
  if (!hidden || !heads || *heads == 0) return std::nullopt;
  if (*hidden % *heads != 0 && defaults_.find(of_text("head_dim")) == nullptr) return std::nullopt;
  return *hidden / *heads;
}

namespace {

// A size that is no sum over the tokens is not negative.
void put_shape(Json& shape, const RecordedValues& values) {
  for (Json& size : shape.items()) {
    const std::string formula = is_formula(size) ? size.as_string() : "";
    put_numbers(size, values);
    if (!formula.empty() && size.as_number() < 0) fail_size(formula);
  }
}

}  // namespace

void put_numbers(Json& value, const RecordedValues& values) {
  if (is_formula(value)) {
    value = number(value.as_string(), values);
  } else if (value.is_array()) {
    for (Json& item : value.items()) put_numbers(item, values);
  } else if (value.is_object()) {
    for (auto& [key, member] : value.members()) {
      key == "shape" && member.is_array() ? put_shape(member, values) : put_numbers(member, values);
    }
  }
}

}  // namespace zeroplan
