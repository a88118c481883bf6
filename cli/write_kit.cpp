#include "cli/write_kit.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <ostream>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/diagnostic.hpp"
#include "base/json.hpp"
#include "base/output_file.hpp"
#include "cli/write_file.hpp"
#include "runtime/data/disk_file.hpp"

namespace zeroplan::cli {
namespace {

namespace fs = std::filesystem;
using runtime::FileFacts;

constexpr const char* kManifest = ".zeroplan-kit.json";
constexpr const char* kManifestSchema = "zeroplan.kit/1";

// What was written, by path within the folder. Two for a file while it is being replaced.
using Manifest = std::map<std::string, std::vector<FileFacts>>;

FileFacts facts_of_text(std::string_view text) {
  return {static_cast<std::int64_t>(text.size()),
          runtime::crc32(std::as_bytes(std::span<const char>(text)))};
}

// Empty where there is none that can be read: then no file there counts as ours. `complete`:
// whether its last writer came to the end.
Manifest read_manifest(const std::string& folder, bool* complete = nullptr) {
  Manifest manifest;
  const std::string path = folder + "/" + kManifest;
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return manifest;
  try {
    const Json root = parse_json(read_text_file(path), path).root;
    const Json* said = root.find("complete");
    if (complete != nullptr) *complete = said == nullptr || *said == Json(true);
    const Json* schema = root.find("schema");
    const Json* files = root.find("files");
    if (schema == nullptr || !(*schema == Json(kManifestSchema)) || files == nullptr) return {};
    for (const auto& [name, versions] : files->members()) {
      for (const Json& version : versions.items()) {
        const Json* bytes = version.find("bytes");
        const Json* crc32 = version.find("crc32");
        if (bytes == nullptr || !bytes->is_integer()) continue;
        if (crc32 == nullptr || !crc32->is_integer()) continue;
        manifest[name].push_back(
            {bytes->as_integer(), static_cast<std::uint32_t>(crc32->as_integer())});
      }
    }
  } catch (const InputError&) {
    return {};
  }
  return manifest;
}

// `complete`: no file of another kit is among them. run.sh and the scripts start nothing before
// that.
std::string manifest_text(const Manifest& manifest, bool complete) {
  Json files = Json::object();
  for (const auto& [name, versions] : manifest) {
    Json list = Json::array();
    for (const FileFacts& facts : versions) {
      list.push_back(Json::object(
          {{"bytes", facts.bytes}, {"crc32", static_cast<std::int64_t>(facts.crc32)}}));
    }
    files[name] = std::move(list);
  }
  const Json root = Json::object(
      {{"schema", kManifestSchema}, {"complete", complete}, {"files", std::move(files)}});
  return root.dump(2) + "\n";
}

void write_manifest(const std::string& folder, const Manifest& manifest, bool complete) {
  replace_file(folder + "/" + kManifest, manifest_text(manifest, complete));
}

bool is_there(const std::string& path) {
  struct stat status {};
  return lstat(path.c_str(), &status) == 0;
}

// Whether a file that is there is one of ours: `versions` are what we wrote.
bool is_ours(const std::string& path, std::span<const FileFacts> versions) {
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return false;
  const bool known = std::any_of(versions.begin(), versions.end(), [&](const FileFacts& facts) {
    return facts.bytes == status.st_size;
  });
  if (!known) return false;  // not read: it may be long
  const FileFacts facts = runtime::facts_of(path);
  return std::find(versions.begin(), versions.end(), facts) != versions.end();
}

std::vector<FileFacts> versions_of(const Manifest& manifest, const std::string& name) {
  const auto found = manifest.find(name);
  return found == manifest.end() ? std::vector<FileFacts>() : found->second;
}

Diagnostic not_ours(const std::string& path, bool written_once) {
  return {.file = path,
          .pointer = "",
          .expected = "no file, or one as zeroplan wrote it",
          .got = written_once ? "one that was changed since" : "one that zeroplan did not write",
          .hint = "name another folder, or replace it with --force"};
}

// One writer at a time: the folder is locked until this goes.
class FolderLock {
 public:
  explicit FolderLock(const std::string& folder)
      : descriptor_(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    while (descriptor_ >= 0 && flock(descriptor_, LOCK_EX) != 0 && errno == EINTR) {
    }
  }
  ~FolderLock() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_;
};

// A file that is written and waits for its name.
struct Staged {
  std::string path;
  std::string made;    // its name until then
  std::string before;  // what had the name, while that may still be wanted back
  bool named = false;
};

// Files that get their names together; what goes before that is as it was.
class StagedFiles {
 public:
  StagedFiles() = default;
  StagedFiles(const StagedFiles&) = delete;
  StagedFiles& operator=(const StagedFiles&) = delete;
  ~StagedFiles() { take_back(); }

  void stage(const std::string& path, const tuner::KitFile& file) {
    files_.push_back({.path = path, .made = name_in_the_making(path)});
    OutputFile output = OutputFile::create(files_.back().made);
    output.write(file.text);
    output.finish();
    struct stat before {};
    struct stat made {};
    const bool replaces = lstat(path.c_str(), &before) == 0 && S_ISREG(before.st_mode);
    if (stat(files_.back().made.c_str(), &made) != 0) throw WriteError(path, std::strerror(errno));
    mode_t mode = (replaces ? before.st_mode : made.st_mode) & 07777U;
    // Who may read a script may start it.
    if (file.executable) mode |= (mode & 0444U) >> 2U;
    if (chmod(files_.back().made.c_str(), mode) != 0) throw WriteError(path, std::strerror(errno));
  }

  // A file that goes when the others get their names.
  void stage_removal(const std::string& path) { files_.push_back({.path = path}); }

  // In the order of staging.
  void name_all() {
    for (Staged& file : files_) {
      if (file.made.empty()) {
        const std::string aside = name_in_the_making(file.path);
        rename_to_free_name(file.path, aside);
        file.before = aside;
        continue;
      }
      if (is_there(file.path)) {
        const std::string aside = name_in_the_making(file.path);
        // Where a file system knows no second names it is moved, and its name is free for a moment.
        if (link(file.path.c_str(), aside.c_str()) != 0) rename_to_free_name(file.path, aside);
        file.before = aside;
      }
      if (rename(file.made.c_str(), file.path.c_str()) != 0) {
        throw WriteError(file.path, std::strerror(errno));
      }
      file.named = true;
    }
  }

  void keep() {
    for (const Staged& file : files_) {
      if (!file.before.empty()) unlink(file.before.c_str());
    }
    files_.clear();
  }

  // What was there before is there again.
  void take_back() {
    for (Staged& file : files_) {
      if (!file.named && !file.made.empty()) unlink(file.made.c_str());
      if (file.before.empty()) {
        if (file.named) unlink(file.path.c_str());
        continue;
      }
      rename(file.before.c_str(), file.path.c_str());
      // rename() does nothing where both are names of one file.
      unlink(file.before.c_str());
    }
    files_.clear();
  }

 private:
  std::vector<Staged> files_;
};

// Folders that were not there go again where the kit could not be written.
class MadeFolders {
 public:
  MadeFolders() = default;
  MadeFolders(const MadeFolders&) = delete;
  MadeFolders& operator=(const MadeFolders&) = delete;
  ~MadeFolders() {
    if (kept_) return;
    for (auto path = made_.rbegin(); path != made_.rend(); ++path) rmdir(path->c_str());
  }

  // The kit's own folder first, then those of its files.
  void make(const std::string& path) {
    const std::vector<std::string> missing = missing_folders(path);
    made_.insert(made_.end(), missing.rbegin(), missing.rend());
    make_folder(path);
  }
  void keep() { kept_ = true; }

 private:
  std::vector<std::string> made_;
  bool kept_ = false;
};

void make_folders_for(const std::vector<tuner::KitFile>& files,
                      const std::string& folder,
                      MadeFolders& folders) {
  for (const tuner::KitFile& file : files) {
    const std::size_t slash = file.path.rfind('/');
    if (slash != std::string::npos) folders.make(folder + "/" + file.path.substr(0, slash));
  }
}

// A list of another kind than a file cannot be replaced by one: a pipe would be waited for.
void require_list(const std::string& folder) {
  const std::string path = folder + "/" + kManifest;
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0 || S_ISREG(status.st_mode)) return;
  throw InputError(not_ours(path, false));
}

void refuse_what_is_not_ours(const std::vector<tuner::KitFile>& files,
                             const std::string& folder,
                             const Manifest& manifest) {
  std::vector<Diagnostic> problems;
  for (const tuner::KitFile& file : files) {
    const std::string path = folder + "/" + file.path;
    std::vector<FileFacts> versions = versions_of(manifest, file.path);
    const bool written_once = !versions.empty();
    versions.push_back(facts_of_text(file.text));  // the same text is nobody's loss
    if (is_there(path) && !is_ours(path, versions)) {
      problems.push_back(not_ours(path, written_once));
    }
  }
  if (!problems.empty()) throw InputError(problems);
}

// What the kit before had and this one has not.
void stage_stale(const std::string& folder,
                 const Manifest& before,
                 const Manifest& now,
                 StagedFiles& staged) {
  for (const auto& [name, versions] : before) {
    const bool stays = now.contains(name) || name.find("..") != std::string::npos ||
                       name.starts_with('/') || name.empty();
    if (stays) continue;
    const std::string path = folder + "/" + name;
    if (is_ours(path, versions)) staged.stage_removal(path);
  }
}

void write_into(const std::vector<tuner::KitFile>& files,
                const std::string& folder,
                bool force,
                MadeFolders& folders) {
  const FolderLock lock(folder);
  require_list(folder);
  bool was_complete = true;
  const Manifest before = read_manifest(folder, &was_complete);
  if (!force) refuse_what_is_not_ours(files, folder, before);
  for (const tuner::KitFile& file : files) {
    const std::string path = folder + "/" + file.path;
    std::error_code error;
    if (fs::is_directory(path, error)) throw WriteError(path, "a folder of that name");
  }
  make_folders_for(files, folder, folders);
  Manifest either = before;
  Manifest now;
  StagedFiles staged;
  for (const tuner::KitFile& file : files) {
    staged.stage(folder + "/" + file.path, file);
    now[file.path] = {facts_of_text(file.text)};
    either[file.path].push_back(now[file.path].front());
  }
  stage_stale(folder, before, now, staged);
  // The last name is that of the list which says that the kit is complete.
  staged.stage(folder + "/" + kManifest, {kManifest, manifest_text(now, true)});
  // Who is killed from here on leaves files of both kits, all of them known as ours.
  write_manifest(folder, either, false);
  try {
    staged.name_all();
  } catch (const WriteError&) {
    staged.take_back();
    if (before.empty()) {
      unlink((folder + "/" + kManifest).c_str());
    } else {
      write_manifest(folder, before, was_complete);
    }
    throw;
  }
  sync_folder(folder);
  staged.keep();
}

// The pages for people; everything else is for programs.
std::vector<tuner::KitFile> in_language(std::vector<tuner::KitFile> files,
                                        const Translation& words) {
  for (tuner::KitFile& file : files) {
    if (!file.page.empty()) file.text = words.text(file.page);
  }
  return files;
}

}  // namespace

void write_kit(const std::vector<tuner::KitFile>& files,
               const std::string& folder,
               bool force,
               std::ostream& log,
               const Translation& words) {
  MadeFolders folders;
  folders.make(folder);
  try {
    write_into(in_language(files, words), folder, force, folders);
    folders.keep();
  } catch (const WriteError& error) {
    throw InputError(Diagnostic{.file = error.path(),
                                .pointer = "",
                                .expected = "a place that can be written to",
                                .got = error.reason(),
                                .hint = ""});
  }
  log << words.text(phrase("wrote {} files to {}; start with PLAN.md\n", files.size(), folder));
}

void require_kit_folder(const std::string& folder, bool force) {
  require_folder(folder);
  require_list(folder);
  if (force) return;
  const Manifest manifest = read_manifest(folder);
  // Every kit has these two (docs/contract.md).
  std::vector<Diagnostic> problems;
  for (const std::string name : {"PLAN.md", "ds_config.json"}) {
    const std::string path = folder + "/" + name;
    const std::vector<FileFacts> versions = versions_of(manifest, name);
    if (is_there(path) && !is_ours(path, versions)) {
      problems.push_back(not_ours(path, !versions.empty()));
    }
  }
  if (!problems.empty()) throw InputError(problems);
}

}  // namespace zeroplan::cli
