#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "tests/identical/answer.hpp"

namespace zeroplan::identical {
namespace {

constexpr std::size_t kWorst = 10;

// One number of one line that moved. Shares of the value before; of probabilities the difference.
struct Move {
  std::string id;
  double before = 0.0, now = 0.0, size = 0.0;
};

double size_of(Number number, double before, double now) {
  if (number == Number::probability || before == 0.0) return now - before;
  return now / before - 1.0;
}

// Lists of ids with a title, the first ten of them.
std::string list(const char* title, const std::vector<std::string>& ids) {
  if (ids.empty()) return "";
  std::string text = fmt::format("{} {}\n", ids.size(), title);
  for (std::size_t i = 0; i < std::min(kWorst, ids.size()); ++i) text += "    " + ids[i] + "\n";
  return text;
}

std::string worst(Number number, std::vector<Move> moves) {
  if (moves.empty()) return "";
  std::sort(moves.begin(), moves.end(), [](const Move& a, const Move& b) {
    return std::abs(a.size) > std::abs(b.size);
  });
  const auto up = std::count_if(
      moves.begin(), moves.end(), [](const Move& move) { return move.now > move.before; });
  const bool is_share = number != Number::probability;
  const auto size = [&](const Move& move) {
    return is_share ? fmt::format("{:+.4f} %", 100.0 * move.size)
                    : fmt::format("{:+.6f}", move.size);
  };
  std::string text = fmt::format("{}: {} moved, {} up and {} down, median {}; the worst:\n",
                                 kNumberNames[static_cast<std::size_t>(number)],
                                 moves.size(),
                                 up,
                                 static_cast<std::ptrdiff_t>(moves.size()) - up,
                                 size(moves[moves.size() / 2]));
  for (std::size_t i = 0; i < std::min(kWorst, moves.size()); ++i) {
    const Move& move = moves[i];
    text += fmt::format("    {}  {} -> {}  {}\n", size(move), move.before, move.now, move.id);
  }
  return text;
}

class Differences {
 public:
  explicit Differences(bool exactly) : exactly_(exactly) {}

  void compare(const Line& before, const Line& now) {
    if (before.refusal != now.refusal) {
      (now.refusal.empty()      ? answered_
       : before.refusal.empty() ? refused_
                                : reasons_)
          .push_back(now.id);
      return;
    }
    if (!now.refusal.empty()) return;
    bool moved = false;
    for (std::size_t i = 0; i < kNumberCount; ++i) {
      const double a = before.numbers[i], b = now.numbers[i];
      const double rounding = exactly_ ? 0.0 : 1e-9 * std::max(std::abs(a), std::abs(b));
      if (std::abs(a - b) <= rounding) continue;
      moved = true;
      moves_[i].push_back({now.id, a, b, size_of(static_cast<Number>(i), a, b)});
    }
    if (moved || !exactly_) return;
    if (before.program != now.program) {
      programs_.push_back(now.id);
    } else if (before.document != now.document) {
      documents_.push_back(now.id);
    }
  }
  void add_new(const Line& line) { new_.push_back(line.id); }
  void add_gone(const Line& line) { gone_.push_back(line.id); }

  std::string text() {
    std::string text;
    for (std::size_t i = 0; i < kNumberCount; ++i) {
      text += worst(static_cast<Number>(i), std::move(moves_[i]));
    }
    return text + list("lines whose program alone moved, no number of them:", programs_) +
           list("lines of whose document something else moved:", documents_) +
           list("lines that are refused now:", refused_) +
           list("lines that are answered now:", answered_) +
           list("lines that are refused for another reason:", reasons_) +
           list("lines that are new:", new_) + list("lines that are gone:", gone_);
  }

 private:
  bool exactly_;
  std::array<std::vector<Move>, kNumberCount> moves_;
  std::vector<std::string> programs_, documents_, refused_, answered_, reasons_, new_, gone_;
};

}  // namespace

std::string differences(const std::vector<Line>& before,
                        const std::vector<Line>& now,
                        bool exactly) {
  Differences found(exactly);
  std::size_t b = 0, n = 0;
  while (b < before.size() || n < now.size()) {
    if (n == now.size() || (b < before.size() && before[b].id < now[n].id)) {
      found.add_gone(before[b++]);
    } else if (b == before.size() || now[n].id < before[b].id) {
      found.add_new(now[n++]);
    } else {
      found.compare(before[b++], now[n++]);
    }
  }
  return found.text();
}

}  // namespace zeroplan::identical
