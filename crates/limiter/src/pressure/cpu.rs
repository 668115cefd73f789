//! The processor time that is used, of that which there is.

use std::time::Duration;

use super::Level;
use super::cgroup::{Groups, Read, Version, field, number, read_as, require, text};

/// The groups of the process, and where the machine's own figures are.
#[derive(Debug)]
pub(super) struct Cpu {
    limits: Groups,
    /// The folders that count the time: the same, but for the first version, which has a controller of its own for it.
    counts: Groups,
}

/// The figures of one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    /// One for each folder; `None` for one without a limit.
    groups: Vec<Option<CpuTime>>,
    /// The machine's, if no folder has a limit.
    host: Option<Host>,
}

/// The time that a group has used, in microseconds, and its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CpuTime {
    used_us: u64,
    limit: Bandwidth,
}

/// So much time in each period, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bandwidth {
    quota_us: u64,
    period_us: u64,
}

/// The ticks of all processors of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Host {
    busy: u64,
    all: u64,
}

const HOST: &str = "/proc/stat";

impl Cpu {
    /// The error is a sentence for the operator.
    pub(super) fn find(read: Read<'_>) -> Result<Self, String> {
        let limits = Groups::of("cpu", read)?;
        let counts = match limits.version {
            Version::Two => limits.clone(),
            Version::One => Groups::of("cpuacct", read)?,
        };
        let found = Self { limits, counts };
        if !found.is_there(read)? {
            return Err(format!("there is no {}", found.counter(0)));
        }
        Ok(found)
    }

    /// True if a folder counts the time.
    fn is_there(&self, read: Read<'_>) -> Result<bool, String> {
        for place in 0..self.counts.folders.len() {
            if text(&self.counter(place), read)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn counter(&self, place: usize) -> String {
        let folder = self.counts.folders.get(place).map_or("", |folder| folder);
        match self.limits.version {
            Version::Two => format!("{folder}/cpu.stat"),
            Version::One => format!("{folder}/cpuacct.usage"),
        }
    }

    pub(super) fn sample(&self, read: Read<'_>) -> Result<Sample, String> {
        let folders = self.limits.folders.iter().enumerate();
        let groups = folders.map(|(place, folder)| self.used(place, folder, read));
        let groups = groups.collect::<Result<Vec<_>, _>>()?;
        let host = match groups.iter().flatten().next() {
            Some(_) => None,
            None => Some(require(HOST, read, host)?),
        };
        Ok(Sample { groups, host })
    }

    fn used(&self, place: usize, folder: &str, read: Read<'_>) -> Result<Option<CpuTime>, String> {
        let limit = match self.limits.version {
            Version::Two => read_as(&format!("{folder}/cpu.max"), read, bandwidth)?.flatten(),
            Version::One => {
                let quota = read_as(&format!("{folder}/cpu.cfs_quota_us"), read, old_quota)?;
                let period = read_as(&format!("{folder}/cpu.cfs_period_us"), read, number)?;
                let limit = quota
                    .flatten()
                    .zip(period.filter(|period_us| *period_us > 0));
                limit.map(|(quota_us, period_us)| Bandwidth {
                    quota_us,
                    period_us,
                })
            }
        };
        let Some(limit) = limit else {
            return Ok(None);
        };
        let used_us = match self.limits.version {
            Version::Two => require(&self.counter(place), read, |text| field(text, "usage_usec"))?,
            Version::One => require(&self.counter(place), read, number)? / 1_000,
        };
        Ok(Some(CpuTime { used_us, limit }))
    }
}

/// The limit in `cpu.max`: `max 100000`, or `150000 100000`. `None` if it is neither.
#[expect(
    clippy::option_option,
    reason = "a file that says that there is no limit differs from one that says nothing"
)]
fn bandwidth(text: &str) -> Option<Option<Bandwidth>> {
    let (quota, period) = text.trim().split_once(' ')?;
    let period_us = period.parse().ok().filter(|period_us| *period_us > 0)?;
    if quota == "max" {
        return Some(None);
    }
    let quota_us = quota.parse().ok().filter(|quota_us| *quota_us > 0)?;
    Some(Some(Bandwidth {
        quota_us,
        period_us,
    }))
}

/// The limit in `cpu.cfs_quota_us`, which is -1 if there is none.
#[expect(
    clippy::option_option,
    reason = "a file that says that there is no limit differs from one that says nothing"
)]
fn old_quota(text: &str) -> Option<Option<u64>> {
    let quota: i64 = text.trim().parse().ok()?;
    Some(u64::try_from(quota).ok().filter(|quota_us| *quota_us > 0))
}

/// The first line of `/proc/stat`. The time of guests is part of the user's already, and a processor that another machine has taken
/// is not there for this one.
fn host(text: &str) -> Option<Host> {
    let mut words = text.lines().next()?.split_ascii_whitespace();
    if words.next()? != "cpu" {
        return None;
    }
    let ticks: Vec<u64> = words
        .take(8)
        .map(|ticks| ticks.parse().ok())
        .collect::<Option<_>>()?;
    let [user, nice, system, idle, rest @ ..] = &ticks[..] else {
        return None;
    };
    let waiting = rest.first().copied().unwrap_or_default();
    let others = rest.iter().skip(1).sum::<u64>();
    let busy = user + nice + system + others;
    Some(Host {
        busy,
        all: busy + idle + waiting,
    })
}

impl Sample {
    /// The level between an earlier sample and this one: that of the group with the least room. `None` if no time has passed.
    pub(super) fn level_since(&self, before: &Self, elapsed: Duration) -> Option<Level> {
        if let Some((now, before)) = self.host.zip(before.host) {
            return Level::ratio(
                now.busy.saturating_sub(before.busy).into(),
                now.all.saturating_sub(before.all).into(),
            );
        }
        let pairs = self.groups.iter().zip(&before.groups);
        let levels = pairs.filter_map(|(now, before)| {
            let (now, before) = now.as_ref().zip(before.as_ref())?;
            let used_us = u128::from(now.used_us.saturating_sub(before.used_us));
            let used = used_us.saturating_mul(now.limit.period_us.into());
            Level::ratio(
                used,
                elapsed
                    .as_micros()
                    .saturating_mul(now.limit.quota_us.into()),
            )
        });
        levels.max()
    }
}

#[cfg(test)]
mod tests {
    use super::super::cgroup::texts::files;
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// The files of a container with two processors, as the kernel writes them.
    const IN_TWO: [(&str, &str); 4] = [
        ("/proc/self/cgroup", "0::/\n"),
        ("/sys/fs/cgroup/cgroup.controllers", "cpu memory pids\n"),
        ("/sys/fs/cgroup/cpu.max", "200000 100000\n"),
        (
            "/sys/fs/cgroup/cpu.stat",
            "usage_usec 5000000\nuser_usec 4000000\nsystem_usec 1000000\nnr_periods 50\nnr_throttled 3\nthrottled_usec 1200\n",
        ),
    ];

    const IN_ONE: [(&str, &str); 4] = [
        ("/proc/self/cgroup", "4:cpu,cpuacct:/docker/4711\n0::/\n"),
        ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000\n"),
        ("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
        ("/sys/fs/cgroup/cpuacct/cpuacct.usage", "5000000000\n"),
    ];

    #[test]
    fn a_machine_is_busy_in_all_ticks_but_those_of_idling_and_of_waiting_for_a_disk() {
        let host = host("cpu  1 20 300 4000 50000 600000 7000000 80000000 9 9\n").unwrap();
        assert_eq!((host.busy, host.all), (87_600_321, 87_654_321));
    }

    const STAT: &str = "cpu  2065260 7494 260564 781818 7384 0 24309 564 90 0\ncpu0 1023385 3565 125684 406977 2204 0 11816 282 0 0\n";

    /// The level after a second in which these files have changed.
    fn level(before: &[(&str, &str)], changed: &[(&str, &str)]) -> Result<Option<Level>, String> {
        let now: Vec<_> = before.iter().chain(changed).copied().collect();
        let cpu = Cpu::find(&files(before))?;
        let (before, now) = (cpu.sample(&files(before))?, cpu.sample(&files(&now))?);
        Ok(now.level_since(&before, SECOND))
    }

    fn part(part: f64) -> Result<Option<Level>, String> {
        Ok(Level::of(part))
    }

    #[test]
    fn the_level_of_a_limited_group_is_the_used_part_of_its_limit() {
        let stat = "/sys/fs/cgroup/cpu.stat";
        for (used, expected) in [
            ("usage_usec 5000000\n", 0.0),
            ("usage_usec 6000000\nuser_usec 1\n", 0.5),
            ("usage_usec 6800000\n", 0.9),
            ("usage_usec 7400000\n", 1.0),
            // A counter that goes back counts as nothing used.
            ("usage_usec 10\n", 0.0),
        ] {
            assert_eq!(level(&IN_TWO, &[(stat, used)]), part(expected), "{used}");
        }
        let usage = "/sys/fs/cgroup/cpuacct/cpuacct.usage";
        for (used, expected) in [("5250000000\n", 0.5), ("5500000000\n", 1.0)] {
            assert_eq!(level(&IN_ONE, &[(usage, used)]), part(expected), "{used}");
        }
    }

    #[test]
    fn a_limit_further_out_holds_as_well_and_the_least_room_counts() {
        let mut nested = vec![
            ("/proc/self/cgroup", "0::/pod/app\n"),
            ("/sys/fs/cgroup/cgroup.controllers", "cpu\n"),
            ("/sys/fs/cgroup/pod/app/cpu.max", "max 100000\n"),
            ("/sys/fs/cgroup/pod/app/cpu.stat", "usage_usec 0\n"),
            ("/sys/fs/cgroup/pod/cpu.max", "100000 100000\n"),
            ("/sys/fs/cgroup/pod/cpu.stat", "usage_usec 0\n"),
            ("/sys/fs/cgroup/cpu.stat", "usage_usec 0\n"),
        ];
        let used = [
            ("/sys/fs/cgroup/pod/app/cpu.stat", "usage_usec 300000\n"),
            ("/sys/fs/cgroup/pod/cpu.stat", "usage_usec 600000\n"),
        ];
        assert_eq!(level(&nested, &used), part(0.6));

        nested[2].1 = "40000 100000\n";
        assert_eq!(level(&nested, &used), part(0.75));
    }

    #[test]
    fn without_a_limit_the_level_is_the_machine_s() {
        let busier = "cpu  2065360 7494 260564 781898 7404 0 24309 564 190 0\n";
        for unlimited in ["max 100000\n", "max 100000"] {
            let mut host = IN_TWO.to_vec();
            host.extend([("/sys/fs/cgroup/cpu.max", unlimited), ("/proc/stat", STAT)]);
            assert_eq!(level(&host, &[("/proc/stat", busier)]), part(0.5));
            assert_eq!(level(&host, &[]), Ok(None));
        }
        // The root of the second version has no `cpu.max`.
        let root = [IN_TWO[0], IN_TWO[1], IN_TWO[3], ("/proc/stat", STAT)];
        assert_eq!(level(&root, &[("/proc/stat", busier)]), part(0.5));
        // In the first version -1 means "no limit", and a quota or a period of 0 would mean nothing.
        for (file, text) in [
            ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"),
            ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "0\n"),
            ("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "0\n"),
        ] {
            let mut one = IN_ONE.to_vec();
            one.extend([(file, text), ("/proc/stat", STAT)]);
            assert_eq!(level(&one, &[("/proc/stat", busier)]), part(0.5), "{file}");
        }
    }

    #[test]
    fn files_that_are_missing_or_garbled_are_an_error_that_names_them() {
        let changed = |path: &'static str, text: &'static str| {
            let mut all = IN_TWO.to_vec();
            all.push((path, text));
            level(&all, &[]).unwrap_err()
        };
        for text in [
            "",
            "max",
            "200000",
            "0 100000\n",
            "200000 0\n",
            "a b\n",
            "-1 100000\n",
            "200000 100000 1\n",
        ] {
            let said = changed("/sys/fs/cgroup/cpu.max", text);
            assert_eq!(
                said,
                format!("/sys/fs/cgroup/cpu.max is not as the kernel writes it: {text:?}")
            );
        }
        for text in ["", "usage_usec\n", "usage_usec many\n", "user_usec 5\n"] {
            let said = changed("/sys/fs/cgroup/cpu.stat", text);
            assert!(
                said.starts_with("/sys/fs/cgroup/cpu.stat is not as the kernel writes it: "),
                "{said}"
            );
        }
        assert_eq!(
            level(&IN_TWO[..3], &[]).unwrap_err(),
            "there is no /sys/fs/cgroup/cpu.stat"
        );
        assert_eq!(
            level(&IN_ONE[..3], &[]).unwrap_err(),
            "there is no /sys/fs/cgroup/cpuacct/docker/4711/cpuacct.usage"
        );
        let no_host = [IN_TWO[0], IN_TWO[1], IN_TWO[3]];
        assert_eq!(level(&no_host, &[]).unwrap_err(), "there is no /proc/stat");
        for text in [
            "",
            "cpu\n",
            "cpu 1 2 3\n",
            "cpu a b c d\n",
            "intr 1 2 3 4\n",
        ] {
            let mut all = no_host.to_vec();
            all.push(("/proc/stat", text));
            let said = level(&all, &[]).unwrap_err();
            assert!(
                said.starts_with("/proc/stat is not as the kernel writes it: "),
                "{said}"
            );
        }
    }
}
