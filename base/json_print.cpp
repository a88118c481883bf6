// Json::dump(): a JSON value as text.
#include <algorithm>
#include <unordered_map>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/json.hpp"
#include "base/plain_text.hpp"

namespace zeroplan {
namespace {

bool needs_no_escape(char c) { return c >= 0x20 && c < 0x7f && c != '"' && c != '\\'; }

void print_string(const std::string& text, std::string& to) {
  if (!std::all_of(text.begin(), text.end(), needs_no_escape)) {
    to += nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    return;
  }
  to += '"';
  to += text;
  to += '"';
}

// As the library prints documents. Its own values are used for no arrays and objects: they take
// memory to be destroyed, and end the program where there is none.
class Printer {
 public:
  Printer(int indent, std::string& to) : indent_(indent), to_(to) {}

  void print(const Json& value) {
    switch (value.type()) {
      case Json::Type::null:
        to_ += "null";
        break;
      case Json::Type::boolean:
        to_ += value.as_boolean() ? "true" : "false";
        break;
      case Json::Type::integer:
        to_ += std::to_string(value.as_integer());
        break;
      case Json::Type::real:
        to_ += nlohmann::json(value.as_number()).dump();
        break;
      case Json::Type::string:
        print_string(value.as_string(), to_);
        break;
      case Json::Type::array:
        print_items(value.items());
        break;
      case Json::Type::object:
        print_members(value.members());
        break;
    }
  }

 private:
  void print_items(const std::vector<Json>& items) {
    to_ += '[';
    ++depth_;
    for (const Json& item : items) {
      separate(&item == items.data());
      print(item);
    }
    close(items.empty(), ']');
  }

  // Of a key that stands twice the last value, at the place of the first.
  void print_members(const std::vector<Json::Member>& members) {
    std::unordered_map<std::string_view, const Json*> last;
    for (const auto& [key, member] : members) last[key] = &member;
    to_ += '{';
    ++depth_;
    bool first = true;
    for (const auto& [key, member] : members) {
      const Json*& value = last.find(key)->second;
      if (value == nullptr) continue;  // printed
      separate(std::exchange(first, false));
      print_string(key, to_);
      to_ += indent_ < 0 ? ":" : ": ";
      print(*std::exchange(value, nullptr));
    }
    close(members.empty(), '}');
  }

  void separate(bool first) {
    if (!first) to_ += ',';
    new_line();
  }
  void close(bool empty, char bracket) {
    --depth_;
    if (!empty) new_line();
    to_ += bracket;
  }
  void new_line() {
    if (indent_ < 0) return;
    to_ += '\n';
    to_.append(static_cast<std::size_t>(indent_) * static_cast<std::size_t>(depth_), ' ');
  }

  int indent_;
  int depth_ = 0;
  std::string& to_;
};

}  // namespace

std::string Json::dump(int indent) const {
  std::string text;
  Printer(indent, text).print(*this);
  return steering_escaped(text);
}

}  // namespace zeroplan
