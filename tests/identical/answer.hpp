// A scenario simulated, and the line that stands for it in predictions.txt.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/plan/plan.hpp"
#include "model/predict/step_result.hpp"

namespace zeroplan::identical {

// The numbers of a line: bytes, seconds, a probability. All are exact in a double.
enum class Number { allocated, reserved, held, host, seconds, probability };
inline constexpr std::size_t kNumberCount = 6;
inline constexpr std::array<std::string_view, kNumberCount> kNumberNames{"allocated peak",
                                                                         "reserved peak",
                                                                         "allocated between steps",
                                                                         "host peak",
                                                                         "step seconds",
                                                                         "probability to fit"};

struct Line {
  std::string id;       // without spaces
  std::string refusal;  // why there is no answer; empty: there is one
  std::array<double, kNumberCount> numbers{};
  std::string document;  // hash of all that is answered
  std::string program;   // hash of the programs of the simulated ranks; "-": none is simulated
};

// The hash of a text, 16 hexadecimal digits; the same wherever the repository stands.
std::string hash_of(std::string_view text);

// What is simulated of a plan, of `rank` or the rank that needs the most.
struct Answer {
  std::optional<Plan> plan;  // none: refused
  StepResult result;
  Line line;
};

// Whatever resolve() or simulate() refuse becomes the line's refusal; what they die of, too: a
// defect is in the file until it is mended, and takes no other line with it.
Answer answer_to(std::string id, const Scenario& scenario, std::optional<int> rank);

// A text as part of a line: line breaks and control characters become spaces, paths begin in the
// repository.
std::string in_one_line(std::string_view text);

std::string written(const Line& line);
// Precondition: a line as written() gives it.
Line read_line(const std::string& text);

// What moved between two lists of lines that are sorted by id, for people; empty: nothing. Where
// `exactly` is off, hashes are not compared, and numbers to nine digits: other compilers round
// other sums.
std::string differences(const std::vector<Line>& before,
                        const std::vector<Line>& now,
                        bool exactly);

}  // namespace zeroplan::identical
