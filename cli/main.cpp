#include <cstdlib>
#include <ios>
#include <new>

#include "base/process_memory.hpp"
#include "cli/command_line.hpp"

int main(int argc, char** argv) {
  zeroplan::keep_freed_memory();
  try {
    // Nobody here writes by stdio; alone, a stream writes a line of any length in one call.
    std::ios::sync_with_stdio(false);
  } catch (const std::bad_alloc&) {
    std::_Exit(
        zeroplan::cli::out_of_memory());  // the streams are neither what they were nor anything new
  }
  return zeroplan::cli::run_command_line(argc, argv);
}
