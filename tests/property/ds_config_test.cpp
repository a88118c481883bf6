#include "model/knobs/ds_config.hpp"

#include <algorithm>
#include <random>

#include "base/plain_text.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

using Random = std::mt19937_64;

bool chance(Random& random, double probability) {
  return std::bernoulli_distribution(probability)(random);
}

std::int64_t random_integer(Random& random, const KnobRow& row) {
  const double low = std::max(row.range.low, -1e6);
  const double high = std::min(row.range.high, 9e18);
  if (chance(random, 0.2)) return static_cast<std::int64_t>(chance(random, 0.5) ? low : high);
  // Half of the numbers small, the other half of any size.
  const double top = chance(random, 0.5) ? std::min(high, low + 10.0) : high;
  return std::uniform_int_distribution<std::int64_t>(static_cast<std::int64_t>(low),
                                                     static_cast<std::int64_t>(top))(random);
}

double random_real(Random& random, const KnobRow& row) {
  const double low = std::max(row.range.low, -1e3);
  const double high = std::min(row.range.high, 1e3);
  if (chance(random, 0.2)) return chance(random, 0.5) ? low : high;
  return std::uniform_real_distribution<double>(low, high)(random);
}

std::string random_text(Random& random) {
  constexpr std::string_view kLetters = "abcXYZ 09._-/\\\"\n\t~:,}";
  std::string text;
  for (int i = std::uniform_int_distribution<int>(0, 12)(random); i > 0; --i) {
    text += kLetters[std::uniform_int_distribution<std::size_t>(0, kLetters.size() - 1)(random)];
  }
  return text;
}

// What a key of the table takes: no control characters.
std::string random_line(Random& random) {
  std::string text = random_text(random);
  std::erase_if(text, [](char c) { return has_control_character({&c, 1}); });
  return text;
}

Json random_json(Random& random, int depth) {
  switch (std::uniform_int_distribution<int>(0, depth > 0 ? 6 : 4)(random)) {
    case 0:
      return nullptr;
    case 1:
      return chance(random, 0.5);
    case 2:
      return std::uniform_int_distribution<std::int64_t>(INT64_MIN, INT64_MAX)(random);
    case 3:
      return std::uniform_real_distribution<double>(-1e30, 1e30)(random);
    case 4:
      return random_text(random);
    case 5: {
      Json list = Json::array();
      for (int i = 0; i < 3; ++i) list.push_back(random_json(random, depth - 1));
      return list;
    }
    default: {
      Json object = Json::object();
      for (int i = 0; i < 3; ++i) object[random_text(random)] = random_json(random, depth - 1);
      return object;
    }
  }
}

KnobValue random_value(Random& random, const KnobRow& row) {
  if (chance(random, 0.15)) return Auto{};
  switch (row.type) {
    case KnobType::boolean:
      return chance(random, 0.5);
    case KnobType::integer:
      return random_integer(random, row);
    case KnobType::real:
      return random_real(random, row);
    case KnobType::text: {
      if (row.allowed.empty()) return random_line(random);
      std::uniform_int_distribution<std::size_t> pick(0, row.allowed.size() - 1);
      return KnobValue(std::in_place_type<std::string>, row.allowed[pick(random)]);
    }
    case KnobType::list: {
      Json list = Json::array();
      for (int i = 0; i < 2; ++i) list.push_back(random_json(random, 1));
      return list;
    }
    case KnobType::object: {
      Json object = Json::object();
      for (int i = 0; i < 2; ++i) object[random_text(random)] = random_json(random, 2);
      return object;
    }
  }
  return Unset{};
}

DsConfig random_config(Random& random) {
  DsConfig config;
  const double density = std::uniform_real_distribution<double>(0.0, 1.0)(random);
  for (const KnobRow& row : knob_rows()) {
    if (chance(random, density)) config.set(row.id, random_value(random, row));
  }
  int serial = 0;
  for (const std::string_view section :
       {"", "/zero_optimization", "/zero_optimization/offload_param", "/fp16", "/optimizer"}) {
    if (!chance(random, 0.4)) continue;
    config.add_unknown({std::string(section) + "/zz~1 " + std::to_string(++serial) +
                            pointer_token(random_text(random)),
                        random_json(random, 2)});
  }
  return config;
}

DsConfig reread(const DsConfig& config, int indent) {
  return parse_ds_config(parse_json(emit(config).dump(indent), "round trip"));
}

}  // namespace

TEST_CASE("what is emitted reads back as the same configuration") {
  Random random(20260822);
  for (int round = 0; round < 400; ++round) {
    const DsConfig config = random_config(random);
    INFO("round " << round << "\n" << emit(config).dump(2));
    const DsConfig again = reread(config, round % 2 == 0 ? -1 : 2);
    REQUIRE(again == config);
    REQUIRE(emit(again).dump() == emit(config).dump());
  }
}

TEST_CASE("writing for the Trainer twice changes nothing more and survives a round trip") {
  Random random(7);
  for (int round = 0; round < 100; ++round) {
    const DsConfig config = for_trainer(random_config(random));
    REQUIRE(for_trainer(config) == config);
    REQUIRE(reread(config, -1) == config);
  }
}

TEST_CASE("every default and every grid point of the table can be set and read back") {
  for (const KnobRow& row : knob_rows()) {
    INFO(row.pointer);
    DsConfig config;
    config.set(row.id, default_value(row.id, 3, kNewestDeepSpeed));
    CHECK(reread(config, -1) == config);
    for (const KnobLiteral& point : row.grid) {
      config.set(row.id, to_value(point));
      CHECK(reread(config, -1) == config);
    }
  }
}
