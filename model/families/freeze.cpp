#include "model/families/freeze.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

namespace zeroplan {
namespace {

std::vector<std::string_view> parts_of(std::string_view text, char between) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t at = text.find(between);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

bool joins(std::string_view module) {
  constexpr std::array<std::string_view, 6> kJoins = {
      "aligner", "connector", "merger", "projector", "projection", "resampler"};
  return std::any_of(kJoins.begin(), kJoins.end(), [&](std::string_view word) {
    return module.find(word) != std::string_view::npos;
  });
}

enum class Part { text, tower, projector };

struct NamedPart {
  std::string_view name;
  Part part;
};
constexpr std::array kParts = {NamedPart{"vision", Part::tower},
                               NamedPart{"projector", Part::projector}};

// "vision?": where there is one.
bool may_lack(std::string_view said) { return said.ends_with('?'); }

// The part that users call so; null where `said` names no part.
const NamedPart* part_named(std::string_view said) {
  if (may_lack(said)) said.remove_suffix(1);
  const auto found = std::find_if(
      kParts.begin(), kParts.end(), [&](const NamedPart& part) { return part.name == said; });
  return found == kParts.end() ? nullptr : &*found;
}

// Towers and projectors stand beside the text at the top of a class ("model.visual",
// "model.vision_tower", "model.multi_modal_projector"), some projectors at the top of a tower
// ("model.visual.merger").
Part part_of(std::string_view parameter) {
  constexpr std::size_t kTop = 3;
  std::size_t depth = 0;
  bool tower = false;
  for (const std::string_view module : parts_of(parameter, '.')) {
    if (depth++ == kTop) break;
    if (!tower && (module.starts_with("language") || module.starts_with("text"))) break;
    if (joins(module)) return Part::projector;
    tower = tower || module.starts_with("vis") || module.starts_with("audio");
  }
  return tower ? Part::tower : Part::text;
}

// A name matches a pattern in which * stands for any text.
bool matches(std::string_view name, std::string_view pattern) {
  const std::size_t star = pattern.find('*');
  if (star == std::string_view::npos) return name == pattern;
  if (!name.starts_with(pattern.substr(0, star))) return false;
  const std::string_view rest = pattern.substr(star + 1);
  for (std::size_t i = star; i <= name.size(); ++i) {
    if (matches(name.substr(i), rest)) return true;
  }
  return false;
}

bool is_within(std::string_view parameter, std::string_view module) {
  return parameter.size() > module.size() && parameter.starts_with(module) &&
         parameter[module.size()] == '.';
}

bool is_named(std::string_view parameter, std::string_view said) {
  if (const NamedPart* part = part_named(said)) return part_of(parameter) == part->part;
  return matches(parameter, said) || is_within(parameter, said);
}

// The outermost module around a parameter whose parameters are all of one part; the parameter's own
// name where there is none.
std::string_view outermost_of(const Model& model, std::string_view parameter, Part part) {
  std::size_t end = 0;
  while ((end = parameter.find('.', end)) != std::string_view::npos) {
    const std::string_view module = parameter.substr(0, end++);
    const bool whole =
        std::all_of(model.parameters.begin(), model.parameters.end(), [&](const Parameter& one) {
          return !is_within(one.name, module) || part_of(one.name) == part;
        });
    if (whole) return module;
  }
  return parameter;
}

}  // namespace

std::string frozen_modules(const Model& model, std::string_view said) {
  std::vector<std::string_view> names;
  const auto add = [&](std::string_view name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const std::string_view word : parts_of(said, ',')) {
    const NamedPart* part = part_named(word);
    if (part == nullptr) add(word);
    for (const Parameter& parameter : model.parameters) {
      if (part == nullptr || part_of(parameter.name) != part->part) continue;
      if (names.empty() || !is_within(parameter.name, names.back())) {
        add(outermost_of(model, parameter.name, part->part));
      }
    }
  }
  std::string text;
  for (const std::string_view name : names) text += (text.empty() ? "" : ",") + std::string(name);
  return text;
}

void freeze(Model& model, std::string_view said, const Diagnostic& where) {
  for (const std::string_view name : parts_of(said, ',')) {
    bool found = false;
    for (Parameter& parameter : model.parameters) {
      if (name.empty() || !is_named(parameter.name, name)) continue;
      parameter.trainable = false;
      found = true;
    }
    if (found || (may_lack(name) && part_named(name) != nullptr)) continue;
    throw InputError(Diagnostic{
        where.file,
        where.pointer,
        phrase("vision, projector, or names of parameters or modules of {}", model.architecture),
        in_quotes(std::string(name)),
        "names as named_parameters() has them; model.visual.* stands for many"});
  }
  const bool trains = std::any_of(model.parameters.begin(),
                                  model.parameters.end(),
                                  [](const Parameter& parameter) { return parameter.trainable; });
  if (trains) return;
  throw InputError(Diagnostic{where.file,
                              where.pointer,
                              "a part of the model that stays to be trained",
                              in_quotes(std::string(said)),
                              ""});
}

}  // namespace zeroplan
