// The command line of zeroplan: parses the arguments, runs one command, returns the exit code of
// docs/contract.md section 3.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/arguments.hpp"
#include "cli/language/translation.hpp"

namespace zeroplan::cli {

// The sentences in JSON documents are English, as docs/contract.md says. The page, which shows them
// to its reader, asks for those of fit and report in the reader's language.
enum class DocumentSentences { english, of_the_reader };

int run_command_line(int argc,
                     const char* const* argv,
                     DocumentSentences sentences = DocumentSentences::english);

// One command by its words, whose answer and errors go to `streams`; the exit code. What belongs to
// the process (signals, the terminal, memory that ends) is the caller's.
int run_and_report(const std::vector<std::string>& words,
                   DocumentSentences sentences,
                   const Translation& translation,
                   Streams streams);

// Says "out of memory" without any, in `line` where it has text; returns the exit code for it.
int out_of_memory(std::string_view line = {}) noexcept;

}  // namespace zeroplan::cli
