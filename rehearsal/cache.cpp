#include "rehearsal/cache.hpp"

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <utility>

#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/diagnostic.hpp"

namespace zeroplan::rehearsal {
namespace {

namespace fs = std::filesystem;

constexpr const char* kElsewhere = "set XDG_CACHE_HOME to a folder of your own";

// In a container of a user's own, without root: the machine's root has no number there, and its
// folders are shown as those of nobody (user_namespaces(7), overflowuid).
bool is_unmapped_root(uid_t owner) {
  std::ifstream map("/proc/self/uid_map");
  for (std::uint64_t inside = 0, outside = 0, count = 0; map >> inside >> outside >> count;) {
    if (inside == 0) return false;
  }
  std::uint64_t nobody = 0;
  return std::ifstream("/proc/sys/kernel/overflowuid") >> nobody && owner == nobody;
}

bool is_ours(uid_t owner) { return owner == geteuid() || owner == 0 || is_unmapped_root(owner); }

// A user's own group, as many systems make one for each user, whose members the user alone is.
bool is_own_group(gid_t group) {
  const passwd* const user = getpwuid(geteuid());
  const std::string name = user == nullptr ? "" : user->pw_name;
  const ::group* const found = getgrgid(group);
  if (found == nullptr || name.empty() || name != found->gr_name) return false;
  for (char** member = found->gr_mem; *member != nullptr; ++member) {
    if (name != *member) return false;
  }
  return true;
}

struct Intruder {
  Phrase who;
  Phrase hint;
};

std::optional<Intruder> intruder_in(const fs::path& path) {
  struct stat facts {};
  if (lstat(path.c_str(), &facts) != 0) return std::nullopt;
  const std::string said = printable(path.string());
  if (!is_ours(facts.st_uid)) {
    return Intruder{phrase("{}, which belongs to user {}", said, std::uint64_t{facts.st_uid}),
                    kElsewhere};
  }
  if (S_ISLNK(facts.st_mode) || (facts.st_mode & S_ISVTX) != 0) return std::nullopt;
  const bool group = (facts.st_mode & S_IWGRP) != 0 && !is_own_group(facts.st_gid);
  const bool others = (facts.st_mode & S_IWOTH) != 0;
  if (!group && !others) return std::nullopt;
  return Intruder{others ? phrase("{}, which everybody can write to", said)
                         : phrase("{}, which its group can write to", said),
                  phrase("chmod go-w {}, or set XDG_CACHE_HOME to a folder of your own", said)};
}

std::optional<Intruder> intruder_on(const fs::path& path) {
  fs::path so_far;
  for (const fs::path& part : path) {
    so_far /= part;
    if (auto found = intruder_in(so_far)) return found;
  }
  return std::nullopt;
}

[[noreturn]] void refuse_cache(const fs::path& path, Phrase expected, Phrase got, Phrase hint) {
  throw InputError({path.string(), "", std::move(expected), std::move(got), std::move(hint)});
}

fs::path cache_root() {
  const auto absolute = [](const char* path) { return path != nullptr && *path == '/'; };
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  if (absolute(cache)) return cache;
  const char* home = std::getenv("HOME");
  if (!absolute(home)) {
    const passwd* const user = getpwuid(geteuid());
    home = user == nullptr ? nullptr : user->pw_dir;
  }
  if (absolute(home)) return fs::path(home) / ".cache";
  refuse_cache(
      "XDG_CACHE_HOME", "a folder for what zeroplan keeps", "none, and no home folder", kElsewhere);
}

}  // namespace

void require_private(const fs::path& path) {
  std::optional<Intruder> found = intruder_on(path);
  std::error_code error;
  if (!found) found = intruder_on(fs::weakly_canonical(path, error));
  if (found) refuse_cache(path, "a folder that nobody else can write to", found->who, found->hint);
}

std::string cache_folder() {
  const fs::path folder = (cache_root() / "zeroplan" / "rehearsal").lexically_normal();
  // Looked at before anything is made, which could be made in somebody else's folder, and again
  // when nobody can come between.
  for (const bool made : {false, true}) {
    require_private(folder);
    if (made) break;
    fs::path so_far;
    for (const fs::path& part : folder) {
      so_far /= part;
      if (mkdir(so_far.c_str(), S_IRWXU) == 0 || errno == EEXIST) continue;
      struct stat facts {};
      if (stat(so_far.c_str(), &facts) == 0) continue;  // a root that cannot be written to
      refuse_cache(folder, "a folder that can be written to", std::strerror(errno), kElsewhere);
    }
  }
  return folder.string();
}

}  // namespace zeroplan::rehearsal
