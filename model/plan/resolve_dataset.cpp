// `dataset`: how many samples a run sees and how long they are; --lengths FILE.
#include <algorithm>
#include <cctype>
#include <charconv>
#include <string>
#include <string_view>

#include "base/described.hpp"
#include "base/json.hpp"
#include "model/known_names.hpp"
#include "model/plan/resolver.hpp"

namespace zeroplan {
namespace {

constexpr std::int64_t kMostSampleTokens = 1'000'000'000;  // of one sample
// A longer list is kept as so many of its quantiles.
constexpr std::size_t kMostLengths = 512;

// Reads the keys of `dataset`.
class DatasetReader {
 public:
  DatasetReader(Resolver& resolver, const Json& object, Origin origin)
      : r_(resolver), object_(object), origin_(std::move(origin)) {}

  Dataset read();

 private:
  Origin at(std::string_view key) const {
    return {origin_.file, origin_.pointer + "/" + std::string(pointer_token(key))};
  }
  void refuse_unknown_keys();
  double number(std::string_view key, double otherwise);
  template <typename Names>
  auto choice(std::string_view key, const Names& names, const char* expected);
  std::vector<std::int64_t> lengths();

  Resolver& r_;
  const Json& object_;
  Origin origin_;
};

void DatasetReader::refuse_unknown_keys() {
  constexpr std::string_view kKeys[] = {"samples",
                                        "epochs",
                                        "mean_tokens",
                                        "tokens_sd",
                                        "lengths",
                                        "longer",
                                        "padding",
                                        "pad_to_multiple_of"};
  for (const auto& [key, value] : object_.members()) {
    if (r_.problems.size() >= kMostProblems) break;
    if (std::find(std::begin(kKeys), std::end(kKeys), key) != std::end(kKeys)) continue;
    r_.problem(at(key), "a key of dataset", in_quotes(key), did_you_mean(key, kKeys));
  }
}

// A positive one; `otherwise` where the key is missing.
double DatasetReader::number(std::string_view key, double otherwise) {
  const Json* value = object_.find(key);
  if (value == nullptr || value->is_null()) return otherwise;
  constexpr double kLeast = 1e-9;
  constexpr double kMost = 1e15;  // counts stay exact in a double
  if (value->is_number() && value->as_number() >= kLeast && value->as_number() <= kMost) {
    return value->as_number();
  }
  r_.problem(at(key), "a number from 1e-9 to 1e15", described(*value));
  return otherwise;
}

template <typename Names>
auto DatasetReader::choice(std::string_view key, const Names& names, const char* expected) {
  const Json* value = object_.find(key);
  using Found = decltype(find(names, std::string_view()));
  if (value == nullptr) return Found();
  const Found found =
      value->is_string() ? find(names, std::string_view(value->as_string())) : std::nullopt;
  if (!found) r_.problem(at(key), expected, described(*value));
  return found;
}

std::vector<std::int64_t> DatasetReader::lengths() {
  std::vector<std::int64_t> result;
  const Json* value = object_.find("lengths");
  if (value == nullptr || value->is_null()) return result;
  if (!value->is_array() || value->items().empty()) {
    r_.problem(at("lengths"),
               "a list of the tokens of samples",
               described(*value),
               "--lengths FILE reads them from a file, one number a line");
    return result;
  }
  for (const Json& element : value->items()) {
    const bool good = element.is_integer() && element.as_integer() >= 1 &&
                      element.as_integer() <= kMostSampleTokens;
    if (!good) {
      Origin place = at("lengths");
      place.pointer += "/" + std::to_string(result.size());
      r_.problem(place, "an integer from 1 to 1e9", described(element));
      return {};
    }
    result.push_back(element.as_integer());
  }
  return result;
}

Dataset DatasetReader::read() {
  refuse_unknown_keys();
  Dataset dataset;
  dataset.samples = static_cast<std::int64_t>(number("samples", 0));
  dataset.epochs = number("epochs", 1);
  if (const double tokens = number("mean_tokens", 0); tokens > 0) dataset.mean_tokens = tokens;
  if (const double sd = number("tokens_sd", 0); sd > 0) dataset.tokens_sd = sd;
  dataset.lengths = lengths();
  dataset.longer =
      choice("longer", kLongSamplesNames, "one of cut, drop").value_or(LongSamples::cut);
  const Json* padding = object_.find("padding");
  const bool of_tokenizers = padding != nullptr && *padding == Json("max_length");
  dataset.padding = of_tokenizers ? Padding::max
                                  : choice("padding", kPaddingNames, "one of longest, max, packed")
                                        .value_or(Padding::longest);
  const double multiple = number("pad_to_multiple_of", 1);
  dataset.pad_to_multiple_of =
      std::clamp<std::int64_t>(static_cast<std::int64_t>(multiple), 1, kMostSampleTokens);
  return dataset;
}

// A mean without a deviation is already that of what is left of longer samples.
void check_lengths(Resolver& r, const Dataset& dataset, const Origin& origin) {
  if (dataset.tokens_sd && !dataset.mean_tokens) {
    r.problem({origin.file, origin.pointer + "/tokens_sd"},
              "mean_tokens beside it",
              "a standard deviation alone");
  }
  if (!dataset.lengths.empty() && dataset.mean_tokens) {
    r.problem({origin.file, origin.pointer + "/mean_tokens"},
              "lengths or a mean",
              "both",
              "the mean follows from the lengths");
  }
  if (dataset.longer == LongSamples::drop && dataset.lengths.empty() && !dataset.tokens_sd) {
    r.problem({origin.file, origin.pointer + "/longer"},
              "tokens_sd or lengths beside \"drop\"",
              "a mean alone",
              "how many samples are longer cannot be told");
  }
}

// Evenly spread quantiles of an ascending list.
std::vector<std::int64_t> thinned(const std::vector<std::int64_t>& lengths) {
  if (lengths.size() <= kMostLengths) return lengths;
  std::vector<std::int64_t> result;
  for (std::size_t i = 0; i < kMostLengths; ++i) {
    result.push_back(lengths[(2 * i + 1) * lengths.size() / (2 * kMostLengths)]);
  }
  return result;
}

// Whole numbers between white space, commas and brackets. Throws InputError.
std::vector<std::int64_t> read_lengths(const std::string& path) {
  const std::string text = read_text_file(path);
  std::vector<std::int64_t> result;
  std::int64_t line = 1;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    const char c = *at;
    if (c == '\n') ++line;
    if (std::isspace(static_cast<unsigned char>(c)) != 0 || c == ',' || c == '[' || c == ']') {
      ++at;
      continue;
    }
    std::int64_t tokens = 0;
    const auto [behind, failed] = std::from_chars(at, end, tokens);
    const bool ends =
        behind == end || std::string_view(" \t\r\n,]").find(*behind) != std::string_view::npos;
    if (failed != std::errc() || !ends || tokens < 1 || tokens > kMostSampleTokens) {
      const char* const word =
          std::find_if(at, end, [](unsigned char d) { return std::isspace(d) != 0; });
      throw InputError(
          {path,
           "line " + std::to_string(line),
           "the tokens of a sample, an integer from 1 to 1e9",
           in_quotes(std::string_view(at, static_cast<std::size_t>(word - at)).substr(0, 40)),
           "one number a line, or a JSON list"});
    }
    result.push_back(tokens);
    at = behind;
  }
  if (result.empty()) {
    throw InputError({path, "", "the tokens of samples, one number a line", "no number"});
  }
  return result;
}

}  // namespace

void resolve_dataset(Resolver& r) {
  const ExplicitValue* said = r.scenario.find(ScenarioKey::dataset);
  const std::optional<std::string> file = r.text(ScenarioKey::lengths);
  const auto assume_full = [&] {
    if (r.plan.workload.engine == TrainingEngine::embedded) return;
    r.assume(
        "every sequence is full: samples are packed or padded to one length; where lengths vary "
        "the allocator reserves more (--lengths, --dataset)");
  };
  if (said == nullptr && !file) return assume_full();
  Dataset dataset;
  const Origin origin = r.origin(ScenarioKey::dataset);
  if (said != nullptr && !said->value.is_object()) {
    r.problem(origin, "an object {\"samples\": 20000, ...}", described(said->value));
    return;
  }
  if (said != nullptr) dataset = DatasetReader(r, said->value, origin).read();
  if (file) {
    dataset.lengths = read_lengths(*file);
    dataset.mean_tokens.reset();
    dataset.tokens_sd.reset();
    if (dataset.samples == 0) dataset.samples = std::ssize(dataset.lengths);
  }
  check_lengths(r, dataset, origin);
  std::sort(dataset.lengths.begin(), dataset.lengths.end());
  const bool all_long =
      !dataset.lengths.empty() && dataset.lengths.front() >= r.plan.workload.sequence_length;
  if (dataset.padding == Padding::longest && dataset.tells_lengths() && !all_long) {
    r.assume(
        "lengths vary: micro-batches of all lengths come before the longest, and PyTorch's "
        "allocator keeps blocks of each");
  }
  if (dataset.samples == 0 && !dataset.tells_lengths() && dataset.padding == Padding::longest) {
    assume_full();
  }
  dataset.lengths = thinned(dataset.lengths);
  r.plan.workload.dataset = std::move(dataset);
}

}  // namespace zeroplan
