//! Grants of as much as there is: the amount that each was decided with, and whether it can have been the largest.

use crate::attempt::{AskedCharge, Attempt, DecisionRecord, Manner, Outcome, VerdictRecord};

/// The findings about grants.
#[derive(Clone, Copy, Debug, Default)]
pub struct GrantFindings {
    /// Grants of all that was asked for.
    pub whole: u64,
    /// Grants of less.
    pub in_part: u64,
    /// Grants of nothing, which are denials.
    pub denied: u64,
    /// Questions for grants whose answers were lost.
    pub lost: u64,
}

impl GrantFindings {
    pub(super) fn count(&mut self, attempt: &Attempt) {
        let (Some(at_least), asked) = (attempt.verb.at_least(), attempt.verb.asked()) else {
            return;
        };
        let most = asked.first().map_or(0, |charge| charge.cost);
        let is_taken = asked.iter().any(|it| it.manner == Manner::Enforce);
        *match &attempt.outcome {
            Outcome::Decided(decided) if !decided.admitted => &mut self.denied,
            Outcome::Decided(decided) if is_taken => match amount(at_least, asked, decided) {
                amount if amount < most => &mut self.in_part,
                _ => &mut self.whole,
            },
            Outcome::Unknown(_) => &mut self.lost,
            _ => return,
        } += 1;
    }
}

/// The cost by which a charge was decided: its own, or the amount that was granted.
pub(super) fn decided_cost(attempt: &Attempt, asked: &AskedCharge) -> u64 {
    match (attempt.verb.at_least(), &attempt.outcome) {
        (Some(at_least), Outcome::Decided(decided)) => {
            amount(at_least, attempt.verb.asked(), decided)
        }
        _ => asked.cost,
    }
}

/// The amount by which all charges of a question were decided: what was taken, or what a probe found, or the least.
fn amount(at_least: u64, asked: &[AskedCharge], decided: &DecisionRecord) -> u64 {
    let verdicts = || decided.verdicts.iter();
    let taken = verdicts().map(|said| said.taken).max().unwrap_or_default();
    if taken > 0 {
        return taken;
    }
    let most = asked.first().map_or(0, |charge| charge.cost);
    match asked.first().map(|charge| charge.manner) {
        Some(Manner::Probe) => {
            let left = verdicts().map(|said| said.remaining).min();
            left.unwrap_or_default().min(most).max(at_least)
        }
        _ => at_least,
    }
}

/// A grant outside of its bounds, or of less than there was: of less than the most, something is used up.
pub(super) fn stingy(attempt: &Attempt, decided: &DecisionRecord) -> Option<String> {
    let at_least = attempt.verb.at_least()?;
    let asked = attempt.verb.asked();
    let most = asked.first().map_or(0, |charge| charge.cost);
    let granted = amount(at_least, asked, decided);
    if granted < at_least || granted > most {
        return Some(format!(
            "granted {granted}, and {at_least} to {most} were asked for"
        ));
    }
    let takes = |(asked, said): &(&AskedCharge, &VerdictRecord)| {
        asked.manner != Manner::Probe && said.taken > 0
    };
    let mut taken = asked.iter().zip(&decided.verdicts).filter(takes).peekable();
    let is_partial = granted < most && taken.peek().is_some();
    let fewest = taken.map(|(_, said)| said.remaining).min()?;
    // All on trial take what the tightest of them has room for, and one that lacks the least takes nothing.
    let is_short = decided
        .verdicts
        .iter()
        .any(|said| said.known && !said.passes);
    (is_partial && fewest > 0 && !is_short)
        .then(|| format!("granted {granted} of {most}, and {fewest} were left"))
}
