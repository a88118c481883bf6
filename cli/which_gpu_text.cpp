#include "cli/which_gpu_text.hpp"

#include <vector>

#include <fmt/format.h>

#include "cli/cost_options.hpp"
#include "cli/table.hpp"
#include "model/hardware/cluster.hpp"

namespace zeroplan {
namespace {

// `title` as wide as the others, with what sets it apart.
Phrase choice_line(const char* title, const ClusterChoice& choice, const std::string& currency) {
  Phrase line = Phrase("  ") + title;
  line.append(phrase("{}: {}, {}",
                     short_name(choice.cluster),
                     describe(choice.best.strategy),
                     hours_text(choice.cost.hours)));
  if (choice.cost.cost) line.append(phrase(", {}", money_text(choice.cost.cost, currency)));
  return line + "\n";
}

std::string choices_table(const WhichAnswer& answer,
                          const WhichQuestion& question,
                          const Translation& words) {
  std::vector<std::vector<Phrase>> rows;
  for (const ClusterChoice& choice : answer.choices) {
    const StepResult& result = choice.best.result;
    rows.push_back({short_name(choice.cluster),
                    describe(choice.best.strategy),
                    gib_number(result.gpu.peak_total) + " / " + gib_number(result.gpu.capacity),
                    fixed_text(choice.tokens_per_second, 0),
                    hours_text(choice.cost.hours),
                    money_text(choice.cost.cost, question.cost.prices.currency)});
  }
  return table({{"cluster"},
                {"strategy"},
                {"GPU GiB", Align::right},
                {"tokens/s", Align::right},
                {"time", Align::right},
                {"total cost", Align::right}},
               rows,
               words);
}

std::string listed(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += (all.empty() ? "" : ", ") + text;
  return all;
}

// The nearest of those that do not fit, where none does; else only their names.
std::string refusals_text(const WhichAnswer& answer, const Translation& words) {
  if (answer.refusals.empty()) return "";
  if (!answer.choices.empty()) {
    std::vector<std::string> texts;
    for (const ClusterRefusal& refusal : answer.refusals) texts.push_back(refusal.text);
    return words.text("Too small:") + " " + listed(texts) + "\n";
  }
  std::string text;
  for (const ClusterRefusal& refusal : answer.refusals) {
    text += "  " + refusal.text + ": " + words.text(refusal.why) + "\n";
  }
  return text;
}

Phrase model_line(const StrategyResult& best) {
  const Plan& plan = best.plan;
  return phrase(
      "{} ({} parameters), {} tokens, {}",
      plan.whole_model->name.empty() ? plan.whole_model->architecture : plan.whole_model->name,
      short_count_text(count_parameters(*plan.whole_model).total.count()),
      plan.workload.sequence_length,
      name(kPrecisionNames, plan.workload.precision));
}

}  // namespace

std::string which_gpu_text(const WhichAnswer& answer,
                           const WhichQuestion& question,
                           const Translation& words) {
  if (answer.choices.empty()) {
    return words.text("no: it trains on none of these clusters\n") + refusals_text(answer, words);
  }
  const std::string& currency = question.cost.prices.currency;
  const TrainingCost& size = answer.choices.front().cost;
  const Phrase trained =
      size.assumed ? phrase("{} (assumed: --tokens)", size_text(size)) : size_text(size);
  std::string text =
      words.text(phrase("{}; {}:\n", model_line(answer.choices.front().best), trained));
  text += words.text(choice_line("smallest    ", answer.choices[*answer.smallest], currency));
  if (answer.cheapest) {
    text += words.text(choice_line("cheapest    ", answer.choices[*answer.cheapest], currency));
  }
  text += words.text(choice_line("fastest     ", answer.choices[*answer.fastest], currency));
  text += "\n" + choices_table(answer, question, words) + "\n";
  if (!answer.not_asked.empty()) {
    text +=
        words.text("Neither, by the analytic estimate:") + " " + listed(answer.not_asked) + "\n";
  }
  text += refusals_text(answer, words);
  if (question.cost.price_per_gpu_hour) {
    text += words.text(phrase("Price: {:g} a GPU-hour\n", *question.cost.price_per_gpu_hour));
  } else if (!question.cost.prices.source.empty()) {
    text += words.text("Prices (say yours with --prices FILE or --price N):") + " " +
            question.cost.prices.source + "\n";
  }
  return text + words.text("The files for one of them:") + " " +
         fmt::format("zeroplan fit MODEL {} -o plan\n",
                     answer.choices[answer.cheapest.value_or(*answer.smallest)].asked.text);
}

std::string reach_text(const Phrase& found, const FitAnswer& answer, const Translation& words) {
  const StrategyResult& best = answer.strategies[*answer.recommended];
  const StepResult& result = best.result;
  return words.text(model_line(best) + "\n") + words.text(found + "\n") +
         words.text(phrase("  {}, {} of {} GPU memory, {:.0f} tokens/s per GPU\n",
                           describe(best.strategy),
                           gib_text(result.gpu.peak_total),
                           gib_text(result.gpu.capacity),
                           result.step.tokens_per_second_per_gpu));
}

}  // namespace zeroplan
