//! The memory that is used, of that which there is.

use super::Level;
use super::cgroup::{Groups, Read, Version, field, number, read_as, require};

/// The groups of the process, and where the machine's own figures are.
#[derive(Debug)]
pub(super) struct Memory(Groups);

const HOST: &str = "/proc/meminfo";

/// The first version writes the largest number of pages where there is no limit.
const NO_LIMIT: u64 = 1 << 60;

impl Memory {
    /// The error is a sentence for the operator.
    pub(super) fn find(read: Read<'_>) -> Result<Self, String> {
        let found = Self(Groups::of("memory", read)?);
        found.level(read)?;
        Ok(found)
    }

    /// The level of the group with the least room, or the machine's if no group has a limit.
    ///
    /// File cache that the kernel gives up first is not counted, as Kubernetes does not count it: a server that writes a log would
    /// otherwise fill its limit with it.
    pub(super) fn level(&self, read: Read<'_>) -> Result<Level, String> {
        let mut levels = Vec::new();
        for folder in &self.0.folders {
            levels.extend(self.level_of(folder, read)?);
        }
        match levels.into_iter().max() {
            Some(level) => Ok(level),
            None => require(HOST, read, host),
        }
    }

    fn level_of(&self, folder: &str, read: Read<'_>) -> Result<Option<Level>, String> {
        let (limits, current, cache): (&[&str], _, _) = match self.0.version {
            // Above `memory.high` the kernel slows the group down, to take memory back.
            Version::Two => (
                &["memory.max", "memory.high"],
                "memory.current",
                "inactive_file",
            ),
            Version::One => (
                &["memory.limit_in_bytes"],
                "memory.usage_in_bytes",
                "total_inactive_file",
            ),
        };
        let mut limit: Option<u64> = None;
        for name in limits {
            let stated = read_as(&format!("{folder}/{name}"), read, bound)?.flatten();
            limit = [limit, stated].into_iter().flatten().min();
        }
        let Some(limit) = limit else {
            return Ok(None);
        };
        let current = require(&format!("{folder}/{current}"), read, number)?;
        let cache = require(&format!("{folder}/memory.stat"), read, |text| {
            field(text, cache)
        })?;
        let used = current.saturating_sub(cache);
        // With a limit of 0 there is no room.
        Ok(Some(
            Level::ratio(used.into(), limit.into()).unwrap_or(Level::FULL),
        ))
    }
}

/// A limit: `max`, or a number of bytes. `None` if it is neither.
#[expect(
    clippy::option_option,
    reason = "a file that says that there is no limit differs from one that says nothing"
)]
fn bound(text: &str) -> Option<Option<u64>> {
    match text.trim() {
        "max" => Some(None),
        text => Some(Some(text.parse().ok()?).filter(|bytes| *bytes < NO_LIMIT)),
    }
}

/// The part of the machine's memory that is not available.
fn host(text: &str) -> Option<Level> {
    let (all, left) = (field(text, "MemTotal:")?, field(text, "MemAvailable:")?);
    Level::ratio(all.saturating_sub(left).into(), all.into())
}

#[cfg(test)]
mod tests {
    use super::super::cgroup::texts::files;
    use super::*;

    const IN_TWO: [(&str, &str); 6] = [
        ("/proc/self/cgroup", "0::/\n"),
        ("/sys/fs/cgroup/cgroup.controllers", "cpu memory pids\n"),
        ("/sys/fs/cgroup/memory.max", "1000000000\n"),
        ("/sys/fs/cgroup/memory.high", "max\n"),
        ("/sys/fs/cgroup/memory.current", "900000000\n"),
        (
            "/sys/fs/cgroup/memory.stat",
            "anon 400000000\nfile 500000000\ninactive_file 300000000\nactive_file 200000000\n",
        ),
    ];

    const IN_ONE: [(&str, &str); 4] = [
        ("/proc/self/cgroup", "9:memory:/docker/4711\n"),
        (
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "1000000000\n",
        ),
        ("/sys/fs/cgroup/memory/memory.usage_in_bytes", "900000000\n"),
        (
            "/sys/fs/cgroup/memory/memory.stat",
            "inactive_file 1\ntotal_inactive_file 300000000\n",
        ),
    ];

    const MEMINFO: &str =
        "MemTotal:       24684084 kB\nMemFree:        23927148 kB\nMemAvailable:   18513063 kB\n";

    fn level(before: &[(&str, &str)], changed: &[(&str, &str)]) -> Result<Level, String> {
        let all: Vec<_> = before.iter().chain(changed).copied().collect();
        Memory::find(&files(&all))?.level(&files(&all))
    }

    fn part(part: f64) -> Result<Level, String> {
        Ok(Level::of(part).unwrap())
    }

    #[test]
    fn the_level_of_a_limited_group_leaves_out_the_cache_that_is_given_up_first() {
        assert_eq!(level(&IN_TWO, &[]), part(0.6));
        assert_eq!(level(&IN_ONE, &[]), part(0.6));
        let high = ("/sys/fs/cgroup/memory.high", "800000000\n");
        assert_eq!(level(&IN_TWO, &[high]), part(0.75));
        for (limit, expected) in [("0\n", 1.0), ("500000000\n", 1.0)] {
            assert_eq!(
                level(&IN_TWO, &[("/sys/fs/cgroup/memory.max", limit)]),
                part(expected)
            );
        }
        // More cache than is used at all: the two files are not read at one moment.
        let cache = ("/sys/fs/cgroup/memory.stat", "inactive_file 900000001\n");
        assert_eq!(level(&IN_TWO, &[cache]), part(0.0));
    }

    #[test]
    fn without_a_limit_the_level_is_the_machine_s() {
        let host = ("/proc/meminfo", MEMINFO);
        assert_eq!(
            level(&IN_TWO, &[("/sys/fs/cgroup/memory.max", "max\n"), host]),
            part(0.25)
        );
        let limit = "/sys/fs/cgroup/memory/memory.limit_in_bytes";
        for none in ["9223372036854771712\n", "1152921504606846976\n"] {
            assert_eq!(level(&IN_ONE, &[(limit, none), host]), part(0.25));
        }
        assert_eq!(
            level(&IN_ONE, &[(limit, "1152921504606846975\n"), host]),
            part(0.0)
        );
        // The root of the second version has neither a limit nor a count.
        assert_eq!(level(&IN_TWO[..2], &[host]), part(0.25));
    }

    #[test]
    fn files_that_are_missing_or_garbled_are_an_error_that_names_them() {
        for (path, text) in [
            ("/sys/fs/cgroup/memory.max", "unlimited\n"),
            ("/sys/fs/cgroup/memory.max", ""),
            ("/sys/fs/cgroup/memory.high", "-1\n"),
            ("/sys/fs/cgroup/memory.current", "9 MB\n"),
            ("/sys/fs/cgroup/memory.stat", "anon 5\n"),
        ] {
            let said = level(&IN_TWO, &[(path, text)]).unwrap_err();
            assert_eq!(
                said,
                format!("{path} is not as the kernel writes it: {text:?}")
            );
        }
        let none = [IN_TWO[0], IN_TWO[1], IN_TWO[2]];
        assert_eq!(
            level(&none, &[]).unwrap_err(),
            "there is no /sys/fs/cgroup/memory.current"
        );
        assert_eq!(
            level(&IN_TWO[..2], &[]).unwrap_err(),
            "there is no /proc/meminfo"
        );
        let garbled = ("/proc/meminfo", "MemTotal: 5 kB\n");
        assert!(
            level(&IN_TWO[..2], &[garbled])
                .unwrap_err()
                .starts_with("/proc/meminfo is not")
        );
    }
}
