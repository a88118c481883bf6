#include "runtime/train/checkpoint_folder.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <new>
#include <optional>
#include <random>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/diagnostic.hpp"
#include "base/json.hpp"
#include "base/output_file.hpp"
#include "runtime/train/checkpoint_state.hpp"

namespace zeroplan::runtime {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMarker = ".zeroplan-checkpoints";
constexpr const char* kMarkerSchema = "zeroplan.checkpoints/1";
constexpr const char* kLatest = "latest";
constexpr std::string_view kTag = "global_step";  // DeepSpeed's own
// Of what is being written and removed: known as ours when a run was killed meanwhile.
constexpr std::string_view kInTheMaking = ".zeroplan-saving.";
constexpr std::string_view kGoing = ".zeroplan-removing.";

[[noreturn]] void refuse(const std::string& file, Phrase expected, Phrase got, Phrase hint = "") {
  throw InputError(Diagnostic{.file = file,
                              .pointer = "",
                              .expected = std::move(expected),
                              .got = std::move(got),
                              .hint = std::move(hint)});
}

std::string reason_of(int error) { return std::generic_category().message(error); }

bool is_file(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

bool is_folder(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

// "global_step200", "global_step200.2"
struct Tag {
  std::string name;
  std::int64_t steps = 0;
  std::int64_t copy = 1;
};

std::optional<std::int64_t> number_of(std::string_view text) {
  std::int64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

std::optional<Tag> tag_of(const std::string& name) {
  if (!name.starts_with(kTag)) return std::nullopt;
  const std::string_view rest = std::string_view(name).substr(kTag.size());
  const std::size_t dot = rest.find('.');
  const auto steps = number_of(rest.substr(0, dot));
  const auto copy = dot == std::string_view::npos ? std::optional<std::int64_t>(1)
                                                  : number_of(rest.substr(dot + 1));
  if (!steps || !copy) return std::nullopt;
  return Tag{name, *steps, *copy};
}

std::vector<std::string> names_in(const std::string& folder) {
  std::error_code error;
  std::vector<std::string> names;
  fs::directory_iterator at(folder, error);
  for (; !error && at != fs::directory_iterator(); at.increment(error)) {
    names.push_back(at->path().filename().string());
  }
  if (error) refuse(folder, "a folder that can be read", error.message());
  std::sort(names.begin(), names.end());
  return names;
}

// Oldest first.
std::vector<Tag> tags_in(const std::string& folder) {
  std::vector<Tag> tags;
  for (const std::string& name : names_in(folder)) {
    const auto tag = tag_of(name);
    if (tag && is_file(folder + "/" + name + "/" + kStateFile)) tags.push_back(*tag);
  }
  std::sort(tags.begin(), tags.end(), [](const Tag& a, const Tag& b) {
    return std::pair(a.steps, a.copy) < std::pair(b.steps, b.copy);
  });
  return tags;
}

std::string new_run_name() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

// A checkpoint's files, and nothing else: a folder in which somebody keeps more stays.
void remove_checkpoint(const std::string& folder) {
  for (const char* name : kCheckpointFiles) unlink((folder + "/" + name).c_str());
  rmdir(folder.c_str());
}

// A folder in which somebody keeps more stays where it is, under its name.
bool holds_nothing_else(const std::string& checkpoint) {
  const std::vector<std::string> names = names_in(checkpoint);
  return std::all_of(names.begin(), names.end(), [](const std::string& name) {
    return std::find(kCheckpointFiles.begin(), kCheckpointFiles.end(), name) !=
           kCheckpointFiles.end();
  });
}

// The marker of a run that saved here; one that was killed in between leaves it empty.
bool is_marker(const std::string& path) {
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return false;
  if (status.st_size == 0) return true;
  try {
    const Json root = read_json_file(path).root;
    const Json* schema = root.is_object() ? root.find("schema") : nullptr;
    return schema != nullptr && *schema == Json(kMarkerSchema);
  } catch (const InputError&) {
    return false;
  }
}

// Which run wrote the checkpoint; nothing where that cannot be read.
std::optional<std::string> run_of(const std::string& checkpoint) {
  const std::string path = checkpoint + "/" + kStateFile;
  try {
    const Json state = read_json_file(path).root;
    const Json* run = state.find("run");
    if (run != nullptr && run->is_string()) return run->as_string();
  } catch (const InputError&) {
  }
  return std::nullopt;
}

// With its parents, all of them on the disk.
void make_folder_to_last(const std::string& folder) {
  const std::vector<std::string> missing = missing_folders(folder);
  std::error_code error;
  fs::create_directories(folder, error);
  if (!is_folder(folder)) {
    std::error_code ignored;
    if (fs::exists(folder, ignored)) {
      refuse(folder, "a place that can be written to", "a file of that name");
    }
    throw WriteError(folder, error ? error.message() : reason_of(ENOTDIR));
  }
  for (const std::string& made : missing) sync_folder(fs::path(made).parent_path().string());
}

std::string without_slashes(std::string folder) {
  while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
  return folder;
}

}  // namespace

CheckpointFolder::CheckpointFolder(std::string folder, std::int64_t keep, std::string run)
    : folder_(without_slashes(std::move(folder))),
      keep_(keep),
      run_(run.empty() ? new_run_name() : std::move(run)) {
  if (folder_.empty()) refuse("command line: --save", "the name of a folder", "\"\"");
  make_folder_to_last(folder_);
  require_ours();
  require_pointer();
  lock();
  remove_leftovers();
}

CheckpointFolder::~CheckpointFolder() {
  try {
    abandon();
  } catch (const std::bad_alloc&) {
    // Who opens the folder next removes it.
  }
  if (lock_ >= 0) close(lock_);
}

// A folder of somebody else's would be mixed with ours, and later taken for ours.
void CheckpointFolder::require_ours() const {
  if (is_marker(folder_ + "/" + kMarker) || holds_checkpoint(folder_)) return;
  // What file systems keep in the top folder of a drive is nobody's.
  constexpr std::array<std::string_view, 2> kOfTheDrive = {"lost+found", ".snapshot"};
  for (const std::string& name : names_in(folder_)) {
    if (std::find(kOfTheDrive.begin(), kOfTheDrive.end(), name) != kOfTheDrive.end()) continue;
    refuse(folder_,
           "an empty folder, a new one, or one with checkpoints of zeroplan run",
           "a folder that holds " + in_quotes(name),
           "name a folder of its own: --save " + folder_ + "/checkpoints");
  }
}

// What is written at the end of each save has to be a file of this folder's: a pipe would be waited
// for, and a link's target is somebody else's.
void CheckpointFolder::require_pointer() const {
  const std::string path = folder_ + "/" + kLatest;
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0 || S_ISREG(status.st_mode)) return;
  refuse(path,
         "no such file, or the one that names the newest checkpoint",
         S_ISLNK(status.st_mode) ? "a symbolic link" : "something that is no file",
         "move it away, or name another folder");
}

void CheckpointFolder::lock() {
  const std::string path = folder_ + "/" + kMarker;
  lock_ = open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (lock_ < 0) throw WriteError(path, reason_of(errno));
  while (flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) break;  // a network file system without locks
    close(std::exchange(lock_, -1));
    refuse(folder_,
           "a folder into which no other run writes",
           "one that another run has locked",
           "name another folder, or wait until that run has ended");
  }
  struct stat status {};
  if (fstat(lock_, &status) == 0 && status.st_size > 0) return;
  const std::string text = Json::object({{"schema", kMarkerSchema}}).dump() + "\n";
  if (write(lock_, text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      fsync(lock_) != 0) {
    throw WriteError(path, reason_of(errno));
  }
}

// Of runs that were killed while they wrote or removed a checkpoint.
void CheckpointFolder::remove_leftovers() const {
  for (const std::string& name : names_in(folder_)) {
    if (name.starts_with(kInTheMaking) || name.starts_with(kGoing)) {
      remove_checkpoint(folder_ + "/" + name);
    }
  }
}

std::string CheckpointFolder::begin() {
  abandon();
  for (int tries = 0;; ++tries) {
    begun_ = fmt::format("{}/{}{}", folder_, kInTheMaking, new_run_name());
    if (mkdir(begun_.c_str(), 0777) == 0) return begun_;
    if (errno != EEXIST || tries == 100) {
      throw WriteError(std::exchange(begun_, ""), reason_of(errno));
    }
  }
}

void CheckpointFolder::finish(std::int64_t steps) {
  sync_folder(begun_);
  std::string tag = fmt::format("{}{}", kTag, steps);
  struct stat taken {};
  for (int copy = 2; lstat((folder_ + "/" + tag).c_str(), &taken) == 0; ++copy) {
    tag = fmt::format("{}{}.{}", kTag, steps, copy);
  }
  rename_to_free_name(begun_, folder_ + "/" + tag);
  begun_.clear();
  sync_folder(folder_);
  replace_file(folder_ + "/" + kLatest, tag + "\n");
  if (keep_ > 0) remove_too_many(tag);
}

void CheckpointFolder::abandon() {
  // Its space may be what is missing.
  if (!begun_.empty()) remove_checkpoint(begun_);
  begun_.clear();
}

// What is going is renamed first: half of it is no checkpoint.
void CheckpointFolder::remove_too_many(const std::string& newest) const {
  std::vector<std::string> own;
  for (const Tag& tag : tags_in(folder_)) {
    const std::string checkpoint = folder_ + "/" + tag.name;
    if (tag.name != newest && run_of(checkpoint) == run_ && holds_nothing_else(checkpoint)) {
      own.push_back(tag.name);
    }
  }
  const auto kept = static_cast<std::size_t>(keep_ - 1);
  for (std::size_t i = 0; i + kept < own.size(); ++i) {
    const std::string going = fmt::format("{}/{}{}", folder_, kGoing, own[i]);
    if (rename((folder_ + "/" + own[i]).c_str(), going.c_str()) == 0) remove_checkpoint(going);
  }
}

std::string find_checkpoint(const std::string& said) {
  const std::string folder = without_slashes(said);
  if (is_file(folder + "/" + kStateFile)) return folder;
  const std::string latest = folder + "/" + kLatest;
  if (is_file(latest)) {
    constexpr std::int64_t kLongestName = 4096;
    std::string name = read_text_file(latest, kLongestName);
    while (!name.empty() && (name.back() == '\n' || name.back() == '\r')) name.pop_back();
    const auto tag = tag_of(name);
    if (!tag) refuse(latest, "the name of a checkpoint, as global_step100", in_quotes(name));
    const std::string found = folder + "/" + tag->name;
    if (is_file(found + "/" + kStateFile)) return found;
    refuse(latest,
           "the name of a checkpoint in that folder",
           in_quotes(name) + ", which is not there",
           "name one that is: --resume " + folder + "/global_stepN");
  }
  // A run that was killed between its first checkpoint and the pointer to it.
  if (is_folder(folder)) {
    const std::vector<Tag> tags = tags_in(folder);
    if (!tags.empty()) return folder + "/" + tags.back().name;
  }
  refuse(folder + "/" + kStateFile,
         "a checkpoint, or a folder of checkpoints with its file latest",
         is_folder(folder) ? "a folder without either" : "no folder of that name");
}

}  // namespace zeroplan::runtime
