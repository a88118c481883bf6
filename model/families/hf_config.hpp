// From what the user calls a model to the parameters and modules of the class that Hugging Face
// transformers would instantiate: a preset's name, a bare size ("10B"), a config.json (or the
// directory that holds one), or the same object written inline.
//
// Everything wrong with the input is an InputError with JSON pointers. Keys that are missing take
// the default of the family's configuration class (docs/families.md has the tables); each default
// that decides a count is a note of the model, and so is every other assumption.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "base/phrase.hpp"
#include "model/transformer.hpp"

namespace zeroplan {

// The scenario's `model` value. A string is, in this order: a preset's name, a bare size, a path to
// a config.json or to a directory with one (relative to the working directory, then to the folder
// of `file`); an object is an inline Hugging Face config. `file` and `pointer` say where the value
// stands ("scenario.json", "/model"; or "command line", "--model") for messages.
Model load_model(const Json& value,
                 const std::string& file,
                 const std::string& pointer,
                 const ModelUse& use = {});

// The config in the file that load_model() reads for that text; nothing for a preset or a size.
// Throws InputError where it cannot be read.
std::optional<Json> config_of_path(const std::string& text, const std::string& file);

// A Hugging Face config. `file` and `pointer` (of the object in its document) are for messages.
Model read_model(const Json& config,
                 const std::string& file,
                 const std::string& pointer = "",
                 const ModelUse& use = {});

// The hint beside a class that is not known: the command that traces it. `file`: its config's.
Phrase how_to_trace(const std::string& file);

// The hint that names the option which takes a scenario or a ds_config; empty for other documents.
Phrase option_that_takes(const Json& document, const std::string& file);

// Whether memory and time are predicted for a config: its class is known or recorded, or it is a
// traced document. True for what read_model() refuses as damaged: it says why.
bool is_planned(const Json& config, const ModelUse& use = {});

// A preset or a bare size, or an InputError with the nearest names.
Model model_from_name(std::string_view name,
                      const std::string& file = "command line",
                      const std::string& pointer = "MODEL",
                      const ModelUse& use = {});

// What the weights of a hub's copy are stored in, by the end of its name ("...-AWQ",
// "...-bnb-4bit"); empty where the name says nothing.
std::string_view format_of_copy(std::string_view name);
inline constexpr std::string_view kFourBitCopy = "four bits of bitsandbytes";
inline constexpr std::string_view kSixteenBitCopy = "16 bits";
inline constexpr std::string_view kMxfp4Checkpoint = "MXFP4";
inline constexpr std::string_view kFp8Checkpoint = "FP8";
inline constexpr std::string_view kGptqOfEightBits = "GPTQ of eight bits";

// The quantization that the model's checkpoint is in, by its config or its name; empty: none.
std::string_view quantized_format(const Model& model);

// The Hugging Face config behind such a name. Precondition: is_model_name(name).
Json config_of_name(std::string_view name);

// Whether the text is a preset's name or a bare size.
bool is_model_name(std::string_view text);

// "10B", "1.3b", "350M", "1T" as a number of parameters; nothing for any other text.
std::optional<std::int64_t> parse_model_size(std::string_view text);

// The LLaMA-like config that stands for a bare number of parameters: within 2 % of `parameters`
// from 10^8 to 10^12, and never smaller for a larger size. Precondition: in that range.
Json config_of_size(std::int64_t parameters);

// A model people name, with the count its publisher states.
struct ModelPreset {
  std::string name;                  // "llama-2-7b"
  std::vector<std::string> aliases;  // other names, e.g. "vicuna-7b"
  std::int64_t parameters = 0;       // checked against the config by the tests
  std::string source;                // of that number
  Json config;
};

// All presets by name, read at the first call.
const std::vector<ModelPreset>& model_presets();

// The model_type values that are known, in alphabetical order.
std::vector<std::string> model_types();

}  // namespace zeroplan
