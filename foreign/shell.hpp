// A shell script as commands with lines: job scripts, and lines from a README.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace zeroplan::foreign {

struct Word {
  std::string text;
  int line = 0;
  bool whole = true;  // false: an expansion that nobody could follow is in it
};

// "--seq", "-N", and no "-1".
bool is_flag(const Word& word);

struct Command {
  std::vector<Word> words;
};

struct Script {
  std::vector<Command> commands;
  std::vector<Word> sbatch;  // words of "#SBATCH --nodes=2" lines
};

// Splits quotes, continued lines, ";", "&&", "|", comments; follows assignments of the file itself
// ("N=8", "${N}", "${N:-8}", "export N=8") and what `known` says of the environment (SLURM_NNODES).
// Arrays ("A=(--x 1)", "${A[@]}") and what `read -d '' NAME <<EOF` takes are as many words.
// Nothing is run: substitutions of commands, loops' variables and other here-documents stay what
// they are, and their words are not whole.
// Throws InputError, naming `file`, where the values of variables come to more than a file may
// have.
Script read_script(std::string_view text,
                   std::map<std::string, std::string> known = {},
                   const std::string& file = "");

}  // namespace zeroplan::foreign
