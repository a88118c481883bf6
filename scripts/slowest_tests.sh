#!/usr/bin/env bash
# The ten slowest tests of the last run of ctest in a build folder, and their seconds.
#   scripts/slowest_tests.sh [--write] FOLDER    --write: into docs/testing.md, too
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
write=no
if [ "${1:-}" = --write ]; then
  write=yes
  shift
fi
log=${1:?build folder}/Testing/Temporary/LastTest.log
[ -r "$log" ] || { echo "skipped: no test ran in $1"; exit 0; }
table=$(awk -F' = *|"' '
  /^[0-9]+\/[0-9]+ Test: / { sub(/^[0-9]+\/[0-9]+ Test: /, ""); name = $0 }
  /^Test time = / { split($0, part, " "); print part[4], name }' "$log" | sort -rn | head -n 10 |
  awk '{ printf "| %s | %.0f |\n", $2, $1 }')
echo "$table"
[ "$write" = yes ] || exit 0
document=docs/testing.md
{
  sed '/<!-- slowest: /q' "$document"
  printf '| test | seconds |\n|---|---|\n%s\n' "$table"
  sed -n '/<!-- end of slowest -->/,$p' "$document"
} >"$document.new"
mv "$document.new" "$document"
