//! A Prometheus with the rules that ship, whose times are divided.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use tempfile::TempDir;

use crate::alerting::http::fetch;
use crate::alerting::{FASTER, PACE};

/// A time of the rules, divided.
pub(crate) fn faster(time: &str) -> String {
    let (number, unit) = time.split_at(time.len() - 1);
    let unit_ms = match unit {
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => panic!("a time in {unit:?}"),
    };
    let ms = number.parse::<u64>().unwrap() * unit_ms / FASTER;
    format!("{ms}ms")
}

/// The rules that ship, with their times divided.
pub(crate) fn rules() -> String {
    let page = include_str!("../../../../docs/operating/alerts.yml");
    let mut rules = String::new();
    for line in page.lines() {
        if let Some((before, time)) = line.split_once("for: ") {
            writeln!(rules, "{before}for: {}", faster(time)).unwrap();
            continue;
        }
        let mut rest = line;
        // The only other brackets are ranges.
        while let Some((before, range)) = rest.split_once('[') {
            let (time, after) = range.split_once(']').unwrap();
            write!(rules, "{before}[{}]", faster(time)).unwrap();
            rest = after;
        }
        writeln!(rules, "{rest}").unwrap();
    }
    rules
}

pub(crate) struct Prometheus {
    process: Child,
    address: SocketAddr,
    folder: TempDir,
}

impl Prometheus {
    pub(crate) fn start(servers: &[(&str, SocketAddr)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("alerts.yml"), rules()).unwrap();
        let interval = faster("1m");
        let mut config = format!(
            "global: {{ scrape_interval: {interval}, scrape_timeout: {interval}, evaluation_interval: {interval} }}\n\
             rule_files: [alerts.yml]\nscrape_configs:\n"
        );
        for (job, address) in servers {
            let targets = format!("static_configs: [{{ targets: [\"{address}\"] }}]");
            writeln!(config, "- {{ job_name: {job}, {targets} }}").unwrap();
        }
        fs::write(folder.path().join("prometheus.yml"), config).unwrap();
        // Another program may take the port before this one does.
        for _ in 0..5 {
            let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let address = free.local_addr().unwrap();
            drop(free);
            let mut process = Self::process(folder.path(), address);
            while process.try_wait().unwrap().is_none() {
                if fetch(address, "/-/ready").is_ok_and(|page| page.contains("Ready")) {
                    return Self {
                        process,
                        address,
                        folder,
                    };
                }
                thread::sleep(PACE);
            }
        }
        let log = fs::read_to_string(folder.path().join("log"));
        panic!("prometheus does not start: {log:?}");
    }

    fn process(folder: &Path, address: SocketAddr) -> Child {
        let log = fs::File::create(folder.join("log")).unwrap();
        let file = |name: &str| folder.join(name).display().to_string();
        let mut command = Command::new("prometheus");
        command
            .arg(format!("--config.file={}", file("prometheus.yml")))
            .arg(format!("--storage.tsdb.path={}", file("data")))
            .arg(format!("--web.listen-address={address}"))
            .arg(format!("--query.lookback-delta={}", faster("5m")))
            .arg("--log.level=warn")
            .stdout(Stdio::null())
            .stderr(log);
        let process = command.spawn();
        process.expect("prometheus is missing: tests/install.sh installs it")
    }

    fn ask(&self, path: &str) -> serde_json::Value {
        let answer = fetch(self.address, path).unwrap();
        serde_json::from_str(&answer).unwrap()
    }

    /// The number of servers that were scraped last time.
    pub(crate) fn scraped(&self) -> usize {
        let answer = self.ask("/api/v1/query?query=up");
        let series = answer["data"]["result"].as_array().unwrap();
        series.iter().filter(|one| one["value"][1] == "1").count()
    }

    /// Answers each question of the dashboard that ships, for all servers and policies, and returns those that are about nothing.
    pub(crate) fn unanswered(&self) -> Vec<String> {
        let page = include_str!("../../../../docs/operating/dashboard.json");
        let dashboard: serde_json::Value = serde_json::from_str(page).unwrap();
        let panels = dashboard["panels"].as_array().unwrap().iter();
        let targets = panels.flat_map(|panel| panel["targets"].as_array().unwrap());
        let questions = targets.map(|target| target["expr"].as_str().unwrap());
        let is_unanswered = |question: &&str| {
            let asked = question.replace("$job", ".*").replace("$policy", ".*");
            let asked = asked.replace("$__rate_interval", &faster("5m"));
            let mut path = String::from("/api/v1/query?query=");
            for byte in asked.bytes() {
                write!(path, "%{byte:02X}").unwrap();
            }
            let answer = self.ask(&path);
            assert_eq!(answer["status"], "success", "{asked}: {answer}");
            answer["data"]["result"].as_array().unwrap().is_empty()
        };
        questions.filter(is_unanswered).map(str::to_owned).collect()
    }

    /// The alerts that are firing now.
    pub(crate) fn firing(&self) -> BTreeSet<(String, String)> {
        let answer = self.ask("/api/v1/alerts");
        let alerts = answer["data"]["alerts"].as_array().unwrap();
        let firing = alerts.iter().filter(|alert| alert["state"] == "firing");
        let label = |alert: &serde_json::Value, name: &str| {
            let label = alert["labels"][name].as_str();
            label.unwrap_or_default().to_owned()
        };
        firing
            .map(|alert| (label(alert, "alertname"), label(alert, "job")))
            .collect()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _killed = self.process.kill();
        let _ended = self.process.wait();
        if thread::panicking() {
            let log = fs::read_to_string(self.folder.path().join("log"));
            eprintln!("prometheus: {log:?}");
        }
    }
}
