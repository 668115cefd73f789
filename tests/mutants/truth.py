#!/usr/bin/env python3
"""Puts each known defect of limits back and asks a test whether it notices.

    tests/mutants/truth.py [--only WORD ..] [--seed N] [--list]

The changes stand in `truth.txt`. Each is made to the product's own source, in place. Then the test is built and run: the property
`truth`, or the tests that the number names. Then the source is put back, also if the command is interrupted. The command fails
if a change is not noticed or does not build, if one of the numbers has no change, or if a named test does not run. Before it
changes anything, it fails if a text does not stand exactly once. That check also finds the change of a killed run: put it back
with git.

    --only WORD   changes of this number, or with this word in their first line: 5, cookie.rs
    --seed N      the property's seed (1): another one gives other requests
    --list        lists the changes, and tries nothing
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TABLE = Path(__file__).with_name("truth.txt")
# The property: a package and tests, as a number may name them. The other tests of `truth` test the judge.
PROPERTY = "tollgate truth::a_request_ truth::in_flight::a_request_"
# Many times the duration of finding and shrinking: a change that makes a request hang counts as noticed.
PATIENCE = 900


class Change:
    def __init__(self, head, old, new):
        self.head, self.old, self.new = head, "\n".join(old), "\n".join(new)
        self.number, self.suffix, self.what = re.fullmatch(r"(\d+) (\S+\.(?:rs|lua)): (.+)", head).groups()

    def is_named(self, word):
        return self.number == word if word.isdigit() else word in self.head

    def places(self):
        """The files with the text, once for each occurrence. Only the end of the path is known, because a crate may be split."""
        name = Path(self.suffix).name
        files = [*ROOT.glob(f"crates/*/src/**/{name}"), *ROOT.glob(f"lua/{name}")]
        files = [file for file in files if str(file).endswith("/" + self.suffix)]
        return [file for file in files for _ in range(file.read_text().count(self.old))]


def table():
    meanings, tests, changes = {}, {}, []
    for block in TABLE.read_text().split("\n\n"):
        lines = [line for line in block.splitlines() if line and not line.startswith("#")]
        if not lines:
            continue
        if re.match(r"\d+ = ", lines[0]):
            for line in lines:
                number, text = line.split(" = ", 1)
                meanings[number], _, named = text.partition(" | ")
                tests[number] = named or PROPERTY
            continue
        old = [line[2:] for line in lines if line.startswith("- ")]
        new = [line[2:] for line in lines if line.startswith("+")]
        changes.append(Change(lines[0], old, new))
    return meanings, tests, changes


def verdict(tests, seed):
    """The result of the tests, and the first finding."""
    package, *filters = tests.split()
    target, name = ["--test", "it"], "it"
    if filters[0] == "--lib":
        target, name = ["--lib"], package.replace("-", "_")
        filters = filters[1:]
    cargo = ["cargo", "test", "-p", package, "--all-features", *target]
    built = subprocess.run(
        cargo + ["--no-run", "--message-format=json"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    if built.returncode != 0:
        print(built.stderr[-2000:], file=sys.stderr)
        return "DOES NOT BUILD", ""
    messages = (json.loads(line) for line in built.stdout.splitlines() if line.startswith("{"))
    found = [m for m in messages if m.get("executable") and m["target"]["name"] == name]
    program, folder = found[-1]["executable"], Path(found[-1]["manifest_path"]).parent
    environment = dict(os.environ, TOLLGATE_SEED=str(seed), TOLLGATE_EFFORT="100", CARGO_MANIFEST_DIR=str(folder))
    try:
        run = subprocess.run(
            [program, *filters], cwd=folder, env=environment, capture_output=True, text=True, errors="replace", timeout=PATIENCE
        )
    except subprocess.TimeoutExpired:
        return "noticed", "did not end"
    ran = re.findall(r"^test (\S+)", run.stdout, re.MULTILINE)
    for wanted in filters:
        if not any(wanted in test for test in ran):
            return "DID NOT RUN", wanted
    if run.returncode == 0:
        return "SURVIVED", ""
    kind = re.search(r"^([A-Z]\w+(?:\(.*?\))?) of \w+: ", run.stdout, re.MULTILINE)
    kind = kind or re.search(r"^test (\S+) \.\.\. FAILED", run.stdout, re.MULTILINE)
    return "noticed", kind[1] if kind else "ended otherwise"


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--only", nargs="+", default=[])
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--list", action="store_true")
    given = arguments.parse_args()
    # So that `finally` puts the source back.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

    meanings, tests, changes = table()
    for change in changes:
        if len(change.places()) != 1:
            sys.exit(f"{change.head}: its text stands {len(change.places())} times, not once:\n{change.old}")
    without = set(meanings) ^ {change.number for change in changes}
    if without:
        sys.exit(f"numbers without a meaning or a change: {', '.join(sorted(without))}")
    chosen = [change for change in changes if not given.only or any(map(change.is_named, given.only))]
    if given.list:
        for change in chosen:
            print(f"{change.number} {change.places()[0].relative_to(ROOT)}: {change.what}")
        print(f"{len(chosen)} changes")
        return 0

    for judge in sorted({tests[change.number] for change in chosen}):
        said, kind = verdict(judge, given.seed)
        if said != "SURVIVED":
            sys.exit(f"{judge}: {said} {kind} without a change: nothing can be learned from changes")
    counts, failed = {number: Counter() for number in meanings}, False
    for change in chosen:
        file = change.places()[0]
        source = file.read_bytes()
        try:
            file.write_bytes(source.replace(change.old.encode(), change.new.encode()))
            said, kind = verdict(tests[change.number], given.seed)
        finally:
            file.write_bytes(source)
        counts[change.number][said] += 1
        failed |= said != "noticed"
        print(f"{said:<16}{change.number} {change.what}{': ' + kind if kind else ''}", flush=True)

    print(f"\n{'way around':<82}{'changes':>8}{'noticed':>8}")
    for number, meaning in meanings.items():
        if counts[number]:
            print(f"{number} {meaning:<80}{counts[number].total():>8}{counts[number]['noticed']:>8}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
