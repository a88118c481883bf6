// The folder in which zeroplan keeps what a rehearsal needs. Python runs code from it, so nobody
// but its user may be able to put anything there.
#pragma once

#include <filesystem>
#include <string>

namespace zeroplan::rehearsal {

// Throws InputError where somebody else could change what stands at an absolute path: where a
// folder of the path, from the root on, is neither the user's nor root's, or others may write to
// it. In a folder with the sticky bit, such as /tmp, others cannot replace what is there; a link
// has to be the user's own or root's. A group of the user's name without other members is the user.
// What is not there is nobody's.
void require_private(const std::filesystem::path& path);

// $XDG_CACHE_HOME/zeroplan/rehearsal, or that in ~/.cache; made for the user alone where it is not
// there. Throws InputError where there is no home, where the folder cannot be made, and where
// somebody else could put something there.
std::string cache_folder();

}  // namespace zeroplan::rehearsal
