// Says in another language what the commands say in English.
//
// Every layer makes its sentences as phrases (base/phrase.hpp), and JSON documents stay English.
// Where a command prints for people, phrases go through here: the catalogue
// (configs/messages/zh.json) holds the English of all of them, with slots, beside its translation.
// Each line of a phrase is looked up by its key, what fills its slots is translated the same way,
// and the other language's format is filled. A value (a name, a number) stays, unless the whole of
// it is a text of the catalogue. So no layer below knows of languages, and no finished sentence is
// taken apart again.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "base/phrase.hpp"
#include "cli/language/language.hpp"
#include "cli/language/message.hpp"

namespace zeroplan::cli {

// The catalogue of one language.
class Catalogue {
 public:
  struct Message {
    MessageFormat english;
    MessageFormat other;
  };

  // A document zeroplan.messages/1. Throws InputError, also where two formats differ in slots.
  Catalogue(std::string_view document, const std::string& file);

  // Formats with slots.
  const std::vector<Message>& messages() const { return messages_; }
  // All texts as they stand there, by their English: what is looked up where nothing fills a slot.
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
  std::string line(std::string_view key, std::span<const Phrase> arguments) const;
  std::optional<std::string> known_line(std::string_view key,
                                        std::span<const Phrase> arguments) const;
  std::string filled(const Catalogue::Message& message, std::span<const Phrase> arguments) const;

  const Catalogue* catalogue_ = nullptr;  // read once; none: English
};

}  // namespace zeroplan::cli
