#include "base/phrase.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace zeroplan {

// A key that is empty: `english` is a value. One that is the English has no slots.
struct Phrase::Made {
  std::string english;
  std::string key;
  std::vector<Phrase> arguments;

  // Not all that comes as a literal is one (an exception's what()): it shall stand for no slot.
  void add_text(std::string_view text) {
    english += text;
    const std::size_t end = key.size();
    key += text;
    std::replace(key.begin() + static_cast<std::ptrdiff_t>(end), key.end(), kSlot, ' ');
  }
  void add_argument(Phrase argument) {
    english += argument.english();
    key += kSlot;
    arguments.push_back(std::move(argument));
  }
};

Phrase::Phrase(const char* text) {
  if (*text != '\0') own().add_text(text);
}

Phrase::Phrase(std::string value) {
  if (!value.empty()) made_ = std::make_shared<Made>(Made{std::move(value), "", {}});
}

Phrase::Phrase(std::string_view value) : Phrase(std::string(value)) {}

const std::string& Phrase::english() const {
  static const std::string nothing;
  return made_ ? made_->english : nothing;
}

std::string_view Phrase::key() const { return made_ ? std::string_view(made_->key) : ""; }

const std::vector<Phrase>& Phrase::arguments() const {
  static const std::vector<Phrase> none;
  return made_ ? made_->arguments : none;
}

// Behind it a value stands in a slot, so that texts can be added.
Phrase::Made& Phrase::own() {
  if (!made_) made_ = std::make_shared<Made>();
  if (made_.use_count() > 1) made_ = std::make_shared<Made>(*made_);
  if (made_->key.empty() && !made_->english.empty()) {
    auto with_slot = std::make_shared<Made>();
    with_slot->add_argument(*this);
    made_ = std::move(with_slot);
  }
  return *made_;
}

Phrase& Phrase::operator+=(const char* text) {
  if (*text != '\0') own().add_text(text);
  return *this;
}

Phrase& Phrase::operator+=(char text) {
  own().add_text({&text, 1});
  return *this;
}

Phrase& Phrase::operator+=(const Phrase& argument) {
  if (argument.empty()) return *this;
  Phrase copy = argument;  // it may be this one
  own().add_argument(std::move(copy));
  return *this;
}

Phrase& Phrase::append(const Phrase& part) {
  if (part.is_value()) return *this += part;
  const Phrase copy = part;  // it may be this one
  Made& made = own();
  made.english += copy.made_->english;
  made.key += copy.made_->key;
  made.arguments.insert(
      made.arguments.end(), copy.made_->arguments.begin(), copy.made_->arguments.end());
  return *this;
}

Phrase Phrase::with_values(const std::function<std::string(std::string_view)>& change) const {
  if (empty()) return {};
  if (is_value()) return change(english());
  Phrase result;
  Made& made = result.own();
  std::string_view rest = key();
  for (const Phrase& argument : arguments()) {
    const std::size_t slot = rest.find(kSlot);
    made.add_text(rest.substr(0, slot));
    made.add_argument(argument.with_values(change));
    rest.remove_prefix(slot + 1);
  }
  made.add_text(rest);
  return result;
}

// Makes a phrase of its parts, with empty arguments in their slots.
struct PhraseMaker {
  Phrase result;
  Phrase::Made& made = result.own();
};

namespace phrase_parts {

// fmt has checked the format while compiling, so braces pair and numbers are in range.
Phrase filled(std::string_view format, std::span<const Argument> arguments) {
  PhraseMaker maker;
  std::size_t next = 0;
  while (!format.empty()) {
    const std::size_t brace = format.find_first_of("{}");
    maker.made.add_text(format.substr(0, brace));
    if (brace == std::string_view::npos) break;
    format.remove_prefix(brace);
    if (format[1] == format[0]) {
      maker.made.add_text(format.substr(0, 1));
      format.remove_prefix(2);
      continue;
    }
    const std::size_t end = format.find('}');
    const std::size_t colon = std::min(format.find(':'), end);
    const std::string number(format.substr(1, colon - 1));
    const std::size_t index = number.empty() ? next++ : std::stoul(number);
    ZP_CHECK(index < arguments.size(), "a phrase names an argument or takes its width from one");
    const std::string field = "{" + std::string(format.substr(colon, end - colon)) + "}";
    maker.made.add_argument(arguments[index].made(arguments[index].value, field));
    format.remove_prefix(end + 1);
  }
  return std::move(maker.result);
}

}  // namespace phrase_parts

}  // namespace zeroplan
