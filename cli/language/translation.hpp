// Says in another language what the commands say in English.
//
// Every layer makes its sentences in English, and JSON documents stay English. Where a command
// prints for people, the finished lines go through here: the catalogue (configs/messages/zh.json)
// holds the formats of all sentences beside their translation; the format that a line was made of
// is found again by matching, what filled its slots is translated the same way (a name, a number or
// a text in double quotes matches nothing and stays), and the other language's format is filled.
// Where several formats match, the one that leaves the fewest English words is taken, of those the
// one with the most letters. So no layer below knows of languages.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cli/language/language.hpp"
#include "cli/language/message.hpp"
#include "model/json.hpp"

namespace zeroplan {

// The catalogue of one language.
class Catalogue {
 public:
  struct Message {
    MessageFormat english;
    MessageFormat other;
  };

  // A document zeroplan.messages/1. Throws InputError, also where two formats differ in slots.
  Catalogue(std::string_view document, const std::string& file);

  // Formats with slots, those with the most letters first: what is said more exactly matches first.
  const std::vector<Message>& messages() const { return messages_; }
  // Sentences without slots.
  const std::map<std::string, std::string, std::less<>>& sentences() const { return sentences_; }

 private:
  std::map<std::string, std::string, std::less<>> sentences_;
  std::vector<Message> messages_;
};

// The texts of the report's page in `language`, English in front; empty for English. They are
// looked up by configs/report/words.js and by no command: the catalogue's group "page".
Json page_texts(Language language);

class Translation {
 public:
  explicit Translation(Language language);  // of the embedded catalogue

  // `english` line by line: spaces and "- " in front stay. What the catalogue lacks stays English.
  std::string text(std::string_view english) const;

  // A format of the catalogue, filled: `arguments` are translated too.
  std::string filled(std::string_view format, const std::vector<std::string>& arguments) const;

 private:
  struct Said {
    std::string text;
    int english = 0;  // words that the catalogue lacks
  };
  using Known = std::map<std::string, Said, std::less<>>;  // phrases of one line

  std::string line(std::string_view english) const;
  Said phrase(std::string_view english, Known& known) const;
  Said filled(const Catalogue::Message& message,
              std::vector<std::string> arguments,
              Known& known) const;

  const Catalogue* catalogue_ = nullptr;  // read once; none: English
};

}  // namespace zeroplan
