#!/usr/bin/env bash
# Builds the wheel for other machines: one program without libraries of its own, for every Python 3.8 and newer.
#   scripts/build_wheel.sh                  for glibc 2.28 (Debian 10, Ubuntu 20.04, RHEL 8) and newer, by Zig's compiler
#   scripts/build_wheel.sh --glibc 2.17     for older ones, down to CentOS 7
#   scripts/build_wheel.sh --native         by this machine's compiler, for its glibc and newer
#   scripts/build_wheel.sh --program FILE   of a program that is built already; its build folder is around it
#   -o DIR                                  where the wheel goes (dist)
# The tag is measured: the newest version of a symbol that the program asks the C library for. Needs python3 with venv,
# cmake, ninja, binutils, the headers of scripts/packages.sh, and an index for pip.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
most_megabytes=15

glibc=""
program=""
native=no
output=dist
while [ $# -gt 0 ]; do
  case "$1" in
    --glibc) glibc=${2:?}; shift ;;
    --native) native=yes ;;
    --program) program=$(readlink -f "${2:?}"); shift ;;
    -o) output=${2:?}; shift ;;
    *) sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
  esac
  shift
done

# The measured one, unless it is asked for.
[ -n "$glibc" ] || [ -n "$program" ] || [ "$native" = yes ] || glibc=2.28

fail() {
  echo "build_wheel: $*" >&2
  exit 1
}

venv=build/wheel/venv
python=$PWD/$venv/bin/python
[ -x "$python" ] || python3 -m venv "$venv"
"$python" -m pip install --quiet "scikit-build-core>=0.10,<2" "wheel<1"

# zig_tools FOLDER: a compiler for an older C library, as programs that CMake can call.
zig_tools() {
  "$python" -m pip install --quiet "ziglang==0.17.1"
  local zig tool
  zig=$("$python" -c 'import os, ziglang; print(os.path.join(os.path.dirname(ziglang.__file__), "zig"))')
  mkdir -p "$1"
  for tool in c++ ar ranlib; do
    local target=""
    [ "$tool" != c++ ] || target=" -target $(uname -m)-linux-gnu.$glibc"
    printf '#!/bin/sh\nexec "%s" %s%s "$@"\n' "$zig" "$tool" "$target" >"$1/$tool"
    chmod +x "$1/$tool"
  done
}

if [ -z "$program" ]; then
  folder=build/wheel/${glibc:-native}
  options=()
  if [ -n "$glibc" ]; then
    tools=$PWD/build/wheel/tools-$glibc
    zig_tools "$tools"
    options=(-DCMAKE_CXX_COMPILER="$tools/c++" -DCMAKE_AR="$tools/ar" -DCMAKE_RANLIB="$tools/ranlib"
      -DZEROPLAN_PRECOMPILE=OFF -DCCACHE_PROGRAM=)
  fi
  cmake -S . -B "$folder" -G Ninja -DCMAKE_BUILD_TYPE=Release "-DCMAKE_CXX_FLAGS_RELEASE=-O2 -DNDEBUG" \
    -DZEROPLAN_PORTABLE=ON -DZEROPLAN_TESTS=OFF -DZEROPLAN_CUDA=OFF -DZEROPLAN_MPI=OFF -DZEROPLAN_URING=OFF \
    "${options[@]}" >/dev/null
  cmake --build "$folder" --target zeroplan
  program=$PWD/$folder/bin/zeroplan
fi
emulator=$(dirname "$program")/../libzeroplan_cuda.so # its bytes are in the program, where objdump does not see them
[ -r "$emulator" ] || fail "no $emulator: --program wants the program in its build folder"

# What it needs of the machine it will run on.
needed=$(objdump -p "$program" "$emulator" | awk '$1 == "NEEDED" {print $2}' | sort -u |
  grep -vE '^(libc\.so\.6|libm\.so\.6|libdl\.so\.2|libpthread\.so\.0|librt\.so\.1|ld-linux-.*)$' || true)
[ -z "$needed" ] || fail "the program wants libraries that other machines may not have: $(echo $needed)"
newest=$(objdump -T "$program" "$emulator" | grep -oE 'GLIBC_[0-9]+\.[0-9]+' | sort -uV | tail -n 1 | cut -d_ -f2)
if [ -n "$glibc" ] && [ "$(printf '%s\n' "$newest" "$glibc" | sort -V | tail -n 1)" != "$glibc" ]; then
  fail "the program asks for glibc $newest, newer than $glibc"
fi
tag=manylinux_$(echo "${glibc:-$newest}" | tr . _)_$(uname -m)

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
strip -o "$stage/zeroplan" "$program"
chmod 755 "$stage/zeroplan"
"$python" -m pip wheel --quiet --no-deps --no-build-isolation -w "$stage" . \
  -C cmake.define.ZEROPLAN_PROGRAM="$stage/zeroplan" -C build-dir="$stage/build"
"$python" -m wheel tags --remove --platform-tag "$tag" "$stage"/*.whl >/dev/null
wheel=$(basename "$stage"/*.whl)
size=$(($(stat -c %s "$stage/$wheel") / 1000000))
[ "$size" -lt "$most_megabytes" ] || fail "$wheel has $size MB, and shall have less than $most_megabytes"
mkdir -p "$output"
mv "$stage/$wheel" "$output/"
echo "$output/$wheel: $size MB, glibc $newest and newer"
