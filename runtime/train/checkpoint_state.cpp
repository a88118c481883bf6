#include "runtime/train/checkpoint_state.hpp"

#include <cmath>
#include <filesystem>
#include <limits>
#include <span>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/described.hpp"
#include "base/diagnostic.hpp"

namespace zeroplan::runtime {
namespace {

constexpr const char* kWeightsFile = kCheckpointFiles[1];
constexpr const char* kMomentsFile = kCheckpointFiles[2];
constexpr const char* kSchema = "zeroplan.checkpoint/2";
constexpr const char* kOldSchema = "zeroplan.checkpoint/1";
// Behind everything else: the checksum of the bytes before it.
constexpr std::string_view kChecksumKey = ",\n  \"crc32\": ";

Json facts_json(const FileFacts& facts) {
  return Json::object({{"bytes", facts.bytes}, {"crc32", static_cast<std::int64_t>(facts.crc32)}});
}

std::uint32_t crc32_of(std::string_view text) { return crc32(std::as_bytes(std::span(text))); }

bool has_own_checksum(const std::string& text) {
  const std::size_t at = text.rfind(kChecksumKey);
  if (at == std::string::npos) return false;
  const Phrase expected =
      fmt::format("{}{}\n}}\n", kChecksumKey, crc32_of(std::string_view(text).substr(0, at)));
  return std::string_view(text).substr(at) == expected;
}

Json scaler_json(const std::optional<LossScalerState>& scaler) {
  if (!scaler) return {};
  return Json::object({{"scale", scaler->scale},
                       {"hysteresis", scaler->hysteresis},
                       {"iteration", scaler->iteration},
                       {"last_overflow", scaler->last_overflow}});
}

Json curve_json(const Fingerprint& curve) {
  Json object = Json::object();
  for (const auto& [key, value] : curve.entries()) object[key] = value;
  return object;
}

// A member that counts something. No run gets as far as 2^53: what is larger was not written here,
// and sums with it might overflow.
std::int64_t count_in(const std::string& path, const Json& object, const char* key) {
  constexpr std::int64_t kMost = std::int64_t{1} << 53;
  const Json* value = object.find(key);
  const bool good = value != nullptr && value->is_integer() && value->as_integer() >= 0 &&
                    value->as_integer() <= kMost;
  if (good) return value->as_integer();
  refuse_checkpoint(path,
                    std::string("/") + key,
                    "a whole number from 0 to 2^53",
                    value != nullptr ? described(*value) : "none");
}

double scale_in(const std::string& path, const std::string& pointer, const Json* value) {
  const bool good = value != nullptr && value->is_number() && value->as_number() > 0.0 &&
                    std::isfinite(value->as_number());
  if (good) return value->as_number();
  refuse_checkpoint(
      path, pointer, "a number above 0", value != nullptr ? described(*value) : "none");
}

std::optional<LossScalerState> scaler_in(const std::string& path, const Json& state) {
  const Json* scaler = state.find("loss_scaler");
  if (scaler == nullptr || scaler->is_null()) return std::nullopt;
  if (!scaler->is_object()) {
    refuse_checkpoint(path, "/loss_scaler", "an object or null", described(*scaler));
  }
  LossScalerState read;
  read.scale = scale_in(path, "/loss_scaler/scale", scaler->find("scale"));
  read.hysteresis = count_in(path, *scaler, "hysteresis");
  read.iteration = count_in(path, *scaler, "iteration");
  const Json* overflow = scaler->find("last_overflow");
  const bool never = overflow != nullptr && *overflow == Json(-1);
  read.last_overflow = never ? -1 : count_in(path, *scaler, "last_overflow");
  return read;
}

// The first release of the format kept the scale alone.
std::optional<LossScalerState> old_scaler_in(const std::string& path,
                                             const Json& state,
                                             std::int64_t steps) {
  const double scale = scale_in(path, "/loss_scale", state.find("loss_scale"));
  if (scale == 1.0) return std::nullopt;  // of runs without a scaler
  return LossScalerState{.scale = scale, .iteration = steps};
}

Fingerprint curve_in(const Json& state) {
  Fingerprint curve;
  const Json* object = state.find("curve");
  if (object == nullptr || !object->is_object()) return curve;
  // Through the reader of texts, which takes none but good keys, each once.
  std::string text;
  for (const auto& [key, value] : object->members()) {
    if (value.is_string()) text += key + "=" + value.as_string() + "\n";
  }
  return Fingerprint::parse(text).value_or(Fingerprint());
}

// What a file of the checkpoint was.
FileFacts facts_in(const std::string& path, const Json& state, const char* name) {
  const std::string pointer = std::string("/files/") + name;
  const Json* files = state.find("files");
  const Json* file = files != nullptr && files->is_object() ? files->find(name) : nullptr;
  const auto number = [&](const char* key, std::int64_t most) -> std::int64_t {
    const Json* value = file != nullptr && file->is_object() ? file->find(key) : nullptr;
    const bool good = value != nullptr && value->is_integer() && value->as_integer() >= 0 &&
                      value->as_integer() <= most;
    if (good) return value->as_integer();
    refuse_checkpoint(
        path, pointer + "/" + key, "a whole number", value != nullptr ? described(*value) : "none");
  };
  return {number("bytes", std::numeric_limits<std::int64_t>::max()),
          static_cast<std::uint32_t>(number("crc32", 0xffffffff))};
}

std::string schema_of(const Json& state) {
  const Json* schema = state.find("schema");
  return schema != nullptr && schema->is_string() ? schema->as_string() : "";
}

}  // namespace

void refuse_checkpoint(const std::string& file, std::string pointer, Phrase expected, Phrase got) {
  throw InputError(Diagnostic{.file = file,
                              .pointer = std::move(pointer),
                              .expected = std::move(expected),
                              .got = std::move(got),
                              .hint = ""});
}

std::string with_own_checksum(const Json& document) {
  std::string text = document.dump(2);
  text.resize(text.size() - std::string_view("\n}").size());
  const std::uint32_t sum = crc32_of(text);
  return fmt::format("{}{}{}\n}}\n", text, kChecksumKey, sum);
}

bool claims_to_be_state(const Json& document) {
  const std::string schema = schema_of(document);
  return schema == kSchema || schema == kOldSchema;
}

std::string state_text(const CheckpointState& state) {
  return with_own_checksum(
      Json::object({{"schema", kSchema},
                    {"run", state.progress.run},
                    {"steps", state.progress.steps},
                    {"rows", state.progress.rows},
                    {"updates", state.updates},
                    {"loss_scaler", scaler_json(state.loss_scaler)},
                    {"curve", curve_json(state.progress.curve)},
                    {"files",
                     Json::object({{kWeightsFile, facts_json(state.weights)},
                                   {kMomentsFile, facts_json(state.moments)}})}}));
}

CheckpointState parse_state(const std::string& text, const std::string& file) {
  const Json root = parse_json(text, file).root;
  const std::string schema = schema_of(root);
  const bool old = schema == kOldSchema;
  if (schema != kSchema && !old) {
    refuse_checkpoint(file, "/schema", kSchema, schema.empty() ? "none" : in_quotes(schema));
  }
  if (!old && !has_own_checksum(text)) {
    refuse_checkpoint(
        file, "", "the bytes that were written", "others: the checksum (CRC-32) differs");
  }
  CheckpointState state;
  state.progress.steps = count_in(file, root, "steps");
  state.progress.rows = count_in(file, root, "rows");
  state.updates = count_in(file, root, "updates");
  state.loss_scaler = old ? old_scaler_in(file, root, state.progress.steps) : scaler_in(file, root);
  state.progress.curve = curve_in(root);
  const Json* run = root.find("run");
  if (run != nullptr && run->is_string()) state.progress.run = run->as_string();
  state.weights = facts_in(file, root, kWeightsFile);
  state.moments = facts_in(file, root, kMomentsFile);
  return state;
}

bool holds_checkpoint(const std::string& folder) {
  const std::string path = folder + "/" + kStateFile;
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  try {
    return claims_to_be_state(read_json_file(path).root);
  } catch (const InputError&) {
    return false;
  }
}

}  // namespace zeroplan::runtime
