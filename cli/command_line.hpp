// The command line of zeroplan: parses the arguments, runs one command, returns the exit code of
// docs/contract.md section 3.
#pragma once

#include <string_view>

namespace zeroplan::cli {

// The sentences in JSON documents are English, as docs/contract.md says. The page, which shows them
// to its reader, asks for those of fit and report in the reader's language.
enum class DocumentSentences { english, of_the_reader };

int run_command_line(int argc,
                     const char* const* argv,
                     DocumentSentences sentences = DocumentSentences::english);

// Says "out of memory" without any, in `line` where it has text; returns the exit code for it.
int out_of_memory(std::string_view line = {}) noexcept;

}  // namespace zeroplan::cli
