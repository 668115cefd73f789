#!/usr/bin/env python3
"""Changes the Lua scripts in one place at a time and asks the tests whether they notice.

    tests/mutants/lua.py [--only FILE] [--every N] [--jobs N] [--list]

Each mutant runs first against the differential, which holds the script to the model in core, and then, if that notices nothing,
against the tests of the script on a real server. A mutant that all of them let pass survives. A survivor is fine only if
it changes nothing that a caller could notice: then it stands in `explained.txt` with the reason. The command fails if
another survives.

    --only FILE   mutants of one file only: gcra.lua
    --every N     each N-th mutant only, for a look
    --skip N      from the N-th mutant on, of those
    --jobs N      this many at a time
    --list        lists the mutants, and tries nothing

It copies the script and the test programs before it begins, so that work on the tree may go on.
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
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LUA = ROOT / "lua"
EXPLAINED = Path(__file__).with_name("explained.txt")

# A mutant may loop for ever, which counts as noticed: after this many times the duration of the suite without one.
PATIENCE = 10

# The suites in their order: the program, its tests of the script, and the number of steps of the differential. Suites with
# fixed inputs come first, and then those with random ones.
LOOK = tuple(
    "wire::differential::" + name
    for name in ("the_script_decides", "windows_are_decided", "what_is_given_back", "a_request_alone")
)
SUITES = [
    ("tollgate_redis", ("wire::differential::paths::",), None),
    ("tollgate_redis", ("wire::by_itself::",), None),
    ("tollgate_redis", LOOK[:3], "60"),
    ("tollgate_redis", (LOOK[3],), "3000"),
    ("tollgate_redis", LOOK[:3], "1000"),
    ("tollgate_redis", ("wire::differential::garbled::",), None),
    ("tollgate_redis", ("wire::differential::",), None),
    ("standalone", (), None),
    ("waiting", (), None),
    ("conformance_redis", (), None),
]
# An explained mutant runs against this many of them: the others take much longer.
LOOKS = 4
# The rest run at the end, on the survivors of the others, since they take longer than all of these together. They run twice,
# because they test deadlines too, which a busy machine may miss without any mutant.
FIRST, LAST = SUITES[:6], SUITES[6:]
# Subjects with a differential of their own, which the others of the first do not touch. A mutant meets it before them.
HELD = ("tollgate_redis", ("wire::differential::held::",), "2000")
TURNS = ("tollgate_redis", ("wire::differential::turns_", "wire::differential::lines::"), None)
BANS = ("tollgate_redis", ("wire::differential::guarded_paths::", "wire::differential::bans_are"), None)
LEAN = ("tollgate_redis", ("wire::differential::lean_paths::", "wire::differential::ids_are"), None)
CALENDAR = ("tollgate_redis", ("wire::differential::windows_of_calendars",), "2000")
WARMING = ("tollgate_redis", ("wire::differential::what_warms_up",), None)
# Files of the script for gateways alone, which nothing else reads.
FORM = [
    ("tollgate_redis", ("by_itself::decide_form::", "gateway::vectors::"), None),
    ("tollgate_redis", ("differential::decide_form::",), None),
]
# By the first word of the file's name.
OWN = {
    "held": HELD,
    "waiting": TURNS,
    "ban": BANS,
    "guarded": BANS,
    "once": LEAN,
    "grant": LEAN,
    "calendar": CALENDAR,
    "warming": WARMING,
}

# A token, and its replacements.
SWAPS = [
    (r"<=", ["<"]),
    (r">=", [">"]),
    (r"==", ["~="]),
    (r"~=", ["=="]),
    (r"(?<![<>=~])<(?![=])", ["<="]),
    (r"(?<![<>=~])>(?![=])", [">="]),
    (r"(?<=[\w)\]] )\+(?= )", ["-"]),
    (r"(?<=[\w)\]] )-(?= )", ["+"]),
    (r"(?<=[\w)\]] )\*(?= )", ["/"]),
    (r"(?<=[\w)\]] )/(?= )", ["*"]),
    (r"(?<=[\w)\]] )%(?= )", ["*"]),
    (r"\band\b", ["or"]),
    (r"\bor\b", ["and"]),
    (r"\bnot ", [""]),
    (r"\btrue\b", ["false"]),
    (r"\bfalse\b", ["true"]),
    (r"\bmax\(", ["min("]),
    (r"\bmin\(", ["max("]),
    (r"\bfloor\(", ["ceil("]),
    (r"\bceil\(", ["floor("]),
    (r"(?<![\w.'])\d+(?![\w.'x])", None),
    (r"(?<=\bif ).+(?= then\b)", ["true", "false"]),
]


def scripts():
    """The files of both scripts, in their order, by the variable in which a test finds a script."""
    source = (ROOT / "crates/redis/src/script.rs").read_text()
    parts = source.split("const DECIDE_FORM")
    found = [re.findall(r'include_str!\("\.\./lua/(\w+\.lua)"\)', part) for part in parts]
    return {"TOLLGATE_SCRIPT": found[0], "TOLLGATE_DECIDE_FORM": found[1]}


SCRIPTS = scripts()


def variable_of(name):
    """The script that is changed with a file: the first, if both have it."""
    return next(variable for variable, files in SCRIPTS.items() if name in files or not name)


def code_of(line):
    """The line, with comments and quoted texts blanked."""
    line = re.sub(r"'[^']*'", lambda text: "'" + "\0" * (len(text[0]) - 2) + "'", line)
    return re.sub(r"--.*", lambda text: "\0" * len(text[0]), line)


def changed(line):
    """All changes of a line in one place."""
    code = code_of(line)
    for pattern, swaps in SWAPS:
        for found in re.finditer(pattern, code):
            ways = swaps if swaps is not None else [str(int(found[0]) + 1)]
            for way in ways:
                yield line[: found.start()] + way + line[found.end() :]
    # A statement that is left out: an assignment, or a write.
    if re.match(r"\s*(redis\.call|set\(|[\w.\[\], ]+ = )", code) and not re.search(r"\b(function|then|do|local)\b|[({,]\s*$", code):
        yield re.match(r"\s*", line)[0] + "do end"


def first_of(mutant):
    """The suites that it runs against first."""
    if variable_of(mutant[0]) == "TOLLGATE_DECIDE_FORM":
        return FORM
    suites = FIRST[:LOOKS] if is_explained(mutant) else FIRST
    own = OWN.get(re.split(r"[._]", mutant[0])[0])
    return [own, *suites] if own else suites


def mutants(tree, only):
    for name, lines in tree.items():
        if only and only != name:
            continue
        for number, line in enumerate(lines):
            for mutant in dict.fromkeys(changed(line)):
                if mutant != line:
                    yield name, number, line, mutant


def script(tree, name, number, mutant):
    """The whole script with one line changed."""
    whole = []
    for other in SCRIPTS[variable_of(name)]:
        lines = tree[other]
        whole += [*lines[:number], mutant, *lines[number + 1 :]] if other == name else lines
    return "\n".join(whole) + "\n"


def executables(folder):
    """The test programs, built once and taken aside: the script is read when they run."""
    wanted = sorted({program for program, _, _ in SUITES})
    packages = ["--package", "tollgate-redis", "--package", "tollgate-tests"]
    command = ["cargo", "test", *packages, "--all-features", "--no-run", "--message-format=json"]
    command += ["--lib"] + [word for suite in wanted if suite != "tollgate_redis" for word in ("--test", suite)]
    built = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    found = {}
    for line in built.stdout.splitlines():
        message = json.loads(line)
        if message.get("executable") and message["target"]["name"] in wanted:
            name = message["target"]["name"]
            program = shutil.copy(message["executable"], os.path.join(folder, name))
            found[name] = (program, Path(message["manifest_path"]).parent)
    return found


def is_noticed(suite, programs, source, patience):
    name, tests, steps = suite
    program, folder = programs[name]
    variable, file = source
    environment = dict(os.environ, CARGO_MANIFEST_DIR=str(folder), **{variable: file})
    if steps:
        environment["TOLLGATE_STEPS"] = steps
    told = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    # A group of its own, so that a server whose script never ends goes with it.
    run = subprocess.Popen([program, *tests], cwd=folder, env=environment, start_new_session=True, **told)

    def end():
        with contextlib.suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)

    timer = threading.Timer(patience, end)
    timer.start()
    try:
        # The first test that fails is enough.
        return any(line.rstrip().endswith("... FAILED") for line in run.stdout) or run.wait() != 0
    finally:
        timer.cancel()
        end()
        run.wait()


def is_explained(mutant):
    """Says whether it is explained: by the file, the original line, and the changed one."""
    name, _, was, becomes = mutant
    for line in EXPLAINED.read_text().splitlines():
        if line and not line.startswith("#"):
            of, line, changed, _why = [part.strip() for part in line.split(" | ")]
            if of == name and line == was.strip() and changed == becomes.strip():
                return True
    return False


def told(mutant):
    name, number, line, becomes = mutant
    return f"{name}:{number + 1}: {line.strip()}  ->  {becomes.strip()}"


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--only")
    arguments.add_argument("--every", type=int, default=1)
    arguments.add_argument("--skip", type=int, default=0)
    arguments.add_argument("--jobs", type=int, default=1)
    arguments.add_argument("--list", action="store_true")
    given = arguments.parse_args()

    names = dict.fromkeys(name for files in SCRIPTS.values() for name in files)
    tree = {name: (LUA / name).read_text().splitlines() for name in names}
    chosen = list(mutants(tree, given.only))[given.skip :: given.every]
    if given.list:
        for name, number, line, mutant in chosen:
            print(told((name, number, line, mutant)))
        print(f"{len(chosen)} mutants")
        return 0

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(given.jobs) as pool:
        programs, place = executables(folder), threading.local()

        def source(name, text):
            """A file of this thread's own that holds the script, and the variable that is to name it."""
            if not hasattr(place, "file"):
                place.file = os.path.join(folder, f"script-{threading.get_ident()}.lua")
            Path(place.file).write_text(text)
            return variable_of(name), place.file

        patience = {}

        def prepare(suites):
            for suite in suites:
                began = time.monotonic()
                if all(is_noticed(suite, programs, source("", script(tree, "", 0, "")), 600) for _ in range(3)):
                    sys.exit(f"{suite[0]} fails with the scripts as they stand: nothing can be learned from mutants")
                patience[suite] = PATIENCE * (1 + time.monotonic() - began)

        def noticed_by(mutant, suites):
            file = source(mutant[0], script(tree, mutant[0], mutant[1], mutant[3]))
            return next((suite[0] for suite in suites if is_noticed(suite, programs, file, patience[suite])), None)

        def first(mutant):
            return mutant, noticed_by(mutant, first_of(mutant))

        def last(mutant):
            if is_explained(mutant):
                return mutant, "explained"
            if variable_of(mutant[0]) == "TOLLGATE_DECIDE_FORM":
                return mutant, "SURVIVED"
            return mutant, next((by for suite in LAST if (by := twice(mutant, suite))), "SURVIVED")

        def twice(mutant, suite):
            return noticed_by(mutant, [suite]) and noticed_by(mutant, [suite])

        prepare([*dict.fromkeys(OWN.values()), *FIRST, *FORM])
        table, left = {name: Counter() for name in tree}, []
        for done, (mutant, by) in enumerate(pool.map(first, chosen), 1):
            if by:
                table[mutant[0]][by] += 1
            else:
                left.append(mutant)
                if not is_explained(mutant):
                    print("left", told(mutant), flush=True)
            if done % 50 == 0:
                print(f"{done} of {len(chosen)}, {len(left)} left for the last suites", flush=True)
        prepare(LAST)
        survivors = 0
        for mutant, by in pool.map(last, left):
            table[mutant[0]][by] += 1
            if by == "SURVIVED":
                survivors += 1
                print("SURVIVED", told(mutant), flush=True)

    columns = list(dict.fromkeys(name for name, _, _ in SUITES)) + ["explained", "SURVIVED"]
    print(f"\n{'file':<20}" + "".join(f"{column:>20}" for column in columns))
    for name, counts in table.items():
        if counts:
            print(f"{name:<20}" + "".join(f"{counts[column]:>20}" for column in columns))
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
