//! Says whether strikes were exact, whether bans lasted for as long as they were to, and whether a kept share was left.
//!
//! For each caller, in the order of the server's time, from what the decisions told:
//!
//! * while a ban holds, each request is told its end, to the microsecond, so that it neither ends early nor feeds itself;
//! * the number of strikes that count lies between those that were seen and these with all that may have been: a request without
//!   an answer is at most one. A ban begins when it is full, and not before;
//! * each ban lasts for as long as those before it say;
//! * the budget moves by what was admitted, so that no denial and no banned request is charged;
//! * an unimportant request that passed left what is kept, and one of any class that was denied would not have left what it has to.
//!   So no time lets through more of the unimportant than a burst less what is kept, and what drains.
//!
//! After a loss of data and a step back of the clock any ban and any strikes may be there, until a decision tells. The other bans
//! in doubt are those that requests without an answer may have begun.

mod course;
mod record;

use std::collections::BTreeMap;

use self::course::CallerCourse;
use self::record::Record;
use super::timeline::Timelines;
use crate::history::History;

/// The findings about bans.
#[derive(Clone, Debug, Default)]
pub struct BanFindings {
    /// The impossible.
    pub wrong: Vec<String>,
    /// The requests that were decided.
    pub knocks: u64,
    /// The bans whose begin was seen, by the strike that made the number full.
    pub begun: u64,
    /// The requests that found their caller banned.
    pub banned: u64,
    /// The unimportant requests that would have passed if nothing were kept.
    pub kept_out: u64,
    /// The important requests that passed and left less than is kept.
    pub from_kept: u64,
    /// The requests that were judged by all that was known before.
    pub strict: u64,
    /// The requests before which data may have been lost since the one before.
    pub after_loss: u64,
    /// The requests before which the clock stepped back since the one before.
    pub after_step: u64,
    /// The requests before which one without an answer may have begun a ban.
    pub in_doubt: u64,
}

/// Judges the requests of all callers under the policy with a ban.
pub(super) fn check_bans(history: &History, timelines: &Timelines<'_>) -> BanFindings {
    let mut findings = BanFindings::default();
    let mut callers: BTreeMap<u32, CallerCourse> = BTreeMap::new();
    for knock in &history.knocks {
        let course = callers
            .entry(knock.caller)
            .or_insert_with(|| CallerCourse::of(history, timelines, knock.caller));
        findings
            .wrong
            .extend(course.read(history, timelines, knock));
    }
    for (caller, course) in &mut callers {
        course.sort();
        let mut record = Record::of(course);
        for (moment, seen) in &course.seen {
            findings.knocks += 1;
            if let Err(what) = record.see(*moment, seen, &mut findings) {
                let at = moment.at_us;
                let line = format!("knock of caller {caller} at {at}: {what}: {seen:?}");
                findings.wrong.push(line);
                // Anything follows from a contradiction.
                break;
            }
        }
    }
    findings
}
