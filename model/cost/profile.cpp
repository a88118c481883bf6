#include "model/cost/profile.hpp"

#include <algorithm>
#include <cmath>

#include "base/described.hpp"
#include "base/diagnostic.hpp"
#include "base/plain_text.hpp"

namespace zeroplan {
namespace {

constexpr std::string_view kSchema = "zeroplan.profile/1";

// The document itself, where a string names a file.
JsonDocument document_of(const Json& value, const std::string& file) {
  if (!value.is_string()) return {file, value, {}, false, false};
  return read_json_file(value.as_string());
}

class ProfileReader {
 public:
  ProfileReader(const JsonDocument& document, std::string prefix)
      : root_(document.root), file_(document.file), prefix_(std::move(prefix)) {
    problems_ = duplicate_key_problems(document);
  }

  Profile read() {
    Profile profile;
    if (!root_.is_object()) {
      wrong("", "a profile, an object", described(root_));
      throw InputError(problems_);
    }
    const Json* const schema = root_.find("schema");
    if (schema == nullptr || *schema != Json(kSchema)) {
      wrong("/schema",
            in_quotes(kSchema),
            schema == nullptr ? "nothing" : described(*schema),
            "zeroplan profile, calibrate and validate write profiles");
      throw InputError(problems_);
    }
    profile.name = text(root_, "", "name");
    profile.date = text(root_, "", "date");
    profile.provenance = text(root_, "", "provenance");
    read_values(profile);
    read_range(profile);
    profile.validated_memory = validated("memory");
    profile.validated_time = validated("time");
    if (!problems_.empty()) throw InputError(problems_);
    profile.document = root_;
    return profile;
  }

 private:
  void wrong(const std::string& at, Phrase expected, Phrase got, Phrase hint = "") {
    problems_.push_back(
        {file_, prefix_ + at, std::move(expected), std::move(got), std::move(hint)});
  }

  std::string text(const Json& object, const std::string& at, std::string_view key) {
    const Json* value = object.find(key);
    if (value == nullptr || value->is_null()) return "";
    if (value->is_string() && !has_control_character(value->as_string())) {
      return value->as_string();
    }
    wrong(at + "/" + std::string(key),
          value->is_string() ? "a string without control characters" : "a string",
          described(*value));
    return "";
  }

  // Absent where it is missing (reported if `required`) or wrong (always).
  std::optional<double> number(const Json& object,
                               const std::string& at,
                               std::string_view key,
                               double low,
                               double high,
                               bool required) {
    const Json* value = object.find(key);
    const bool missing = value == nullptr || value->is_null();
    if (missing && !required) return std::nullopt;
    const double found = !missing && value->is_number() ? value->as_number() : NAN;
    if (found >= low && found <= high) return found;
    wrong(at + "/" + std::string(key),
          phrase("a number from {} to {}", Json(low).dump(), Json(high).dump()),
          missing ? "nothing" : described(*value));
    return std::nullopt;
  }

  void read_values(Profile& profile) {
    const Json* values = root_.find("values");
    if (values == nullptr || !values->is_array()) {
      return wrong("/values", "an array", values == nullptr ? "nothing" : described(*values));
    }
    for (std::size_t i = 0; i < values->items().size() && problems_.size() < kMostProblems; ++i) {
      read_value(values->items()[i], "/values/" + std::to_string(i), profile);
    }
  }

  void read_value(const Json& row, const std::string& at, Profile& profile) {
    if (!row.is_object()) return wrong(at, "an object", described(row));
    const std::string name = text(row, at, "name");
    const auto figure = std::find_if(kMachineFigures.begin(),
                                     kMachineFigures.end(),
                                     [&](const MachineFigure& f) { return f.name == name; });
    const std::optional<Coefficient> id = find_coefficient(name);
    const bool of_machine = figure != kMachineFigures.end();
    if (!id && !of_machine) return unknown(name, at);
    const std::string_view unit = id ? info(*id).unit : figure->unit;
    const std::string said = text(row, at, "unit");
    if (!said.empty() && said != unit) {
      wrong(at + "/unit", phrase("{}, the unit of {}", in_quotes(unit), name), in_quotes(said));
    }
    const auto value = number(row,
                              at,
                              "value",
                              id ? info(*id).low : figure->low,
                              id ? info(*id).high : figure->high,
                              true);
    const std::optional<double> sd = number(row, at, "relative_sd", 0.0, 2.0, false);
    const std::string gpu = text(row, at, "gpu");
    if (!value) return;
    if (id) {
      profile.coefficients.push_back({*id, gpu, *value, sd.value_or(info(*id).relative_sd)});
    } else {
      profile.machine.push_back({&*figure, *value, sd.value_or(0.0)});
    }
  }

  void unknown(const std::string& name, const std::string& at) {
    std::vector<std::string_view> names;
    for (const CoefficientInfo& row : coefficient_rows()) names.push_back(row.name);
    for (const MachineFigure& row : kMachineFigures) names.push_back(row.name);
    wrong(at + "/name",
          "a coefficient or a figure of the machine",
          name.empty() ? "nothing" : in_quotes(name),
          did_you_mean(name, names));
  }

  void read_range(Profile& profile) {
    const Json* range = root_.find("range");
    if (range == nullptr || range->is_null()) return;
    if (!range->is_object()) return wrong("/range", "an object", described(*range));
    for (const auto& [what, ends] : range->members()) {
      const std::string at = "/range/" + pointer_token(what);
      if (what == "cards") {
        read_gpus(ends, at, profile);
        continue;
      }
      const bool two = ends.is_array() && ends.items().size() == 2 && ends.items()[0].is_number() &&
                       ends.items()[1].is_number();
      // Where the least is the larger one, every plan would be outside.
      if (!two || !(ends.items()[0].as_number() <= ends.items()[1].as_number())) {
        wrong(
            at, "two numbers, the least and the most", two ? Phrase(ends.dump()) : described(ends));
        continue;
      }
      profile.range.push_back({what, ends.items()[0].as_number(), ends.items()[1].as_number()});
    }
  }

  void read_gpus(const Json& list, const std::string& at, Profile& profile) {
    const bool texts = list.is_array() &&
                       std::all_of(list.items().begin(), list.items().end(), [](const Json& one) {
                         return one.is_string();
                       });
    if (!texts) return wrong(at, "an array of strings", described(list));
    for (const Json& gpu : list.items()) profile.gpus.push_back(gpu.as_string());
  }

  // Errors of own runs, where they stand.
  std::vector<KnownErrors> validated(std::string_view of) {
    const Json* const both = root_.find("validated");
    if (both == nullptr || both->is_null()) return {};
    const std::string at = "/validated/" + std::string(of);
    if (!both->is_object()) {
      if (of == "memory") wrong("/validated", "an object", described(*both));
      return {};
    }
    const Json* const rows = both->find(of);
    if (rows == nullptr) return {};
    if (!rows->is_array()) {
      wrong(at, "an array", described(*rows));
      return {};
    }
    std::vector<KnownErrors> found;
    for (std::size_t i = 0; i < rows->items().size() && problems_.size() < kMostProblems; ++i) {
      const Json& row = rows->items()[i];
      const std::string place = at + "/" + std::to_string(i);
      if (is_errors_row(row, place)) found.push_back(known_errors(row));
    }
    return found;
  }

  bool is_errors_row(const Json& row, const std::string& at) {
    if (!row.is_object()) {
      wrong(at, "an object", described(row));
      return false;
    }
    const std::string kind = text(row, at, "kind");
    if (kind.empty()) wrong(at + "/kind", "a kind of plan, or \"all\"", "nothing");
    const auto rows = number(row, at, "rows", 1.0, 1e9, true);
    const bool whole = rows && *rows == std::floor(*rows);
    if (rows && !whole) wrong(at + "/rows", "a whole number", Json(*rows).dump());
    const auto median = number(row, at, "median_abs_error", 0.0, 1e6, true);
    const auto p95 = number(row, at, "p95_abs_error", 0.0, 1e6, true);
    return !kind.empty() && whole && median && p95;
  }

  const Json& root_;
  const std::string file_;
  const std::string prefix_;
  std::vector<Diagnostic> problems_;
};

bool is_marked_assumed(const Json& cluster, std::string_view key) {
  const Json* list = cluster.find("assumed");
  if (list == nullptr) return false;
  return std::any_of(list->items().begin(), list->items().end(), [&](const Json& item) {
    return item == Json(key);
  });
}

void unmark(Json& cluster, std::string_view key) {
  Json* list = cluster.find("assumed");
  if (list == nullptr) return;
  std::erase_if(list->items(), [&](const Json& item) { return item == Json(key); });
}

// A sentence about what was assumed is wrong once the figure is measured.
void drop_sentence(Json& cluster, const MachineFigure& figure) {
  Json* sentences = cluster.find("assumptions");
  if (sentences == nullptr) return;
  std::erase_if(sentences->items(), [&](const Json& item) {
    if (!item.is_string() || item.as_string().find(": assumed") == std::string::npos) return false;
    const std::string& text = item.as_string();
    if (figure.name == "host_memory_bandwidth") return text.starts_with("host memory bandwidth ");
    if (figure.name == "cpu_cores") return text.find(" CPU cores on ") != std::string::npos;
    return figure.name == "host_memory_bytes" && text.starts_with("host memory ") &&
           !text.starts_with("host memory bandwidth ");
  });
}

}  // namespace

bool has_figures(const Profile& profile) {
  return !profile.coefficients.empty() || !profile.machine.empty();
}

Json to_json(const KnownErrors& errors) {
  return Json::object({{"kind", errors.kind},
                       {"rows", errors.rows},
                       {"median_abs_error", errors.median},
                       {"p95_abs_error", errors.p95}});
}

KnownErrors known_errors(const Json& row) {
  return {row.find("kind")->as_string(),
          static_cast<std::int64_t>(row.find("rows")->as_number()),
          row.find("median_abs_error")->as_number(),
          row.find("p95_abs_error")->as_number()};
}

Profile parse_profile(const Json& value, const std::string& file, const std::string& pointer) {
  const JsonDocument document = document_of(value, file);
  return ProfileReader(document, value.is_string() ? "" : pointer).read();
}

Json value_json(std::string_view name,
                double value,
                std::string_view unit,
                double relative_sd,
                std::string_view provenance,
                std::string_view gpu) {
  constexpr double kExact = 9007199254740992.0;  // 2^53
  const bool whole = std::abs(value) < kExact && value == std::floor(value);
  Json row = Json::object({{"name", name},
                           {"value", whole ? Json(static_cast<std::int64_t>(value)) : Json(value)},
                           {"unit", unit},
                           {"relative_sd", relative_sd},
                           {"provenance", provenance}});
  if (!gpu.empty()) row["gpu"] = gpu;
  return row;
}

Json with_machine_figures(Json cluster, const Profile& profile, std::vector<std::string>& taken) {
  for (const MachineValue& measured : profile.machine) {
    const MachineFigure& figure = *measured.figure;
    const std::string_view top = figure.section.empty() ? figure.key : figure.section;
    const bool assumed = is_marked_assumed(cluster, top);
    const Json* there = cluster.find(top);
    if (!figure.section.empty() && there != nullptr && there->is_object() && !assumed) {
      there = there->find(figure.key);
    }
    if (there != nullptr && !there->is_null() && !assumed) continue;  // stated
    Json& place = cluster[top];
    if (!figure.section.empty() && !place.is_object()) place = Json::object();
    Json& value = figure.section.empty() ? place : place[figure.key];
    if (figure.whole) {
      value = static_cast<std::int64_t>(std::llround(measured.value));
    } else {
      value = measured.value;
    }
    if (figure.key == "host_memory_bandwidth") cluster.erase("host_share");  // of an assumed rate
    taken.emplace_back(figure.name);
  }
  for (const MachineValue& measured : profile.machine) {
    const MachineFigure& figure = *measured.figure;
    drop_sentence(cluster, figure);
    unmark(cluster, figure.section.empty() ? figure.key : figure.section);
  }
  return cluster;
}

}  // namespace zeroplan
