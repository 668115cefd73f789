#!/usr/bin/env bash
# Runs every fuzz target for a while: fuzz/run.sh [--seconds N] [TARGET ..]
#
# Needs a C++ compiler and cargo-fuzz (`cargo install cargo-fuzz`), and no other toolchain than the installed one: the
# sanitizer needs an unstable option, which RUSTC_BOOTSTRAP allows. Inputs that libFuzzer finds worth keeping go to
# fuzz/target/found, not into the corpus, which stays small; an input that breaks a property is kept in fuzz/artifacts and named in
# the output.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

seconds=60
targets=()
while [ $# -gt 0 ]; do
  case $1 in
    --seconds) seconds=${2:?"--seconds needs a number"}; shift 2 ;;
    -*) echo "usage: fuzz/run.sh [--seconds N] [TARGET ..]" >&2; exit 2 ;;
    *) targets+=("$1"); shift ;;
  esac
done

if ! cargo fuzz --version >/dev/null 2>&1; then
  echo "fuzz/run.sh: cargo-fuzz is missing: cargo install cargo-fuzz" >&2
  exit 1
fi
if [ ${#targets[@]} -eq 0 ]; then
  for file in fuzz/targets/*.rs; do
    targets+=("$(basename "$file" .rs)")
  done
fi

export RUSTC_BOOTSTRAP=1
failed=()
for target in "${targets[@]}"; do
  echo "fuzz/run.sh: $target for $seconds s"
  found="fuzz/target/found/$target"
  mkdir -p "$found"
  cargo fuzz run --fuzz-dir fuzz "$target" "$found" "fuzz/corpus/$target" -- \
    -max_total_time="$seconds" -max_len=4096 -print_final_stats=1 || failed+=("$target")
done
echo "fuzz/run.sh: ${#targets[@]} targets, ${#failed[@]} failed${failed[*]:+: ${failed[*]}}"
[ ${#failed[@]} -eq 0 ]
