//! `tollgate doctor`: the fleet's Redis as it is, what that means for limits, and what to change.

mod checks;
mod topology;

use clap::Args;
use serde_json::{Value, json};
use tollgate::Examination;

use crate::colour::{self, Colour, paint};
use crate::failure::Failure;
use crate::redis::{RedisArguments, runtime};
use crate::report::Report;

/// Examines the fleet's Redis: version, rights, eviction, persistence, replication, clock, script, latency and memory.
///
/// Each fact comes with what it means for limits, and with what to change. Replicas are looked at, too. Nothing is decided and no
/// state changes; the script is loaded, as each connection of the service does. The user of the service shows which rights it
/// lacks; an operator's user, with +info, +config|get, +scan and +memory|usage, sees the rest. Exit codes: 0 nothing is wrong; 1 no
/// server can be asked; 2 the arguments make no sense; 3 something is wrong.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tollgate doctor --redis redis://10.0.0.7:6379
  tollgate doctor --redis redis://node-1:6379 --cluster --json")]
pub(crate) struct DoctorArguments {
    /// Writes the findings as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    redis: RedisArguments,
}

/// The exit code for findings.
const FINDINGS: u8 = 3;

/// The weight of a fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Grade {
    /// It is as it should be.
    Fine,
    /// It is the operator's choice, and there may be a better one.
    Advice,
    /// It takes limits away, or decisions.
    Wrong,
    /// The user may not see it.
    Unseen,
}

impl Grade {
    fn name(self) -> &'static str {
        match self {
            Self::Fine => "fine",
            Self::Advice => "advice",
            Self::Wrong => "wrong",
            Self::Unseen => "unseen",
        }
    }

    fn colour(self) -> Colour {
        match self {
            Self::Fine => Colour::Green,
            Self::Advice => Colour::Yellow,
            Self::Wrong => Colour::Red,
            Self::Unseen => Colour::Grey,
        }
    }
}

/// One fact, what it means, and what to change.
#[derive(Debug)]
struct Finding {
    subject: &'static str,
    grade: Grade,
    was: String,
    means: String,
    change: Option<String>,
}

impl Finding {
    fn new(
        subject: &'static str,
        grade: Grade,
        was: impl Into<String>,
        means: impl Into<String>,
    ) -> Self {
        Self {
            subject,
            grade,
            was: was.into(),
            means: means.into(),
            change: None,
        }
    }

    /// A fact for which the user needs a right.
    fn unseen(subject: &'static str, right: &str) -> Self {
        let was = "the user may not see it";
        let means = "decisions do not need this right, and an operator's user has it";
        let finding = Self::new(subject, Grade::Unseen, was, means);
        finding.change(format!("examine with a user that has {right}, too"))
    }

    fn change(mut self, change: impl Into<String>) -> Self {
        self.change = Some(change.into());
        self
    }

    fn json(&self) -> Value {
        json!({
            "subject": self.subject,
            "grade": self.grade.name(),
            "was": self.was,
            "means": self.means,
            "change": self.change,
        })
    }

    fn lines(&self, is_coloured: bool, lines: &mut Vec<String>) {
        let Self { subject, grade, .. } = self;
        let name = format!("{:<7}", grade.name());
        let name = match is_coloured {
            true => paint(&name, grade.colour()),
            false => name,
        };
        lines.push(format!("  {name} {subject:<12} {}", self.was));
        lines.push(format!("  {:20} {}", "", self.means));
        if let Some(change) = &self.change {
            lines.push(format!("  {:20} → {change}", ""));
        }
    }
}

/// The place of settings where nobody may change them by command.
const MANAGED: &str = "where CONFIG SET is forbidden: set it in a parameter group (ElastiCache, MemoryDB) or in the instance's configuration (Memorystore)";

pub(crate) fn doctor(asked: &DoctorArguments) -> Result<Report, Failure> {
    let builder = asked.redis.builder()?;
    let examined = runtime()?.block_on(builder.examine());
    let examined = examined.map_err(Failure::unconnected)?;
    let parts = parts(&examined);
    let all = || parts.iter().flat_map(|(_, findings)| findings);
    let count = |grade| all().filter(|finding| finding.grade == grade).count();
    let wrong = count(Grade::Wrong);
    let code = if wrong > 0 { FINDINGS } else { 0 };
    let is_setting =
        |it: &Finding| (it.change.as_deref()).is_some_and(|to| to.contains("CONFIG SET"));
    let managed = all().any(is_setting).then_some(MANAGED);
    let text = match asked.json {
        true => {
            let parts = parts.iter().map(|(place, findings)| {
                let findings = findings.iter().map(Finding::json);
                json!({ "place": place, "findings": findings.collect::<Vec<_>>() })
            });
            let parts: Vec<_> = parts.collect();
            format!(
                "{:#}\n",
                json!({ "wrong": wrong, "parts": parts, "managed": managed })
            )
        }
        false => {
            let mut lines = Vec::new();
            let is_coloured = colour::is_wanted(&std::io::stdout());
            for (place, findings) in &parts {
                lines.push(place.clone());
                findings
                    .iter()
                    .for_each(|it| it.lines(is_coloured, &mut lines));
                lines.push(String::new());
            }
            lines.extend(managed.map(str::to_owned));
            let (advice, unseen) = (count(Grade::Advice), count(Grade::Unseen));
            lines.push(format!(
                "{wrong} wrong, {advice} to consider, {unseen} not seen"
            ));
            lines.join("\n") + "\n"
        }
    };
    Ok(Report { text, code })
}

/// The findings about the whole, and about each server.
fn parts(examined: &Examination) -> Vec<(String, Vec<Finding>)> {
    let has_sentinels = !examined.sentinels.is_empty();
    let is_cluster = examined.slots_without_master.is_some();
    let mut parts = Vec::new();
    if has_sentinels {
        let findings = topology::sentinels(&examined.sentinels);
        parts.push(("the Sentinels".to_owned(), findings));
    }
    if let Some(slots) = examined.slots_without_master {
        let findings = topology::cluster(&examined.servers, &examined.replicas, slots);
        parts.push(("the cluster".to_owned(), findings));
    }
    let ends_a_stop = topology::ends_a_stop(&examined.servers).filter(|_| is_cluster);
    for server in &examined.servers {
        let findings = checks::of(server, has_sentinels || is_cluster, ends_a_stop);
        parts.push((server.place.clone(), findings));
    }
    for replica in &examined.replicas {
        let place = format!("{}, a replica", replica.place);
        parts.push((place, checks::of_replica(replica)));
    }
    parts
}
