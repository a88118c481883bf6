#include "cli/rehearse_find.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "base/diagnostic.hpp"
#include "base/written_names.hpp"
#include "cli/commands.hpp"
#include "cli/table.hpp"

namespace zeroplan::cli {
namespace {

constexpr std::string_view kPlace = "{}";

// Arguments of transformers' and TRL's trainers, Megatron's and LLaMA-Factory's scripts, and what
// people call them in their own; `_` and `-` are alike.
constexpr std::string_view kBatchArguments =
    "--per-device-train-batch-size|--per-device-batch-size|--train-micro-batch-size-per-gpu|"
    "--micro-batch-size|--train-batch-size|--batch-size|--mbs|--bs";
constexpr std::string_view kSequenceArguments =
    "--max-seq-length|--max-seq-len|--seq-length|--sequence-length|--seq-len|--max-length|"
    "--model-max-length|--block-size|--cutoff-len|--seq";

std::optional<std::int64_t> number_in(const std::string& text) {
  if (text.empty() || text.size() > 9) return std::nullopt;
  if (!std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; })) {
    return std::nullopt;
  }
  return std::stoll(text);
}

bool is_argument(std::string word, Find find) {
  std::replace(word.begin(), word.end(), '_', '-');
  const std::string_view names = find == Find::micro_batch ? kBatchArguments : kSequenceArguments;
  return !first_name(names, [&](std::string_view one) { return one == word; }).empty();
}

struct NumberPlace {
  std::size_t word = 0;
  std::string argument;
  std::int64_t number = 0;
};

// "--batch_size 4" and "--batch_size=4".
std::vector<NumberPlace> places_in(const std::vector<std::string>& command, Find find) {
  std::vector<NumberPlace> places;
  for (std::size_t i = 0; i < command.size(); ++i) {
    const std::size_t equals = command[i].find('=');
    const std::string argument = command[i].substr(0, equals);
    if (!is_argument(argument, find)) continue;
    const bool joined = equals != std::string::npos;
    if (!joined && i + 1 == command.size()) continue;
    const auto number = number_in(joined ? command[i].substr(equals + 1) : command[i + 1]);
    if (number) places.push_back({joined ? i : i + 1, argument, *number});
  }
  return places;
}

std::string replaced(std::string word, const std::string& by) {
  for (std::size_t at = word.find(kPlace); at != std::string::npos;
       at = word.find(kPlace, at + by.size())) {
    word.replace(at, kPlace.size(), by);
  }
  return word;
}

constexpr const char* kOutcomeWords[] = {
    "ran", "out of memory", "it failed", "it ended without using the GPU"};

std::string unit_of(Find find) {
  return find == Find::micro_batch ? "micro-batch" : "sequence length";
}

}  // namespace

Find parse_find(const std::string& word) {
  if (word == name(Find::micro_batch)) return Find::micro_batch;
  if (word == name(Find::sequence)) return Find::sequence;
  throw InputError({kCommandLine, "--find", "micro-batch or sequence", in_quotes(word), ""});
}

std::string_view name(Find find) { return find == Find::micro_batch ? "micro-batch" : "sequence"; }

NumberedCommand::NumberedCommand(std::vector<std::string> command, Find find)
    : command_(std::move(command)) {
  const bool marked = std::any_of(command_.begin(), command_.end(), [](const std::string& word) {
    return word.find(kPlace) != std::string::npos;
  });
  if (marked) return;
  const std::vector<NumberPlace> places = places_in(command_, find);
  if (places.size() == 1) {
    const NumberPlace& place = places.front();
    std::string& word = command_[place.word];
    const std::size_t equals = word.find('=');
    word = (equals == std::string::npos ? "" : word.substr(0, equals + 1)) + std::string(kPlace);
    said_ = std::max<std::int64_t>(place.number, 1);
    return;
  }
  Phrase got = "none that is known";
  if (!places.empty()) {
    got = "";
    for (const NumberPlace& place : places) {
      if (!got.empty()) got += " and ";
      got += Phrase(place.argument);
    }
  }
  throw InputError({kCommandLine,
                    "COMMAND",
                    phrase("one argument for the {}", unit_of(find)),
                    got,
                    "write {} where the number stands: python train.py --batch {}"});
}

std::vector<std::string> NumberedCommand::with(std::int64_t number) const {
  std::vector<std::string> words;
  for (const std::string& word : command_) words.push_back(replaced(word, std::to_string(number)));
  return words;
}

SearchRange range_of(Find find, std::optional<std::int64_t> said) {
  SearchRange range;
  if (find == Find::micro_batch) {
    range = {1, 1, std::int64_t{1} << 14};
  } else {
    range = {128, 1024, std::int64_t{1} << 22};
  }
  if (said) {
    const std::int64_t steps = std::max<std::int64_t>(*said / range.step, 1);
    range.first = std::min(steps * range.step, range.most);
  }
  return range;
}

Found find_largest(const SearchRange& range, const std::function<Tried(std::int64_t)>& attempt) {
  ZP_CHECK(range.step > 0 && range.first >= range.step, "a search needs a start");
  Found found;
  std::int64_t runs = 0;                                // the largest that ran, in steps
  std::int64_t too_many = range.most / range.step + 1;  // the least that did not
  std::int64_t next = range.first / range.step;
  while (next > runs && next < too_many) {
    const Tried tried = attempt(next * range.step);
    found.tried.push_back(tried);
    if (tried.outcome == Outcome::ran) {
      runs = next;
    } else if (tried.outcome == Outcome::out_of_memory) {
      too_many = next;
    } else {
      break;
    }
    const bool bounded = too_many <= range.most / range.step;
    next = bounded ? runs + (too_many - runs) / 2 : std::min(2 * runs, range.most / range.step);
  }
  if (runs > 0) found.largest = runs * range.step;
  return found;
}

std::string found_text(Find find, const Found& found, const Translation& words) {
  std::vector<std::vector<Phrase>> cells;
  for (const Tried& tried : found.tried) {
    const bool ran = tried.outcome == Outcome::ran;
    cells.push_back({std::to_string(tried.number),
                     kOutcomeWords[static_cast<std::size_t>(tried.outcome)],
                     ran ? fixed_text(tried.peak_reserved.gib(), 2) : "-"});
  }
  const std::vector<Column> columns = {
      {unit_of(find), Align::right}, {"outcome"}, {"peak reserved", Align::right}};
  const Phrase largest =
      found.largest ? phrase("the largest {} that runs: {}\n", unit_of(find), *found.largest)
                    : phrase("no {} runs\n", unit_of(find));
  return words.text(largest) + "\n" + table(columns, cells, words) + "\n";
}

Json to_json(Find find, const Found& found) {
  constexpr const char* kNames[] = {"ran", "out_of_memory", "failed", "used_no_gpu"};
  Json tried = Json::array();
  for (const Tried& one : found.tried) {
    tried.push_back(Json::object({{"number", one.number},
                                  {"outcome", kNames[static_cast<std::size_t>(one.outcome)]},
                                  {"peak_reserved_bytes", one.peak_reserved.count()}}));
  }
  return Json::object({{"what", std::string(name(find))},
                       {"largest", found.largest ? Json(*found.largest) : Json()},
                       {"tried", tried}});
}

}  // namespace zeroplan::cli
