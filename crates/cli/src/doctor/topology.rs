//! Findings about Sentinels, and about a cluster as a whole.

use tollgate::{ExaminedSentinel, ExaminedServer};

use super::checks::{CLOCKS_US, has_answered};
use super::{Finding, Grade};

/// The Sentinels: each has to answer, and all have to name one master.
pub(super) fn sentinels(sentinels: &[ExaminedSentinel]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut named: Vec<_> = sentinels
        .iter()
        .filter_map(|it| it.master.as_ref().ok())
        .collect();
    named.sort_unstable();
    named.dedup();
    for sentinel in sentinels {
        if let Err(why) = &sentinel.master {
            let was = format!("{} names no master: {why}", sentinel.place);
            let means = "a failover that only this one knows is heard of late";
            let finding = Finding::new("sentinel", Grade::Wrong, was, means);
            findings.push(
                finding
                    .change("start it or make it reachable, or take it out of the service's URLs"),
            );
        }
    }
    let names = named
        .iter()
        .map(|name| name.as_str())
        .collect::<Vec<_>>()
        .join(", ");
    findings.push(match named.len() {
        0 | 1 => {
            let (answering, all) = (sentinels.iter().filter(|it| it.master.is_ok()), sentinels.len());
            let was = format!("{} of {all} name {names}", answering.count());
            Finding::new("master", Grade::Fine, was, "the Sentinels agree")
        }
        _ => {
            let was = format!("the Sentinels name {names}");
            let means = "a failover is under way, or some of them are cut off; processes may decide on different servers";
            let finding = Finding::new("master", Grade::Wrong, was, means);
            finding.change("look again in 10 s, then at SENTINEL MASTERS on each")
        }
    });
    if sentinels.len() < 3 {
        let was = format!("{} known to the service", sentinels.len());
        let means = "while these are away, a new connection finds no master";
        let finding = Finding::new("number", Grade::Advice, was, means);
        findings.push(finding.change("give the service the URLs of three"));
    }
    findings
}

/// What ends it, if lost shards stop the others.
pub(super) fn ends_a_stop(servers: &[ExaminedServer]) -> Option<&'static str> {
    let (answering, silent): (Vec<_>, Vec<_>) = servers.iter().partition(|it| has_answered(it));
    let setting = |it: &&ExaminedServer| {
        it.settings
            .get("cluster-require-full-coverage")
            .is_some_and(|it| it == "yes")
    };
    // Whatever the setting, the nodes that live refuse if they are not more than half of the masters.
    if answering.len() * 2 <= servers.len() {
        return Some(
            "on a replica of each lost master: CLUSTER FAILOVER TAKEOVER; or start masters until more than half live",
        );
    }
    let is_stopped = !silent.is_empty() && answering.iter().any(setting);
    is_stopped.then_some("bring the lost master or a replica of it back, or see coverage")
}

/// The cluster: all slots need a master, one lost shard must not stop the others, and the clocks have to agree.
pub(super) fn cluster(
    servers: &[ExaminedServer],
    replicas: &[ExaminedServer],
    slots_without_master: u16,
) -> Vec<Finding> {
    let silent = servers.iter().filter(|it| !has_answered(it)).count();
    let mut findings = vec![match slots_without_master {
        0 if silent > 0 => {
            let was = format!("{silent} of {} masters do not answer", servers.len());
            let means = "the callers of their slots are not decided: the failure rule acts";
            let finding = Finding::new("slots", Grade::Wrong, was, means);
            finding.change(match silent * 2 < servers.len() {
                true => "start them, or on a replica of each: CLUSTER FAILOVER FORCE",
                false => "start them, or on a replica of each: CLUSTER FAILOVER TAKEOVER",
            })
        }
        0 => {
            let was = format!("16,384 of 16,384, on {} masters", servers.len());
            Finding::new("slots", Grade::Fine, was, "each caller has a master")
        }
        slots => {
            let was = format!("{slots} have no master");
            let means = "the callers of these are not decided: the failure rule acts";
            let finding = Finding::new("slots", Grade::Wrong, was, means);
            finding.change("redis-cli --cluster check HOST:PORT, then --cluster fix")
        }
    }];
    let nodes = servers.iter().chain(replicas);
    let answering = nodes.filter(|server| has_answered(server));
    let settings = answering.map(|it| it.settings.get("cluster-require-full-coverage"));
    let subject = "coverage";
    let name = "cluster-require-full-coverage";
    let settings: Vec<_> = settings.collect();
    let is_any = |value: &str| settings.iter().any(|it| it.is_some_and(|it| it == value));
    findings.push(if is_any("yes") {
        let means = "if one shard is lost every node refuses, and no caller is decided";
        let finding = Finding::new(subject, Grade::Wrong, format!("{name} yes"), means);
        finding.change(format!("CONFIG SET {name} no on each node, and in its file: then only the lost shard's callers are undecided"))
    } else if settings.iter().all(Option::is_some) {
        let means = "if one shard is lost only its callers are undecided";
        Finding::new(subject, Grade::Fine, format!("{name} no"), means)
    } else {
        Finding::unseen(subject, "+config|get")
    });
    let clocks = servers.iter().filter_map(|it| it.clock_ahead_us);
    let (least, most) = (clocks.clone().min(), clocks.max());
    if let (Some((least_us, one_us)), Some((most_us, other_us))) = (least, most) {
        let apart_us = most_us.saturating_sub(least_us);
        if apart_us > CLOCKS_US + one_us + other_us {
            let was = format!("{} ms between the nodes", apart_us / 1_000);
            let means = "a slot that moves to another node sees that as time that has passed, or has stood still";
            let finding = Finding::new("clocks", Grade::Wrong, was, means);
            findings.push(finding.change("NTP on each host"));
        }
    }
    findings
}
