// Images beside the text: a class that takes them is planned by a document that was traced with
// them.
#include <charconv>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "base/diagnostic.hpp"
#include "model/graph/traced_graph.hpp"
#include "model/plan/resolver.hpp"

namespace zeroplan {
namespace {

constexpr std::int64_t kUsualSide = 1024;   // pixels
constexpr std::int64_t kMostSide = 65'535;  // of what image files can say (JPEG)

std::int64_t side_of(std::string_view text) {
  std::int64_t side = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), side);
  const bool good = error == std::errc() && end == text.data() + text.size();
  return good && side > 0 && side <= kMostSide ? side : 0;
}

std::string size_text(const Images& images) {
  return fmt::format("{}x{}", images.width, images.height);
}

// How the model gets a document with `images`.
Phrase how_to_trace_with(const Images& images) {
  return phrase(
      "zeroplan trace MODEL --images {} --image-size {} -o graph.json, in a Python with "
      "transformers, torch and Pillow (--python, ZEROPLAN_PYTHON); then graph.json as MODEL",
      images.count,
      size_text(images));
}

}  // namespace

Images images_of(const Scenario& scenario) {
  Images images;
  const ExplicitValue* count = scenario.find(ScenarioKey::images);
  if (count != nullptr && count->value.is_integer()) images.count = count->value.as_integer();
  if (images.count > 0) images.width = images.height = kUsualSide;
  const ExplicitValue* size = scenario.find(ScenarioKey::image_size);
  if (size == nullptr) return images;
  const std::string& text = size->value.as_string();
  const std::size_t between = text.find_first_of("xX");
  const std::string_view sides = text;
  const std::int64_t width = side_of(sides.substr(0, between));
  const std::int64_t height = between == std::string::npos ? 0 : side_of(sides.substr(between + 1));
  if (width == 0 || height == 0) {
    throw InputError({size->origin.file,
                      size->origin.pointer,
                      phrase("WIDTHxHEIGHT, each from 1 to {}", kMostSide),
                      in_quotes(text),
                      "1024x768"});
  }
  if (images.count > 0) images = {images.count, width, height};
  return images;
}

void keep_traced_batch(Scenario& scenario, const Model& model, const Origin& searcher) {
  const std::int64_t only = traced_batch_of(model);
  if (only == 0 || scenario.find(ScenarioKey::micro_batch_size) != nullptr) return;
  scenario.set(ScenarioKey::micro_batch_size, Json(only), searcher);
}

void resolve_images(Resolver& r) {
  const Images asked = images_of(r.scenario);
  const TracedGraph* traced = traced_graph_of(*r.plan.model);
  const Images images = traced == nullptr ? Images{} : traced->images;
  Workload& workload = r.plan.workload;
  if (asked.count > 0 && asked != images) {
    r.problem(r.origin(ScenarioKey::images),
              phrase("a model that was traced with {} images of {}", asked.count, size_text(asked)),
              images.count == 0
                  ? phrase("one without images")
                  : phrase("one with {} images of {}", images.count, size_text(images)),
              how_to_trace_with(asked));
    return;
  }
  if (images.count == 0) return;
  workload.images = images;
  const std::int64_t tokens = images.count * traced->image_tokens;
  r.assume(phrase("{} images of {} in each sequence, which take {} of its {} tokens",
                  images.count,
                  size_text(images),
                  tokens,
                  workload.sequence_length));
  if (workload.sequence_length <= tokens + images.count) {
    r.problem(
        r.origin(ScenarioKey::sequence_length),
        phrase("sequences that hold their images: more than {} tokens", tokens + images.count),
        std::to_string(workload.sequence_length),
        "longer sequences, fewer images or smaller ones");
  }
}

}  // namespace zeroplan
