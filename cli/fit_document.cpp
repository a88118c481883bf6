#include "cli/fit_document.hpp"

#include "tuner/io_fit_answer.hpp"

namespace zeroplan::cli {
namespace {

void say_all(Json& list, const std::vector<Phrase>& sentences, const Translation& words) {
  for (std::size_t i = 0; i < sentences.size(); ++i) list.items()[i] = words.text(sentences[i]);
}

void say_strategy(Json& row, const tuner::StrategyResult& strategy, const Translation& words) {
  row["name"] = words.text(describe(strategy.strategy));
  say_all(row["result"]["assumptions"], strategy.result.assumptions, words);
  say_all(row["result"]["warnings"], strategy.result.warnings, words);
}

}  // namespace

Json fit_document(const tuner::FitAnswer& answer,
                  const Scenario& scenario,
                  const Translation& words) {
  Json document = to_json(answer, scenario);
  for (std::size_t i = 0; i < answer.strategies.size(); ++i) {
    say_strategy(document["strategies"].items()[i], answer.strategies[i], words);
  }
  if (answer.recommended) {
    say_strategy(document["recommended"], answer.strategies[*answer.recommended], words);
  }
  for (std::size_t i = 0; i < answer.remedies.size(); ++i) {
    document["remedies"].items()[i]["change"] = words.text(answer.remedies[i].change);
  }
  say_all(document["tried"], answer.tried, words);
  return document;
}

}  // namespace zeroplan::cli
