#include "model/families/recorded_match.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

namespace zeroplan {
namespace {

using Values = RecordedValues;

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
  const Json* partial = rope.find("partial");
  if (partial == nullptr) return std::nullopt;
  for (const std::string_view name : {"partial_rotary_factor", "rotary_pct"}) {  // GPT-NeoX's
    const std::string key = values.of_text(name);
    const Json* said = values.said(key);
    if (said == nullptr || *said == *partial) continue;
    const bool of_layers = partial->is_object();  // one share for each type of layers
    const auto is_said = [&](const Json::Member& own) { return own.second == *said; };
    if (of_layers && std::all_of(partial->members().begin(), partial->members().end(), is_said)) {
      continue;
    }
    return NotRecorded{key, partial->dump()};
  }
  return std::nullopt;
}

// A config's list or table of layers that tells no layer's kind must say what it said when the
// class was recorded; the first that does not is returned.
std::optional<NotRecorded> other_list(const Values& config, const Json& lists) {
  for (const auto& [key, known] : lists.members()) {
    const Json* said = config.said(key);
    if (said == nullptr || said->is_null()) continue;
    std::vector<Json> values;
    if (said->is_array()) values = said->items();
    if (!said->is_array() && !said->is_object()) values = {*said};  // the same for all layers
    if (said->is_object()) {
      for (const auto& [layer, value] : said->members()) values.push_back(value);
    }
    if (known.is_string()) {  // each layer's own number
      std::vector<Json> own;
      for (std::size_t i = 0; i < values.size(); ++i) own.emplace_back(i);
      if (values != own) return NotRecorded{key, phrase("each layer's own number")};
      continue;
    }
    const bool same = std::all_of(values.begin(), values.end(), [&known = known](const Json& item) {
      return std::find(known.items().begin(), known.items().end(), item) != known.items().end();
    });
    if (!same) return NotRecorded{key, known.dump()};
  }
  return std::nullopt;
}

// Each check says which key is another than when the document was recorded.
class Match {
 public:
  Match(const Json& document, const Values& values, std::int64_t sequence)
      : document_(document), values_(values), sequence_(sequence) {}

  RecordedMatch result() const {
    RecordedMatch match;
    match.lengths = lengths();
    using Check = std::optional<NotRecorded> (Match::*)() const;
    for (const Check check : {&Match::core_sizes,
                              &Match::when,
                              &Match::heads,
                              &Match::unlike,
                              &Match::windows,
                              &Match::whole_blocks,
                              &Match::wide_values,
                              &Match::width,
                              &Match::powers,
                              &Match::head_dim,
                              &Match::wide_heads,
                              &Match::lists,
                              &Match::rotary,
                              &Match::fixed}) {
      match.problem = (this->*check)();
      if (match.problem) break;
      ++match.passed;
    }
    return match;
  }

 private:
  // Sequences on the same side of all windows. One as long as a window has its mask
  // (masking_utils.py _ignore_causal_mask_sdpa).
  SequenceRange lengths() const {
    SequenceRange range;
    if (document_.find("whole_blocks") != nullptr) range = {sequence_, sequence_};
    const Json* windows = document_.find("windows");
    if (windows == nullptr) return range;
    const bool longer = document_.find("longer")->as_boolean();
    for (const Json& key : windows->items()) {
      const std::int64_t window = values_.sum(key.as_string()).value_or(0);
      if (longer) {
        range.shortest = std::max(range.shortest, window);
      } else {
        range.longest = std::min(range.longest, window - 1);
      }
    }
    return range;
  }

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
    if (heads->find("several") != nullptr && shared == 1)
      return NotRecorded{key, phrase("2 or more")};
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
      const std::string& said = key.as_string();
      const auto window = values_.sum(said);
      if (!window || (sequence_ >= *window) != document_.find("longer")->as_boolean()) {
        return NotRecorded{said.substr(said.find('*') + 1),
                           phrase("windows that all sequences are within, or as long as")};
      }
    }
    return std::nullopt;
  }

  // Sequences that the class does not pad: others have as many tokens as the blocks they fill.
  std::optional<NotRecorded> whole_blocks() const {
    const Json* blocks = document_.find("whole_blocks");
    if (blocks == nullptr) return std::nullopt;
    const std::int64_t tokens = blocks->find("tokens")->as_integer(),
                       fewest = blocks->find("fewest")->as_integer();
    if (sequence_ % tokens == 0 && sequence_ >= fewest) return std::nullopt;
    return NotRecorded{
        blocks->find("key")->as_string(),
        phrase("sequences of whole blocks of {} tokens, at least {}", tokens, fewest)};
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

  // Numbers of heads with which the class does what was recorded: ALiBi's slopes of others are two
  // rows of slopes.
  std::optional<NotRecorded> powers() const {
    const Json* powers = document_.find("powers");
    if (powers == nullptr) return std::nullopt;
    for (const Json& key : powers->items()) {
      const auto size = values_.size(key.as_string());
      const bool is_one =
          size && *size > 0 && std::has_single_bit(static_cast<std::uint64_t>(*size));
      if (!is_one) return NotRecorded{key.as_string(), phrase("a power of two")};
    }
    return std::nullopt;
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

  // Heads that a fused kernel shares keys of are at most 256 wide (sdpa_attention.py
  // use_gqa_in_sdpa of transformers 5): those of others are repeated.
  std::optional<NotRecorded> wide_heads() const {
    constexpr std::int64_t kWidest = 256;
    const Json *attention = document_.find("graph")->find("attention"),
               *wide = document_.find("wide_heads"), *heads = document_.find("heads");
    const bool shares = heads != nullptr && heads->find("grouped")->as_boolean();
    if (!shares || (attention != nullptr && attention->as_string() != "sdpa")) return std::nullopt;
    for (const std::string_view name : {"head_dim", "global_head_dim"}) {
      const std::string key = values_.of_text(name);
      const bool fixed = document_.find("fixed")->find(key) != nullptr;
      if (!fixed && document_.find("defaults")->find(key) == nullptr) continue;
      const auto size = values_.size(key);
      const bool recorded =
          wide != nullptr && std::count(wide->items().begin(), wide->items().end(), Json(key)) > 0;
      if (!size || (*size > kWidest) == recorded) continue;
      return NotRecorded{
          key, recorded ? phrase("more than {}", kWidest) : phrase("{} at most", kWidest)};
    }
    return std::nullopt;
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
};

}  // namespace

RecordedMatch matched(const Json& document, const RecordedValues& values, std::int64_t sequence) {
  return Match(document, values, sequence).result();
}

}  // namespace zeroplan
