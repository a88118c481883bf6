#include "model/knobs/knobs.hpp"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "model/software.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

TEST_CASE("a pointer stands once in the table of knobs") {
  std::set<std::string_view> pointers;
  for (const KnobRow& row : knob_rows()) {
    INFO(row.pointer);
    CHECK(row.pointer.starts_with('/'));
    CHECK(pointers.insert(row.pointer).second);
  }
  for (const KnobRow& row : knob_rows()) {
    for (const KnobAlias& alias : row.aliases) {
      INFO(alias.pointer);
      CHECK_FALSE(pointers.contains(alias.pointer));
    }
  }
}

TEST_CASE("a knob leads to its row, and rows are in the order of a file") {
  const KnobRow* before = nullptr;
  for (const KnobRow& row : knob_rows()) {
    INFO(row.pointer);
    CHECK(&knob_row(row.id) == &row);
    if (before != nullptr) CHECK(is_before(before->id, row.id));
    before = &row;
  }
  CHECK(pointer_of(Knob::zero_stage) == "/zero_optimization/stage");
}

bool fits(const KnobRow& row, const KnobLiteral& literal) {
  using Kind = KnobLiteral::Kind;
  const auto within = [&](double value) {
    return value >= row.range.low && value <= row.range.high;
  };
  switch (literal.kind) {
    case Kind::none:
      return true;
    case Kind::boolean:
      return row.type == KnobType::boolean;
    case Kind::integer:
      return row.type == KnobType::integer && within(static_cast<double>(literal.integer));
    case Kind::real:
      return row.type == KnobType::real && within(literal.real);
    case Kind::text:
      return row.type == KnobType::text &&
             (row.allowed.empty() ||
              std::find(row.allowed.begin(), row.allowed.end(), literal.text) != row.allowed.end());
    case Kind::json:
      return row.type == KnobType::list || row.type == KnobType::object;
  }
  return false;
}

TEST_CASE("defaults and points of a grid have the type of their knob and lie in its range") {
  for (const KnobRow& row : knob_rows()) {
    INFO(row.pointer);
    CHECK(fits(row, row.default_value));
    CHECK(fits(row, row.stage3_default));
    for (const OlderDefault& older : row.older) CHECK(fits(row, older.value));
    for (const KnobLiteral& point : row.grid) CHECK(fits(row, point));
    for (const KnobLiteral& point : row.searched_grid) CHECK(fits(row, point));
  }
}

TEST_CASE("every knob says what it does and where that was read") {
  for (const KnobRow& row : knob_rows()) {
    INFO(row.pointer);
    CHECK_FALSE(row.description.empty());
    CHECK_FALSE(row.source.empty());
  }
}

TEST_CASE("every knob is found by its pointer and every other spelling leads to its knob") {
  for (const KnobRow& row : knob_rows()) {
    INFO(row.pointer);
    CHECK(find_knob(row.pointer) == row.id);
    CHECK_FALSE(find_alias(row.pointer).has_value());
    for (const KnobAlias& alias : row.aliases) {
      REQUIRE(find_alias(alias.pointer).has_value());
      CHECK(find_alias(alias.pointer)->kind == alias.kind);
      CHECK_FALSE(find_knob(alias.pointer).has_value());
    }
  }
  CHECK_FALSE(find_knob("/zero_optimization").has_value());
  CHECK_FALSE(find_knob("/no_such_key").has_value());
}

TEST_CASE("no knob is the section of another") {
  for (const KnobRow& row : knob_rows()) {
    INFO(row.pointer);
    CHECK_FALSE(find_section(row.pointer).has_value());
  }
}

TEST_CASE("sections know whether DeepSpeed refuses unknown keys in them") {
  REQUIRE(find_section("/zero_optimization").has_value());
  CHECK(find_section("/zero_optimization")->strict_since == DeepSpeedVersion::v0_12);
  CHECK(find_section("/fp16")->strict_since == DeepSpeedVersion::v0_19);
  CHECK_FALSE(find_section("")->strict_since.has_value());
  CHECK_FALSE(find_section("/optimizer/params")->strict_since.has_value());
  CHECK_FALSE(find_section("/zero").has_value());
}

TEST_CASE("defaults follow stage and release") {
  const auto text = [](Knob knob, int stage, DeepSpeedVersion version) {
    return to_string(default_literal(knob, stage, version));
  };
  using V = DeepSpeedVersion;
  CHECK(text(Knob::overlap_comm, 2, V::v0_19) == "false");
  CHECK(text(Knob::overlap_comm, 3, V::v0_12) == "true");
  CHECK(text(Knob::offload_param_pin_memory, 3, V::v0_16) == "false");
  CHECK(text(Knob::offload_param_pin_memory, 3, V::v0_19) == "true");
  CHECK(text(Knob::gradient_clipping, 3, V::v0_14) == "0.0");
  CHECK(text(Knob::gradient_clipping, 3, V::v0_19) == "1.0");
  CHECK(text(Knob::bf16_check_grad_overflow, 1, V::v0_16) == "false");
  CHECK(text(Knob::bf16_immediate_grad_update, 1, V::v0_14) == "false");
  CHECK(text(Knob::bf16_immediate_grad_update, 1, V::v0_16) == "true");
  CHECK(text(Knob::bf16_immediate_grad_update, 1, V::v0_19) == "false");
  CHECK(text(Knob::reduce_bucket_size, 2, V::v0_12) == "500000000");
  CHECK(text(Knob::stage3_model_persistence_threshold, 3, V::v0_19) == "9223372036854775807");
  CHECK(text(Knob::communication_data_type, 3, V::v0_19).empty());
}

TEST_CASE("a default that changed within a series changes with the release") {
  const auto text = [](Knob knob, const Version& release) {
    return to_string(default_literal(knob, 3, release));
  };
  CHECK(text(Knob::gradient_clipping, {0, 18, 9}) == "0.0");
  CHECK(text(Knob::gradient_clipping, {0, 19, 2}) == "0.0");
  CHECK(text(Knob::gradient_clipping, {0, 19, 3}) == "1.0");
  CHECK(text(Knob::bf16_check_grad_overflow, {0, 19, 2}) == "false");
  CHECK(text(Knob::offload_optimizer_pin_memory, {0, 19, 4}) == "false");
  CHECK(text(Knob::offload_param_pin_memory, {0, 19, 5}) == "true");
  CHECK(text(Knob::overlap_comm, {0, 19, 2}) == "true");
}

TEST_CASE("the Trainer's rules for auto stand in the table") {
  CHECK(knob_row(Knob::reduce_bucket_size).automatic == AutoRule::hidden_squared);
  CHECK(knob_row(Knob::stage3_prefetch_bucket_size).automatic == AutoRule::hidden_squared_0_9);
  CHECK(knob_row(Knob::stage3_param_persistence_threshold).automatic == AutoRule::hidden_times_10);
  CHECK(knob_row(Knob::gradient_clipping).automatic == AutoRule::max_grad_norm);
  for (const KnobRow& row : knob_rows()) {
    INFO(row.pointer);
    if (row.trainer_owned) CHECK(row.automatic > AutoRule::accelerate_default);
  }
}

TEST_CASE("grids have no repeated point and only modelled knobs have one") {
  for (const KnobRow& row : knob_rows()) {
    INFO(row.pointer);
    std::set<std::string> points;
    for (const KnobLiteral& point : row.grid) points.insert(to_string(point));
    CHECK(points.size() == row.grid.size());
    if (!row.grid.empty()) CHECK(row.modelled);
  }
}

TEST_CASE("every default of ZeRO's table in DeepSpeed 0.19.6 is ours") {
  // Source: deepspeed/runtime/zero/config.py and offload_config.py of 0.19.6.
  const auto newest = [](Knob knob) {
    return to_string(default_literal(knob, 0, DeepSpeedVersion::v0_19));
  };
  CHECK(newest(Knob::zero_stage) == "0");
  CHECK(newest(Knob::contiguous_gradients) == "true");
  CHECK(newest(Knob::reduce_scatter) == "true");
  CHECK(newest(Knob::use_multi_rank_bucket_allreduce) == "true");
  CHECK(newest(Knob::allgather_bucket_size) == "500000000");
  CHECK(newest(Knob::sub_group_size) == "1000000000");
  CHECK(newest(Knob::stage3_prefetch_bucket_size) == "50000000");
  CHECK(newest(Knob::stage3_param_persistence_threshold) == "100000");
  CHECK(newest(Knob::stage3_max_live_parameters) == "1000000000");
  CHECK(newest(Knob::stage3_max_reuse_distance) == "1000000000");
  CHECK(newest(Knob::zero_hpz_partition_size) == "1");
  CHECK(newest(Knob::mics_shard_size) == "-1");
  CHECK(newest(Knob::offload_param_buffer_count) == "5");
  CHECK(newest(Knob::offload_param_buffer_size) == "100000000");
  CHECK(newest(Knob::offload_param_max_in_cpu) == "1000000000");
  CHECK(newest(Knob::offload_optimizer_buffer_count) == "4");
  CHECK(newest(Knob::offload_optimizer_ratio) == "1.0");
}

TEST_CASE("docs/knobs.md is the table of today") {
  const std::string path = std::string(ZEROPLAN_SOURCE_DIR) + "/docs/knobs.md";
  const std::string expected = knob_reference_markdown();
  if (std::getenv("UPDATE_GOLDEN") != nullptr) std::ofstream(path) << expected;
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  INFO("UPDATE_GOLDEN=1 rewrites it");
  CHECK(text.str() == expected);
}

TEST_CASE("a reference row has the words of a table for people") {
  const KnobReferenceRow row = reference_row(knob_row(Knob::offload_optimizer_device));
  CHECK(row.section == "zero_optimization/offload_optimizer");
  CHECK(row.key == "device");
  CHECK(row.type == "`none`, `cpu`, `nvme`");
  CHECK(row.stages == "1, 2, 3");
  CHECK(row.other_names == "`/zero_optimization/cpu_offload` (old)");
  CHECK(reference_row(knob_row(Knob::offload_param_pin_memory)).default_value ==
        "`true`; before 0.19.5 `false`");
}

TEST_CASE("versions are read from what people write") {
  CHECK(parse_version("0.19.6") == Version{0, 19, 6});
  CHECK(parse_version("2.6") == Version{2, 6, 0});
  CHECK(parse_version("v0.16.4") == Version{0, 16, 4});
  CHECK(parse_version("2.6.0+cu124") == Version{2, 6, 0});
  CHECK(parse_version("4.50.0.dev0") == Version{4, 50, 0});
  for (const char* text : {"2.6.0a0+git1a2b3c4",
                           "2.6.0rc1",
                           "2.6.0-rc.1",
                           "2.6.0b2.post1.dev3",
                           "2.6.0.post1",
                           "2.6.0.dev20250101+cu126",
                           "2.6.0a0+ecf3bae40a.nv25.01",
                           " 2.6.0 ",
                           "2.6.0.1"}) {
    INFO(text);
    CHECK(parse_version(text) == Version{2, 6, 0});
  }
  for (const char* text : {"2.eleven",
                           "2.6.",
                           "2.6.x",
                           "2.6.0 or newer",
                           "2.6.0+",
                           "2.6.0+cu124+x",
                           "2.6.0+cu..124",
                           "2.6.0rd1",
                           "2..6",
                           ".6",
                           "2,6",
                           "2.6-",
                           "latest 2.6",
                           ">=2.6",
                           "2.6\n"}) {
    INFO(text);
    CHECK_FALSE(parse_version(text).has_value());
  }
  CHECK_FALSE(parse_version("").has_value());
  CHECK_FALSE(parse_version("newest").has_value());
  CHECK_FALSE(parse_version("2x6").has_value());
  CHECK_FALSE(parse_version("99999999.1").has_value());
  CHECK(*parse_version("0.9.5") < *parse_version("0.12"));
  CHECK(*parse_version("2.10") > *parse_version("2.6"));
}

TEST_CASE("a DeepSpeed release that is not described is predicted as the nearest older one") {
  CHECK(nearest_described({0, 19, 6}).version == DeepSpeedVersion::v0_19);
  CHECK(nearest_described({0, 19, 6}).note.empty());
  CHECK(nearest_described({0, 16, 4}).version == DeepSpeedVersion::v0_16);
  CHECK(nearest_described({0, 16, 4}).note.empty());
  CHECK(nearest_described({0, 17, 2}).version == DeepSpeedVersion::v0_17);
  CHECK(nearest_described({0, 18, 9}).note.empty());
  CHECK(nearest_described({0, 15, 2}).version == DeepSpeedVersion::v0_14);
  CHECK(nearest_described({0, 15, 2}).note.english().find("0.14.5") != std::string::npos);
  CHECK(nearest_described({0, 9, 5}).version == DeepSpeedVersion::v0_12);
  CHECK_FALSE(nearest_described({0, 9, 5}).note.empty());
  CHECK(nearest_described({1, 0, 0}).version == DeepSpeedVersion::v0_19);
}
