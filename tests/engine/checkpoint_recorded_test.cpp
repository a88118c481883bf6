// Checkpoints that DeepSpeed wrote (tests/reference/checkpoints/*.jsonl) against what is predicted:
// which files there are, the bytes of the tensors in each, and how large each is.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "model/plan/scenario_reader.hpp"
#include "model/predict/checkpoint.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

struct Recorded {
  std::string path;
  Bytes bytes;
  Bytes tensors;
};

struct Line {
  std::string id;
  std::string device;
  Json document;
  Plan plan;
  CheckpointOptions options;
};

std::vector<Line> lines_of(const std::string& file) {
  std::vector<Line> lines;
  std::ifstream in(std::string(ZEROPLAN_SOURCE_DIR) + "/tests/reference/checkpoints/" + file);
  for (std::string text; std::getline(in, text);) {
    Line line;
    line.document = parse_json(text, file).root;
    Json scenario = *line.document.find("scenario");
    Json software = *line.document.find("software");
    software.erase("peft");
    scenario["software"] = software;
    line.device = line.document.find("device")->as_string();
    line.id = line.document.find("id")->as_string() + " on " + line.device;
    line.plan = resolve(parse_scenario(scenario, file));
    if (const Json* exclude = line.document.find("exclude_frozen")) {
      line.options.exclude_frozen = exclude->as_boolean();
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

std::vector<Recorded> files_of(const Json& list) {
  std::vector<Recorded> files;
  for (const Json& entry : list.items()) {
    const Json* tensors = entry.find("storage_bytes");
    if (tensors == nullptr) continue;  // latest, zero_to_fp32.py
    files.push_back({entry.find("path")->as_string(),
                     Bytes::of(entry.find("bytes")->as_integer()),
                     Bytes::of(tensors->as_integer())});
  }
  return files;
}

// "zero_pp_rank_{rank}_mp" -> zero_pp_rank_[^/]+_mp
std::regex pattern_of(const std::string& path) {
  const std::string escaped = std::regex_replace(path, std::regex(R"(\.)"), R"(\.)");
  return std::regex(std::regex_replace(escaped, std::regex(R"(\{[a-z_]+\})"), "[^/]+"));
}

std::vector<Recorded> matching(const std::vector<Recorded>& files, const std::string& path) {
  const std::regex pattern = pattern_of(path);
  std::vector<Recorded> found;
  for (const Recorded& file : files) {
    if (std::regex_match(file.path, pattern)) found.push_back(file);
  }
  return found;
}

Elements frozen_elements(const Plan& plan) {
  Elements sum;
  for (const EngineParameter& parameter : plan.engine_parameters) {
    if (!parameter.trainable) sum += parameter.numel;
  }
  return sum;
}

// On CPU ranks frozen_param_fragments of stage 2 are the weights themselves, which the pickle names
// twice and the file holds once; a GPU's are copies.
Bytes shared_on_cpu(const Line& line, const CheckpointFiles& entry) {
  const bool module = entry.path.find("model_states") != std::string::npos;
  if (line.device != "cpu" || line.plan.engine.stage != 2 || !module) return Bytes::zero();
  if (*line.options.exclude_frozen) return Bytes::zero();
  return frozen_elements(line.plan) * line.plan.engine.model_dtype;
}

// Names, settings and the zip's own bytes depend on what the pickle says; a file is as large as
// said within so much.
constexpr std::int64_t kLoose = 6000;

void check_content(const Line& line, const CheckpointContent& content) {
  const std::vector<Recorded> files = files_of(*line.document.find("files"));
  for (const CheckpointFiles& entry : content.files) {
    INFO(line.id << ": " << entry.path);
    const std::vector<Recorded> found = matching(files, entry.path);
    CHECK(static_cast<std::int64_t>(found.size()) == entry.files);
    for (const Recorded& file : found) {
      INFO(file.path);
      const Bytes shared = shared_on_cpu(line, entry);
      CHECK(file.tensors == entry.tensors - shared);
      CHECK(std::abs((file.bytes + shared - entry.bytes).count()) < kLoose);
    }
  }
}

std::int64_t predicted_files(const CheckpointPrediction& made, bool with_model) {
  std::int64_t sum = 0;
  for (const CheckpointFiles& entry : made.native.files) sum += entry.files;
  if (with_model) {
    for (const CheckpointFiles& entry : made.model->files) sum += entry.files;
  }
  return sum;
}

TEST_CASE("every file that DeepSpeed wrote is predicted, with the bytes of its tensors") {
  for (const std::string file : {"cpu_ranks.jsonl", "rehearsed.jsonl"}) {
    const std::vector<Line> lines = lines_of(file);
    REQUIRE(lines.size() >= 14);
    for (const Line& line : lines) {
      INFO(line.id);
      const auto made = predict_checkpoint(line.plan, line.options);
      REQUIRE(made);
      const std::vector<Recorded> files = files_of(*line.document.find("files"));
      const bool with_model = !matching(files, "pytorch_model.bin").empty();
      check_content(line, made->native);
      if (with_model) {
        REQUIRE(made->model);
        check_content(line, *made->model);
      }
      CHECK(static_cast<std::int64_t>(files.size()) == predicted_files(*made, with_model));
    }
  }
}

// Of ds_to_universal.py, and what ranks said to the checkpoints of two ranks.
struct Reloaded {
  std::string source;  // id of the line of cpu_ranks.jsonl
  Json document;
};

std::vector<Reloaded> reloaded() {
  std::vector<Reloaded> lines;
  std::ifstream in(std::string(ZEROPLAN_SOURCE_DIR) +
                   "/tests/reference/checkpoints/reloaded.jsonl");
  for (std::string text; std::getline(in, text);) {
    const Json document = parse_json(text, "reloaded.jsonl").root;
    const Json* source = document.find("source");
    lines.push_back({(source ? *source : *document.find("id")).as_string(), document});
  }
  return lines;
}

const Line& line_of(const std::vector<Line>& lines, const std::string& id) {
  const auto found = std::find_if(
      lines.begin(), lines.end(), [&](const Line& line) { return line.id == id + " on cpu"; });
  REQUIRE(found != lines.end());
  return *found;
}

// The files of single parameters differ in size: the largest, and all of them.
void check_parameters(const CheckpointFiles& entry, const std::vector<Recorded>& found) {
  Bytes largest, all;
  for (const Recorded& file : found) {
    largest = std::max(largest, file.tensors);
    all += file.bytes;
  }
  CHECK(largest == entry.tensors);
  CHECK(std::abs((all - entry.total).count()) < 200 * entry.files);
}

void check_universal(const Line& line, const CheckpointContent& content, const Json& list) {
  const std::vector<Recorded> files = files_of(list);
  for (const CheckpointFiles& entry : content.files) {
    INFO(line.id << ": " << entry.path);
    const std::vector<Recorded> found = matching(files, entry.path);
    REQUIRE(static_cast<std::int64_t>(found.size()) == entry.files);
    if (entry.path.find("{parameter}") != std::string::npos) {
      check_parameters(entry, found);
    } else {
      CHECK(found.front().tensors == entry.tensors - shared_on_cpu(line, entry));
      CHECK(std::abs((found.front().bytes + shared_on_cpu(line, entry) - entry.bytes).count()) <
            kLoose);
    }
  }
}

TEST_CASE("ds_to_universal.py wrote the files that are predicted, or refused as predicted") {
  const std::vector<Line> lines = lines_of("cpu_ranks.jsonl");
  int converted = 0, refused = 0;
  for (const Reloaded& one : reloaded()) {
    const Line& line = line_of(lines, one.source);
    INFO(line.id);
    const auto made = predict_checkpoint(line.plan, line.options);
    const Json* list = one.document.find("universal");
    if (list != nullptr && list->is_array()) {
      REQUIRE(made->universal);
      check_universal(line, *made->universal, *list);
      ++converted;
    } else if (one.document.find("universal_error") != nullptr) {
      CHECK_FALSE(made->universal);
      ++refused;
    }
  }
  CHECK(converted >= 8);
  CHECK(refused >= 2);
}

TEST_CASE("Ranks of another number resumed, or refused, as predicted") {
  const std::vector<Line> lines = lines_of("cpu_ranks.jsonl");
  int seen = 0;
  for (const Reloaded& one : reloaded()) {
    const Json* said = one.document.find("resume");
    if (said == nullptr) continue;
    const bool universal = one.document.find("universal")->as_boolean();
    const bool others =
        one.document.find("ranks")->as_integer() != one.document.find("saved_by")->as_integer();
    const auto made = predict_checkpoint(line_of(lines, one.source).plan);
    INFO(one.document.find("id")->as_string() << ": " << said->as_string());
    if (universal || (others && made->other_ranks == Resume::directly)) {
      CHECK(said->as_string() == "resumed");
    } else if (others) {
      CHECK(said->as_string().starts_with("ZeRORuntimeException"));
    }
    ++seen;
  }
  CHECK(seen >= 12);
}

// The weights that others read; save_pretrained writes one file of so small a model.
void check_safetensors(const Line& line, const CheckpointPrediction& made) {
  std::vector<Recorded> found;
  for (const Json& file : line.document.find("files")->items()) {
    const std::string& path = file.find("path")->as_string();
    if (path.ends_with(".safetensors")) {
      found.push_back({path, Bytes::of(file.find("bytes")->as_integer()), {}});
    }
  }
  REQUIRE(found.size() == (made.model ? 1U : 0U));
  if (!made.model) return;
  CHECK(found.front().path == made.model->files.front().path);
  CHECK(std::abs((found.front().bytes - made.model->total()).count()) < 1000);
}

TEST_CASE("Rank 0 of the Trainer wrote the files that are predicted, as often, in as much memory") {
  const std::vector<Line> lines = lines_of("trainer.jsonl");
  REQUIRE(lines.size() == 4);
  for (const Line& line : lines) {
    INFO(line.id);
    const auto made = predict_checkpoint(line.plan);
    REQUIRE(made);
    const std::vector<Recorded> files = files_of(*line.document.find("files"));
    for (const CheckpointFiles& entry : made->native.files) {
      INFO(entry.path);
      const std::vector<Recorded> found = matching(files, entry.path);
      REQUIRE(found.size() == 1);
      CHECK(found.front().tensors == entry.tensors);
    }
    check_safetensors(line, *made);
    CHECK(line.document.find("calls")->as_integer() == (made->native_written_twice ? 2 : 1));
    const double peak =
        static_cast<double>(line.document.find("save_peak_allocated_bytes")->as_integer());
    CHECK(static_cast<double>(made->saving.gpu_peak.count()) == Approx(peak).epsilon(0.002));
  }
}

}  // namespace
