//! The control groups whose limits hold for this process.

use std::io::{self, ErrorKind};

/// Reads a file by its path. Tests have texts instead of files.
pub(super) type Read<'a> = &'a dyn Fn(&str) -> io::Result<String>;

/// The folders of the groups that a process is in: its own, and those around it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Groups {
    pub(super) version: Version,
    /// From the process's own to the outermost that it sees.
    pub(super) folders: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    One,
    Two,
}

/// The file that lists the groups of this process.
const MEMBERSHIP: &str = "/proc/self/cgroup";

const MOUNT: &str = "/sys/fs/cgroup";

impl Groups {
    /// The groups of this process under a controller. The error is a sentence for the operator.
    pub(super) fn of(controller: &str, read: Read<'_>) -> Result<Self, String> {
        let membership = read(MEMBERSHIP)
            .map_err(|error| format!("cannot read {MEMBERSHIP}, which Linux has: {error}"))?;
        // A file that only the second version has, at its root.
        if read(&format!("{MOUNT}/cgroup.controllers")).is_ok() {
            let path = path_of(&membership, |number, _| number == "0");
            let path = path.ok_or_else(|| no_group(controller))?;
            return Ok(Self::around(Version::Two, MOUNT, path));
        }
        let names = |names: &str| names.split(',').any(|name| name == controller);
        let path =
            path_of(&membership, |_, list| names(list)).ok_or_else(|| no_group(controller))?;
        Ok(Self::around(
            Version::One,
            &format!("{MOUNT}/{controller}"),
            path,
        ))
    }

    /// All folders from the path up to the mount. A container does not see the folders outside of it, and finds its own at the
    /// mount.
    fn around(version: Version, mount: &str, path: &str) -> Self {
        let path = path.trim_end_matches('/');
        // A process outside of the namespace's root, whose folder is not to be seen.
        let path = if path.contains("/..") { "" } else { path };
        let ends = path.rmatch_indices('/').map(|(end, _)| end);
        let folders = [path.len()].into_iter().chain(ends);
        Self {
            version,
            folders: folders
                .map(|end| format!("{mount}{}", &path[..end]))
                .collect(),
        }
    }
}

fn no_group(controller: &str) -> String {
    format!("{MEMBERSHIP} names no control group for {controller}")
}

/// The path of the first group for whose number and controllers this holds.
fn path_of(membership: &str, holds: impl Fn(&str, &str) -> bool) -> Option<&str> {
    membership.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (number, names, path) = (parts.next()?, parts.next()?, parts.next()?);
        (path.starts_with('/') && holds(number, names)).then_some(path)
    })
}

/// The text of a file, if there is one.
pub(super) fn text(path: &str, read: Read<'_>) -> Result<Option<String>, String> {
    match read(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("cannot read {path}: {error}")),
    }
}

/// The part of a file that is there, as `find` reads it.
pub(super) fn read_as<T>(
    path: &str,
    read: Read<'_>,
    find: impl FnOnce(&str) -> Option<T>,
) -> Result<Option<T>, String> {
    let Some(text) = text(path, read)? else {
        return Ok(None);
    };
    match find(&text) {
        Some(found) => Ok(Some(found)),
        None => {
            let shown: String = text.chars().take(64).collect();
            Err(format!("{path} is not as the kernel writes it: {shown:?}"))
        }
    }
}

/// The part of a file that has to be there.
pub(super) fn require<T>(
    path: &str,
    read: Read<'_>,
    find: impl FnOnce(&str) -> Option<T>,
) -> Result<T, String> {
    read_as(path, read, find)?.ok_or_else(|| format!("there is no {path}"))
}

/// The number behind a name, in a file of lines such as `usage_usec 4711`.
pub(super) fn field(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().map(str::split_ascii_whitespace);
    let mut line = lines.find_map(|mut words| (words.next()? == name).then_some(words))?;
    line.next()?.parse().ok()
}

/// The number that a file consists of.
pub(super) fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// Files as texts, for tests.
#[cfg(test)]
pub(super) mod texts {
    use super::*;

    /// A reader of these files, each a path and a text.
    pub(in crate::pressure) fn files<'a>(
        files: &'a [(&'a str, &'a str)],
    ) -> impl Fn(&str) -> io::Result<String> + 'a {
        |path| {
            let found = files.iter().rev().find(|(name, _)| *name == path);
            let found = found.map(|(_, text)| (*text).to_owned());
            found.ok_or_else(|| io::Error::from(ErrorKind::NotFound))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::texts::files;
    use super::*;

    const IN_TWO: (&str, &str) = (
        "/sys/fs/cgroup/cgroup.controllers",
        "cpuset cpu io memory pids\n",
    );

    /// The file of a machine with systemd and the first version.
    const OF_ONE: &str = "11:memory:/system.slice/shop.service\n4:cpu,cpuacct:/system.slice/shop.service\n\
                          1:name=systemd:/system.slice/shop.service\n0::/system.slice/shop.service\n";

    fn folders(
        controller: &str,
        membership: &str,
        others: &[(&str, &str)],
    ) -> Result<Groups, String> {
        let mut all = vec![(MEMBERSHIP, membership)];
        all.extend(others);
        Groups::of(controller, &files(&all))
    }

    #[test]
    fn the_groups_of_the_second_version_are_those_of_the_path_and_around_it() {
        let groups = folders(
            "cpu",
            "0::/kubepods.slice/pod1.slice/app.scope\n",
            &[IN_TWO],
        )
        .unwrap();

        assert_eq!(groups.version, Version::Two);
        let mount = "/sys/fs/cgroup";
        assert_eq!(
            groups.folders,
            [
                format!("{mount}/kubepods.slice/pod1.slice/app.scope"),
                format!("{mount}/kubepods.slice/pod1.slice"),
                format!("{mount}/kubepods.slice"),
                mount.to_owned(),
            ]
        );
        for in_a_container in ["0::/\n", "0::/../../elsewhere\n"] {
            let groups = folders("cpu", in_a_container, &[IN_TWO]).unwrap();
            assert_eq!(groups.folders, [mount]);
        }
    }

    #[test]
    fn the_groups_of_the_first_version_are_those_of_the_controller() {
        for controller in ["cpu", "cpuacct", "memory"] {
            let groups = folders(controller, OF_ONE, &[]).unwrap();
            assert_eq!(groups.version, Version::One);
            assert_eq!(
                groups.folders,
                [
                    format!("/sys/fs/cgroup/{controller}/system.slice/shop.service"),
                    format!("/sys/fs/cgroup/{controller}/system.slice"),
                    format!("/sys/fs/cgroup/{controller}"),
                ]
            );
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_is_not_one_that_is_missing() {
        let missing = |_: &str| Err(ErrorKind::NotFound.into());
        assert_eq!(text("cpu.max", &missing), Ok(None));
        let refused = |_: &str| Err(ErrorKind::PermissionDenied.into());
        assert_eq!(
            text("cpu.max", &refused).unwrap_err(),
            "cannot read cpu.max: permission denied"
        );
    }

    #[test]
    fn no_group_is_an_error_that_says_so() {
        let none = Groups::of("cpu", &files(&[])).unwrap_err();
        assert!(
            none.starts_with("cannot read /proc/self/cgroup, which Linux has: "),
            "{none}"
        );
        for (membership, others) in [
            ("", &[IN_TWO][..]),
            ("garbage\n", &[IN_TWO]),
            ("0::relative\n", &[IN_TWO]),
            ("1:name=systemd:/\n0::/\n", &[]),
            ("3:cpuset:/\n", &[]),
        ] {
            let none = folders("cpu", membership, others).unwrap_err();
            assert_eq!(none, "/proc/self/cgroup names no control group for cpu");
        }
    }
}
