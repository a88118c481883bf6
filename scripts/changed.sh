# Sourced by scripts that look at what changed.
# shellcheck shell=bash

# zp_base: the commit that "changed" is against: ZEROPLAN_BASE, else where the branch left origin/main, else
# ten commits back. Status 1 where there is none.
zp_base() {
  local fork commits=10
  if [ -n "${ZEROPLAN_BASE:-}" ]; then
    git rev-parse --verify --quiet "$ZEROPLAN_BASE^{commit}"
    return
  fi
  fork=$(git merge-base HEAD origin/main 2>/dev/null || true)
  if [ -n "$fork" ] && [ "$fork" != "$(git rev-parse HEAD)" ]; then
    echo "$fork"
  else
    git rev-parse --verify --quiet "HEAD~$commits" || git rev-list --max-parents=0 HEAD | head -n 1
  fi
}

# zp_changed BASE: the files that changed since, and those that git does not know yet.
zp_changed() {
  git diff --name-only "$1"
  git ls-files --others --exclude-standard
}
