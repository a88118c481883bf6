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

std::vector<evidence::MeasurementFile> read_files() {
  std::vector<fs::path> paths;
  for (const char* folder : {"groundtruth", "groundtruth_modern"}) {
    for (const auto& entry : fs::directory_iterator(testing::data_path(folder))) {
      if (entry.path().extension() == ".jsonl") paths.push_back(entry.path());
    }
  }
  std::vector<evidence::MeasurementFile> files;
  for (const fs::path& path : paths) {
    files.push_back(evidence::read_measurements(path.string()));
    files.back().file = path.stem().string();
  }
  std::sort(files.begin(),
            files.end(),
            [](const evidence::MeasurementFile& a, const evidence::MeasurementFile& b) {
              return a.file < b.file;
            });
  return files;
}

std::string text_of(const evidence::ValidatedRow& row) {
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
  for (const evidence::ValidatedRow& row : published_report().rows) {
    texts[row.file + "/" + row.id] += text_of(row);
  }
  for (const evidence::SkippedRow& row : published_report().skipped) {
    texts[row.file + "/" + row.id] += row.reason + "\n";
  }
  return texts;
}

struct Published {
  std::string id;  // "file/id"
  const evidence::Measurement* measurement = nullptr;
};

Line line_of(const Published& one, const std::string& said) {
  const evidence::Measurement& measurement = *one.measurement;
  const std::string id = "published/" + one.id;
  if (const auto missing = evidence::missing_key(measurement.scenario)) {
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

const std::vector<evidence::MeasurementFile>& published_files() {
  static const std::vector<evidence::MeasurementFile> files = read_files();
  return files;
}

const evidence::ValidationReport& published_report() {
  static const evidence::ValidationReport report = [] {
    evidence::ValidateOptions options;
    options.jobs = 2;
    return evidence::validate(published_files(), options);
  }();
  return report;
}

std::vector<Line> published_lines() {
  const std::map<std::string, std::string> texts = said();
  std::vector<Published> all;
  for (const evidence::MeasurementFile& file : published_files()) {
    for (const evidence::Measurement& measurement : file.measurements) {
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
