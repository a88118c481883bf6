// A training log, taken apart for readers of messages in it: colours removed, one text for each
// process, however the processes' lines are interleaved.
//
// A line may open with a label that says which process wrote it; the label is taken off:
//   [rank3]: text          torch 2.4 and newer
//   [default3]:text        torchrun --redirects, --tee
//   3: text                srun --label, jsrun
//   [1,3]<stderr>:text     mpirun --tag-output
//   (RayTrainWorker pid=7, ip=10.0.0.1) text   Ray (names a process, no rank)
// Lines without a label form one more text. Quote and comment signs ("> ", "# ") are taken off too:
// logs are pasted into issues and scripts. Carriage returns (Windows, progress bars) end a line
// without counting one.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace zeroplan::evidence {

// What one process wrote. Its lines are joined by '\n'.
struct LogText {
  std::optional<int> rank;  // of the label
  std::string text;

  struct Mark {
    std::size_t offset = 0;  // in text
    int line = 0;            // of the log, from 1
  };
  std::vector<Mark> marks;  // ascending; one for each line

  // The log's line at that offset of `text`; 0 for an empty text.
  int line_at(std::size_t offset) const;
  // The whole line of `text` around that offset.
  std::string_view line_around(std::size_t offset) const;
};

// One element a label, in order of appearance. Any bytes are accepted. A log without labels is held
// once.
std::vector<LogText> split_log(std::string log);

// The text without escape sequences of a terminal (colours, cursor, titles).
std::string without_escapes(std::string text);

}  // namespace zeroplan::evidence
