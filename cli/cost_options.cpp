#include "cli/cost_options.hpp"

#include <charconv>
#include <cmath>
#include <string_view>

#include "base/diagnostic.hpp"
#include "cli/table.hpp"

namespace zeroplan::cli {
namespace {

// "1B", "300M", "2e9"
std::optional<double> tokens_of(const Arguments& arguments) {
  const auto said = arguments.text("tokens");
  if (!said) return std::nullopt;
  const char* const end = said->data() + said->size();
  double number = 0.0;
  const auto [stop, error] = std::from_chars(said->data(), end, number);
  const std::string_view unit(stop, static_cast<std::size_t>(end - stop));
  const double factor = unit.empty()                 ? 1.0
                        : unit == "k" || unit == "K" ? 1e3
                        : unit == "m" || unit == "M" ? 1e6
                        : unit == "b" || unit == "B" ? 1e9
                        : unit == "t" || unit == "T" ? 1e12
                                                     : 0.0;
  const double tokens = number * factor;
  constexpr double kMost = 1e18;
  if (error == std::errc() && std::isfinite(tokens) && tokens >= 1.0 && tokens <= kMost) {
    return tokens;
  }
  throw InputError(
      {kCommandLine, "--tokens", "a number of tokens such as 300M or 1B", in_quotes(*said), ""});
}

}  // namespace

tuner::CostQuestion cost_question_of(const Arguments& arguments) {
  tuner::CostQuestion question;
  question.tokens = tokens_of(arguments);
  question.price_per_gpu_hour = arguments.real("price", 0.0, 1e9);
  const auto prices = arguments.text("prices");
  question.prices =
      prices ? tuner::read_price_list(read_json_file(*prices)) : tuner::built_in_prices();
  if (question.price_per_gpu_hour) question.prices.currency.clear();  // any currency
  return question;
}

std::string written_cluster(const Scenario& scenario) {
  const ExplicitValue* said = scenario.find(ScenarioKey::cluster);
  return said != nullptr && said->value.is_string() ? said->value.as_string() : "";
}

Phrase hours_text(double hours) {
  constexpr double kHoursInADay = 24.0, kManyHours = 100.0;
  if (hours >= kManyHours) return phrase("{:.1f} days", hours / kHoursInADay);
  if (hours >= 1.0) return phrase("{:.1f} hours", hours);
  const double minutes = hours * 60.0;
  return minutes < 1.0 ? phrase("{:.0f} seconds", minutes * 60.0)
                       : phrase("{:.1f} minutes", minutes);
}

std::string money_text(const std::optional<double>& cost, const std::string& currency) {
  if (!cost) return "-";
  const std::string number = fixed_text(*cost, *cost < 10.0 ? 2 : 0);
  return currency.empty() ? number : number + " " + currency;
}

Phrase size_text(const tuner::TrainingCost& cost) {
  if (cost.tokens <= 0.0) return "the dataset";
  const double billions = cost.tokens / 1e9;
  return billions >= 1.0 ? phrase("{:g} B tokens", billions)
                         : phrase("{:g} M tokens", billions * 1e3);
}

}  // namespace zeroplan::cli
