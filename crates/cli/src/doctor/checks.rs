//! Findings about one server.

use tollgate::{BackendError, ExaminedServer, FailureKind};

use super::{Finding, Grade};
use crate::figures::{about, grouped, percent};

/// The largest difference between clocks that does not matter, beyond what cannot be measured.
pub(super) const CLOCKS_US: i64 = 1_000_000;

/// The deadline of a decision, unless the service sets another.
const DEADLINE_US: u128 = 100_000;

/// All findings. `is_watched` is true if a replica is to take over, and
/// `ends_a_stop` says what to do if its cluster refuses because it has lost shards.
pub(super) fn of(
    server: &ExaminedServer,
    is_watched: bool,
    ends_a_stop: Option<&'static str>,
) -> Vec<Finding> {
    let mut findings = vec![
        version(server),
        decides(server, ends_a_stop),
        rights(server),
    ];
    if !has_answered(server) {
        // Nothing more is known of it.
        findings.retain(|finding| finding.grade == Grade::Wrong);
        return findings;
    }
    findings.push(memory_limit(server));
    findings.extend(evicted(server));
    findings.push(persistence(server));
    findings.extend(failed_save(server));
    findings.push(replication(server, is_watched));
    findings.extend(clients(server));
    findings.extend(clock(server));
    findings.push(script(server));
    findings.extend(latency(server));
    // A cluster that is stopped answers no question about keys.
    if ends_a_stop.is_none() || server.states.is_some() {
        findings.push(memory(server));
    }
    findings
}

/// All findings about a replica, which decides after a failover.
pub(super) fn of_replica(server: &ExaminedServer) -> Vec<Finding> {
    if !has_answered(server) {
        let was = server.refusal.as_ref().map(ToString::to_string);
        let means = "after a failover the service would not reach it either, or not be let in: users and passwords are not replicated";
        let finding = Finding::new("standby", Grade::Wrong, was.unwrap_or_default(), means);
        return vec![
            finding
                .change("start it or make it reachable from here, with the master's users in it"),
        ];
    }
    let mut findings = vec![version(server), rights(server), memory_limit(server)];
    findings.push(persistence(server));
    findings.extend(failed_save(server));
    findings.push(link(server));
    findings.extend(clock(server));
    findings
}

/// The connection of a replica to its master.
fn link(server: &ExaminedServer) -> Finding {
    let subject = "link";
    let Some(status) = info(server, "master_link_status") else {
        return match server.info.is_empty() {
            true => Finding::unseen(subject, "+info"),
            false => {
                let means =
                    "another server names it as its replica: a failover is under way, or it left";
                let finding = Finding::new(subject, Grade::Wrong, "it has no master", means);
                finding.change("look again in 10 s, then at INFO replication on both")
            }
        };
    };
    if status != "up" {
        let was = format!("the link to its master is {status}");
        let means = "it does not hear what callers spend: a failover to it forgives them that";
        let finding = Finding::new(subject, Grade::Wrong, was, means);
        return finding.change("look again in 10 s, then at its log, and at masterauth");
    }
    let means = "it has what callers have spent but for the last moment";
    Finding::new(subject, Grade::Fine, "the link to its master is up", means)
}

/// A replica that the service is to take for its master.
fn misplaced(server: &ExaminedServer) -> Finding {
    let host = info(server, "master_host").unwrap_or("another server");
    let port = info(server, "master_port").unwrap_or("?");
    let link = info(server, "master_link_status").unwrap_or("unknown");
    let was = format!("a replica of {host}, port {port}; the link to it is {link}");
    let means = "a replica takes no writes, and decides nothing";
    let change = if link == "up" {
        "name its master to the service, or the Sentinels"
    } else {
        "name its master to the service, or the Sentinels; if that master is gone for good, and no Sentinel manages them: REPLICAOF NO ONE"
    };
    Finding::new("replication", Grade::Wrong, was, means).change(change)
}

/// False for a node of a cluster that is away.
pub(super) fn has_answered(server: &ExaminedServer) -> bool {
    !(server.round_trips.is_empty() && server.info.is_empty() && server.unseen.is_empty())
}

fn info<'a>(server: &'a ExaminedServer, name: &str) -> Option<&'a str> {
    server.info.get(name).map(String::as_str)
}

fn number(server: &ExaminedServer, name: &str) -> Option<u64> {
    info(server, name)?.parse().ok()
}

fn setting<'a>(server: &'a ExaminedServer, name: &str) -> Option<&'a str> {
    server.settings.get(name).map(String::as_str)
}

fn version(server: &ExaminedServer) -> Finding {
    let subject = "version";
    let Some(redis) = info(server, "redis_version") else {
        return Finding::unseen(subject, "+info");
    };
    let was = match info(server, "valkey_version") {
        Some(valkey) => format!("Valkey {valkey}"),
        None => format!("Redis {redis}"),
    };
    let mut parts = redis
        .split('.')
        .map(|part| part.parse::<u64>().unwrap_or(0));
    let version = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    if version < (6, 2) {
        let means = "the scripts are tried on Redis 6.2 to 8 and Valkey 8 and 9 only";
        let finding = Finding::new(subject, Grade::Wrong, was, means);
        return finding.change("a newer server");
    }
    Finding::new(subject, Grade::Fine, was, "the scripts are tried on it")
}

fn decides(server: &ExaminedServer, ends_a_stop: Option<&'static str>) -> Finding {
    let subject = "decisions";
    if let (None, Some(change)) = (&server.refusal, ends_a_stop) {
        let means = "its cluster has lost a shard and stops all others, and the failure rule acts";
        let finding = Finding::new(subject, Grade::Wrong, "it refuses (CLUSTERDOWN)", means);
        return finding.change(change);
    }
    let refusal = server.refusal.as_ref().map(BackendError::kind);
    if refusal == Some(FailureKind::OutOfMemory) || (refusal.is_none() && is_full(server)) {
        let means =
            "it has no memory left, and the failure rule acts for all callers that have room";
        let finding = Finding::new(subject, Grade::Wrong, "it refuses (OOM)", means);
        return finding.change("see eviction");
    }
    match &server.refusal {
        None => Finding::new(
            subject,
            Grade::Fine,
            "it decides",
            "a new connection of the service works",
        ),
        Some(refusal) => {
            let means = "the service's decisions fail, and the failure rule acts";
            let finding = Finding::new(subject, Grade::Wrong, refusal.to_string(), means);
            finding.change("see \"Logs and errors\" in docs/redis.md")
        }
    }
}

fn rights(server: &ExaminedServer) -> Finding {
    let subject = "rights";
    let missing = &server.missing_rights;
    match missing.is_empty() {
        true => Finding::new(
            subject,
            Grade::Fine,
            "all that decisions need",
            "the user may run the script and its commands",
        ),
        false => {
            let was = format!("the user lacks {}", missing.join(" "));
            let means = "a connection that lacks one of them is refused";
            let finding = Finding::new(subject, Grade::Wrong, was, means);
            finding.change(format!("ACL SETUSER the-user {}", missing.join(" ")))
        }
    }
}

fn memory_limit(server: &ExaminedServer) -> Finding {
    let subject = "eviction";
    let policy = setting(server, "maxmemory-policy").or_else(|| info(server, "maxmemory_policy"));
    let maxmemory = setting(server, "maxmemory").and_then(|text| text.parse().ok());
    let (Some(policy), Some(most)) = (policy, maxmemory.or_else(|| number(server, "maxmemory")))
    else {
        return Finding::unseen(subject, "+info or +config|get");
    };
    let was = match most {
        0 => format!("maxmemory-policy {policy}, no maxmemory"),
        most => format!("maxmemory-policy {policy}, maxmemory {}", bytes(most)),
    };
    let used = number(server, "used_memory").unwrap_or(0);
    if policy != "noeviction" {
        let means = if policy.starts_with("volatile-") {
            "a full server evicts live budgets and bans, all of which have an expiry, and their callers start from full ones without any notice"
        } else {
            "a full server evicts live budgets, and their callers start from full ones without any notice"
        };
        let finding = Finding::new(subject, Grade::Wrong, was, means);
        return finding.change("CONFIG SET maxmemory-policy noeviction, on a server or with a maxmemory of the limiter's own");
    }
    if most == 0 {
        let means = "nothing is evicted; memory grows until the host has none left";
        let finding = Finding::new(subject, Grade::Advice, was, means);
        return finding.change("CONFIG SET maxmemory, to what the host has for it: then a full server refuses, and the failure rule acts");
    }
    if u128::from(used) * 10 > u128::from(most) * 9 {
        let was = format!("{was}, {} of it used", percent(used, most));
        let means = "a full server decides nothing (OOM), and the failure rule acts";
        let finding = Finding::new(subject, Grade::Wrong, was, means);
        return finding.change("raise maxmemory, or let nothing else live there");
    }
    let means = "a full server refuses, and the failure rule acts; no budget is forgotten";
    Finding::new(subject, Grade::Fine, was, means)
}

/// True if the server refuses what needs memory. A node of a cluster has not been tried with a write.
fn is_full(server: &ExaminedServer) -> bool {
    let policy = setting(server, "maxmemory-policy").or_else(|| info(server, "maxmemory_policy"));
    let most = number(server, "maxmemory").filter(|most| *most > 0);
    let used = number(server, "used_memory").zip(most);
    // It evicts nothing, or nothing is left that it may evict: keys without an expiry stay under these policies.
    let keeps = |policy: &str| policy == "noeviction" || policy.starts_with("volatile-");
    policy.is_some_and(keeps) && used.is_some_and(|(used, most)| used >= most)
}

/// Keys that are gone already.
fn evicted(server: &ExaminedServer) -> Option<Finding> {
    let evicted = number(server, "evicted_keys").filter(|evicted| *evicted > 0)?;
    let was = format!("{} keys since the server started", grouped(evicted));
    let means = "budgets may have been among them: their callers started from full ones";
    let finding = Finding::new("evicted", Grade::Wrong, was, means);
    Some(finding.change("noeviction, and enough memory"))
}

fn persistence(server: &ExaminedServer) -> Finding {
    let subject = "persistence";
    let Some(aof) = setting(server, "appendonly") else {
        return Finding::unseen(subject, "+config|get");
    };
    let save = setting(server, "save").unwrap_or_default();
    let sync = setting(server, "appendfsync").unwrap_or_default();
    let was = match (aof, save) {
        ("yes", _) => format!("appendonly yes, appendfsync {sync}"),
        (_, "") => "none".to_owned(),
        (_, save) => format!("save \"{save}\""),
    };
    if aof == "yes" && sync == "always" {
        let means = "each call of the script waits for the disk";
        let finding = Finding::new(subject, Grade::Wrong, was, means);
        return finding.change("CONFIG SET appendonly no, or appendfsync everysec");
    }
    if was == "none" {
        let means = "a restart costs one full budget for each caller, and loads nothing";
        return Finding::new(subject, Grade::Fine, was, means);
    }
    let means = "a restart keeps the budgets, but nothing is decided while the data loads; a failed save may stop decisions";
    let finding = Finding::new(subject, Grade::Advice, was, means);
    finding.change("for the limiter alone: save \"\" and appendonly no")
}

/// A save that failed, after which the server refuses writes.
fn failed_save(server: &ExaminedServer) -> Option<Finding> {
    let is_failed = |name| info(server, name).is_some_and(|status| status != "ok");
    // Without points of saving the server goes on after a save that was asked for.
    let stops = setting(server, "stop-writes-on-bgsave-error") != Some("no")
        && setting(server, "save") != Some("");
    let was = match () {
        () if is_failed("rdb_last_bgsave_status") && stops => "the last save failed",
        () if is_failed("aof_last_write_status") => "the last write of the log failed",
        () => return None,
    };
    let means = "the server refuses writes (MISCONF), and decides nothing";
    let finding = Finding::new("disk", Grade::Wrong, was, means);
    Some(finding.change("make room on the disk, or CONFIG SET stop-writes-on-bgsave-error no"))
}

fn replication(server: &ExaminedServer, is_watched: bool) -> Finding {
    let subject = "replication";
    let Some(replicas) = number(server, "connected_slaves") else {
        return Finding::unseen(subject, "+info");
    };
    let needed = setting(server, "min-replicas-to-write").and_then(|text| text.parse().ok());
    let needed: u64 = needed.unwrap_or(0);
    let role = info(server, "role").unwrap_or("master");
    let mut was = match replicas {
        1 => format!("{role}, 1 replica"),
        _ => format!("{role}, {replicas} replicas"),
    };
    if needed > 0 {
        was += &format!(", min-replicas-to-write {needed}");
    }
    if role == "slave" {
        return misplaced(server);
    }
    if needed > replicas {
        let means = "the server refuses writes (NOREPLICAS), and decides nothing";
        let finding = Finding::new(subject, Grade::Wrong, was, means);
        return finding.change(format!(
            "CONFIG SET min-replicas-to-write {replicas}, or more replicas"
        ));
    }
    match (replicas, is_watched) {
        (0, true) => {
            let means = "no replica can take over: if this server is lost, its callers are undecided until it is back";
            let finding = Finding::new(subject, Grade::Wrong, was, means);
            finding.change("a replica on another host")
        }
        (0, false) => {
            let means = "if this server is lost nothing is decided until it is back, and the failure rule acts";
            let finding = Finding::new(subject, Grade::Advice, was, means);
            finding.change("a failure rule that was chosen on purpose, or Sentinels and a replica")
        }
        (_, true) if needed == 0 => {
            let means = "a failover costs each caller at most one full budget; a master that is cut off goes on deciding for the clients that reach it";
            let finding = Finding::new(subject, Grade::Advice, was, means);
            finding.change("two replicas and min-replicas-to-write 1 make the bound exact")
        }
        _ => Finding::new(
            subject,
            Grade::Fine,
            was,
            "a failover costs each caller at most one full budget",
        ),
    }
}

/// Many clients, near to the most that the server takes.
fn clients(server: &ExaminedServer) -> Option<Finding> {
    let most = setting(server, "maxclients").and_then(|text| text.parse().ok());
    let (most, now): (u64, _) = (
        most.or_else(|| number(server, "maxclients"))?,
        number(server, "connected_clients")?,
    );
    let was = format!("{} of {}", grouped(now), grouped(most));
    if u128::from(now) * 10 <= u128::from(most) * 8 {
        let means = "each process of the service needs two connections";
        return Some(Finding::new("clients", Grade::Fine, was, means));
    }
    let means = "a process that finds no connection free decides nothing";
    let finding = Finding::new("clients", Grade::Wrong, was, means);
    Some(
        finding.change("raise maxclients to more than two for each process, and the other clients"),
    )
}

fn clock(server: &ExaminedServer) -> Option<Finding> {
    let (ahead_us, within_us) = server.clock_ahead_us?;
    let ms = |us: i64| grouped(us.unsigned_abs() / 1_000);
    let side = if ahead_us < 0 { "behind" } else { "ahead of" };
    let was = format!(
        "{} ms {side} this host's, give or take {} ms",
        ms(ahead_us),
        ms(within_us + 999)
    );
    if ahead_us.abs() > CLOCKS_US + within_us {
        let means = "budgets go by the server's clock: calendar quotas end at its midnight, and a failover to another server is a step of the clock";
        let finding = Finding::new("clock", Grade::Wrong, was, means);
        return Some(finding.change("NTP on the server and here"));
    }
    let means = "budgets go by the server's clock";
    Some(Finding::new("clock", Grade::Fine, was, means))
}

fn script(server: &ExaminedServer) -> Finding {
    let subject = "script";
    match server.had_script {
        Some(true) => Finding::new(
            subject,
            Grade::Fine,
            "was loaded",
            "a process of this version has connected since the server started",
        ),
        Some(false) => Finding::new(
            subject,
            Grade::Fine,
            "was not loaded; this examination has loaded it",
            "no process of this version has connected since the server started, or SCRIPT FLUSH ran; each connection loads it",
        ),
        None => Finding::new(
            subject,
            Grade::Unseen,
            "the user may not run it",
            "see the rights",
        ),
    }
}

fn latency(server: &ExaminedServer) -> Option<Finding> {
    let mut times = server.round_trips.clone();
    times.sort_unstable();
    let (shortest, longest) = (times.first()?, times.last()?);
    let median = times.get(times.len() / 2)?;
    let was = format!(
        "{} in the middle, {} to {}, of {} calls of the script",
        about(*median),
        about(*shortest),
        about(*longest),
        times.len()
    );
    if longest.as_micros() >= DEADLINE_US {
        let means = "a decision that takes more than 100 ms, the default deadline, comes too late: the failure rule acts";
        let finding = Finding::new("latency", Grade::Wrong, was, means);
        return Some(finding.change("SLOWLOG GET and LATENCY DOCTOR on the server, a server nearer by, or a longer .deadline(..)"));
    }
    if median.as_millis() >= 10 {
        let means = "each request of the service waits for that long";
        let finding = Finding::new("latency", Grade::Advice, was, means);
        return Some(finding.change("a server nearer by"));
    }
    Some(Finding::new(
        "latency",
        Grade::Fine,
        was,
        "each decision takes one such round trip",
    ))
}

fn memory(server: &ExaminedServer) -> Finding {
    let subject = "memory";
    let Some((states, of_states)) = server.states else {
        return Finding::unseen(subject, "+scan and +memory|usage");
    };
    let used =
        number(server, "used_memory").map(|used| format!("; the server uses {}", bytes(used)));
    let used = used.unwrap_or_default();
    let means = "memory is needed for the callers within the time of a full refill, and not for all that ever came";
    let was = match of_states.checked_div(states) {
        Some(each) => format!(
            "{} bytes for a key, of {} that were looked at{used}",
            grouped(each),
            grouped(states)
        ),
        None => format!("no key of the limiter is there{used}"),
    };
    Finding::new(subject, Grade::Fine, was, means)
}

/// `1.5 GB`, cut.
fn bytes(number: u64) -> String {
    for (unit, name) in [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")] {
        if number >= unit {
            return format!("{}.{} {name}", number / unit, number % unit * 10 / unit);
        }
    }
    format!("{number} bytes")
}
