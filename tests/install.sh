#!/usr/bin/env bash
# Makes the commands and the Python packages that the tests call available, and changes nothing when they are all there.
#
#   tests/install.sh [default|ci|all] [COMMAND...]     those of a profile of tests/run.sh, and those named: wrk and taskset, for
#                                                      the benchmarks over HTTP
#
# On Debian and Ubuntu it installs them when it may do so without asking (root, or sudo without a password). Elsewhere it
# says exactly what to install, and fails.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# Redis, nginx and Caddy are never services here: the tests start their own servers, on ports and in folders of their own.
commands=(cc redis-server)
profile=default
case "${1:-}" in
  default | ci | all)
    profile=$1
    shift
    ;;
esac
if [ "$profile" != default ]; then
  commands+=(caddy chromedriver chromium curl lua-cjson lua-nginx-redis luajit nginx nginx-lua prometheus promtool python3 python3-venv redis-cli systemd-analyze valgrind)
fi
# Servers whose clocks step, in campaigns.
[ "$profile" != all ] || commands+=(faketime)
commands+=("$@")

package_of() {
  case "$1" in
    cc) echo build-essential ;;
    chromedriver) echo chromium-driver ;;
    luajit) echo luajit2 ;; # nginx's own, beside which the other cannot be installed
    nginx) echo nginx-light ;;
    nginx-lua) echo libnginx-mod-http-lua ;;
    promtool) echo prometheus ;;
    redis-cli) echo redis-tools ;;
    # It looks at a unit; the tests start no systemd.
    systemd-analyze) echo systemd ;;
    taskset) echo util-linux ;;
    *) echo "$1" ;;
  esac
}

missing() {
  local command
  for command in "${commands[@]}"; do
    is_there "$command" || echo "$command"
  done
}

is_there() {
  case "$1" in
    # No command: a part of Python that Debian packs by itself.
    python3-venv) python3 -c 'import ensurepip, venv' 2>/dev/null ;;
    # No commands either: modules of nginx and of Lua.
    nginx-lua) [ -e /usr/lib/nginx/modules/ngx_http_lua_module.so ] ;;
    lua-cjson) compgen -G '/usr/lib/*/lua/5.1/cjson.so' >/dev/null ;;
    lua-nginx-redis) [ -e /usr/share/lua/5.1/nginx/redis.lua ] ;;
    *) command -v "$1" >/dev/null ;;
  esac
}

# Clients of the Python ecosystem, in an environment of their own beside the tests.
clients() {
  [ "$profile" != default ] || return 0
  local venv=$here/.venv wanted=$here/clients/requirements.txt
  cmp -s "$wanted" "$venv/installed.txt" && return
  echo "tests/install.sh: installing the clients in tests/clients/requirements.txt into tests/.venv"
  if ! python3 -m venv --clear "$venv" ||
    ! "$venv/bin/python" -m pip --quiet --disable-pip-version-check install -r "$wanted" </dev/null; then
    echo "tests/install.sh: pip could not install them; it needs PyPI, or a mirror of it in PIP_INDEX_URL" >&2
    exit 1
  fi
  # Last, so that an interrupted run begins anew.
  cp "$wanted" "$venv/installed.txt"
}

mapfile -t absent < <(missing)
if [ "${#absent[@]}" -eq 0 ]; then
  clients
  echo "tests/install.sh: everything that these tests need is installed"
  exit 0
fi

packages=()
for command in "${absent[@]}"; do
  packages+=("$(package_of "$command")")
done

stop_and_say() {
  echo "tests/install.sh: $1" >&2
  echo "tests/install.sh: missing: ${absent[*]}" >&2
  echo "tests/install.sh: on Debian or Ubuntu: sudo apt-get install --no-install-recommends ${packages[*]}" >&2
  [ "$profile" != default ] ||
    echo "tests/install.sh: elsewhere: brew install redis, dnf install redis, pacman -S redis, or apk add redis" >&2
  exit 1
}

command -v apt-get >/dev/null || stop_and_say "this system has no apt-get: install what is missing by its own means"

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null || ! sudo -n true 2>/dev/null; then
    stop_and_say "installing needs root, or sudo without a password"
  fi
  as_root=(sudo -n)
fi

# Debian starts a service as it installs it, and again at every boot. Asking for RUNLEVEL=1 is the old way to prevent the
# first, but only System V scripts look at it; systemd units do not. Both kinds ask policy-rc.d (101 means "not allowed"),
# so this script answers so while apt runs. An existing policy is the machine's own, and stays. A service that it lets
# start is stopped afterwards, and a service that was not installed before is not started at boot either.
policy=/usr/sbin/policy-rc.d
policy_is_ours=no
services=()
for service in redis-server redis-sentinel caddy nginx prometheus; do
  [ -e "/etc/init.d/$service" ] || services+=("$service")
done

lift_policy() {
  [ "$policy_is_ours" = no ] || "${as_root[@]}" rm -f "$policy"
}
trap lift_policy EXIT

if [ ! -e "$policy" ]; then
  policy_is_ours=yes
  printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
  "${as_root[@]}" chmod 755 "$policy"
fi

echo "tests/install.sh: installing ${packages[*]}"
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 apt-get -q -o DPkg::Lock::Timeout=120)
"${apt[@]}" update </dev/null ||
  echo "tests/install.sh: apt-get update failed, trying with the lists at hand" >&2
"${apt[@]}" install -y --no-install-recommends "${packages[@]}" </dev/null ||
  stop_and_say "apt-get could not install ${packages[*]}"

for service in "${services[@]}"; do
  [ -e "/etc/init.d/$service" ] || continue
  "${as_root[@]}" service "$service" stop >/dev/null 2>&1 || true # it should not be running anyway
  "${as_root[@]}" update-rc.d "$service" disable >/dev/null ||
    echo "tests/install.sh: $service may start at the next boot: update-rc.d $service disable" >&2
done

hash -r
mapfile -t absent < <(missing)
[ "${#absent[@]}" -eq 0 ] || stop_and_say "installed, but not found in PATH"
clients
echo "tests/install.sh: installed ${packages[*]}"
