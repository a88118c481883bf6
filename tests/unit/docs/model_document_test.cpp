// docs/model.md against the code: tags of equations, the table of coefficients, names of tests.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <regex>
#include <set>
#include <sstream>

#include "base/json.hpp"
#include "model/cost/coefficients.hpp"
#include "model/hardware/hardware.hpp"
#include "model/hardware/known_hardware.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

const std::string kRoot = ZEROPLAN_SOURCE_DIR;
const std::string kDocument = kRoot + "/docs/model.md";
const std::string kBegin = "<!-- coefficients -->\n";
const std::string kEnd = "<!-- end of coefficients -->\n";

std::string text_of(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::set<std::string> matches(const std::string& text, const char* pattern) {
  const std::regex expression(pattern);
  std::set<std::string> found;
  for (std::sregex_iterator it(text.begin(), text.end(), expression), end; it != end; ++it) {
    found.insert((*it)[1]);
  }
  return found;
}

constexpr const char* kTag = R"(\[([MHT][0-9]+)\])";

std::string short_number(double value) {
  std::ostringstream text;
  text << std::setprecision(4) << value;
  return text.str();
}

std::string coefficient_table() {
  std::string table = "| name | unit | value | relative sd | where it comes from | used by |\n";
  table += "|---|---|---|---|---|---|\n";
  for (const CoefficientInfo& row : coefficient_rows()) {
    table += "| `" + std::string(row.name) + "` | " + std::string(row.unit) + " | " +
             Json(row.value).dump() + " | " + Json(row.relative_sd).dump() + " | " +
             std::string(row.provenance) + " | " + std::string(row.used_by) + " |\n";
  }
  table += "\nOf single GPUs (keys of profiles/gpus.json that begin so):\n\n";
  table += "| GPU | values, with relative sd | where they come from |\n|---|---|---|\n";
  const std::span<const GpuCoefficient> rows = gpu_coefficients();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const bool opens = i == 0 || rows[i].gpu_key_prefix != rows[i - 1].gpu_key_prefix ||
                       rows[i].provenance != rows[i - 1].provenance;
    if (opens) table += "| " + std::string(rows[i].gpu_key_prefix) + " | ";
    table += "`" + std::string(info(rows[i].id).name) + "` " + short_number(rows[i].value) + " +-" +
             short_number(rows[i].relative_sd);
    const bool closes = i + 1 == rows.size() ||
                        rows[i + 1].gpu_key_prefix != rows[i].gpu_key_prefix ||
                        rows[i + 1].provenance != rows[i].provenance;
    table += closes ? " | " + std::string(rows[i].provenance) + " |\n" : ", ";
  }
  table +=
      "\nCards that take the rows of one built alike:\n\n| GPU | like | why |\n|---|---|---|\n";
  for (const GpuAnalogue& row : gpu_analogues()) {
    table += "| " + std::string(row.gpu_key_words) + " | " + std::string(row.like) + " | " +
             std::string(row.reason) + " |\n";
  }
  return table;
}

}  // namespace

TEST_CASE("docs/model.md and the code have the same tags of equations") {
  std::set<std::string> in_code;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(kRoot + "/model")) {
    const std::string extension = entry.path().extension().string();
    if (extension != ".hpp" && extension != ".cpp") continue;
    in_code.merge(matches(text_of(entry.path().string()), kTag));
  }
  CHECK(in_code.size() >= 8);
  CHECK(matches(text_of(kDocument), kTag) == in_code);
}

TEST_CASE("docs/model.md has the coefficients of today") {
  std::string document = text_of(kDocument);
  const std::size_t begin = document.find(kBegin);
  const std::size_t end = document.find(kEnd);
  REQUIRE(begin != std::string::npos);
  REQUIRE(end != std::string::npos);
  const std::size_t from = begin + kBegin.size();
  if (std::getenv("UPDATE_GOLDEN") != nullptr) {
    document.replace(from, end - from, coefficient_table());
    std::ofstream(kDocument, std::ios::binary) << document;
    return;
  }
  INFO("UPDATE_GOLDEN=1 rewrites the table");
  CHECK(document.substr(from, end - from) == coefficient_table());
}

TEST_CASE("every test that docs/model.md names is there") {
  const std::set<std::string> named = matches(text_of(kDocument), R"(`(tests/[a-z0-9_/]+\.cpp)`)");
  CHECK(named.size() >= 15);
  for (const std::string& path : named) {
    INFO(path);
    CHECK(std::filesystem::exists(kRoot + "/" + path));
  }
}

TEST_CASE("every coefficient has a unit, bounds around its value and an origin") {
  for (const CoefficientInfo& row : coefficient_rows()) {
    INFO(row.name);
    CHECK(&info(row.id) == &row);
    CHECK_FALSE(row.unit.empty());
    CHECK(row.low <= row.value);
    CHECK(row.value <= row.high);
    CHECK(row.relative_sd >= 0.0);
    CHECK_FALSE(row.used_by.empty());
    const std::string origin(row.provenance.substr(0, row.provenance.find_first_of(":, ")));
    const std::set<std::string> kinds = {"measured", "fitted", "derived", "assumed", "datasheet"};
    CHECK(kinds.contains(origin));
  }
}

TEST_CASE("a GPU's coefficients stay within the bounds and belong to a GPU that is known") {
  for (const GpuCoefficient& row : gpu_coefficients()) {
    INFO(info(row.id).name << " of " << row.gpu_key_prefix);
    CHECK(info(row.id).low <= row.value);
    CHECK(row.value <= info(row.id).high);
    CHECK(row.relative_sd > 0.0);
    const std::vector<Gpu> gpus = all_gpus();
    CHECK(std::any_of(gpus.begin(), gpus.end(), [&](const Gpu& gpu) {
      return gpu.key.starts_with(row.gpu_key_prefix);
    }));
  }
}

TEST_CASE("the longest prefix decides which row a GPU takes") {
  const Coefficient id = Coefficient::matmul_fp32_efficiency;
  CHECK(Coefficients("a100_pcie_80gb")[id] == 0.90);
  CHECK(Coefficients("a100_sxm_80gb")[id] == 0.93);
  CHECK(Coefficients("no such GPU")[id] == info(id).value);
}

TEST_CASE(
    "a GPU without measurements takes the rows of its analogue, and its own stand over them") {
  const Coefficient wave = Coefficient::matmul_wave_share;
  CHECK(Coefficients("h800_sxm")[wave] == Coefficients("h100_sxm")[wave]);
  CHECK(Coefficients("rtx_a6000")[wave] == Coefficients("a40")[wave]);
  const Coefficient level = Coefficient::matmul_isolated_efficiency;
  CHECK(Coefficients("h20")[level] != Coefficients("h100_sxm")[level]);
  // "a10" is no word of "a100_sxm_80gb".
  CHECK(gpu_analogue("a100_sxm_80gb") == nullptr);
  CHECK(gpu_analogue("a10") != nullptr);
}

TEST_CASE(
    "analogues name GPUs that are known, and every GPU has products of its own or like another") {
  const std::vector<Gpu> gpus = all_gpus();
  for (const GpuAnalogue& row : gpu_analogues()) {
    INFO(row.gpu_key_words);
    CHECK(std::any_of(
        gpus.begin(), gpus.end(), [&](const Gpu& gpu) { return gpu_analogue(gpu.key) == &row; }));
    CHECK(std::any_of(
        gpus.begin(), gpus.end(), [&](const Gpu& gpu) { return gpu.key.starts_with(row.like); }));
  }
  for (const Gpu& gpu : gpus) {
    INFO(gpu.key);
    const GpuAnalogue* analogue = gpu_analogue(gpu.key);
    const std::span<const GpuCoefficient> rows = gpu_coefficients();
    CHECK(std::any_of(rows.begin(), rows.end(), [&](const GpuCoefficient& row) {
      return row.id == Coefficient::matmul_wave_share &&
             (gpu.key.starts_with(row.gpu_key_prefix) ||
              (analogue != nullptr && analogue->like.starts_with(row.gpu_key_prefix)));
    }));
  }
}
