#!/usr/bin/env bash
# Changes the algorithms of crates/core in one place at a time and asks core's own tests whether they notice.
#
#   tests/mutants/core.sh [ARGUMENT...]    what cargo-mutants takes: --list, --shard 1/8, -f '**/gcra.rs'
#
# It needs `cargo install cargo-mutants`, works in a copy of the tree, and leaves its account in target/mutants.out: missed.txt has
# what survived. The unit tests and the oracle are asked first, since they are built and run in half a minute, and the properties about
# what these let pass. What is left alone, and why, stands in .cargo/mutants.toml. The command fails if a mutant survives.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

where=(--file 'crates/core/src/algorithm/**')
case " $* " in *" -f "* | *" --file"*) where=() ;; esac
ask=(cargo mutants --package tollgate-core --jobs 1 --output target "${where[@]}" "$@")

case " $* " in *" --list "*) exec "${ask[@]}" ;; esac
status=0
"${ask[@]}" -- --lib --test oracle || status=$?
# 2: some were missed; 3: some ran out of time. Anything else is no answer, or a good one.
[ "$status" = 2 ] || exit "$status"
# By name: what `--shard` takes of all is not what it would take of those that are left.
missed=()
while IFS= read -r name; do
  missed+=(--re "^$(sed 's/[][\\.*^$+?(){}|&]/\\&/g' <<<"$name")\$")
done <target/mutants.out/missed.txt
exec cargo mutants --package tollgate-core --jobs 1 --output target "${where[@]}" "${missed[@]}" -- --test properties
