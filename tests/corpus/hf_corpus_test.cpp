// All Hugging Face configs of the corpus.
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/diagnostic.hpp"
#include "base/json.hpp"
#include "model/families/hf_config.hpp"
#include "tests/catch.hpp"
#include "tests/support/data.hpp"

using namespace zeroplan;

namespace {

const std::string kCorpus = testing::data_path("corpus/hf_configs/");

// One line of a CSV file with quoted fields.
std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      fields.emplace_back();
    } else if (c != '\r') {
      fields.back() += c;
    }
  }
  return fields;
}

struct Row {
  std::string file;
  std::string model_type;
  std::string parameters;  // "Llama-2-7B 6,738,415,616" or ""
};

std::vector<Row> corpus() {
  std::vector<Row> rows;
  std::ifstream index(kCorpus + "index.csv");
  std::string line;
  std::getline(index, line);
  while (std::getline(index, line)) {
    const auto fields = fields_of(line);
    if (fields.size() >= 5) rows.push_back({fields[0], fields[2], fields[4]});
  }
  return rows;
}

// The model of a row's config; nothing where its class is not known, which a sentence says.
std::optional<Model> model_of(const Row& row) {
  try {
    return load_model(kCorpus + row.file, "corpus", "/model");
  } catch (const InputError& error) {
    CHECK_FALSE(error.text().english().empty());
    return std::nullopt;
  }
}

}  // namespace

TEST_CASE("corpus configs of known classes count what index.csv states") {
  int exact = 0;
  for (const Row& row : corpus()) {
    if (row.parameters.empty()) continue;
    INFO(row.file << ": " << row.parameters);
    const std::optional<Model> model = model_of(row);
    if (!model) continue;
    const auto total = count_parameters(*model).total.count();
    std::string number = row.parameters.substr(row.parameters.rfind(' ') + 1);
    if (number.ends_with("B")) {
      const double billions = std::stod(number);
      CHECK(static_cast<double>(total) / 1e9 == Approx(billions).margin(0.0501));
      continue;
    }
    std::erase(number, ',');
    CHECK(total == std::stoll(number));
    ++exact;
  }
  CHECK(exact > 40);
}

TEST_CASE("every config of the corpus is counted, or its class is not known here") {
  int counted = 0;
  for (const Row& row : corpus()) {
    INFO(row.file);
    const std::optional<Model> model = model_of(row);
    if (!model) continue;
    ++counted;
    const auto counts = count_parameters(*model);
    CHECK(counts.total.count() > 0);
    CHECK(counts.active.count() <= counts.total.count());
    CHECK(counts.active.count() > 0);
    // Sinusoids of sound are the only parameters that a class itself never trains
    // (embed_positions of Whisper's encoder, requires_grad_(False)).
    for (const Parameter& parameter : model->parameters) {
      if (parameter.trainable) continue;
      INFO(parameter.name);
      CHECK(parameter.name == "model.audio_tower.embed_positions.weight");
    }
    CHECK(model->planned == model->not_planned_reason.empty());
  }
  CHECK(counted > 80);
}

TEST_CASE("every model of the published measurements is planned") {
  int models = 0;
  for (const auto& entry : std::filesystem::directory_iterator(testing::data_path("groundtruth"))) {
    if (entry.path().extension() != ".jsonl") continue;
    std::ifstream file(entry.path());
    for (std::string line; std::getline(file, line);) {
      const Json row = parse_json(line, entry.path().string()).root;
      const Json& value = *row.find("scenario")->find("model");
      INFO(entry.path().filename() << " " << value.dump());
      const Json* work = row.find("scenario")->find("workload");
      const Json* code = work == nullptr ? nullptr : work->find("implementation");
      ModelUse use;
      if (code != nullptr) use.implementation = *find(kImplementationNames, code->as_string());
      CHECK(load_model(value, "measurements", "/scenario/model", use).planned);
      ++models;
    }
  }
  CHECK(models > 500);
}
