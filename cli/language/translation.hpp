// Says in another language what the commands say in English.
//
// Every layer makes its sentences as phrases (model/phrase.hpp), and JSON documents stay English.
// Where a command prints for people, phrases go through here: the catalogue
// (configs/messages/zh.json) holds the English of all of them, with slots, beside its translation.
// Each line of a phrase is looked up, what fills its slots is translated the same way, and the
// other language's format is filled. A value (a name, a number) stays, unless it is a word of the
// catalogue. So no layer below knows of languages.
//
// Some texts still come here finished, as values of several words. The format that such a line was
// made of is found again by matching; where several match, the one that leaves the fewest English
// words is taken, of those the one with the most letters.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/language/language.hpp"
#include "cli/language/message.hpp"
#include "model/json.hpp"
#include "model/phrase.hpp"

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

  // The format whose English has the key of a phrase; null where there is none.
  const Message* find(std::string_view key) const;

 private:
  std::map<std::string, std::string, std::less<>> sentences_;
  std::vector<Message> messages_;
  std::map<std::string, std::size_t, std::less<>> by_key_;  // of messages_
};

// The texts of the report's page in `language`, English in front; empty for English. They are
// looked up by configs/report/words.js and by no command: the catalogue's group "page".
Json page_texts(Language language);

class Translation {
 public:
  explicit Translation(Language language);  // of the embedded catalogue

  // Line by line: spaces and "- " in front stay. What the catalogue lacks stays English.
  std::string text(const Phrase& phrase) const;

  // A format of the catalogue, filled: `arguments` are translated too.
  std::string filled(std::string_view format, const std::vector<Phrase>& arguments) const;

 private:
  struct Said {
    std::string text;
    int english = 0;  // words that the catalogue lacks
  };
  using Known = std::map<std::string, Said, std::less<>>;  // phrases of one line

  std::string lines(std::string_view english) const;
  std::string line(std::string_view english) const;
  std::string line(std::string_view key, std::span<const Phrase> arguments) const;
  std::optional<std::string> known_line(std::string_view key,
                                        std::span<const Phrase> arguments) const;
  std::string filled(const Catalogue::Message& message, std::span<const Phrase> arguments) const;
  Said phrase(std::string_view english, Known& known) const;
  Said filled(const Catalogue::Message& message,
              std::vector<std::string> arguments,
              Known& known) const;

  const Catalogue* catalogue_ = nullptr;  // read once; none: English
};

}  // namespace zeroplan
