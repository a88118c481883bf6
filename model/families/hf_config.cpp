#include "model/families/hf_config.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/described.hpp"
#include "base/diagnostic.hpp"
#include "model/families/config_reader.hpp"
#include "model/families/family.hpp"
#include "model/families/recorded_class.hpp"
#include "model/families/traced_document.hpp"

namespace zeroplan {

namespace {

using families::Family;

std::string first_architecture(const Json& config) {
  const Json* list = config.find("architectures");
  if (list == nullptr || !list->is_array() || list->items().empty()) return "";
  const Json& first = list->items().front();
  return first.is_string() ? first.as_string() : "";
}

bool is_known(const std::string& model_type, const Json& config) {
  return families::find_family(model_type, config) != nullptr || is_recorded(model_type);
}

// The type of the class that an architecture is of, as "DeepseekV3ForCausalLM" is of DeepseekV3;
// "" where no such class is known.
std::string type_of_class(std::string_view architecture) {
  const std::string_view stem = class_stem(architecture);
  if (stem.empty()) return "";
  constexpr std::string_view kConfig = "Config";
  for (const Family& family : families::all_families()) {
    std::string_view name = family.config_class;
    if (name.ends_with(kConfig)) name.remove_suffix(kConfig.size());
    if (is_same_class(name, stem)) return std::string(family.model_type);
  }
  return recorded_type_of(stem);
}

// model_type, or what the class name or the keys of an old file say. Empty: nothing says it.
std::string model_type_of(const Json& config, std::vector<Phrase>& notes) {
  const std::string architecture = first_architecture(config);
  const Json* written = config.find("model_type");
  if (written != nullptr && written->is_string() && !written->as_string().empty()) {
    const std::string& type = written->as_string();
    if (type == "bert-base") return "bert";  // as older files have it
    // A copied file whose model_type belongs to another class: the class is what gets built.
    if (type == "qwen2_moe" && architecture.starts_with("Qwen3Moe")) {
      notes.push_back("model_type says qwen2_moe and architectures Qwen3Moe: the class was taken.");
      return "qwen3_moe";
    }
    if (is_known(type, config)) return type;
    // A repository with a type and a copy of a class of its own, as Kimi K2 has DeepSeek-V3's.
    std::string meant = type_of_class(architecture);
    if (meant.empty()) return type;
    notes.push_back(phrase("no class of model_type {} is known: {} was taken from architectures.",
                           printable(type),
                           meant));
    return meant;
  }
  if (std::string meant = type_of_class(architecture); !meant.empty()) {
    notes.push_back(
        phrase("model_type is not in the config: {} was taken from architectures.", meant));
    return meant;
  }
  if (config.find("type_vocab_size") != nullptr &&
      config.find("attention_probs_dropout_prob") != nullptr) {
    notes.push_back(
        "model_type is not in the config: bert was taken, because type_vocab_size is BERT's.");
    return "bert";
  }
  return "";
}

// transformers' names of quantizations (quantizers/auto.py), as people write them.
struct Quantization {
  std::string_view method;
  std::string_view shown;
};
constexpr std::array kQuantizations = {
    Quantization{"bitsandbytes", kFourBitCopy},
    Quantization{"bitsandbytes_8bit", "eight bits of bitsandbytes"},
    Quantization{"mxfp4", kMxfp4Checkpoint},
    Quantization{"awq", "AWQ"},
    Quantization{"gptq", "GPTQ"},
    Quantization{"fp8", kFp8Checkpoint},
    Quantization{"fbgemm_fp8", kFp8Checkpoint},
    Quantization{"compressed-tensors", "compressed-tensors"},
};
constexpr std::string_view kOtherQuantization = "another quantization";

std::string_view quantization_of(const Json& section) {
  const Json* eight = section.find("load_in_8bit");
  const Json* named = section.find("quant_method");
  std::string method = named != nullptr && named->is_string() ? named->as_string() : "bitsandbytes";
  if (method == "bitsandbytes" && eight != nullptr && eight->is_boolean() && eight->as_boolean()) {
    method += "_8bit";
  }
  const Json* bits = section.find("bits");
  if (method == "gptq" && bits != nullptr && *bits == Json(std::int64_t{8}))
    return kGptqOfEightBits;
  for (const Quantization& one : kQuantizations) {
    if (one.method == method) return one.shown;
  }
  return kOtherQuantization;
}

// The format of the checkpoint's weights: a quantization, else the one that its config names.
std::optional<std::string> stored_dtype(const Json& config) {
  const Json* text = config.find("text_config");
  for (const Json* object : {&config, text}) {
    if (object == nullptr || !object->is_object()) continue;
    const Json* section = object->find("quantization_config");
    if (section != nullptr && section->is_object()) return std::string(quantization_of(*section));
  }
  for (const Json* object : {&config, text}) {
    if (object == nullptr || !object->is_object()) continue;
    for (const std::string_view key : {"torch_dtype", "dtype"}) {
      const Json* value = object->find(key);
      if (value != nullptr && value->is_string()) return value->as_string();
    }
  }
  return std::nullopt;
}

// The model_type of the text model that a multimodal config holds, where that one is known.
std::optional<std::string> known_text_model(const Json& config) {
  const Json* text = config.find("text_config");
  if (text == nullptr || !text->is_object()) return std::nullopt;
  const Json* said = text->find("model_type");
  if (said == nullptr || !said->is_string()) return std::nullopt;
  return is_known(said->as_string(), *text) ? std::optional(said->as_string()) : std::nullopt;
}

// The part of a config of several that transformers hands the text model's own class, which
// architectures names ("Qwen3_5ForCausalLM" of qwen3_5); null for every other config.
const Json* config_of_text_class(const Json& config) {
  const auto type = known_text_model(config);
  const bool is_its_class = type && is_recorded_class(*type, first_architecture(config));
  return is_its_class ? config.find("text_config") : nullptr;
}

// The family whose builder writes the class of that type which the config names; null: it is
// recorded, or not known.
const Family* family_of(const std::string& model_type, const Json& config, const ModelUse& use) {
  const Family* family = families::find_family(model_type, config, use.is_hugging_face());
  const bool recorded =
      use.is_hugging_face() && is_recorded_class(model_type, first_architecture(config));
  return recorded ? nullptr : family;
}

[[noreturn]] void unknown_type(const std::string& model_type,
                               const Json& config,
                               const std::string& file,
                               const std::string& pointer) {
  std::vector<std::string_view> known;
  for (const Family& family : families::all_families()) known.push_back(family.model_type);
  const auto text_model = known_text_model(config);
  Phrase hint =
      text_model ? phrase("for the text model alone give its text_config, whose model_type is {}",
                          printable(*text_model))
                 : did_you_mean(model_type, known);
  if (!hint.empty()) hint.append("; ");
  hint.append(how_to_trace(pointer.empty() ? file : ""));
  throw InputError(
      Diagnostic{.file = file,
                 .pointer = pointer + "/model_type",
                 .expected = "a model_type whose class is known (zeroplan models lists them)",
                 .got = in_quotes(model_type),
                 .hint = std::move(hint)});
}

void take_stored_dtype(Model& model, const Json& config) {
  model.torch_dtype = stored_dtype(config);
  const std::string_view quantized = quantized_format(model);
  if (quantized.empty()) return;
  model.notes.insert(
      model.notes.begin(),
      phrase("quantization_config says {}: the parameters are counted as unquantized tensors.",
             quantized));
}

// In the place of the language head, which stands last, the one that scores sequences.
void put_scores(Model& model, const Json& config, const std::string& architecture) {
  Module& head = model.modules.back();
  // OPT-350m's hidden states are made narrower before the head.
  const std::int64_t width =
      head.parameters.empty()
          ? model.shape.hidden
          : model.parameters[static_cast<std::size_t>(head.parameters.front())].shape.back();
  const Json *said = config.find("num_labels"), *names = config.find("id2label");
  std::int64_t labels = 2;
  if (said != nullptr && said->is_integer() && said->as_integer() > 0) {
    labels = std::min(said->as_integer(), width);
  } else if (names != nullptr && names->is_object() && !names->members().empty()) {
    labels = static_cast<std::int64_t>(names->members().size());
  }
  // A tied head has no weight of its own, Phi's a bias besides.
  std::vector<int>& own = head.parameters;
  while (!own.empty() && own.back() + 1 == static_cast<int>(model.parameters.size())) {
    model.parameters.pop_back();
    own.pop_back();
  }
  Parameter& weight = model.parameters.emplace_back();
  weight.name = "score.weight";
  weight.shape = {labels, width};
  weight.numel = Elements::of(detail::checked_product(labels, width));
  head.name = "score";
  own = {static_cast<int>(model.parameters.size()) - 1};
  model.architecture = architecture;
  model.modules.front().type = architecture;
  model.shape.has_logits = false;
}

// Whether the class reads an image with every text (docs/families.md).
bool reads_pixels(const Json& document) {
  const Json& inputs = *document.find("inputs");
  return inputs.find("pixel_values") != nullptr || inputs.find("flattened_patches") != nullptr;
}

// A model of a class that zeroplan has recorded; of any other, and of values that were not
// recorded, an InputError.
Model recorded_model(const std::string& model_type,
                     const Json& config,
                     const std::string& file,
                     const std::string& pointer,
                     const ModelUse& use) {
  constexpr std::string_view kAttentionKey = "attn_implementation";
  constexpr std::string_view kScores = "ForSequenceClassification";
  const std::optional<RecordedClass> recorded = recorded_class(config, model_type, use);
  if (!recorded) unknown_type(model_type, config, file, pointer);
  if (!recorded->document) {
    const std::size_t slash = recorded->key.find('/');
    const Json* said = config.find(recorded->key.substr(0, slash));
    if (slash != std::string::npos && said != nullptr && said->is_object()) {
      said = said->find(recorded->key.substr(slash + 1));
    }
    throw InputError(
        Diagnostic{.file = file,
                   .pointer = pointer + "/" + recorded->key,
                   .expected = phrase("a value with which the class {} was recorded: {}",
                                      printable(model_type),
                                      recorded->expected),
                   .got = said != nullptr                  ? described(*said)
                          : recorded->key == kAttentionKey ? Phrase(in_quotes(use.attention))
                                                           : Phrase("no such key"),
                   .hint = how_to_trace(pointer.empty() ? file : "")});
  }
  Model model = read_traced_document(*recorded->document, file, pointer, true);
  const std::string architecture = first_architecture(config);
  // The usual class of a type with another head; a class that was recorded has its own.
  const bool is_usual = !is_same_class(model.architecture, architecture);
  if (is_usual && architecture.ends_with(kScores)) put_scores(model, config, architecture);
  model.name = file;
  take_stored_dtype(model, config);
  model.lengths = recorded->lengths;
  model.releases = recorded->releases;
  const bool sees = config.find("vision_config") != nullptr;
  if (reads_pixels(*recorded->document)) {
    model.notes.push_back(
        "an image of the tower's size with every text, four where the class reads videos: the "
        "tower is run and trained");
    return model;
  }
  if (sees || config.find("audio_config") != nullptr) {
    model.notes.push_back(
        "batches of text alone: the towers for images and sound hold their weights, trained as the "
        "others are, and are not run");
  }
  if (sees) model.notes.push_back("--images N plans N images in each sequence");
  return model;
}

// The file behind a path: itself or the config.json in it, as the user wrote it or seen from the
// folder of the document that names it. The path unchanged where there is none.
std::string resolved_path(const std::string& path, const std::string& document) {
  namespace fs = std::filesystem;
  const fs::path written(path);
  std::vector<fs::path> places = {written};
  if (written.is_relative()) places.push_back(fs::path(document).parent_path() / written);
  std::error_code ignored;
  for (const fs::path& place : places) {
    if (fs::is_regular_file(place, ignored)) return place.string();
    if (fs::is_regular_file(place / "config.json", ignored)) {
      return (place / "config.json").string();
    }
  }
  return fs::is_directory(written, ignored) ? (written / "config.json").string() : path;
}

bool looks_like_a_path(std::string_view text) {
  return text.starts_with("/") || text.starts_with("./") || text.starts_with("../") ||
         text.starts_with("~") || text.ends_with(".json") || text.ends_with("/");
}

// Python writes Infinity into config.json (Nemotron-H: time_step_limit), which is no JSON. No size
// is ever infinite, so the value becomes a number of the same length that every floating point type
// of a model's has: positions in messages stay, and a class that reads it clamps nothing.
std::string without_infinity(std::string text) {
  constexpr std::string_view kWord = "Infinity";
  bool in_string = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (in_string) {
      if (text[at] == '\\') {
        ++at;
      } else if (text[at] == '"') {
        in_string = false;
      }
    } else if (text[at] == '"') {
      in_string = true;
    } else if (text.compare(at, kWord.size(), kWord) == 0) {
      text.replace(at, kWord.size(), "3.0e+38 ");
    }
  }
  return text;
}

Json read_config(const std::string& path) {
  return parse_json(without_infinity(read_text_file(path)), path).root;
}

Model model_from_file(const std::string& path, const std::string& name, const ModelUse& use) {
  Model model = read_model(read_config(path), path, "", use);
  model.name = printable(name);
  return model;
}

// The path that a model's text is, or names a folder of; nothing where it is a name or a size.
std::optional<std::string> path_of_model(const std::string& text, const std::string& file) {
  std::error_code ignored;
  if (looks_like_a_path(text)) {
    // The folder of another machine, which is called as the model is.
    const std::string path = resolved_path(text, file);
    const bool elsewhere = !std::filesystem::exists(path, ignored) && is_model_name(text);
    return elsewhere ? std::nullopt : std::optional(path);
  }
  if (is_model_name(text)) return std::nullopt;
  const std::string path = resolved_path(text, file);
  if (std::filesystem::exists(path, ignored)) return path;
  return std::nullopt;
}

}  // namespace

std::string_view quantized_format(const Model& model) {
  const std::string_view stored = model.torch_dtype ? *model.torch_dtype : std::string_view();
  if (stored.starts_with("bfloat") || stored.starts_with("float") || stored.starts_with("torch") ||
      stored == "half" || stored == "auto") {
    return "";
  }
  return stored;
}

Model read_model(const Json& config,
                 const std::string& file,
                 const std::string& pointer,
                 const ModelUse& use) {
  if (!config.is_object()) {
    throw InputError(Diagnostic{.file = file,
                                .pointer = pointer.empty() ? "/" : pointer,
                                .expected = "a Hugging Face config, which is a JSON object",
                                .got = described(config)});
  }
  if (is_traced_document(config)) return read_traced_document(config, file, pointer);
  if (const Json* text = config_of_text_class(config)) {
    Model model = read_model(*text, file, pointer + "/text_config", use);
    take_stored_dtype(model, config);
    return model;
  }
  ConfigFindings findings;
  const std::string model_type = model_type_of(config, findings.notes);
  if (model_type.empty()) {
    const Phrase hint = pointer.empty() ? option_that_takes(config, file) : Phrase();
    throw InputError(Diagnostic{
        .file = file,
        .pointer = pointer + "/model_type",
        .expected = "model_type, for instance \"llama\"",
        .got = config.find("model_type") == nullptr ? "no such key"
                                                    : described(*config.find("model_type")),
        .hint = hint.empty() ? "a config.json of transformers names it" : hint});
  }
  const Family* family = family_of(model_type, config, use);
  if (family == nullptr) {
    Model model = recorded_model(model_type, config, file, pointer, use);
    model.notes.insert(model.notes.begin(), findings.notes.begin(), findings.notes.end());
    return model;
  }
  const ConfigReader reader(config, file, pointer, std::string(family->config_class), findings);
  Model model;
  try {
    model = family->build({reader, model_type, first_architecture(config), use.experts});
  } catch (const TooManyParameters& error) {
    throw InputError(Diagnostic{.file = file,
                                .pointer = pointer.empty() ? "/" : pointer,
                                .expected = "sizes of a model that can exist",
                                .got = error.what(),
                                .hint = "is there a digit too many?"});
  }
  reader.throw_problems();
  model.name = file;
  model.model_type = model_type;
  take_stored_dtype(model, config);
  model.notes.insert(model.notes.begin(), findings.notes.begin(), findings.notes.end());
  return model;
}

Phrase option_that_takes(const Json& document, const std::string& file) {
  const auto has = [&](const char* key) { return document.find(key) != nullptr; };
  if (has("zero_optimization") || has("train_micro_batch_size_per_gpu")) {
    return phrase("this is a ds_config.json: --ds-config {}", file);
  }
  if (has("workload") || has("cluster")) return phrase("this is a scenario: --scenario {}", file);
  return {};
}

Phrase how_to_trace(const std::string& file) {
  return phrase(
      "a Python with transformers traces it: zeroplan trace {} -o graph.json, and graph.json "
      "stands for the model",
      file.empty() ? "CONFIG" : printable(file));
}

bool is_planned(const Json& config, const ModelUse& use) {
  if (!config.is_object() || is_traced_document(config)) return true;
  if (const Json* text = config_of_text_class(config)) return is_planned(*text, use);
  std::vector<Phrase> notes;
  const std::string model_type = model_type_of(config, notes);
  if (model_type.empty()) return true;
  if (family_of(model_type, config, use) == nullptr) {
    const std::optional<RecordedClass> recorded = recorded_class(config, model_type, use);
    return recorded && recorded->document;
  }
  try {
    return read_model(config, "", "", use).planned;
  } catch (const InputError&) {
    return true;
  }
}

Model load_model(const Json& value,
                 const std::string& file,
                 const std::string& pointer,
                 const ModelUse& use) {
  if (value.is_object()) {
    Model model = read_model(value, file, pointer, use);
    const Json* name = is_traced_document(value) ? value.find("name") : nullptr;
    model.name = name != nullptr && name->is_string() ? printable(name->as_string())
                                                      : "inline " + model.model_type;
    return model;
  }
  if (!value.is_string() || value.as_string().empty()) {
    throw InputError(Diagnostic{
        .file = file,
        .pointer = pointer,
        .expected = "a model's name, a size such as \"10B\", a path to a config.json, or a config",
        .got = described(value)});
  }
  const std::string& text = value.as_string();
  if (const auto path = path_of_model(text, file)) return model_from_file(*path, text, use);
  return model_from_name(text, file, pointer, use);  // explains what names there are
}

std::optional<Json> config_of_path(const std::string& text, const std::string& file) {
  const auto path = path_of_model(text, file);
  if (!path) return std::nullopt;
  return read_config(*path);
}

std::vector<std::string> model_types() {
  std::vector<std::string> types = recorded_types();
  for (const Family& family : families::all_families()) {
    const bool is_new = std::find(types.begin(), types.end(), family.model_type) == types.end();
    if (is_new) types.emplace_back(family.model_type);
  }
  std::sort(types.begin(), types.end());
  return types;
}

}  // namespace zeroplan
