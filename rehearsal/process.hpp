// Other programs: a short one whose output is wanted, and the rehearsed one.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace zeroplan::rehearsal {

// A program on the path, as an absolute path; `name` itself where it holds a '/' and can be run;
// else empty.
std::string find_program(const std::string& name);

// What a program that is asked to end gets before it is killed.
inline constexpr int kGraceSeconds = 5;

struct Output {
  int exit = 127;    // 127: could not be started; 128 + n: ended by signal n
  std::string text;  // standard output and standard error
};

// Runs it to its end without standard input. All that it started ends with it, and with this
// process, even where that is killed.
Output run_and_read(const std::vector<std::string>& words);

struct Ended {
  int exit = 127;
  int signal = 0;  // that asked this program to end, and was passed on; 0: none
};

// Runs it with these variables over this process's own; its output goes to standard error. On
// SIGINT, SIGTERM, SIGHUP and SIGQUIT it is asked to end, and killed after `grace_seconds`. When
// this returns, or this process ends in any way, SIGKILL included, no process that it started is
// left.
Ended run_program(const std::vector<std::string>& words,
                  const std::map<std::string, std::string>& variables,
                  int grace_seconds = kGraceSeconds);

}  // namespace zeroplan::rehearsal
