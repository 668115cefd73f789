#!/usr/bin/env bash
# Runs every test of Tollgate, on a fresh machine too: installs missing tools, then unit, integration and doc tests of
# all crates, then the models of the memory backend's locking, which need a build of their own.
#
# The last line is "N passed, N failed, N skipped" over all runs. It fails if anything failed, or if nothing ran.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# A fresh machine has cargo, but its shell may not have been told.
command -v cargo >/dev/null || PATH="$HOME/.cargo/bin:$PATH"
if ! command -v cargo >/dev/null; then
  echo "tests/run.sh: cargo is missing: install Rust as https://rustup.rs says, then run this again" >&2
  exit 1
fi

echo "tests/run.sh: looking for what the tests need"
tests/install.sh

log=$(mktemp)
trap 'rm -f "$log"' EXIT
broken=0

# One run of cargo, shown and kept. A run that dies before it can report (it does not compile, or a test takes the process
# with it) counts as one failure, and so does one that finds no test: the sum never looks better than it is.
run() {
  local what=$1 passed failed status=0
  shift
  echo "tests/run.sh: $what"
  passed=$(total passed)
  failed=$(total failed)
  "$@" 2>&1 | tee -a "$log" || status=$?
  [ "$(total failed)" -eq "$failed" ] || return 0
  if [ "$status" -ne 0 ]; then
    echo "tests/run.sh: $what: ended with status $status without a failed test, counted as one"
    broken=$((broken + 1))
  elif [ "$(total passed)" -eq "$passed" ]; then
    echo "tests/run.sh: $what: no test ran, counted as a failure"
    broken=$((broken + 1))
  fi
}

# The sum of one column ("passed", "failed", "ignored") over cargo's `test result:` lines.
total() {
  sed 's/\x1b\[[0-9;]*m//g' "$log" | awk -v column="$1" '
    /^test result: / { for (i = 2; i <= NF; i++) if ($i == column ";") sum += $(i - 1) }
    END { print sum + 0 }'
}

# Built at once, and run three at a time: most of them wait. The examples are built with them, since a test runs one. Doc tests
# have no binaries.
binaries() {
  cargo test --workspace --all-features --no-run --message-format=json | tests/binaries.py 3
}
run "unit and integration tests of the workspace" binaries
run "doc tests of the workspace" cargo test --workspace --all-features --no-fail-fast --doc

# `--cfg loom` reaches every dependency, hence a target folder of its own.
run "loom models of the memory backend" \
  env RUSTFLAGS="${RUSTFLAGS:+$RUSTFLAGS }--cfg loom" CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/loom" \
  cargo test -p tollgate-memory --release --test loom

passed=$(total passed)
failed=$(($(total failed) + broken))
skipped=$(total ignored)
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
