#include "tests/identical/published.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/parallel_for.hpp"
#include "evidence/scenario_prediction.hpp"
#include "model/plan/software_sets.hpp"
#include "tests/support/data.hpp"

namespace zeroplan::identical {
namespace {

namespace fs = std::filesystem;

std::vector<MeasurementFile> read_files() {
  std::vector<fs::path> paths;
  for (const char* folder : {"groundtruth", "groundtruth_modern"}) {
    for (const auto& entry : fs::directory_iterator(testing::data_path(folder))) {
      if (entry.path().extension() == ".jsonl") paths.push_back(entry.path());
    }
  }
  std::vector<MeasurementFile> files;
  for (const fs::path& path : paths) {
    files.push_back(read_measurements(path.string()));
    files.back().file = path.stem().string();
  }
  std::sort(files.begin(), files.end(), [](const MeasurementFile& a, const MeasurementFile& b) {
    return a.file < b.file;
  });
  return files;
}

std::string text_of(const ValidatedRow& row) {
  return fmt::format("{} {} {} {} {} {} {} {} {}\n",
                     name(row.metric),
                     row.predicted,
                     row.likely,
                     row.low,
                     row.high,
                     row.probability,
                     row.step_seconds,
                     row.strategy,
                     row.why);
}

// What `validate` says of each measurement, by "file/id".
std::map<std::string, std::string> said() {
  std::map<std::string, std::string> texts;
  for (const ValidatedRow& row : published_report().rows) {
    texts[row.file + "/" + row.id] += text_of(row);
  }
  for (const SkippedRow& row : published_report().skipped) {
    texts[row.file + "/" + row.id] += row.reason + "\n";
  }
  return texts;
}

struct Published {
  std::string id;  // "file/id"
  const Measurement* measurement = nullptr;
};

Line line_of(const Published& one, const std::string& said) {
  const Measurement& measurement = *one.measurement;
  const std::string id = "published/" + one.id;
  if (const auto missing = missing_key(measurement.scenario)) {
    Line line;
    line.id = id;
    line.refusal = in_one_line(said.empty() ? *missing : said);
    return line;
  }
  Line line = answer_to(id, with_reported_software(measurement.scenario), measurement.rank).line;
  if (line.refusal.empty()) line.document = hash_of(line.document + said);
  return line;
}

}  // namespace

const std::vector<MeasurementFile>& published_files() {
  static const std::vector<MeasurementFile> files = read_files();
  return files;
}

const ValidationReport& published_report() {
  static const ValidationReport report = [] {
    ValidateOptions options;
    options.jobs = 2;
    return validate(published_files(), options);
  }();
  return report;
}

std::vector<Line> published_lines() {
  const std::map<std::string, std::string> texts = said();
  std::vector<Published> all;
  for (const MeasurementFile& file : published_files()) {
    for (const Measurement& measurement : file.measurements) {
      all.push_back({file.file + "/" + measurement.id, &measurement});
    }
  }
  std::vector<Line> lines(all.size());
  parallel_for(all.size(), 2, [&](std::size_t i) {
    const auto text = texts.find(all[i].id);
    lines[i] = line_of(all[i], text == texts.end() ? "" : text->second);
  });
  return lines;
}

}  // namespace zeroplan::identical
