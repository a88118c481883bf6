#include "model/families/recorded_layers.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/families/recorded_loops.hpp"

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

  // Layer `i` is the last of its value among the first `count` layers.
  bool is_last_of_its_value(std::string_view key, std::size_t i, std::size_t count) const {
    const Json own = item(key, i);
    for (std::size_t next = i + 1; next < count; ++next) {
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
// "^key" whether it begins one, for "$key" whether it is the last of its value in a list, for
// "+key" the item of the next layer ("": there is none), for "@key" whether a list has its number,
// for "-key:list" whether it is one of so many that come last ("last") or the last of its value in
// the list before them ("before"; else ""). Null: nothing.
Json said_of_layer(std::string_view key,
                   std::size_t i,
                   const LayerLists& lists,
                   const Values& values) {
  const char sort = key.front();
  if (sort == '$') {
    key.remove_prefix(1);
    return lists.item(key, i).is_null() ? Json()
                                        : Json(lists.is_last_of_its_value(key, i, lists.count()));
  }
  if (sort == '-') {
    const std::size_t colon = key.find(':');
    const auto last = values.size(key.substr(1, colon - 1));
    const std::string_view list = key.substr(colon + 1);
    const auto count = static_cast<std::int64_t>(lists.count());
    if (!last || *last < 0 || *last > count || lists.item(list, i).is_null()) return {};
    const auto before = static_cast<std::size_t>(count - *last);
    if (i >= before) return Json("last");
    const bool passes_on = *last > 0 && lists.is_last_of_its_value(list, i, before);
    return Json(passes_on ? "before" : "");
  }
  if (sort == '+') {
    key.remove_prefix(1);
    if (lists.item(key, i).is_null()) return {};
    return i + 1 < lists.count() ? lists.item(key, i + 1) : Json("");
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
  throw NotRecorded{key.find_first_of("<>%^$+@-") == 0 ? key.substr(1, key.find(':') - 1) : key,
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

}  // namespace

Json unfolded_graph(const Json& family, const Json& document, const RecordedValues& values) {
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
  unfold_loops(graph);
  put_cache(graph["shape"], values);
  return graph;
}

}  // namespace zeroplan
