// What training reads from the middle, and whose length must be known, has to be a regular file:
// /dev/zero never ends, and a pipe that nobody writes to is waited for when it is opened.
#pragma once

#include <string>

namespace zeroplan::runtime {

// What `path` is where it is no regular file, for messages: "a directory", "a pipe", "a device",
// "no file". Empty for a regular file. Opens nothing.
std::string other_than_file(const std::string& path);

}  // namespace zeroplan::runtime
