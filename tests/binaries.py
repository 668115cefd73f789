#!/usr/bin/env python3
"""Runs the test binaries that cargo has built, several at a time.

cargo runs one after the other, and most of ours wait: for leases to pass, for servers to come back, for a campaign to end. The output
of each binary is kept together and printed when it has ended, as cargo would print it.

    cargo test --workspace --no-run --message-format=json | tests/binaries.py [JOBS]
"""

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed

# Minutes, or most of a core for as long: those that begin first end last.
SLOW = ["annotation", "properties", "tollgate_redis", "conformance_cluster", "short", "checker", "truth", "oracle", "soak_http", "alerting"]

LIBRARIES = subprocess.run(["rustc", "--print", "target-libdir"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def built(lines):
    """Names, folders and paths of the binaries in cargo's messages."""
    for line in lines:
        message = json.loads(line)
        if message.get("reason") == "compiler-message":
            sys.stderr.write(message["message"].get("rendered") or "")
        if message.get("reason") == "compiler-artifact" and message["profile"]["test"] and message["executable"]:
            manifest = message["manifest_path"]
            yield message["target"]["name"], manifest, message["executable"]


def run(binary):
    name, manifest, path = binary
    folder = os.path.dirname(manifest)
    # trybuild reads the first two, as a test that cargo runs may. The tests of a macro need the compiler's own libraries.
    environment = dict(os.environ, CARGO=os.environ.get("CARGO", "cargo"), CARGO_MANIFEST_DIR=folder)
    environment["LD_LIBRARY_PATH"] = LIBRARIES
    start = time.monotonic()
    ended = subprocess.run(
        [path], cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    return name, path, ended, time.monotonic() - start


def main():
    jobs = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    binaries = sorted(built(sys.stdin), key=lambda binary: SLOW.index(binary[0]) if binary[0] in SLOW else len(SLOW))
    failed, took = [], []
    with ThreadPoolExecutor(jobs) as pool:
        for ended in as_completed([pool.submit(run, binary) for binary in binaries]):
            name, path, result, seconds = ended.result()
            took.append((seconds, name))
            print(f"     Running {name} ({os.path.relpath(path)}), {seconds:.0f} s", flush=True)
            sys.stdout.buffer.write(result.stdout)
            sys.stdout.buffer.flush()
            if result.returncode != 0:
                failed.append(name)
                print(f"error: {name} ended with status {result.returncode}", flush=True)
    slowest = sorted(took, reverse=True)[:12]
    slowest = ", ".join(f"{name} {seconds:.0f} s" for seconds, name in slowest)
    print(f"{sum(seconds for seconds, _ in took):.0f} s in all; the slowest: {slowest}")
    if not binaries:
        print("error: no test binary was built", flush=True)
    sys.exit(1 if failed or not binaries else 0)


main()
