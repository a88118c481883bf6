#include "evidence/fetch_tokens.hpp"

#include <algorithm>

namespace zeroplan::evidence {
namespace {

constexpr const char* kWaiting = "waits";

std::string joined(std::vector<std::string> parts) {
  std::sort(parts.begin(), parts.end());
  std::string text;
  for (const std::string& part : parts) {
    if (!text.empty()) text += ", ";
    text += part;
  }
  return text;
}

}  // namespace

void FetchTokens::line(std::string text) { entries_.push_back({std::move(text), "", {}, ""}); }

FetchTokens::Entry& FetchTokens::run(const std::string& group) {
  if (entries_.empty() || entries_.back().group != group) entries_.push_back({"", group, {}, ""});
  return entries_.back();
}

void FetchTokens::unordered(const std::string& group, std::string text) {
  run(group).members.push_back(std::move(text));
}

void FetchTokens::wait_pattern(char symbol) { run(kWaiting).pattern += symbol; }

void FetchTokens::waited_for(std::string parameter) {
  Entry& entry = run(kWaiting);
  entry.pattern += 'W';
  entry.members.push_back(std::move(parameter.insert(0, 1, 'p')));
}

void FetchTokens::done_by_wait(std::string text) {
  run(kWaiting).members.push_back(std::move(text));
}

std::vector<std::string> FetchTokens::lines() const {
  std::vector<std::string> result;
  for (const Entry& entry : entries_) {
    if (entry.group.empty()) {
      result.push_back(entry.text);
    } else {
      std::string text = entry.group;
      if (!entry.pattern.empty()) text.append(" [").append(entry.pattern).append("]");
      result.push_back(text.append(" ").append(joined(entry.members)));
    }
  }
  return result;
}

}  // namespace zeroplan::evidence
