#include "evidence/measurement.hpp"

#include <filesystem>
#include <string>
#include <vector>

#include "tests/catch.hpp"

namespace {

using zeroplan::Bytes;
using zeroplan::Json;
using zeroplan::ScenarioKey;
using zeroplan::evidence::Measurement;
using zeroplan::evidence::MeasurementFile;
using zeroplan::evidence::Metric;
using zeroplan::evidence::parse_measurements;

const std::string kGood =
    R"({"id":"A-1","source":"log","tier":"A","group":"g","scenario":{"model":"10B",)"
    R"("cluster":"8xH100","workload":{"sequence_length":2048}},"measured":{)"
    R"("peak_allocated_bytes":9690000000.4,"step_seconds":1.5,"fits":true,)"
    R"("max_micro_batch_size":4,"mfu":null},"notes":"n","uncertainty":{"step_seconds":0.02}})";

// A line with one part of kGood replaced.
std::string with(const std::string& part, const std::string& by) {
  std::string line = kGood;
  const std::size_t at = line.find(part);
  REQUIRE(at != std::string::npos);
  return line.replace(at, part.size(), by);
}

zeroplan::Diagnostic problem_of(const std::string& line) {
  const MeasurementFile file = parse_measurements(line, "m.jsonl");
  INFO(line);
  REQUIRE(file.measurements.empty());
  REQUIRE_FALSE(file.bad_lines.empty());
  return file.bad_lines.front();
}

}  // namespace

TEST_CASE("a measurement line is read into types") {
  const MeasurementFile file = parse_measurements(kGood + "\n", "m.jsonl");
  REQUIRE(file.bad_lines.empty());
  REQUIRE(file.ignored.empty());
  REQUIRE(file.measurements.size() == 1);
  const Measurement& row = file.measurements.front();
  CHECK(row.line == 1);
  CHECK(row.id == "A-1");
  CHECK(row.source == "log");
  CHECK(row.tier == "A");
  CHECK(row.group == "g");
  CHECK(row.notes == "n");
  CHECK(row.scenario.find(ScenarioKey::sequence_length)->value == Json(2048));
  CHECK(row.measured.bytes(Metric::peak_allocated_bytes) == Bytes::of(9690000000));
  CHECK(row.measured.step().seconds() == 1.5);
  CHECK(row.measured.fits());
  CHECK(row.measured.max_micro_batch_size() == 4);
  CHECK_FALSE(row.measured.has(Metric::mfu));
  CHECK_FALSE(row.measured.number(Metric::fits));
  CHECK(row.measured.number(Metric::step_seconds) == 1.5);
  CHECK(row.uncertainty.of(Metric::step_seconds) == 0.02);
  CHECK_FALSE(row.uncertainty.of(Metric::mfu));
}

TEST_CASE("a measurement survives being written and read") {
  for (const std::string& line : {kGood,
                                  with(R"({"step_seconds":0.02})", "0.1"),
                                  with(R"({"step_seconds":0.02})", "\"two runs\"")}) {
    const Measurement row = parse_measurements(line, "m.jsonl").measurements.front();
    const std::string written = zeroplan::evidence::to_json(row).dump();
    const MeasurementFile again = parse_measurements(written, "m.jsonl");
    REQUIRE(again.measurements.size() == 1);
    CHECK(again.measurements.front().measured == row.measured);
    CHECK(again.measurements.front().uncertainty == row.uncertainty);
    CHECK(to_json(again.measurements.front()).dump() == written);
  }
}

TEST_CASE("a line says whose memory was measured, and rehearsals that do not are of rank 0") {
  const auto read = [](const std::string& line) {
    return parse_measurements(line, "m.jsonl").measurements.front();
  };
  CHECK_FALSE(read(kGood).rank);
  CHECK(read(with("\"tier\":\"A\"", "\"rank\":3")).rank == 3);
  CHECK(read(with("\"source\":\"log\"", "\"source\":\"rehearsal\"")).rank == 0);
  const std::string rehearsed = with("\"source\":\"log\"", "\"source\":\"rehearsal\",\"rank\":7");
  CHECK(read(zeroplan::evidence::to_json(read(rehearsed)).dump()).rank == 7);
  CHECK(zeroplan::evidence::identity_of(read(rehearsed)) !=
        zeroplan::evidence::identity_of(read(kGood)));
  for (const char* wrong : {"-1", "0.5", "\"0\"", "1e300", "true"}) {
    const auto problem = problem_of(with("\"tier\":\"A\"", std::string("\"rank\":") + wrong));
    CHECK(problem.pointer == "line 1: /rank");
    CHECK(problem.expected == "a rank, from 0 on");
  }
}

TEST_CASE("bad lines are collected with line and pointer, and the others are read") {
  const std::string text = "\xef\xbb\xbf" + kGood + "\r\n\n{\"id\": }\n" +
                           with("\"step_seconds\":1.5", "\"step_seconds\":\"1.5 s\"") + "\n" +
                           kGood;
  const MeasurementFile file = parse_measurements(text, "m.jsonl");
  REQUIRE(file.measurements.size() == 2);
  CHECK(file.measurements[1].line == 5);
  REQUIRE(file.bad_lines.size() == 2);
  CHECK(file.bad_lines[0].pointer == "line 3, column 8");
  CHECK(
      to_string(file.bad_lines[1]) ==
      "error: m.jsonl: line 4: /measured/step_seconds: expected a positive number, got \"1.5 s\"");
}

TEST_CASE("what a measurement must have is asked for") {
  CHECK(problem_of("[]").got == "an array of 0 items");
  const MeasurementFile empty = parse_measurements("{}", "m.jsonl");
  REQUIRE(empty.bad_lines.size() == 4);
  CHECK(empty.bad_lines[0].pointer == "line 1: /id");
  CHECK(empty.bad_lines[1].pointer == "line 1: /source");
  CHECK(empty.bad_lines[2].pointer == "line 1: /scenario");
  CHECK(empty.bad_lines[3].pointer == "line 1: /measured");
  CHECK(problem_of(with("\"A-1\"", "\"\"")).expected == "a string that is not empty");
  CHECK(problem_of(with("\"tier\":\"A\"", "\"tier\":[]")).pointer == "line 1: /tier");
  CHECK(problem_of(with("\"id\":\"A-1\",", "\"id\":\"A-1\",\"id\":\"B\",")).expected ==
        "each key once");
}

TEST_CASE("wrong values of metrics are refused, each with its reason") {
  const auto metric = [](const std::string& text) {
    return problem_of(with("\"step_seconds\":1.5", text));
  };
  CHECK(metric("\"step_seconds\":0").expected == "a positive number");
  CHECK(metric("\"host_peak_bytes\":0.4").expected == "a positive number of bytes");
  CHECK(metric("\"host_peak_bytes\":1e17").expected == "a positive number of bytes");
  CHECK(problem_of(with("\"mfu\":null", "\"mfu\":43")).hint == "43 % is 0.43");
  CHECK(problem_of(with("\"fits\":true", "\"fits\":\"yes\"")).expected == "true or false");
  CHECK(problem_of(with("\"max_micro_batch_size\":4", "\"max_micro_batch_size\":-1")).expected ==
        "a whole number from 0");
  CHECK(problem_of(with("\"step_seconds\":0.02}", "\"step_seconds\":2}")).pointer ==
        "line 1: /uncertainty/step_seconds");
  CHECK(problem_of(with("{\"step_seconds\":0.02}", "[]")).pointer == "line 1: /uncertainty");
}

TEST_CASE("errors of the scenario carry its place in the line") {
  const zeroplan::Diagnostic problem =
      problem_of(with("\"sequence_length\":2048", "\"sequence_lenght\":2048"));
  CHECK(problem.pointer == "line 1: /scenario/workload/sequence_lenght");
  CHECK(problem.hint == "did you mean sequence_length?");
}

TEST_CASE("keys that nobody knows are reported and ignored") {
  const MeasurementFile file = parse_measurements(
      with("\"mfu\":null", "\"step_second\":2").insert(1, "\"url\":\"u\","), "m.jsonl");
  REQUIRE(file.measurements.size() == 1);
  REQUIRE(file.ignored.size() == 2);
  CHECK(file.ignored[0].pointer == "line 1: /measured/step_second");
  CHECK(file.ignored[0].hint == "did you mean step_seconds?");
  CHECK(file.ignored[1].pointer == "line 1: /url");
}

TEST_CASE("a misspelt metric is named where it leaves none") {
  const zeroplan::Diagnostic problem =
      problem_of(R"({"id":"a","source":"b","scenario":{},"measured":{"peak_alocated_bytes":5}})");
  CHECK(problem.expected == "at least one measured value");
  CHECK(problem.hint == "did you mean peak_allocated_bytes?");
}

TEST_CASE("the published measurements are read without a bad line") {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(ZEROPLAN_SOURCE_DIR) / ".." / "shared" / "groundtruth";
  if (!fs::exists(folder)) {
    WARN("skipped: the published measurements are not here");
    return;
  }
  std::size_t rows = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".jsonl") continue;
    const MeasurementFile file = zeroplan::evidence::read_measurements(entry.path().string());
    for (const zeroplan::Diagnostic& problem : file.bad_lines) CHECK(to_string(problem).empty());
    CHECK(file.ignored.empty());
    rows += file.measurements.size();
  }
  CHECK(rows == 637);
}

TEST_CASE("a watched run's last line stands for those before it, and other sources keep theirs") {
  const auto line = [](const std::string& id, const std::string& source, int bytes) {
    return R"({"id":")" + id + R"(","source":")" + source +
           R"(","scenario":{},"measured":{"peak_allocated_bytes":)" + std::to_string(bytes) +
           "}}\n";
  };
  const MeasurementFile file = zeroplan::evidence::parse_measurements(
      line("w-1", "watched", 5) + line("w-2", "watched", 6) + line("a", "b", 7) +
          line("w-1", "watched", 8) + line("a", "b", 9),
      "lines");
  std::vector<double> peaks;
  for (const auto& one : file.measurements) {
    peaks.push_back(*one.measured.number(zeroplan::evidence::Metric::peak_allocated_bytes));
  }
  CHECK(peaks == std::vector<double>{6, 7, 8, 9});
}

TEST_CASE("a file without measurements is refused") {
  CHECK_THROWS_AS(zeroplan::evidence::read_measurements("/no/such/file.jsonl"),
                  zeroplan::InputError);
}
