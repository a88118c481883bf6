# Sourced by gpu.sh, with $python: cuDNN, NCCL, CUPTI and cuBLASLt of its packages (nvidia-cudnn-cu13 and the like, which
# torch brings), where the system has none: headers and libraries for cmake, and the folders in which programs find them
# when they run.
# shellcheck shell=bash
# shellcheck disable=SC2154
borrowed=$PWD/build/borrowed
# folder_of NAME: the first folder of $python's package nvidia that has it, at include/ or lib/.
folder_of() {
  "$python" - "$1" <<'PYTHON' 2>/dev/null || true
import glob, os, sys
import nvidia
for root in nvidia.__path__:
    for found in sorted(glob.glob(os.path.join(root, "*", "include", sys.argv[1])) +
                        glob.glob(os.path.join(root, "*", "lib", sys.argv[1]))):
        print(os.path.dirname(found))
        sys.exit()
PYTHON
}
toolkit=$(dirname "$(dirname "$(readlink -f "$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)")")")
has_header() {
  echo "#include <$1>" | "${CXX:-c++}" -E -x c++ -I"$toolkit/include" -I"$toolkit/extras/CUPTI/include" - >/dev/null 2>&1
}
# borrow HEADER LIBRARY: for the build. The libraries of packages lack the name without a version, which a linker wants.
borrow() {
  local include library file
  ! has_header "$1" || return 0
  include=$(folder_of "$1")
  library=$(folder_of "lib$2.so.*")
  [ -n "$include" ] && [ -n "$library" ] || return 0
  mkdir -p "$borrowed"
  for file in "$library/lib$2.so".*; do
    ln -sf "$file" "$borrowed/lib$2.so"
    ln -sf "$file" "$borrowed/${file##*/}"
  done
  [ "$2" != cublasLt ] || export CPATH=${CPATH:+$CPATH:}$include # of the toolkit itself: cmake does not ask where
  export CMAKE_INCLUDE_PATH=$include${CMAKE_INCLUDE_PATH:+:$CMAKE_INCLUDE_PATH}
  export CMAKE_LIBRARY_PATH=$borrowed${CMAKE_LIBRARY_PATH:+:$CMAKE_LIBRARY_PATH}
  echo "$1: of $python's packages"
}
# find_library NAME: for programs when they run.
find_library() {
  local folder
  ! { ldconfig -p 2>/dev/null || true; } | grep -F "$1.so." >/dev/null || return 0
  ! compgen -G "$toolkit/lib64/$1.so.*" >/dev/null || return 0
  folder=$(folder_of "$1.so.*")
  [ -z "$folder" ] || export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder
}
