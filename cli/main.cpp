#include <ios>

#include "cli/command_line.hpp"

int main(int argc, char** argv) {
  // Nobody here writes by stdio; alone, a stream writes a line of any length in one call.
  std::ios::sync_with_stdio(false);
  return zeroplan::run_command_line(argc, argv);
}
