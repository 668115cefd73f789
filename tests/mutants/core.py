#!/usr/bin/env python3
"""Changes the algorithms of crates/core in one place at a time and asks core's own tests whether they notice.

    tests/mutants/core.py [--only NAME] [--every N] [--jobs N] [--list]

cargo-mutants lists the changes (`cargo install cargo-mutants`; .cargo/mutants.toml lists the code that it leaves alone, with the
reasons), but builds the tests once for each change, which takes hours. Here all mutants are built at once, in a copy of the tree
under target/mutants: a function holds its original body and one for each of its mutants, and a number in the environment
selects one. The compiler names the mutants that do not build, and these are taken out again. Mutants of constants, and of
functions whose type depends on their body, are few, and built one by one at the end.

Each mutant runs against the unit tests first, then the oracle and the dates of calendars, and then the properties if these let it
pass. A survivor is fine only if no test could notice it: then it stands in `explained.txt` with the reason. The command fails if
another survives.

    --only NAME   mutants with this in their names: gcra.rs, Gcra::leave, 'replace < with'; several times for several files
    --every N     each N-th mutant only, for a look
    --skip N      from the N-th mutant on, of those
    --jobs N      this many at a time
    --list        lists the mutants, and tries nothing
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COPY = ROOT / "target/mutants/tree"
EXPLAINED = Path(__file__).with_name("explained.txt")
SUITES = ["tollgate_core", "oracle", "calendar", "properties"]
# The properties of a subject, which notice a mutant of its files long before the others have run.
TURNS, IDS, CALENDARS = ["turns::", "waiting::"], ["ids::"], ["calendars::"]
OWN = {
    "waiting.rs": TURNS,
    "queue.rs": TURNS,
    "notes.rs": TURNS,
    "warming.rs": ["warming::"],
    "grants.rs": ["grants::"],
    "ids.rs": IDS,
    "once.rs": IDS,
    "calendar_window.rs": CALENDARS,
    "calendar.rs": CALENDARS,
    "dates.rs": CALENDARS,
    "zone.rs": CALENDARS,
}
# The files, and the parts of a mutant's name that limit it to what core's own tests are about: of quotas the waits and the shares,
# of verdicts the waits. `calendar/absent.rs` stands in for the calendars where their feature is off, and the suites have it on.
FILES = {
    "algorithm/**": [""],
    "engine/bans.rs": [""],
    "engine/grants.rs": [""],
    "engine/ids.rs": [""],
    "ban.rs": [""],
    "calendar.rs": [""],
    "calendar/dates.rs": [""],
    "calendar/span.rs": [""],
    "calendar/text.rs": [""],
    "calendar/zone.rs": [""],
    "once.rs": [""],
    "quota.rs": ["wait", "try_keeping"],
    "quota/warm_ups.rs": [""],
    "verdict.rs": ["wait"],
}

# A mutant may loop for ever, which counts as noticed: after this many times the duration of the suite without one.
PATIENCE = 10

# The number of the running mutant. The compiler evaluates constants, and must see no mutant. An unstable function of the
# standard library tells the two apart, so the copy is built with RUSTC_BOOTSTRAP.
NUMBER = """
pub(crate) mod mutant {
    fn told() -> u32 {
        static NUMBER: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
        *NUMBER.get_or_init(|| std::env::var("TOLLGATE_MUTANT").map_or(0, |number| number.parse().unwrap_or(0)))
    }
    const fn none() -> u32 {
        0
    }
    #[inline]
    pub(crate) const fn number() -> u32 {
        core::intrinsics::const_eval_select((), none, told)
    }
}
"""


def mutants():
    command = ["cargo", "mutants", "--package", "tollgate-core", "--list", "--json"]
    for file in FILES:
        command += ["--file", f"crates/core/src/{file}"]
    listed = json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)
    listed = [mutant for mutant in listed if any(part in mutant["name"] for part in FILES.get(Path(mutant["file"]).name, [""]))]
    for number, mutant in enumerate(listed, 1):
        mutant["number"] = number
    return listed


class Text:
    """A file, with the offsets of its lines."""

    def __init__(self, path):
        self.text = path.read_text()
        self.lines = [0]
        for line in self.text.splitlines(keepends=True):
            self.lines.append(self.lines[-1] + len(line))

    def at(self, place):
        return self.lines[place["line"] - 1] + place["column"] - 1

    def body(self, function):
        """From behind the brace that opens it to the one that ends it."""
        begin, end = self.at(function["span"]["start"]), self.at(function["span"]["end"])
        blank = re.sub(r"//.*|#\[[^\n]*\]", lambda found: " " * len(found[0]), self.text[begin:end])
        return begin + blank.index("{", re.search(r"\bfn\b", blank).start()) + 1, end - 1


def woven(path, of_file):
    """The file with one more body for each mutant, and the lines of each."""
    file, functions = Text(path), defaultdict(list)
    for mutant in of_file:
        functions[file.body(mutant["function"])].append(mutant)
    parts, marks, last = [], [], 0
    for (begin, end), its in sorted(functions.items(), key=lambda one: one[0]):
        parts.append(file.text[last:begin] + " match crate::mutant::number() {\n")
        for mutant in its:
            at, to = file.at(mutant["span"]["start"]), file.at(mutant["span"]["end"])
            body = file.text[begin:at] + mutant["replacement"] + file.text[to:end]
            parts.append(f"{mutant['number']} => {{")
            marks.append((len(parts), mutant["number"]))
            parts.append(body + "\n}\n")
        parts.append("_ => {" + file.text[begin:end] + "} }")
        last = end
    parts.append(file.text[last:])
    whole, line, lines, marks = "", 1, {}, dict(marks)
    for index, part in enumerate(parts):
        until = line + part.count("\n")
        if index in marks:
            lines.update(dict.fromkeys(range(line, until + 1), marks[index]))
        line, whole = until, whole + part
    return whole, lines


def cargo(*arguments):
    environment = dict(
        os.environ, RUSTC_BOOTSTRAP="1", RUSTFLAGS="--cap-lints warn", CARGO_TARGET_DIR=str(ROOT / "target/mutants/build")
    )
    command = ["cargo", *arguments, "--package", "tollgate-core", "--all-features", "--message-format=json"]
    run = subprocess.run(command, cwd=COPY, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return run.returncode, [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]


def built(chosen):
    """The test programs with all mutants that build, and the numbers of those that do not."""
    shutil.rmtree(COPY, ignore_errors=True)
    left_out = shutil.ignore_patterns("target", ".git", "mutants.out*")
    shutil.copytree(ROOT, COPY, symlinks=True, ignore=left_out)
    root = COPY / "crates/core/src/lib.rs"
    root.write_text("#![feature(core_intrinsics, const_eval_select)]\n" + root.read_text() + NUMBER)
    broken = set()
    while True:
        places = {}
        by_file = defaultdict(list)
        for mutant in chosen:
            if is_to_be_alone(mutant):
                continue
            by_file[mutant["file"]].append(mutant)
        for name, of_file in by_file.items():
            text, places[name] = woven(ROOT / name, [one for one in of_file if one["number"] not in broken])
            (COPY / name).write_text(text)
        status, messages = cargo("check", "--lib")
        if status == 0:
            break
        before, others = len(broken), []
        for message in messages:
            message = message.get("message") or {}
            if message.get("level") != "error":
                continue
            spans = [span for span in message["spans"] if span["is_primary"]]
            found = {places.get(span["file_name"], {}).get(span["line_start"]) for span in spans} - {None}
            broken |= found
            if not found and spans:
                others.append(message["rendered"])
        if len(broken) == before:
            sys.exit("the copy does not build:\n" + "\n".join(others))
    found = programs()
    if not found:
        sys.exit("the tests of the copy do not build")
    return found, broken


def programs():
    suites = [word for suite in SUITES[1:] for word in ("--test", suite)]
    status, messages = cargo("test", "--no-run", "--lib", *suites)
    found = [message for message in messages if message.get("executable")]
    return status == 0 and {message["target"]["name"]: message["executable"] for message in found}


def is_to_be_alone(mutant):
    """A constant, or a function that returns a type of its own: another body would return another."""
    function = mutant["function"]
    return function is None or "-> impl " in function["return_type"]


def built_alone(mutant):
    """The test programs with this one change, and nothing else."""
    file = Text(ROOT / mutant["file"])
    at, to = file.at(mutant["span"]["start"]), file.at(mutant["span"]["end"])
    place = COPY / mutant["file"]
    before = place.read_text()
    place.write_text(file.text[:at] + mutant["replacement"] + file.text[to:])
    found = programs()
    place.write_text(before)
    return found


def is_noticed(program, number, patience, tests=()):
    """Says whether a test fails (the first is enough), or does not end."""
    environment = dict(os.environ, TOLLGATE_MUTANT=str(number), PROPTEST_FAILURE_PERSISTENCE="off")
    environment["CARGO_MANIFEST_DIR"] = str(COPY / "crates/core")
    run = subprocess.Popen(
        [program, *tests],
        cwd=COPY / "crates/core",
        env=environment,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    late = threading.Event()

    def end():
        with contextlib.suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)

    timer = threading.Timer(patience, lambda: (late.set(), end()))
    timer.start()
    try:
        for line in run.stdout:
            if line.rstrip().endswith("... FAILED"):
                return True
        return run.wait() != 0
    finally:
        timer.cancel()
        end()
        run.wait()


def line_of(mutant):
    return (ROOT / mutant["file"]).read_text().splitlines()[mutant["span"]["start"]["line"] - 1].strip()


def what_of(mutant):
    """The change: the mutant's name without its place."""
    return mutant["name"].split(": ", 1)[1]


def is_explained(mutant):
    """Looks it up by the file, the original line, and the change."""
    name = Path(mutant["file"]).name
    for line in EXPLAINED.read_text().splitlines():
        if line and not line.startswith("#"):
            of, was, changed, _why = [part.strip() for part in line.split(" | ")]
            if of == name and was == line_of(mutant) and changed == what_of(mutant):
                return True
    return False


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--only", action="append")
    arguments.add_argument("--every", type=int, default=1)
    arguments.add_argument("--skip", type=int, default=0)
    arguments.add_argument("--jobs", type=int, default=1)
    arguments.add_argument("--list", action="store_true")
    given = arguments.parse_args()

    only = given.only or [""]
    chosen = [mutant for mutant in mutants() if any(name in mutant["name"] for name in only)][given.skip :: given.every]
    if given.list:
        for mutant in chosen:
            print(f"{mutant['name']}  ({line_of(mutant)})")
        print(f"{len(chosen)} mutants")
        return 0

    together, broken = built(chosen)
    patience = {}
    for suite in SUITES:
        began = time.monotonic()
        if is_noticed(together[suite], 0, 3600):
            sys.exit(f"{suite} fails as it stands: nothing can be learned from mutants")
        patience[suite] = PATIENCE * (1 + time.monotonic() - began)
    print(f"{len(chosen)} mutants, of which {len(broken)} do not build", flush=True)

    def verdict(mutant, programs=together):
        if mutant["number"] in broken or not programs:
            return mutant, "does not build"

        def noticed(suite, tests):
            return is_noticed(programs[suite], mutant["number"], patience[suite], tests)

        # Explained mutants are not noticed by the properties either, which take a minute.
        suites = [(suite, ()) for suite in (SUITES[:-1] if is_explained(mutant) else SUITES)]
        own = OWN.get(Path(mutant["file"]).name)
        if own and not is_explained(mutant):
            suites.insert(1, ("properties", own))
        by = next((suite for suite, tests in suites if noticed(suite, tests)), None)
        return mutant, by or ("explained" if is_explained(mutant) else "SURVIVED")

    table, survivors = defaultdict(Counter), 0
    last = [mutant for mutant in chosen if is_to_be_alone(mutant)]
    others = [mutant for mutant in chosen if not is_to_be_alone(mutant)]
    with ThreadPoolExecutor(given.jobs) as pool:
        alone = (verdict(mutant, built_alone(mutant)) for mutant in last)
        for done, (mutant, by) in enumerate(chain(pool.map(verdict, others), alone), 1):
            table[Path(mutant["file"]).name][by] += 1
            if by == "SURVIVED":
                survivors += 1
                print(f"SURVIVED {mutant['name']}  ({line_of(mutant)})", flush=True)
            if done % 50 == 0:
                print(f"{done} of {len(chosen)}, {survivors} survived", flush=True)

    columns = [*SUITES, "does not build", "explained", "SURVIVED"]
    print(f"\n{'file':<20}" + "".join(f"{column:>16}" for column in columns))
    for name, counts in table.items():
        print(f"{name:<20}" + "".join(f"{counts[column]:>16}" for column in columns))
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
