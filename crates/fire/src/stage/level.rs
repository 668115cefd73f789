//! The time since which a replica may lack writes: those are lost if it takes over.

use std::thread::sleep;
use std::time::Duration;

use tollgate_testkit::Standalone;

use super::{Servers, Stage, fleet};
use crate::history::{Disturbance, Effect};
use crate::wall::now_us;

/// The number of times that a lagging replica is asked. A replica that hears its master never lags for long.
const TRIES: usize = 5;

impl Stage {
    /// Remembers this moment, if the replica has everything that its master had at it.
    pub(super) fn look_at_replica(&mut self) {
        for _ in 0..TRIES {
            let asked_us = now_us();
            if self.is_level() {
                self.level_us = asked_us;
                return;
            }
            sleep(Duration::from_millis(2));
        }
    }

    /// The possible effect of a fault since `from_us`. It may lose writes that the replica lacked when the fault began.
    pub(crate) fn done_since(&self, effect: Effect, from_us: u64) -> Disturbance {
        let from_us = match effect {
            Effect::MaybeLoss => from_us.min(self.level_us),
            Effect::Trouble | Effect::Loss | Effect::Clock(_) => from_us,
        };
        Disturbance::of_all(effect, from_us, now_us())
    }

    fn is_level(&self) -> bool {
        let (one, other) = match &self.servers {
            Servers::Single(_) => return true,
            Servers::Sentinel(_) => (0, 1),
            Servers::Cluster(cluster) => fleet::pair(cluster),
        };
        let nodes = self.nodes();
        let pairs = [(one, other), (other, one)];
        let masters = pairs.map(|(master, replica)| has_all_of(&nodes[replica], &nodes[master]));
        masters.contains(&true)
    }
}

/// Says whether a replica has everything that its master had before the question.
fn has_all_of(replica: &Standalone, master: &Standalone) -> bool {
    let said = |node: &Standalone| node.try_command(&["INFO", "replication"]).ok();
    let (Some(by_master), Some(by_replica)) = (said(master), said(replica)) else {
        return false;
    };
    is_level(&by_master, &by_replica)
}

fn is_level(by_master: &str, by_replica: &str) -> bool {
    let offset = |said, name| field(said, name).and_then(|it| it.parse::<u64>().ok());
    let roles = [by_master, by_replica].map(|said| field(said, "role"));
    let histories = [by_master, by_replica].map(|said| field(said, "master_replid"));
    let has = offset(by_replica, "slave_repl_offset");
    roles == [Some("master"), Some("slave")]
        && field(by_replica, "master_link_status") == Some("up")
        && histories[0].is_some()
        && histories[0] == histories[1]
        && has.is_some()
        && has >= offset(by_master, "master_repl_offset")
}

fn field<'a>(said: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = said.lines();
    lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_is_level_that_is_connected_and_as_far_as_its_master_in_one_history() {
        let master = "role:master\r\nmaster_replid:abc\r\nmaster_repl_offset:100\r\n";
        let replica = |status: &str, replid: &str, offset: u64| {
            format!(
                "role:slave\r\nmaster_link_status:{status}\r\nslave_repl_offset:{offset}\r\nmaster_replid:{replid}\r\n"
            )
        };

        assert!(is_level(master, &replica("up", "abc", 100)));
        assert!(is_level(master, &replica("up", "abc", 101)));
        for behind in [
            replica("up", "abc", 99),
            replica("down", "abc", 100),
            replica("up", "other", 100),
            master.to_owned(),
            String::new(),
        ] {
            assert!(!is_level(master, &behind), "{behind}");
        }
    }
}
