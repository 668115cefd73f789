//! The report for people.

use std::fmt::Write;

use super::checked::{Checked, Described};
use crate::arguments::CheckArguments;
use crate::coverage::Covered;

pub(super) fn report(asked: &CheckArguments, checked: &Checked) -> String {
    let mut report = String::new();
    // Text takes every word.
    let _written = write(&mut report, asked, checked);
    report
}

fn write(
    report: &mut String,
    asked: &CheckArguments,
    checked: &Checked,
) -> Result<(), std::fmt::Error> {
    let policies = match checked.policies.len() {
        1 => "1 policy".to_owned(),
        many => format!("{many} policies"),
    };
    writeln!(report, "{}: valid, {policies}", asked.limits.display())?;
    for policy in &checked.policies {
        described(report, &format!("policy {}", policy.name), policy)?;
    }
    if let Some(pressure) = &checked.pressure {
        described(report, &pressure.name, pressure)?;
    }
    covered(report, &checked.covered)?;
    list(report, "what never passes:", &checked.never_pass)?;
    let unseen = "what the service has to register, and this program cannot see:";
    list(report, unseen, &checked.registered)?;
    if let (Some(changes), Some(old)) = (&checked.changes, &asked.against) {
        let old = old.display();
        if changes.is_empty() {
            writeln!(report, "\nnothing changes for callers against {old}")?;
        }
        list(report, &format!("what changes against {old}:"), changes)?;
    }
    Ok(())
}

fn described(report: &mut String, title: &str, of: &Described) -> Result<(), std::fmt::Error> {
    let trial = if of.is_trial {
        ", on trial: it refuses no request"
    } else {
        ""
    };
    writeln!(report, "\n{title}{trial}")?;
    for (name, words) in &of.facts {
        writeln!(report, "  {name:<8} {words}")?;
    }
    Ok(())
}

fn covered(report: &mut String, covered: &[Covered]) -> Result<(), std::fmt::Error> {
    writeln!(report, "\nwhich policies these requests meet, as examples:")?;
    let width = covered.iter().map(|row| row.request.chars().count()).max();
    let width = width.unwrap_or_default();
    for Covered { request, policies } in covered {
        let policies = match policies.as_slice() {
            [] => "no policy: it passes unlimited".to_owned(),
            policies => policies.join(", "),
        };
        writeln!(report, "  {request:<width$}  {policies}")?;
    }
    Ok(())
}

fn list(report: &mut String, title: &str, rows: &[String]) -> Result<(), std::fmt::Error> {
    if !rows.is_empty() {
        writeln!(report, "\n{title}")?;
    }
    for row in rows {
        writeln!(report, "  {row}")?;
    }
    Ok(())
}
