// What the engine does at one point (a module's entry or exit, a new micro-step, the step), as
// lines of text in a canonical order: equal lines mean equal behaviour. Used by replay_fetch for
// both sides of its comparison.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace zeroplan::evidence {

class FetchTokens {
 public:
  // Something with a fixed place.
  void line(std::string text);
  // One of several like things in a row whose order is free: releases, gathers of one call.
  void unordered(const std::string& group, std::string text);
  // A part of the waiting inside a module entry. Which parameter comes first is free, but not how
  // the waits, the host's blocking before them and the recorded events alternate.
  void wait_pattern(char symbol);
  void waited_for(std::string parameter);
  // Done by the first wait on a bucket, whichever parameter that is: copies, a stream's
  // synchronisation.
  void done_by_wait(std::string text);

  std::vector<std::string> lines() const;

 private:
  struct Entry {
    std::string text;   // of a fixed line
    std::string group;  // "" for a fixed line
    std::vector<std::string> members;
    std::string pattern;  // of waiting
  };
  Entry& run(const std::string& group);

  std::vector<Entry> entries_;
};

}  // namespace zeroplan::evidence
