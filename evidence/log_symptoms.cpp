#include "evidence/log_symptoms.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "base/phrase_list.hpp"
#include "evidence/log_text.hpp"
#include "evidence/text_scanner.hpp"
#include "model/families/known_shapes.hpp"

namespace zeroplan::evidence {
namespace {

// What a row's own texts become where the log has numbers to count with.
struct ToldFailure {
  Phrase text;
  Phrase advice;
  Phrase check = {};
};

struct FailurePlace {
  const std::vector<LogText>& logs;
  const LogText& log;
  std::size_t at;  // of the row's words
  const Model* model;
};

std::optional<std::int64_t> number_after(std::string_view line, std::string_view words) {
  const std::size_t at = find_words(line, words);
  if (at == std::string_view::npos) return std::nullopt;
  TextScanner scanner(line, at);
  scanner.take(words);
  return scanner.integer();
}

std::optional<std::int64_t> count_after(std::string_view line, std::string_view words) {
  const std::optional<std::int64_t> number = number_after(line, words);
  return number && *number > 0 ? number : std::nullopt;
}

std::string word_after_label(std::string_view line, std::string_view words) {
  const std::size_t at = find_words(line, words);
  if (at == std::string_view::npos) return "";
  const std::size_t begin = at + words.size();
  std::size_t end = begin;
  while (end < line.size() &&
         (std::isalnum(static_cast<unsigned char>(line[end])) != 0 || line[end] == '_')) {
    ++end;
  }
  return std::string(line.substr(begin, end - begin));
}

// --- collectives

// Every weight of that many elements is as good a guess; one name stands for equal layers.
Phrase weight_of(const Model* model, std::int64_t elements) {
  if (model != nullptr) {
    for (const Parameter& parameter : model->parameters) {
      if (parameter.numel.count() == elements) {
        return phrase("{} elements, as many as {} has,", elements, parameter.name);
      }
    }
  }
  const std::optional<KnownMatrix> matrix = known_matrix(elements);
  if (!matrix) return phrase("{} elements", elements);
  if (matrix->rows_of_model == 0) {
    return phrase("{} elements, a feed-forward weight of {} x {} as {} has,",
                  elements,
                  matrix->rows,
                  matrix->columns,
                  matrix->shape->name);
  }
  if (matrix->rows == matrix->rows_of_model) {
    return phrase("{} elements, an embedding of {} x {} as {} has,",
                  elements,
                  matrix->rows,
                  matrix->columns,
                  matrix->shape->name);
  }
  return phrase("{} elements, an embedding of {} x {} ({} has {} rows),",
                elements,
                matrix->rows,
                matrix->columns,
                matrix->shape->name,
                matrix->rows_of_model);
}

// A collective that a rank's watchdog says it waits for.
struct RankWait {
  std::string operation;
  std::optional<std::int64_t> number;  // of the collective, counted in its group
  std::string group;                   // "ID 0 PG GUID 0(default_pg)"; older torch names none
};

RankWait wait_of(std::string_view line) {
  constexpr std::string_view kGroup = "[PG ";
  const std::size_t begin = find_words(line, kGroup), end = find_words(line, "Rank", begin);
  RankWait wait{word_after_label(line, "OpType="), number_after(line, "SeqNum="), ""};
  if (end != std::string_view::npos) {
    wait.group = line.substr(begin + kGroup.size(), end - begin - kGroup.size());
  }
  return wait;
}

// The first wait of each rank whose watchdog spoke: "[Rank 3] Watchdog caught ...", or the label of
// the line.
std::map<int, RankWait> rank_waits(const std::vector<LogText>& logs) {
  constexpr std::string_view kWords = "caught collective operation timeout";
  std::map<int, RankWait> waits;
  for (const LogText& log : logs) {
    for (std::size_t at = find_words(log.text, kWords); at != std::string_view::npos;
         at = find_words(log.text, kWords, at + kWords.size())) {
      const std::string_view line = log.line_around(at);
      auto rank = number_after(line, "[Rank");
      if (!rank) rank = log.rank;
      constexpr std::int64_t kMostRank = 1'000'000;
      if (rank && *rank >= 0 && *rank < kMostRank) {
        waits.emplace(static_cast<int>(*rank), wait_of(line));
      }
    }
  }
  return waits;
}

// Ranks of a group that wait in different collectives: neither is absent.
std::optional<ToldFailure> other_collectives(const std::map<int, RankWait>& waits) {
  std::map<std::string_view, int> first;  // rank that waits, by the group
  for (const auto& [rank, wait] : waits) {
    if (!wait.number || wait.operation.empty()) continue;
    const int before = first.emplace(wait.group, rank).first->second;
    const RankWait& other = waits.at(before);
    if (other.number == wait.number && other.operation == wait.operation) continue;
    return ToldFailure{
        phrase("ranks wait in different collectives: rank {} in {} (SeqNum {}), rank {} in {} "
               "(SeqNum {}): neither is absent, they called in another order",
               before,
               other.operation,
               *other.number,
               rank,
               wait.operation,
               *wait.number),
        "look for what these ranks do differently: a branch, a save or a metric on one rank alone, "
        "other numbers of batches, experts without tokens under stage 3; where nothing is, the "
        "network lost the earlier collective: zeroplan doctor",
        "py-spy dump --pid PID of both ranks; TORCH_DISTRIBUTED_DEBUG=DETAIL names the call"};
  }
  return std::nullopt;
}

// As far as the log tells how many ranks there are: others than those that waited are where the
// trouble is.
Phrase silent_ranks(const std::map<int, RankWait>& named, std::int64_t ranks) {
  constexpr std::int64_t kMostListed = 64;
  if (named.empty() || ranks > kMostListed || named.rbegin()->first >= ranks) return {};
  std::vector<std::string> silent, waiting;
  for (int rank = 0; rank < ranks; ++rank) {
    (named.count(rank) != 0 ? waiting : silent).push_back(std::to_string(rank));
  }
  if (silent.empty()) return {};
  return phrase("; the watchdog speaks of rank {}, not of rank {}",
                phrase_list(waiting),
                phrase_list(silent));
}

// "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9314, OpType=_REDUCE_SCATTER_BASE,
// NumelIn=131072000, NumelOut=32768000, Timeout(ms)=600000) ran for ..." (torch
// c10d/ProcessGroupNCCL.cpp). The larger of in and out is the whole tensor, their ratio the ranks.
std::optional<ToldFailure> collective_timeout(const FailurePlace& place) {
  const std::map<int, RankWait> waits = rank_waits(place.logs);
  if (auto others = other_collectives(waits)) return others;
  const std::string_view line = place.log.line_around(place.at);
  const std::string operation = word_after_label(line, "OpType=");
  const auto in = count_after(line, "NumelIn="), out = count_after(line, "NumelOut=");
  const auto milliseconds = count_after(line, "Timeout(ms)=");
  if (operation.empty() || !in || !out || !milliseconds) return std::nullopt;
  const std::int64_t whole = std::max(*in, *out), part = std::min(*in, *out);
  const std::int64_t seconds = *milliseconds / 1000;
  const Phrase size = weight_of(place.model, whole);
  if (whole == part || whole % part != 0) {
    return ToldFailure{
        phrase("{} of {} did not end in {} s: a rank did not come to it", operation, size, seconds),
        {}};
  }
  const std::int64_t ranks = whole / part;
  Phrase text = phrase("{} of {} over {} ranks did not end in {} s: a rank did not come to it",
                       operation,
                       size,
                       ranks,
                       seconds);
  text.append(silent_ranks(waits, ranks));
  return ToldFailure{std::move(text), {}};
}

// --- batch sizes

// "... world_size 256 != 4 * 8 * 1" (deepspeed/runtime/config.py _batch_assertion).
std::optional<ToldFailure> batch_assertion(const FailurePlace& place) {
  constexpr std::string_view kWords = "gradient_acc_step * world_size";
  const std::string_view line = place.log.line_around(place.at);
  const std::size_t at = find_words(line, kWords);
  if (at == std::string_view::npos) return std::nullopt;
  TextScanner scanner(line, at);
  scanner.take(kWords);
  const auto total = scanner.integer();
  scanner.skip_any("!= ");
  const auto micro = scanner.integer();
  scanner.skip_any("* ");
  const auto steps = scanner.integer();
  scanner.skip_any("* ");
  const auto ranks = scanner.integer();
  constexpr std::int64_t kMost = 1LL << 20;
  const auto good = [](const auto& number) { return number && *number > 0 && *number <= kMost; };
  if (!good(total) || !good(micro) || !good(steps) || !good(ranks)) return std::nullopt;
  const std::string sum =
      fmt::format("{} x {} x {} = {}", *micro, *steps, *ranks, *micro * *steps * *ranks);
  if (*ranks == 1 && *total % (*micro * *steps) == 0 && *total > *micro * *steps) {
    return ToldFailure{
        phrase("DeepSpeed counts one rank ({}), and train_batch_size {} is meant for {}",
               sum,
               *total,
               *total / (*micro * *steps)),
        "start it with the launcher for all GPUs; where it was, the file was read before "
        "the processes knew each other: leave train_batch_size out, or newer accelerate "
        "and deepspeed"};
  }
  const std::int64_t a_step = *micro * *ranks;
  Phrase text = phrase(
      "train_batch_size is {}, and micro-batch x accumulation x ranks {}: the file "
      "has the one, the data loader or the script's arguments the other",
      *total,
      sum);
  if (*total % a_step == 0) {
    text.append(phrase(
        "; {} is {} x {} with an accumulation of {}", *total, *micro, *ranks, *total / a_step));
  } else {
    const std::int64_t below = *total / a_step * a_step;
    text.append(
        below == 0 ? phrase("; {} is no multiple of {} x {}: {} is", *total, *micro, *ranks, a_step)
                   : phrase("; {} is no multiple of {} x {}: {} or {} is",
                            *total,
                            *micro,
                            *ranks,
                            below,
                            below + a_step));
  }
  return ToldFailure{std::move(text), {}};
}

// "- ds gradient_accumulation_steps=8 vs hf gradient_accumulation_steps=8", or "vs arg" of
// accelerate, one a line behind the message.
std::optional<ToldFailure> trainer_mismatch(const FailurePlace& place) {
  Phrase quoted, others;
  const std::string_view text = place.log.text;
  const auto add = [](Phrase& list, Phrase item) {
    list = list.empty() ? std::move(item) : phrase("{}, {}", list, item);
  };
  for (std::size_t at = find_words(text, "ds ", place.at); at != std::string_view::npos;
       at = find_words(text, "ds ", at + 3)) {
    const std::string_view line = place.log.line_around(at);
    const std::size_t versus = line.find(" vs ");
    const std::size_t equals = line.find('='), last = line.rfind('=');
    if (versus == std::string_view::npos || equals > versus || last < versus) continue;
    const std::size_t name = find_words(line, "ds ") + 3;
    if (name > equals) continue;
    const std::string key(line.substr(name, equals - name));
    const std::string file(line.substr(equals + 1, versus - equals - 1));
    std::string said(line.substr(last + 1));
    while (!said.empty() && std::isspace(static_cast<unsigned char>(said.back())) != 0) {
      said.pop_back();
    }
    if (file == said) {
      add(quoted, phrase("{} is {} in both", key, file));
    } else {
      add(others, phrase("{} is {} in the file and {} in the arguments", key, file, said));
    }
  }
  if (!quoted.empty()) {
    return ToldFailure{
        phrase("{}: the file has it in quotes, as text, and the arguments as a number", quoted),
        "remove the quotes in ds_config.json, or write \"auto\"; zeroplan lint finds them"};
  }
  if (others.empty()) return std::nullopt;
  return ToldFailure{phrase("the Trainer's arguments and ds_config.json disagree: {}", others), {}};
}

struct FailureReader {
  std::string_view code;
  std::optional<ToldFailure> (*read)(const FailurePlace&);
};
constexpr std::array kFailureReaders = {FailureReader{"collective-timeout", collective_timeout},
                                        FailureReader{"batch-assertion", batch_assertion},
                                        FailureReader{"trainer-mismatch", trainer_mismatch}};

LogSymptom symptom_of(const FoundFailure& found, const FailurePlace& place) {
  const KnownFailure& row = *found.failure;
  LogSymptom symptom;
  symptom.code = row.code;
  symptom.kind = row.kind;
  symptom.line = place.log.line_at(place.at);
  symptom.check = filled_text(row.check, found.values);
  const auto* reader = std::find_if(kFailureReaders.begin(),
                                    kFailureReaders.end(),
                                    [&](const FailureReader& one) { return one.code == row.code; });
  std::optional<ToldFailure> told;
  if (reader != kFailureReaders.end()) told = reader->read(place);
  if (told && !told->check.empty()) symptom.check = std::move(told->check);
  symptom.text = told ? std::move(told->text) : filled_text(row.cause, found.values);
  symptom.advice = told && !told->advice.empty() ? std::move(told->advice)
                                                 : filled_text(row.remedy, found.values);
  return symptom;
}

// --- what the table cannot tell

// A log that ends where torch would build or load an operator: "Using DIR as PyTorch extensions
// root..." and nothing else behind it. Older torch waits for the lock without a word, and so does a
// healthy run for some seconds: a condition, not a verdict.
std::optional<LogSymptom> silent_lock(const LogText& log) {
  constexpr std::string_view kRoot = "as PyTorch extensions root";
  constexpr std::array<std::string_view, 4> kOfTheBuild = {kRoot,
                                                           "Creating extension directory",
                                                           "Detected CUDA files, patching ldflags",
                                                           "Emitting ninja build file"};
  std::size_t root = std::string_view::npos;
  for (auto mark = log.marks.rbegin(); mark != log.marks.rend(); ++mark) {
    const std::string_view line = log.line_around(mark->offset);
    const bool building =
        std::any_of(kOfTheBuild.begin(), kOfTheBuild.end(), [&](std::string_view words) {
          return find_words(line, words) != std::string_view::npos;
        });
    if (!building) break;
    if (root == std::string_view::npos && find_words(line, kRoot) != std::string_view::npos) {
      root = mark->offset;
    }
  }
  if (root == std::string_view::npos) return std::nullopt;
  return LogSymptom{
      .code = "extension-lock",
      .kind = FailureKind::note,
      .line = log.line_at(root),
      .text =
          "the log ends where torch builds or loads an operator of DeepSpeed: where minutes "
          "pass and no compiler runs, it waits for the lock of a build that was killed",
      .check = "ps aux | grep -E \"ninja|nvcc|cc1plus\"; find ~/.cache/torch_extensions -name lock",
      .advice =
          "end all of the job's processes, rm -rf ~/.cache/torch_extensions "
          "(TORCH_EXTENSIONS_DIR), start again; on every host, or on the home that they "
          "share"};
}

// "ValueError: ..." at the front of a line.
bool names_an_exception(std::string_view line) {
  const std::size_t end = std::min(line.find(':'), line.size());
  const std::string_view name = line.substr(0, end);
  if (name.empty() || std::isalpha(static_cast<unsigned char>(name.front())) == 0) return false;
  const bool one_word = std::all_of(name.begin(), name.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.';
  });
  return one_word && (name.ends_with("Error") || name.ends_with("Exception"));
}

// What the table knows is told by it, if only as a consequence.
bool is_known(std::string_view line) {
  return !known_failures().find({std::nullopt, std::string(line) + "\n", {}}).empty();
}

// The first exception behind a traceback of Python, as what follows it comes of it; where a log has
// no traceback, the first of all.
std::optional<UnknownError> unknown_error(const std::vector<LogText>& logs) {
  constexpr std::size_t kLongest = 300;
  constexpr std::string_view kTraceback = "Traceback (most recent call last)";
  const bool has_traceback = std::any_of(logs.begin(), logs.end(), [&](const LogText& log) {
    return find_words(log.text, kTraceback) != std::string_view::npos;
  });
  std::optional<UnknownError> first;
  for (const LogText& log : logs) {
    const std::size_t begin = has_traceback ? find_words(log.text, kTraceback) : 0;
    for (const LogText::Mark& mark : log.marks) {
      if (begin == std::string_view::npos || mark.offset < begin) continue;
      const std::string_view line = log.line_around(mark.offset);
      if (!names_an_exception(line) || is_known(line)) continue;
      if (!first || mark.line < first->line) {
        first = UnknownError{mark.line, std::string(line.substr(0, kLongest))};
      }
      break;
    }
  }
  return first;
}

void sort_by_line(std::vector<LogSymptom>& symptoms) {
  std::stable_sort(symptoms.begin(), symptoms.end(), [](const LogSymptom& a, const LogSymptom& b) {
    return a.line < b.line;
  });
}

}  // namespace

LogReading read_log(std::string_view text, const Model* model) {
  LogReading reading;
  reading.lines = static_cast<int>(std::count(text.begin(), text.end(), '\n'));
  if (!text.empty() && text.back() != '\n') ++reading.lines;
  const std::vector<LogText> logs = split_log(std::string(text));
  std::vector<LogSymptom> all;
  for (const LogText& log : logs) {
    for (const FoundFailure& found : known_failures().find(log)) {
      const auto known = std::find_if(all.begin(), all.end(), [&](const LogSymptom& symptom) {
        return symptom.code == found.failure->code;
      });
      if (known != all.end()) {
        ++known->times;
        continue;
      }
      all.push_back(symptom_of(found, {logs, log, found.at, model}));
    }
  }
  sort_by_line(all);
  for (LogSymptom& symptom : all) {
    const auto& rows = known_failures().rows();
    const auto row = std::find_if(rows.begin(), rows.end(), [&](const KnownFailure& one) {
      return one.code == symptom.code;
    });
    if (symptom.times < row->at_least) continue;
    const bool fails = symptom.kind == FailureKind::stops || symptom.kind == FailureKind::slows;
    (fails                                ? reading.failures
     : symptom.kind == FailureKind::where ? reading.places
                                          : reading.consequences)
        .push_back(std::move(symptom));
  }
  if (reading.failures.empty()) reading.unknown = unknown_error(logs);
  if (reading.failures.empty() && reading.consequences.empty() && !reading.unknown &&
      !logs.empty()) {
    if (auto lock = silent_lock(logs.back())) reading.consequences.push_back(std::move(*lock));
  }
  return reading;
}

std::vector<LogSymptom> read_log_symptoms(std::string_view text, const Model* model) {
  LogReading reading = read_log(text, model);
  return std::move(reading.failures.empty() ? reading.consequences : reading.failures);
}

}  // namespace zeroplan::evidence
