#include "rehearsal/torch_install.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/check.hpp"
#include "base/diagnostic.hpp"
#include "base/json.hpp"
#include "rehearsal/embedded.hpp"
#include "rehearsal/process.hpp"

namespace zeroplan::rehearsal {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCommandLine = "command line";
constexpr std::string_view kPythonNames[] = {"python3", "python"};

[[noreturn]] void fail(const Phrase& expected, const Phrase& got, const Phrase& hint) {
  throw InputError({kCommandLine, "COMMAND", expected, got, hint});
}

bool is_python(const std::string& path) {
  const std::string name = fs::path(path).filename().string();
  return name.starts_with("python") || name.starts_with("pypy");
}

// "#!/venv/bin/python" and "#!/usr/bin/env python3": the program on a script's first line.
std::string first_line_program(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string line;
  std::getline(file, line);
  if (!line.starts_with("#!")) return "";
  std::istringstream words(line.substr(2));
  std::string word;
  while (words >> word) {
    const bool is_env = fs::path(word).filename() == "env";
    if (!is_env && !word.starts_with('-')) return find_program(word);
  }
  return "";
}

// pip writes "#!/bin/sh" and `'''exec' /long/path/python` where the path is long.
std::string exec_line_program(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string line;
  constexpr std::string_view kExec = "'''exec' ";
  for (int i = 0; i < 3 && std::getline(file, line); ++i) {
    if (!line.starts_with(kExec)) continue;
    const std::string rest = line.substr(kExec.size());
    const bool quoted = rest.starts_with('"');
    return find_program(
        rest.substr(quoted ? 1 : 0, rest.find(quoted ? '"' : ' ', 1) - (quoted ? 1 : 0)));
  }
  return "";
}

std::vector<int> numbers_of(const std::string& version) {
  std::vector<int> numbers;
  std::istringstream parts(version);
  for (std::string part; std::getline(parts, part, '.');)
    numbers.push_back(std::atoi(part.c_str()));
  numbers.resize(std::max<std::size_t>(numbers.size(), 3));
  return numbers;
}

// Importing torch would take seconds and, without CUDA's libraries, fail.
std::string question() {
  const auto files = rehearsal_files();
  const auto found = std::find_if(files.begin(), files.end(), [](const EmbeddedFile& file) {
    return file.path == "rehearsal/python/find_torch.py";
  });
  ZP_CHECK(found != files.end(), "the question is embedded");
  return std::string(found->text);
}

Json ask(const std::string& python) {
  const Output output = run_and_read({python, "-c", question()});
  constexpr std::string_view kMark = "ZEROPLAN ";
  const std::size_t at = output.text.find(kMark);
  if (output.exit != 0 || at == std::string::npos) {
    const std::string last = output.text.substr(0, output.text.find('\n'));
    fail("a Python of 3.8 or newer", in_quotes(last), phrase("{} does not answer", python));
  }
  const std::size_t begin = at + kMark.size();
  return parse_json(output.text.substr(begin, output.text.find('\n', begin) - begin), python).root;
}

std::string text_of(const Json& answer, std::string_view key) {
  const Json* found = answer.find(key);
  return found != nullptr && found->is_string() ? found->as_string() : "";
}

// Of wheels that do not say it: what torch's wheels of that CUDA asked for.
struct UsualVersions {
  int cuda_major;
  const char* cudnn;
  const char* nccl;
};
constexpr std::array kUsual = {UsualVersions{11, "8.7.0", "2.20.5"},
                               UsualVersions{12, "9.1.0", "2.21.5"},
                               UsualVersions{13, "9.19.0", "2.28.9"}};

}  // namespace

int cuda_number(const std::string& version) {
  const std::vector<int> n = numbers_of(version);
  return n[0] * 1000 + n[1] * 10;
}

int cudnn_number(const std::string& version) {
  const std::vector<int> n = numbers_of(version);
  return n[0] >= 9 ? n[0] * 10000 + n[1] * 100 + n[2] : n[0] * 1000 + n[1] * 100 + n[2];
}

int nccl_number(const std::string& version) {
  const std::vector<int> n = numbers_of(version);
  return n[0] * 10000 + n[1] * 100 + n[2];
}

std::string python_of_command(const std::vector<std::string>& command) {
  const std::string& word = command.front();
  const std::string program = find_program(word);
  if (program.empty()) {
    const Phrase hint =
        is_python(word)
            ? "no such program on the path: activate the environment, or name its python"
            : "no such program on the path";
    fail("a program that can be run", in_quotes(word), hint);
  }
  if (is_python(program)) return program;
  for (const std::string& named : {first_line_program(program), exec_line_program(program)}) {
    if (!named.empty() && is_python(named)) return named;
  }
  for (const std::string_view name : kPythonNames) {
    const std::string found = find_program(std::string(name));
    if (!found.empty()) return found;
  }
  fail("a Python", "none on the path", "activate the environment that the script runs in");
}

TorchInstall find_torch(const std::string& python) {
  const Json answer = ask(python);
  TorchInstall install;
  install.python = python;
  install.library = text_of(answer, "library");
  const std::string release = text_of(answer, "__version__");
  install.version = release.substr(0, release.find('+'));
  install.cuda = text_of(answer, "cuda");
  if (install.library.empty()) {
    fail("a Python with PyTorch",
         phrase("{} without", python),
         "activate the script's environment, or pip install torch");
  }
  if (install.cuda.empty()) {
    const bool rocm = !text_of(answer, "hip").empty();
    fail("a PyTorch for CUDA",
         Phrase("torch ") + release + (rocm ? " for ROCm" : " for CPUs"),
         phrase("pip install --force-reinstall --no-deps torch=={} brings it; no GPU is needed",
                install.version));
  }
  install.cuda_number = cuda_number(install.cuda);
  if (const Json* beside = answer.find("beside")) {
    for (const Json& path : beside->items()) {
      if (path.is_string()) install.beside.push_back(path.as_string());
    }
  }
  const Json* wants = answer.find("wants");
  const int major = install.cuda_number / 1000;
  const auto usual = std::find_if(kUsual.begin(), kUsual.end(), [&](const UsualVersions& row) {
    return row.cuda_major == std::clamp(major, kUsual.front().cuda_major, kUsual.back().cuda_major);
  });
  const std::string cudnn = wants != nullptr ? text_of(*wants, "cudnn") : "";
  const std::string nccl = wants != nullptr ? text_of(*wants, "nccl") : "";
  install.cudnn_number = cudnn_number(cudnn.empty() ? usual->cudnn : cudnn);
  install.nccl_number = nccl_number(nccl.empty() ? usual->nccl : nccl);
  return install;
}

}  // namespace zeroplan::rehearsal
