// A text of a user's file as one value of the languages that kits, and the commands of `zeroplan
// doctor`, are written in: one function for one language. Whoever reads the value gets the text,
// and nothing of it is executed. JSON is written by Json::dump; a hostfile and sbatch's directives
// have no quotes, so they hold host names that is_host_name() takes, and numbers.
#pragma once

#include <string>
#include <string_view>

namespace zeroplan {

// A word of sh and bash: in single quotes where it is not plain. Precondition: no NUL, which no
// word can hold.
std::string sh_word(std::string_view text);
// The same, in single quotes always.
std::string sh_quoted(std::string_view text);
// A word that no command takes for an option: "-x" becomes "./-x". For names of files.
std::string sh_path(std::string_view path);

// A scalar of YAML that every reader takes for a string: plain where it can be, else in double
// quotes.
std::string yaml_string(std::string_view text);
// The same in a file of docker compose, which fills in $NAME where "$" stands alone.
std::string compose_string(std::string_view text);

// Words of a line of Markdown, shown as they are: no markup, no HTML, no line break.
std::string markdown_text(std::string_view text);

}  // namespace zeroplan
