// Every file of the corpus of users' ds_configs reads as tests/corpus/ds_expectations.txt says, one
// line a file: "name | ok" or "name | where it fails | first words of the hint".
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/diagnostic.hpp"
#include "model/knobs/ds_config.hpp"
#include "tests/catch.hpp"
#include "tests/support/data.hpp"

using namespace zeroplan;

namespace {

namespace fs = std::filesystem;

const std::string kExpectations =
    std::string(ZEROPLAN_SOURCE_DIR) + "/tests/corpus/ds_expectations.txt";

std::vector<fs::path> corpus_files() {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(testing::data_path("corpus/ds_configs"))) {
    if (entry.path().extension() != ".csv") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string outcome(const fs::path& file) {
  try {
    read_ds_config(file.string());
    return "ok";
  } catch (const InputError& error) {
    const Diagnostic& first = error.diagnostics().front();
    return first.pointer + " | " + first.hint;
  }
}

std::vector<std::string> lines_of(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && line.front() != '#') lines.push_back(line);
  }
  return lines;
}

}  // namespace

TEST_CASE("every ds_config of the corpus reads as expected") {
  const std::vector<fs::path> files = corpus_files();
  std::vector<std::string> lines;
  for (const fs::path& file : files) {
    lines.push_back(file.filename().string() + " | " + outcome(file));
  }
  if (std::getenv("UPDATE_GOLDEN") != nullptr) {
    std::ofstream out(kExpectations);
    out << "# file | ok, or where reading fails | hint.  UPDATE_GOLDEN=1 rewrites it.\n";
    for (const std::string& line : lines) out << line << "\n";
  }
  const std::vector<std::string> expected = lines_of(kExpectations);
  CHECK(lines.size() == expected.size());
  for (const std::string& line : lines) {
    INFO(line);
    CHECK(std::find(expected.begin(), expected.end(), line) != expected.end());
  }
}

TEST_CASE("every readable ds_config of the corpus survives a round trip") {
  int readable = 0;
  for (const fs::path& file : corpus_files()) {
    if (outcome(file) != "ok") continue;
    INFO(file.filename().string());
    const DsConfig config = read_ds_config(file.string());
    const DsConfig again = parse_ds_config(parse_json(emit(config).dump(2), "emitted"));
    CHECK(again == config);
    // What was written is canonical: no note about spelling is left, only about unknown keys.
    for (const Finding& note : again.notes()) {
      INFO(note.code << " " << note.pointer);
      CHECK((note.code == note_code::kUnknownKey || note.code == note_code::kMisspelledKey ||
             note.code == note_code::kMisplacedKey || note.code == note_code::kRejectedKey ||
             note.code == note_code::kAutoUnresolved));
    }
    ++readable;
  }
  CHECK(readable > 100);
}
