#!/usr/bin/env python3
"""Writes the starts of days that calendars are held to: `bounds.py > bounds.txt`.

The starts are those of Python's zoneinfo, for 50 years of zones whose clocks do what clocks can do: they skip midnights and
show them twice, change by half an hour, twice in a month or in the minute behind midnight, and leave a day out. A line is the
day and its first instant, in seconds since the epoch, and stands here if that is not 24 hours after the start of the day before.
"""

import datetime
import pathlib
import zoneinfo

FIRST, LAST = datetime.date(1990, 1, 1), datetime.date(2040, 1, 1)
ZONES = """
Africa/Cairo Africa/Casablanca America/Asuncion America/Havana America/New_York America/Santiago America/Sao_Paulo
America/St_Johns Antarctica/Troll Asia/Amman Asia/Beirut Asia/Damascus Asia/Gaza Asia/Kathmandu Asia/Tehran
Australia/Lord_Howe Europe/Berlin Europe/London Pacific/Apia Pacific/Kwajalein UTC
""".split()

DAY = datetime.timedelta(days=1)


def local(zone, seconds):
    return datetime.datetime.fromtimestamp(seconds, zone)


def start(zone, day):
    """The first instant at which the clocks show this day or a later one."""
    midnight = datetime.datetime(day.year, day.month, day.day, tzinfo=zone)
    seconds = int(midnight.timestamp())
    if local(zone, seconds).replace(tzinfo=None) == midnight.replace(tzinfo=None):
        # Of two midnights this is the first.
        return seconds
    # The clocks skip it, in some instant of the two days around it.
    before, after = seconds - 86400, seconds + 86400
    while after - before > 1:
        middle = (before + after) // 2
        if local(zone, middle).date() >= day:
            after = middle
        else:
            before = middle
    return after


def version():
    for path in zoneinfo.TZPATH:
        listed = pathlib.Path(path, "tzdata.zi")
        if listed.exists():
            return listed.open().readline().split()[-1]
    import tzdata

    return tzdata.IANA_VERSION


print(f"# Written by bounds.py, from version {version()} of the zones. {FIRST} to {LAST}.")
for name in ZONES:
    zone, before = zoneinfo.ZoneInfo(name), None
    print(name)
    day = FIRST
    while day <= LAST:
        begins = start(zone, day)
        if before is None or begins != before + 86400:
            print(day, begins)
        day, before = day + DAY, begins
