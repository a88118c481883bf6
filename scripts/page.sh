#!/usr/bin/env bash
# ./zeroplan page -o DIR: writes DIR/index.html, the planner as a page that needs no server and no network
# (docs/page.md). Builds it first: minutes the first time, a second when nothing changed.
# Exit codes of docs/contract.md section 3: 0 written, 2 bad usage or no emscripten, 1 anything else.
set -euo pipefail
cd_back=$PWD
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
. scripts/packages.sh

usage="usage: ./zeroplan page -o DIR    writes DIR/index.html (docs/page.md)"
# refuse WHAT EXPECTED GOT HINT
refuse() {
  printf 'error: %s: expected %s, got %s\n' "$1" "$2" "$3" >&2
  [ -z "$4" ] || printf 'hint: %s\n' "$4" >&2
  exit 2
}

folder=""
while [ $# -gt 0 ]; do
  case "$1" in
    -h | --help)
      echo "$usage"
      exit 0
      ;;
    -o | --output)
      [ -n "${2:-}" ] || refuse "command line: $1" "a folder" nothing "$1 site"
      folder=$2
      shift
      ;;
    --output=?*) folder=${1#--output=} ;;
    -o?*) folder=${1#-o} ;;
    *) refuse "command line: $1" "a flag of zeroplan page" "\"$1\"" "$usage" ;;
  esac
  shift
done
[ -n "$folder" ] || refuse "command line: --output" "a folder to write to" nothing "-o site"
case "$folder" in /*) ;; *) folder=$cd_back/$folder ;; esac

command -v em++ >/dev/null 2>&1 ||
  refuse "zeroplan page" "em++, the compiler of emscripten, on PATH" none "sudo apt-get install emscripten"
# shellcheck disable=SC2086
zp_require cmake ninja-build nodejs nlohmann-json3-dev libfmt-dev libeigen3-dev libjs-vega
page=build/page/page/index.html
[ -f "$page" ] || echo "zeroplan: building the page (five minutes or more the first time)" >&2
zp_build page --target page

mkdir -p "$folder" 2>/dev/null || refuse "$folder" "a folder that can be made" "none" ""
[ -w "$folder" ] || refuse "$folder" "a folder that can be written to" "one that cannot" ""
# Whole or not at all.
made=$(mktemp "$folder/.index.html.XXXXXX")
trap 'rm -f "$made"' EXIT
cp "$page" "$made"
chmod 644 "$made"
mv "$made" "$folder/index.html"
trap - EXIT
echo "wrote $folder/index.html ($(wc -c <"$folder/index.html") bytes, $(gzip -9c "$folder/index.html" | wc -c) as a server sends it)"
