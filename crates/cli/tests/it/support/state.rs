//! The content of a server, to be compared.

use tollgate_testkit::Standalone;

/// The states of the server with their values and their expiry, as it would write them to its disk.
pub(crate) fn state(server: &Standalone) -> String {
    let names = server.command(&["KEYS", "*"]);
    let mut names: Vec<_> = names
        .lines()
        .filter(|line| line.contains("tollgate"))
        .collect();
    names.sort_unstable();
    let each = names.iter().map(|name| {
        let value = server.command(&["DUMP", name.trim()]);
        let expiry = server.command(&["PEXPIRETIME", name.trim()]);
        format!("{name} {value} {expiry}")
    });
    each.collect()
}
