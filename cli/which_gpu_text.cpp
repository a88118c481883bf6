#include "cli/which_gpu_text.hpp"

#include <vector>

#include <fmt/format.h>

#include "cli/cost_options.hpp"
#include "cli/table.hpp"
#include "model/hardware/cluster.hpp"
#include "model/predict/verdict.hpp"
#include "tuner/headroom.hpp"

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
  line.append(condition_text(choice.best.result));
  if (choice.needs.any()) {
    line.append(
        phrase(", with the package {} ({})", names_of(choice.needs), flags_of(choice.needs)));
  }
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
    text += words.text("Could be none of these if 1.5 times as fast as estimated:") + " " +
            listed(answer.not_asked) + "\n";
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

// "30720 tokens: ZeRO-3, 22.1 GiB of 23.5 GiB GPU memory, 812 tokens/s per GPU".
static Phrase reach_line(const SequenceReach& reach) {
  const StepResult& result = reach.row.result;
  return phrase("{} tokens: {}, {} of {} GPU memory, {:.0f} tokens/s per GPU",
                reach.tokens,
                describe(reach.row.strategy),
                gib_text(result.gpu.peak_total),
                gib_text(result.gpu.capacity),
                result.step.tokens_per_second_per_gpu);
}

Phrase lengths_text(const LongestSequences& lengths) {
  const std::optional<LongestSequence>& answer = lengths.answer();
  if (!answer) {
    return phrase("no: no strategy trains sequences of even {} tokens\n", kSequenceQuantum);
  }
  const SequenceReach& best = answer->best;
  const StepResult& result = best.row.result;
  Phrase text = model_line(best.row) + "\n";
  text +=
      lengths.plain
          ? phrase("longest sequences that train{}: {}\n", condition_text(result), reach_line(best))
          : phrase("longest sequences that train with the package {} ({}){}: {}\n",
                   names_of(lengths.packages),
                   flags_of(lengths.packages),
                   condition_text(result),
                   reach_line(best));
  if (!lengths.plain) {
    text += phrase("  without it not even {} tokens\n", kSequenceQuantum);
  }
  if (answer->longer) text += phrase("  longer       {}\n", reach_line(*answer->longer));
  if (lengths.plain && lengths.with_packages) {
    text += phrase("  with the package {} ({}): {}\n",
                   names_of(lengths.packages),
                   flags_of(lengths.packages),
                   reach_line(lengths.with_packages->best));
  }
  if (lengths.has_condition) {
    const std::string usual = gib_text(result.host.capacity);
    text += lengths.usual_host ? phrase("  with the usual {} of host memory: {}\n",
                                        usual,
                                        reach_line(lengths.usual_host->best))
                               : phrase("  with the usual {} of host memory: not even {} tokens\n",
                                        usual,
                                        kSequenceQuantum);
  }
  return text;
}

Phrase largest_text(const std::optional<LargestModel>& largest) {
  if (!largest) return "no: not even a model of 100 M parameters fits on this cluster\n";
  const StrategyResult& best = largest->best;
  const StepResult& result = best.result;
  return model_line(best) + "\n" +
         phrase("largest model of LLaMA's shape that trains: {}\n", largest->size) +
         phrase("  {}, {} of {} GPU memory, {:.0f} tokens/s per GPU\n",
                describe(best.strategy),
                gib_text(result.gpu.peak_total),
                gib_text(result.gpu.capacity),
                result.step.tokens_per_second_per_gpu) +
         phrase("  host memory needs {} per node, taken to have {}\n",
                gib_text(result.host.peak),
                gib_text(result.host.capacity));
}

}  // namespace zeroplan
