#!/usr/bin/env bash
# Runs the tests of Tollgate, by cargo-nextest where it is installed and by `cargo test` where it is not.
#
#   tests/run.sh [FILTER...]         what needs Rust and redis-server alone
#   tests/run.sh --ci [FILTER...]    these, and the program's: real nginx, Caddy, Envoy, Prometheus, a browser, Python clients
#   tests/run.sh --all [FILTER...]   everything at full effort, optimised: campaigns, soaks, compile-fail tests; an hour or two
#
# A filter is a part of the names of the tests to run. TOLLGATE_EFFORT is the share of the cases that randomised tests try, in
# percent, and TOLLGATE_SEED repeats them: docs/dev/testing.md says more.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

profile=default
packages=() harness=() build=()
case "${1:-}" in
  --ci)
    profile=ci
    packages=(--workspace --exclude tollgate-fire --exclude tollgate-scale --exclude tollgate-compiler-tests)
    shift
    ;;
  --all)
    profile=all
    packages=(--workspace)
    build=(proofs)
    export TOLLGATE_EFFORT=${TOLLGATE_EFFORT:-100}
    shift
    ;;
  -*)
    echo "tests/run.sh: unknown option $1: see the head of this file" >&2
    exit 2
    ;;
esac

command -v cargo >/dev/null || PATH="$HOME/.cargo/bin:$PATH"
if ! command -v cargo >/dev/null; then
  echo "tests/run.sh: cargo is missing: install Rust as https://rustup.rs says, then run this again" >&2
  exit 1
fi
# Without redis-server the tests that start one fail, and say so; the others run.
tests/install.sh "$profile" || [ "$profile" = default ]

failed=()
run() {
  echo "tests/run.sh: $*"
  "$@" || failed+=("$*")
}

# Most tests wait, for servers and for time to pass.
threads=$((4 * $(nproc 2>/dev/null || sysctl -n hw.ncpu)))

# A test of the program starts an example, which only a build of all targets makes.
[ "$profile" = default ] || run cargo build --quiet "${build[@]/#/--profile=}" --package examples --example operated

if cargo nextest --version >/dev/null 2>&1; then
  [ "$profile" != all ] || harness=(--run-ignored all)
  run cargo nextest run --profile "$profile" "${build[@]/#/--cargo-profile=}" "${packages[@]}" --test-threads "$threads" \
    --no-tests warn "${harness[@]}" "$@"
  run cargo test --quiet "${build[@]/#/--profile=}" "${packages[@]}" --doc -- "$@"
else
  [ "$profile" != all ] || harness=(--include-ignored)
  run cargo test --quiet --no-fail-fast "${build[@]/#/--profile=}" "${packages[@]}" -- --test-threads "$threads" \
    "${harness[@]}" "$@"
fi

# `--cfg loom` reaches every dependency, hence a target folder of its own.
[ $# -gt 0 ] || run env RUSTFLAGS="${RUSTFLAGS:+$RUSTFLAGS }--cfg loom" CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/loom" \
  cargo test --quiet --package tollgate-memory --test loom

# The program's pace and memory, and a log of five million lines.
if [ "$profile" = all ] && [ $# -eq 0 ]; then
  run cargo build --quiet --release --package tollgate-cli --bins --examples
  run cargo run --quiet --release --package tollgate-bench -- program
fi

[ "${#failed[@]}" -eq 0 ] || printf 'tests/run.sh: FAILED: %s\n' "${failed[@]}" >&2
exit "${#failed[@]}"
