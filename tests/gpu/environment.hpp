// A variable of the environment for as long as the object lives.
#pragma once

#include <cstdlib>

namespace zeroplan::runtime::test {

class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  ~Environment() { ::unsetenv(name_); }

 private:
  const char* name_;
};

}  // namespace zeroplan::runtime::test
