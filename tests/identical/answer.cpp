#include "tests/identical/answer.hpp"

#include <cstdlib>
#include <exception>
#include <sstream>
#include <utility>

#include <fmt/format.h>

#include "base/diagnostic.hpp"
#include "base/fingerprint.hpp"
#include "base/json.hpp"
#include "model/predict/io_step_result.hpp"
#include "model/predict/stage_work.hpp"
#include "simulator/planned_ranks.hpp"
#include "simulator/simulate.hpp"
#include "simulator/simulation_memo.hpp"

namespace zeroplan::identical {
namespace {

std::string digits(const Fingerprint& print) { return fmt::format("{:016x}", print.high); }

void add(const std::vector<simulator::RankPrint>& ranks, Fingerprint& print) {
  for (const simulator::RankPrint& rank : ranks) {
    print.add(rank.program.high);
    print.add(rank.program.low);
  }
}

void add_programs(const Plan& plan,
                  const StepWork& work,
                  std::optional<int> rank,
                  Fingerprint& print) {
  if (rank) *rank %= partition_ranks(plan.engine);
  std::vector<simulator::RankPrint> ranks;
  for (const simulator::PlannedRank& planned :
       simulator::write_rank_programs(plan, work.graph, rank)) {
    ranks.push_back({fingerprint(planned.program)});
  }
  add(ranks, print);
}

// `known`: the ranks that were simulated, where they were all of the plan's.
std::string hash_of_programs(const Plan& plan,
                             std::optional<int> rank,
                             const simulator::KnownRanks& known) {
  Fingerprint print;
  if (!plan.stages.empty()) {
    for (const StageWork& stage : stage_works(plan)) {
      add_programs(stage.plan, stage.work, std::nullopt, print);
    }
  } else if (!simulator::is_simulated(plan)) {
    return "-";
  } else if (!known.alone.empty() || !known.side_by_side.empty()) {
    add(known.side_by_side.empty() ? known.alone : known.side_by_side, print);
  } else {
    add_programs(plan, step_work(plan), rank, print);
  }
  return digits(print);
}

void fill(const StepResult& result, Line& line) {
  const auto set = [&](Number number, double value) {
    line.numbers[static_cast<std::size_t>(number)] = value;
  };
  const auto bytes = [&](Number number, Bytes value) {
    set(number, static_cast<double>(value.count()));
  };
  bytes(Number::allocated, result.gpu.peak_allocated);
  bytes(Number::reserved, result.gpu.peak_reserved);
  bytes(Number::held, result.gpu.static_allocated);
  bytes(Number::host, result.host.peak);
  set(Number::seconds, result.step.total.seconds());
  set(Number::probability, result.fit_probability);
  line.document = hash_of(to_json(result).dump());
}

// A failed ZP_CHECK without its place, which any edit moves.
std::string defect_of(const std::exception& error) {
  const std::string text = in_one_line(error.what());
  const std::size_t at = text.find("internal error");
  return "A DEFECT: " + (at == std::string::npos ? text : text.substr(at));
}

}  // namespace

std::string without_our_folder(std::string text) {
  const std::string_view folder = ZEROPLAN_SOURCE_DIR "/";
  for (std::size_t at = text.find(folder); at != std::string::npos; at = text.find(folder, at)) {
    text.erase(at, folder.size());
  }
  return text;
}

std::string hash_of(std::string_view said) {
  Fingerprint print;
  print.add_text(without_our_folder(std::string(said)));
  return digits(print);
}

std::string in_one_line(std::string_view text) {
  std::string line = without_our_folder(std::string(text));
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  }
  return line;
}

Answer answer_to(std::string id, const Scenario& scenario, std::optional<int> rank) {
  Answer answer;
  answer.line.id = std::move(id);
  try {
    Plan plan = resolve(scenario);
    simulator::SimulateOptions options;
    options.rank = rank;
    simulator::SimulationMemo memo;
    simulator::KnownRanks known;
    options.memo = &memo;
    options.known = &known;
    answer.result = simulate(plan, options);
    fill(answer.result, answer.line);
    answer.line.program = hash_of_programs(plan, rank, known);
    answer.plan = std::move(plan);
  } catch (const InputError& error) {
    answer.line.refusal = in_one_line(error.what());
  } catch (const SizeOverflow&) {
    answer.line.refusal = "sizes too large to count";
  } catch (const std::exception& error) {
    answer.line.refusal = defect_of(error);
  }
  return answer;
}

std::string written(const Line& line) {
  if (!line.refusal.empty()) return line.id + " refused: " + line.refusal;
  std::string text = line.id;
  for (const double number : line.numbers) text += fmt::format(" {}", number);
  return text + " " + line.document + " " + line.program;
}

Line read_line(const std::string& text) {
  Line line;
  std::istringstream stream(text);
  std::string word;
  stream >> line.id >> word;
  if (word == "refused:") {
    stream.get();  // the space
    std::getline(stream, line.refusal);
    return line;
  }
  for (std::size_t i = 0; i < kNumberCount; ++i) {
    line.numbers[i] = std::strtod(word.c_str(), nullptr);  // of the smallest too
    stream >> word;
  }
  line.document = word;
  stream >> line.program;
  return line;
}

}  // namespace zeroplan::identical
