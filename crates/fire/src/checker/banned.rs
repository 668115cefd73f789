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
//! * a ban by hand begins at once, ends no sooner than one that is in force, and keeps the strikes; a pardon ends each ban, and
//!   forgets the strikes and all bans. A pardon has no time of its own: it comes before or behind each decision of its time;
//! * a strike by a response has none either, and counts by the end of the time in which it surely arrived.
//!
//! After a loss of data and a step back of the clock any ban and any strikes may be there, until a decision tells. The other bans
//! in doubt are those that requests and operators without an answer may have begun.

mod budget;
mod course;
mod record;
mod terms;

use std::collections::BTreeMap;

use self::budget::BudgetRecord;
use self::course::{CallerCourse, Reader, Seen};
use self::record::Record;
use self::terms::Terms;
use super::course::Hindrances;
use super::timeline::{Moment, Timelines};
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
    /// The bans by hand whose begin was told.
    pub by_hand: u64,
    /// Those among these that found a longer ban, and those that made one longer.
    pub kept_longer: u64,
    /// See [`kept_longer`](Self::kept_longer).
    pub lengthened: u64,
    /// The requests that found no ban because a pardon had ended it.
    pub pardoned: u64,
    /// The requests that surely found strikes by responses.
    pub by_response: u64,
    /// The bans that these strikes began.
    pub begun_by_response: u64,
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

impl BanFindings {
    /// Adds what one decision showed.
    fn add(&mut self, one: &Self) {
        self.begun += one.begun;
        self.banned += one.banned;
        self.by_hand += one.by_hand;
        self.kept_longer += one.kept_longer;
        self.lengthened += one.lengthened;
        self.pardoned += one.pardoned;
        self.by_response += one.by_response;
        self.begun_by_response += one.begun_by_response;
        self.in_doubt += one.in_doubt;
    }
}

/// Judges the requests of all callers under the policy with a ban.
pub(super) fn check_bans(history: &History, timelines: &Timelines<'_>) -> BanFindings {
    let mut findings = BanFindings::default();
    let mut callers: BTreeMap<u32, CallerCourse> = BTreeMap::new();
    let reader = Reader {
        history,
        timelines,
        hindrances: Hindrances::of(history),
    };
    for knock in &history.knocks {
        let course = callers.entry(knock.caller);
        let course = course.or_insert_with(|| reader.course(knock.caller));
        findings.wrong.extend(reader.read_knock(course, knock));
    }
    for call in &history.operated {
        let course = callers.entry(call.caller);
        let course = course.or_insert_with(|| reader.course(call.caller));
        findings.wrong.extend(reader.read_call(course, call));
    }
    let terms = Terms::new();
    for (caller, course) in &mut callers {
        course.sort();
        let mut judge = Judge {
            budget: BudgetRecord::of(&terms, course),
            courses: vec![Record::of(&terms, course)],
            last: Moment::FIRST,
            course,
        };
        for call in course.seen.chunk_by(|(one, _), (other, _)| one == other) {
            if let Err(what) = judge.see_call(call, &mut findings) {
                findings
                    .wrong
                    .push(format!("knock of caller {caller} {what}"));
                // Anything follows from a contradiction.
                break;
            }
        }
    }
    findings
}

/// The knowledge of one caller: of its budget, and all courses that its strikes and bans may have taken.
#[derive(Clone)]
struct Judge<'a> {
    course: &'a CallerCourse,
    budget: BudgetRecord<'a>,
    courses: Vec<Record<'a>>,
    last: Moment,
}

/// The most courses that are followed. Beyond these anything may have happened.
const MOST_COURSES: usize = 64;

impl Judge<'_> {
    /// Judges the decisions of one time. A pardon in the middle of their call ends the ban that those before it were told.
    fn see_call(
        &mut self,
        call: &[(Moment, Seen)],
        findings: &mut BanFindings,
    ) -> Result<(), String> {
        let is_banned = |(_, seen): &&(Moment, Seen)| seen.banned_until_us().is_some();
        let (banned, free): (Vec<_>, Vec<_>) = call.iter().partition(is_banned);
        let mut before = None;
        if let [(now, _), ..] = call
            && !banned.is_empty()
            && !free.is_empty()
            && self.course.acts(*now, *now).next().is_some()
        {
            before = Some((self.clone(), findings.clone()));
        }
        let judged = self.see_in_order(call, findings);
        let (Err(_), Some((judge, found))) = (&judged, before) else {
            return judged;
        };
        (*self, *findings) = (judge, found);
        let other_way = self.see_in_order(banned.into_iter().chain(free), findings);
        other_way.or(judged)
    }

    fn see_in_order<'b>(
        &mut self,
        call: impl IntoIterator<Item = &'b (Moment, Seen)>,
        findings: &mut BanFindings,
    ) -> Result<(), String> {
        call.into_iter().try_for_each(|(moment, seen)| {
            let judged = self.see(*moment, seen, findings);
            judged.map_err(|what| format!("at {}: {what}: {seen:?}", moment.at_us))
        })
    }

    fn see(&mut self, now: Moment, seen: &Seen, findings: &mut BanFindings) -> Result<(), String> {
        let is_lost = self.course.has_loss(self.last, now);
        let is_back = self.course.has_step_back(self.last, now);
        self.last = now;
        if is_lost || is_back {
            self.budget.forget();
            self.courses.iter_mut().for_each(|it| it.forget(now));
        }
        match (is_lost, is_back) {
            (true, _) => findings.after_loss += 1,
            (_, true) => findings.after_step += 1,
            _ => findings.strict += 1,
        }
        if let Seen::Knock(knock) = seen {
            findings.knocks += 1;
            self.budget.see(now, knock, findings)?;
        }
        // In any order and number.
        let mut possible = std::mem::take(&mut self.courses);
        let mut number = 0;
        while number < MOST_COURSES
            && let Some(course) = possible.get(number)
        {
            for after in course.after_each(now, seen) {
                add(&mut possible, after);
            }
            number += 1;
        }
        if possible.len() > MOST_COURSES {
            findings.in_doubt += 1;
            possible.truncate(1);
            possible.iter_mut().for_each(|it| it.forget_with_acts(now));
        }
        let (mut first, mut why) = (None, None);
        for mut course in possible {
            if !course.is_up_to_date(now) {
                continue;
            }
            let mut one = BanFindings::default();
            match course.see(now, seen, &mut one) {
                Ok(()) => {
                    first.get_or_insert(one);
                    add(&mut self.courses, course);
                }
                Err(what) => why = why.or(Some(what)),
            }
        }
        match first {
            Some(one) => findings.add(&one),
            None => return Err(why.unwrap_or_default()),
        }
        Ok(())
    }
}

fn add<'a>(courses: &mut Vec<Record<'a>>, course: Record<'a>) {
    if !courses.iter().any(|other| other.covers(&course)) {
        courses.push(course);
    }
}
