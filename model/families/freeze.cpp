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

bool is_named(std::string_view parameter, std::string_view said) {
  if (said == "vision") return part_of(parameter) == Part::tower;
  if (said == "projector") return part_of(parameter) == Part::projector;
  if (matches(parameter, said)) return true;
  return parameter.size() > said.size() && parameter.starts_with(said) &&
         parameter[said.size()] == '.';
}

}  // namespace

void freeze(Model& model, std::string_view said, const Diagnostic& where) {
  for (const std::string_view name : parts_of(said, ',')) {
    bool found = false;
    for (Parameter& parameter : model.parameters) {
      if (name.empty() || !is_named(parameter.name, name)) continue;
      parameter.trainable = false;
      found = true;
    }
    if (found) continue;
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
