# Sourced by ./zeroplan and ./check: finds out which Debian or Ubuntu packages are missing and installs
# them as root, or prints the one line to run. Messages go to standard error.
# shellcheck shell=bash

# shellcheck disable=SC2034
zp_planner_packages="g++ cmake ninja-build nlohmann-json3-dev libfmt-dev libeigen3-dev libjs-vega libyaml-dev"
# shellcheck disable=SC2034
zp_test_packages="$zp_planner_packages catch2 ccache"

# For ./check: libclang-rt-dev has the sanitizers' and libFuzzer's libraries for clang; shellcheck and
# yamllint read what `-o DIR` writes; Open MPI runs the embedded runtime's ranks as processes, liburing swaps to
# drives; chromium opens the page of `report`, nodejs and librsvg2-bin draw for `plot`; valgrind counts instructions.
# shellcheck disable=SC2034
zp_check_packages="clang clang-tidy libclang-rt-dev git shellcheck yamllint libopenmpi-dev openmpi-bin liburing-dev \
  chromium nodejs librsvg2-bin valgrind"

# zp_require PACKAGE...: returns when all are installed, ends the script with status 1 when they cannot be.
zp_require() {
  if ! command -v dpkg-query >/dev/null 2>&1; then
    zp_require_tools
    return
  fi
  local missing="" package
  for package in "$@"; do
    if ! dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q "install ok installed"; then
      missing="$missing $package"
    fi
  done
  [ -z "$missing" ] && return
  if [ "$(id -u)" -ne 0 ]; then
    echo "zeroplan needs these packages; run this line and try again:" >&2
    echo "  sudo apt-get update && sudo apt-get install -y$missing" >&2
    exit 1
  fi
  echo "zeroplan: installing$missing" >&2
  local log
  log=$(mktemp)
  # shellcheck disable=SC2086
  if ! { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $missing; } \
      >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    echo "zeroplan: could not install$missing" >&2
    exit 1
  fi
  rm -f "$log"
}

# On a system without dpkg: only say what is needed.
zp_require_tools() {
  local tool
  for tool in c++ cmake ninja; do
    if ! command -v "$tool" >/dev/null 2>&1; then
      echo "zeroplan needs a C++20 compiler, CMake 3.25, Ninja, and the development files of" >&2
      echo "nlohmann-json 3.11, fmt and Eigen 3.4; '$tool' was not found." >&2
      exit 1
    fi
  done
}

# zp_build PRESET [cmake --build options]: configures once, then builds. Output is shown only when
# something fails.
zp_build() {
  local preset=$1 log
  shift
  log=$(mktemp)
  if ! { { [ -f "build/$preset/build.ninja" ] || cmake --preset "$preset"; } &&
         cmake --build --preset "$preset" "$@"; } >"$log" 2>&1; then
    tail -n 40 "$log" >&2
    rm -f "$log"
    return 1
  fi
  rm -f "$log"
}
