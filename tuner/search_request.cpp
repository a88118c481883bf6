#include "tuner/search_request.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <variant>

#include "base/check.hpp"
#include "base/diagnostic.hpp"
#include "base/phrase_list.hpp"
#include "model/knobs/knob_text.hpp"
#include "tuner/knob_effect.hpp"

namespace zeroplan::tuner {
namespace {

constexpr const char* kCommandLine = "command line";

enum class WorkloadKey { micro_batch_size, gradient_accumulation_steps, activation_checkpointing };
using SearchKey = std::variant<Knob, WorkloadKey>;

struct WorkloadName {
  std::string_view name;
  WorkloadKey key;
};
constexpr WorkloadName kWorkloadNames[] = {
    {"micro_batch_size", WorkloadKey::micro_batch_size},
    {"mbs", WorkloadKey::micro_batch_size},
    {"train_micro_batch_size_per_gpu", WorkloadKey::micro_batch_size},
    {"gradient_accumulation_steps", WorkloadKey::gradient_accumulation_steps},
    {"gas", WorkloadKey::gradient_accumulation_steps},
    {"activation_checkpointing", WorkloadKey::activation_checkpointing},
    {"ckpt", WorkloadKey::activation_checkpointing}};

std::string_view last_part(std::string_view pointer) {
  return pointer.substr(pointer.rfind('/') + 1);
}

// "zero_optimization.stage", "/zero_optimization/stage" -> "zero_optimization/stage".
std::string plain(std::string_view key) {
  std::string text(key.starts_with('/') ? key.substr(1) : key);
  std::replace(text.begin(), text.end(), '.', '/');
  return text;
}

bool ends_with_parts(std::string_view pointer, std::string_view parts) {
  return pointer.size() > parts.size() && pointer.ends_with(parts) &&
         pointer[pointer.size() - parts.size() - 1] == '/';
}

// The rows whose pointer, or one of whose other spellings, ends with the key's parts; exact ones
// alone where there are any, then those of the ZeRO section.
std::vector<Knob> rows_named(const std::string& parts) {
  std::vector<Knob> exact, in_zero, others;
  for (const KnobRow& row : knob_rows()) {
    const auto matches = [&](std::string_view pointer) { return ends_with_parts(pointer, parts); };
    const bool alias = std::any_of(row.aliases.begin(), row.aliases.end(), [&](const KnobAlias& a) {
      return a.kind == AliasKind::alternative && matches(a.pointer);
    });
    if (!matches(row.pointer) && !alias) continue;
    if (row.pointer.substr(1) == parts) exact.push_back(row.id);
    const bool zero = row.pointer.substr(1) == "zero_optimization/" + parts;
    (zero ? in_zero : others).push_back(row.id);
  }
  if (!exact.empty()) return exact;
  if (!in_zero.empty()) return in_zero;
  return others;
}

class RequestReader {
 public:
  SearchRequest read(const SearchWords& words) {
    for (const std::string& word : words.fix) read(word, "--fix");
    for (const std::string& word : words.search) read(word, "--search");
    if (!problems_.empty()) throw InputError(problems_);
    return std::move(request_);
  }

 private:
  void problem(Phrase expected, Phrase got, Phrase hint = "") {
    problems_.push_back(
        {kCommandLine, flag_, std::move(expected), std::move(got), std::move(hint)});
  }

  void read(const std::string& word, const std::string& flag) {
    flag_ = flag;
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == word.size()) {
      problem(flag == "--fix" ? "KEY=VALUE" : "KEY=LOW..HIGH or KEY=A,B,C", in_quotes(word));
      return;
    }
    const std::string name = word.substr(0, equals);
    const auto key = find_key(name);
    if (!key) return;
    flag_ = flag + " " + name;
    if (!said_.insert(*key).second) {
      problem("each key once", "twice");
      return;
    }
    take(*key, values_of(*key, word.substr(equals + 1), flag == "--search"));
  }

  std::optional<SearchKey> find_key(const std::string& name) {
    for (const WorkloadName& known : kWorkloadNames) {
      if (known.name == plain(name)) return known.key;
    }
    const std::vector<Knob> found = rows_named(plain(name));
    if (found.size() == 1) return found.front();
    if (found.size() > 1) {
      std::vector<std::string_view> which;
      for (const Knob knob : found) which.push_back(pointer_of(knob));
      problem("one key",
              phrase("{}, which {} keys have", in_quotes(name), found.size()),
              phrase("write one of {}", phrase_list(which)));
      return std::nullopt;
    }
    std::vector<std::string_view> names;
    for (const WorkloadName& known : kWorkloadNames) names.push_back(known.name);
    for (const KnobRow& row : knob_rows()) {
      if (row.modelled) names.push_back(last_part(row.pointer));
    }
    const Phrase hint = did_you_mean(name, names);
    problem("a key of ds_config.json or of the workload",
            in_quotes(name),
            hint.empty() ? "zeroplan knobs lists the keys" : hint);
    return std::nullopt;
  }

  // --- values

  std::vector<KnobValue> values_of(const SearchKey& key, const std::string& text, bool many) {
    const std::size_t dots = text.find("..");
    if (many && dots != std::string::npos) {
      return range_of(key, text.substr(0, dots), text.substr(dots + 2));
    }
    std::vector<KnobValue> values;
    std::size_t begin = 0;
    while (begin <= text.size()) {
      const std::size_t end = many ? std::min(text.find(',', begin), text.size()) : text.size();
      const auto value = value_of(key, text.substr(begin, end - begin));
      if (!value) return {};
      if (std::find(values.begin(), values.end(), *value) == values.end()) values.push_back(*value);
      begin = end + 1;
    }
    return values;
  }

  static KnobType type_of(const SearchKey& key) {
    if (const Knob* knob = std::get_if<Knob>(&key)) return knob_row(*knob).type;
    const bool text = std::get<WorkloadKey>(key) == WorkloadKey::activation_checkpointing;
    return text ? KnobType::text : KnobType::integer;
  }

  static KnobRange range_of_key(const SearchKey& key) {
    if (const Knob* knob = std::get_if<Knob>(&key)) return knob_row(*knob).range;
    return {1.0, 1e6};
  }

  // What a text has to be one of; empty: anything.
  static std::vector<std::string_view> allowed(const SearchKey& key) {
    if (const Knob* knob = std::get_if<Knob>(&key)) {
      const auto& list = knob_row(*knob).allowed;
      return {list.begin(), list.end()};
    }
    const auto& names = kActivationCheckpointingNames.names;
    return {names.begin(), names.end()};
  }

  std::optional<KnobValue> value_of(const SearchKey& key, const std::string& text) {
    const KnobType type = type_of(key);
    if (type == KnobType::list || type == KnobType::object) {
      problem(expected_text(type), "a list or a section");
      return std::nullopt;
    }
    if (type == KnobType::integer || type == KnobType::real) {
      const auto number = number_of(key, text);
      if (!number) return std::nullopt;
    }
    const std::optional<KnobValue> value = value_in_text(text, type);
    if (!value) {
      problem(expected_text(type), in_quotes(text));
      return std::nullopt;
    }
    const std::vector<std::string_view> names =
        type == KnobType::text ? allowed(key) : std::vector<std::string_view>();
    if (names.empty() || std::find(names.begin(), names.end(), text) != names.end()) return value;
    problem(phrase("one of {}", phrase_list(names)), in_quotes(text), did_you_mean(text, names));
    return std::nullopt;
  }

  // Numbers as people write them in ds_config.json, 500000000 or 5e8, within the key's range.
  std::optional<double> number_of(const SearchKey& key, const std::string& text) {
    const KnobType type = type_of(key);
    const std::optional<KnobValue> value = value_in_text(text, type);
    if (!value) {
      problem(expected_text(type), in_quotes(text));
      return std::nullopt;
    }
    const double number = type == KnobType::real
                              ? std::get<double>(*value)
                              : static_cast<double>(std::get<std::int64_t>(*value));
    const KnobRange range = range_of_key(key);
    if (number < range.low || number > range.high) {
      problem(phrase("a value {}", range_text(range)), text);
      return std::nullopt;
    }
    return number;
  }

  static Phrase range_text(const KnobRange& range) {
    const auto text = [](double number) {
      return std::abs(number) < 1e15 && std::floor(number) == number
                 ? std::to_string(static_cast<std::int64_t>(number))
                 : Json(number).dump();
    };
    if (std::isinf(range.high)) return phrase("of at least {}", text(range.low));
    return phrase("from {} to {}", text(range.low), text(range.high));
  }

  // Both ends and what lies between: the table's grid where it has points there, all whole numbers
  // of a short range, else doublings of the lower end.
  std::vector<KnobValue> range_of(const SearchKey& key,
                                  const std::string& from,
                                  const std::string& to) {
    const KnobType type = type_of(key);
    if (type != KnobType::integer && type != KnobType::real) {
      problem("values with commas between them: the key has no order", from + ".." + to);
      return {};
    }
    const auto low = number_of(key, from);
    const auto high = number_of(key, to);
    if (!low || !high) return {};
    if (*low > *high) {
      problem("a range from the smaller to the larger value", from + ".." + to);
      return {};
    }
    std::set<double> numbers = {*low, *high};
    const Knob* knob = std::get_if<Knob>(&key);
    if (knob != nullptr) {
      for (const KnobValue& point : search_grid(*knob)) {
        const std::int64_t* whole = std::get_if<std::int64_t>(&point);
        const double number =
            whole != nullptr ? static_cast<double>(*whole) : std::get<double>(point);
        if (number > *low && number < *high) numbers.insert(number);
      }
    }
    constexpr double kShort = 8.0;
    if (numbers.size() == 2 && type == KnobType::integer) {
      const bool all = *high - *low < kShort;
      for (double n = *low; n < *high; n = all ? n + 1.0 : std::max(1.0, n * 2.0)) {
        numbers.insert(n);
      }
    }
    std::vector<KnobValue> values;
    for (const double number : numbers) {
      if (type == KnobType::real) values.emplace_back(number);
      if (type == KnobType::integer) values.emplace_back(static_cast<std::int64_t>(number));
    }
    return values;
  }

  void take(const SearchKey& key, const std::vector<KnobValue>& values) {
    if (values.empty()) return;
    if (const Knob* knob = std::get_if<Knob>(&key)) {
      if (*knob != Knob::train_batch_size) {
        request_.knobs[*knob] = values;
      } else if (values.size() > 1) {
        problem("one global batch", phrase("{} values", values.size()));
      } else {
        request_.global_batch = std::get<std::int64_t>(values.front());
      }
      return;
    }
    for (const KnobValue& value : values) {
      switch (std::get<WorkloadKey>(key)) {
        case WorkloadKey::micro_batch_size:
          request_.micro_batches.push_back(std::get<std::int64_t>(value));
          break;
        case WorkloadKey::gradient_accumulation_steps:
          request_.accumulations.push_back(std::get<std::int64_t>(value));
          break;
        case WorkloadKey::activation_checkpointing:
          request_.checkpointings.push_back(
              *find(kActivationCheckpointingNames, std::string_view(std::get<std::string>(value))));
          break;
      }
    }
  }

  SearchRequest request_;
  std::vector<Diagnostic> problems_;
  std::set<SearchKey> said_;
  std::string flag_;
};

}  // namespace

SearchRequest read_request(const SearchWords& words) { return RequestReader().read(words); }

}  // namespace zeroplan::tuner
