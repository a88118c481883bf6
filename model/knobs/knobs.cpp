#include "model/knobs/knobs.hpp"

#include <algorithm>
#include <cmath>
#include <sstream>

namespace zeroplan {
namespace {

// --- compile-time checks of the table

constexpr bool rows_follow_the_enum() {
  for (std::size_t i = 0; i < kKnobCount; ++i) {
    if (static_cast<std::size_t>(kKnobs[i].id) != i) return false;
  }
  return true;
}
static_assert(rows_follow_the_enum(), "row i of kKnobs must have id i");

constexpr bool pointer_is_used(std::string_view pointer, std::size_t from_row) {
  for (std::size_t i = from_row; i < kKnobCount; ++i) {
    if (kKnobs[i].pointer == pointer) return true;
  }
  return false;
}

constexpr bool pointers_are_unique() {
  for (std::size_t i = 0; i < kKnobCount; ++i) {
    if (pointer_is_used(kKnobs[i].pointer, i + 1)) return false;
    for (const KnobAlias& alias : kKnobs[i].aliases) {
      if (pointer_is_used(alias.pointer, 0)) return false;
    }
  }
  return true;
}
static_assert(pointers_are_unique(), "a pointer stands twice in kKnobs");

constexpr bool fits(const KnobRow& row, const KnobLiteral& literal) {
  using Kind = KnobLiteral::Kind;
  switch (literal.kind) {
    case Kind::none:
      return true;
    case Kind::boolean:
      return row.type == KnobType::boolean;
    case Kind::integer:
      return row.type == KnobType::integer &&
             static_cast<double>(literal.integer) >= row.range.low &&
             static_cast<double>(literal.integer) <= row.range.high;
    case Kind::real:
      return row.type == KnobType::real && literal.real >= row.range.low &&
             literal.real <= row.range.high;
    case Kind::text: {
      if (row.type != KnobType::text) return false;
      if (row.allowed.empty()) return true;
      for (const std::string_view allowed : row.allowed) {
        if (allowed == literal.text) return true;
      }
      return false;
    }
    case Kind::json:
      return row.type == KnobType::list || row.type == KnobType::object;
  }
  return false;
}

constexpr bool literals_fit() {
  for (const KnobRow& row : kKnobs) {
    if (!fits(row, row.default_value) || !fits(row, row.stage3_default)) return false;
    for (const OlderDefault& older : row.older) {
      if (!fits(row, older.value)) return false;
    }
    for (const KnobLiteral& point : row.grid) {
      if (!fits(row, point)) return false;
    }
  }
  return true;
}
static_assert(literals_fit(), "a default or a grid point of kKnobs is outside its row's range");

constexpr bool texts_are_there() {
  for (const KnobRow& row : kKnobs) {
    if (row.description.empty() || row.source.empty() || row.pointer.front() != '/') return false;
  }
  return true;
}
static_assert(texts_are_there(), "a row of kKnobs lacks description or source");

// --- sections

// Where DeepSpeed refuses unknown keys (pydantic models with extra="forbid", config_utils.py:
// DeepSpeedConfigModel). fp16 and bf16 became such models in 0.17 (precision_config.py).
struct StrictSection {
  std::string_view pointer;
  DeepSpeedVersion since = DeepSpeedVersion::v0_12;
};
constexpr std::array kStrictSections = {
    StrictSection{"/zero_optimization"},
    StrictSection{"/zero_optimization/offload_param"},
    StrictSection{"/zero_optimization/offload_optimizer"},
    StrictSection{"/fp16", DeepSpeedVersion::v0_19},
    StrictSection{"/bf16", DeepSpeedVersion::v0_19},
    StrictSection{"/bfloat16", DeepSpeedVersion::v0_19},
    StrictSection{"/tensorboard"},
    StrictSection{"/wandb"},
    StrictSection{"/csv_monitor"},
    StrictSection{"/comms_logger"},
    StrictSection{"/timers/throughput", DeepSpeedVersion::v0_14},
    StrictSection{"/compile", DeepSpeedVersion::v0_16},
    StrictSection{"/tensor_parallel", DeepSpeedVersion::v0_16},
};

bool is_inside(std::string_view pointer, std::string_view section) {
  return pointer.size() > section.size() && pointer.starts_with(section) &&
         pointer[section.size()] == '/';
}

template <typename Visit>
void for_each_pointer(Visit visit) {
  for (const KnobRow& row : kKnobs) {
    visit(row.pointer);
    for (const KnobAlias& alias : row.aliases) visit(alias.pointer);
  }
}

}  // namespace

namespace {

KnobLiteral newest_literal(const KnobRow& row, int stage) {
  if (stage == 3 && !row.stage3_default.is_none()) return row.stage3_default;
  return row.default_value;
}

}  // namespace

KnobLiteral default_literal(Knob knob, int stage, const Version& release) {
  const KnobRow& row = knob_row(knob);
  const DeepSpeedVersion series = nearest_described(release).version;
  for (const OlderDefault& older : row.older) {
    if (series <= older.until || release < older.before) return older.value;
  }
  return newest_literal(row, stage);
}

KnobLiteral default_literal(Knob knob, int stage, DeepSpeedVersion version) {
  const KnobRow& row = knob_row(knob);
  for (const OlderDefault& older : row.older) {
    if (version <= older.until) return older.value;
  }
  return newest_literal(row, stage);
}

std::optional<Knob> find_knob(std::string_view pointer) {
  for (const KnobRow& row : kKnobs) {
    if (row.pointer == pointer) return row.id;
  }
  return std::nullopt;
}

std::optional<AliasMatch> find_alias(std::string_view pointer) {
  for (const KnobRow& row : kKnobs) {
    for (const KnobAlias& alias : row.aliases) {
      if (alias.pointer == pointer) return AliasMatch{row.id, alias.kind};
    }
  }
  return std::nullopt;
}

std::optional<KnobSection> find_section(std::string_view pointer) {
  bool found = pointer.empty();
  for_each_pointer([&](std::string_view known) { found = found || is_inside(known, pointer); });
  if (!found) return std::nullopt;
  for (const StrictSection& strict : kStrictSections) {
    if (strict.pointer == pointer) return KnobSection{strict.pointer, strict.since};
  }
  return KnobSection{pointer, std::nullopt};
}

std::vector<std::string_view> names_in_section(std::string_view section) {
  std::vector<std::string_view> names;
  for_each_pointer([&](std::string_view pointer) {
    if (!is_inside(pointer, section)) return;
    std::string_view rest = pointer.substr(section.size() + 1);
    rest = rest.substr(0, rest.find('/'));
    if (std::find(names.begin(), names.end(), rest) == names.end()) names.push_back(rest);
  });
  return names;
}

std::string to_string(const KnobLiteral& literal) {
  using Kind = KnobLiteral::Kind;
  switch (literal.kind) {
    case Kind::none:
      return "";
    case Kind::boolean:
      return literal.integer != 0 ? "true" : "false";
    case Kind::integer:
      return std::to_string(literal.integer);
    case Kind::real: {
      std::ostringstream text;
      text << literal.real;
      const bool plain = text.str().find_first_of(".e") == std::string::npos;
      return plain ? text.str() + ".0" : text.str();
    }
    case Kind::text:
    case Kind::json:
      return std::string(literal.text);
  }
  return "";
}

}  // namespace zeroplan
