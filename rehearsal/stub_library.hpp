// A shared library as the linker would make it, without a compiler: a soname, the versions that
// programs were linked with, and functions that do nothing but say that they were called.
//
// torch wants some 1,500 functions of CUDA's libraries; what of them nobody emulates needs only to
// be there. For 64-bit x86 and Arm under Linux.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace zeroplan::rehearsal {

struct StubFunction {
  std::string version;  // empty: none
  bool says = true;     // that it was called
};

struct StubLibrary {
  std::string soname;
  std::vector<std::string> needed;  // libraries that the dynamic linker loads with it
  std::map<std::string, StubFunction> functions;
  std::vector<std::string> versions;  // that it has beside those of its functions
  std::string callback;               // void (const char* name), of another library
};

// The file's bytes. Each function calls `callback` with its own name and returns 0.
std::string stub_library(const StubLibrary& library);

}  // namespace zeroplan::rehearsal
