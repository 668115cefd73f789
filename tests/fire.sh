#!/usr/bin/env bash
# Tollgate under fire, in the long form: processes ask for decisions while faults are done to servers, network, clocks and
# the processes themselves, on one server, on Sentinels and on a cluster in turn. It ends with a table. Findings are
# listed below it, and then the script fails.
#
#   tests/fire.sh [--minutes N] [--seed S] [--envoy]     15 minutes and a new seed unless set
#
# With --envoy one more process asks through a real Envoy, and faults are done to that and to the server that it asks as well.
#
# The short form is a test of the crate tollgate-fire, and so a part of tests/run.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

minutes=15
seed=()
envoy=()
while [ $# -gt 0 ]; do
  case "$1" in
    --minutes) minutes=${2:?--minutes needs a number} && shift 2 ;;
    --seed) seed=(--seed "${2:?--seed needs a number}") && shift 2 ;;
    --envoy) envoy=(--envoy) && shift ;;
    *)
      echo "usage: tests/fire.sh [--minutes N] [--seed S] [--envoy]" >&2
      exit 2
      ;;
  esac
done
case "$minutes" in
  '' | *[!0-9]*) echo "tests/fire.sh: --minutes $minutes is not a whole number" >&2 && exit 2 ;;
esac

# The last minute of each kind of servers is without faults, if there is time: refused places can be judged only then.
still=$((minutes >= 6 ? 60 : 0))

command -v cargo >/dev/null || PATH="$HOME/.cargo/bin:$PATH"
tests/install.sh all
exec cargo run --quiet -p tollgate-fire --bin fire -- run --seconds $((minutes * 60 - 3 * still)) --still "$still" "${seed[@]}" "${envoy[@]}"
