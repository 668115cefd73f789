//! The knowledge of one caller's budget, strikes and ban, from one decision to the next.

use super::BanFindings;
use super::course::{CallerCourse, Seen};
use crate::checker::timeline::Moment;
use crate::knock::Guarded;

/// The policy in figures, in µs.
struct Terms {
    strikes: u64,
    within_us: u64,
    forgiven_us: u64,
    /// The length of a ban after each number of doublings that still lengthens it.
    lengths_us: Vec<u64>,
    /// The time in which one unit drains, and all that the budget holds.
    unit_us: u64,
    whole_us: u64,
    /// The part of that which all but the important leave.
    kept_us: u64,
}

impl Terms {
    fn new() -> Self {
        let (strikes, _, [within_us, lasting_us, longest_us, forgiven_us]) = Guarded::BAN.figures();
        let doubled = std::iter::successors(Some(lasting_us), |us| {
            (*us < longest_us).then(|| (us * 2).min(longest_us))
        });
        let quota = Guarded::QUOTA;
        let period_us = u64::try_from(quota.period().as_micros()).unwrap_or(u64::MAX);
        let unit_us = period_us / quota.limit();
        Self {
            strikes: strikes.into(),
            within_us,
            forgiven_us,
            lengths_us: doubled.collect(),
            unit_us,
            whole_us: unit_us * quota.capacity(),
            kept_us: unit_us * Guarded::KEPT,
        }
    }

    fn longest_us(&self) -> u64 {
        self.lengths_us.last().copied().unwrap_or_default()
    }

    fn shortest_us(&self) -> u64 {
        self.lengths_us.first().copied().unwrap_or_default()
    }
}

/// The last ban that is known.
#[derive(Clone, Copy)]
struct PastBan {
    ends_us: u64,
    /// The doublings of the next one, if nothing is forgiven until then; `None` if they are unknown.
    level: Option<usize>,
}

pub(super) struct Record<'a> {
    terms: Terms,
    course: &'a CallerCourse,
    /// The decision before.
    last: Moment,
    /// The times at which the budget is full again, if they are known: as it was told, and counting only what was seen. A charge
    /// that no client heard of is given back some day.
    full_us: Option<(u64, u64)>,
    /// The times of the strikes that were seen, since the last ban or the last loss.
    strikes: Vec<u64>,
    /// No strike from before counts.
    since: Moment,
    /// Until then any number of others may count.
    strays_until_us: u64,
    /// The last ban; `None` if any may be in force.
    ban: Option<PastBan>,
}

impl<'a> Record<'a> {
    /// A caller that never asked.
    pub(super) fn of(course: &'a CallerCourse) -> Self {
        Self {
            terms: Terms::new(),
            course,
            last: Moment::FIRST,
            full_us: Some((0, 0)),
            strikes: Vec::new(),
            since: Moment::FIRST,
            strays_until_us: 0,
            ban: Some(PastBan {
                ends_us: 0,
                level: Some(0),
            }),
        }
    }

    /// Judges the next decision, and learns from it.
    pub(super) fn see(
        &mut self,
        now: Moment,
        seen: &Seen,
        findings: &mut BanFindings,
    ) -> Result<(), String> {
        if self.course.has_loss(self.last, now) {
            findings.after_loss += 1;
            self.forget(now);
        } else if self.course.has_step_back(self.last, now) {
            findings.after_step += 1;
            self.forget(now);
        } else {
            findings.strict += 1;
        }
        self.judge_budget(now, seen)?;
        self.judge_class(now, seen, findings)?;
        if self.may_have_been_banned_unseen(now) {
            findings.in_doubt += 1;
            self.doubt(now);
        }
        match seen.banned_until_us() {
            Some(ends_us) => self.judge_banned(now, seen, ends_us, findings)?,
            None => self.judge_free(now, seen)?,
        }
        self.last = now;
        Ok(())
    }

    /// Any budget, any strikes and any ban may be there now.
    fn forget(&mut self, now: Moment) {
        self.full_us = None;
        self.strikes.clear();
        self.since = now;
        self.strays_until_us = now.at_us + self.terms.within_us;
        self.ban = None;
    }

    /// Strikes that were seen may have led to a ban that is over, and count or not.
    fn doubt(&mut self, now: Moment) {
        self.strikes.clear();
        self.strays_until_us = now.at_us + self.terms.within_us;
        if let Some(ban) = &mut self.ban {
            ban.level = None;
        }
    }

    /// The budget moves by what was admitted and by nothing else.
    fn judge_budget(&mut self, now: Moment, seen: &Seen) -> Result<(), String> {
        let unit_us = self.terms.unit_us;
        let full_us = seen.full_us();
        let taken_us = if seen.admitted { unit_us } else { 0 };
        let then = |before_us: u64| before_us.max(now.at_us) + taken_us;
        let mut least_us = then(0);
        if let Some((told_us, seen_us)) = self.full_us {
            least_us = then(seen_us);
            let most_us = then(told_us) + self.course.unknown(self.last, 0, now) * unit_us;
            if !(least_us..=most_us).contains(&full_us) {
                return Err(format!(
                    "the budget is full again at {full_us}, and that was {least_us}..={most_us}"
                ));
            }
        }
        self.full_us = Some((full_us, least_us));
        Ok(())
    }

    /// A request passes if it leaves what its class has to leave, and only then. As the budget moves by what passes, no time lets
    /// through more of the unimportant than a burst less what is kept, and what drains.
    fn judge_class(
        &mut self,
        now: Moment,
        seen: &Seen,
        findings: &mut BanFindings,
    ) -> Result<(), String> {
        let Terms {
            unit_us,
            whole_us,
            kept_us,
            ..
        } = self.terms;
        let full_us = seen.full_us();
        let needed_us = if seen.admitted { 0 } else { unit_us };
        let fits = |leaves_us: u64| full_us + needed_us + leaves_us <= now.at_us + whole_us;
        let leaves_us = if seen.is_important { 0 } else { kept_us };
        if fits(leaves_us) != seen.quota.passes {
            return Err(format!("the budget is full again at {full_us}"));
        }
        findings.kept_out += u64::from(!seen.quota.passes && fits(0));
        findings.from_kept += u64::from(seen.admitted && !fits(kept_us));
        Ok(())
    }

    /// A request that is told no ban: none is in force, and it leaves as many strikes as there are.
    fn judge_free(&mut self, now: Moment, seen: &Seen) -> Result<(), String> {
        let at_us = now.at_us;
        let ends_us = self.ban.map_or(0, |ban| ban.ends_us);
        if at_us < ends_us {
            return Err(format!("a ban until {ends_us} has ended early"));
        }
        self.ban = self.ban.or(Some(PastBan {
            ends_us: 0,
            level: None,
        }));
        let expired = { self.strikes.iter() }
            .take_while(|strike| **strike + self.terms.within_us <= at_us)
            .count();
        self.strikes.drain(..expired);
        if !seen.quota.passes {
            self.strikes.push(at_us);
        }
        let certain = self.strikes.len() as u64;
        let most = certain + self.doubtful(at_us.saturating_sub(self.terms.within_us), at_us, now);
        let counted = self.terms.strikes.saturating_sub(seen.ban.remaining);
        if counted == self.terms.strikes || !(certain..=most).contains(&counted) {
            return Err(format!(
                "{counted} strikes count, and these were {certain}..={most}"
            ));
        }
        Ok(())
    }

    /// A request that is told a ban: the one in force, or one that began now, or since the decision before.
    fn judge_banned(
        &mut self,
        now: Moment,
        seen: &Seen,
        ends_us: u64,
        findings: &mut BanFindings,
    ) -> Result<(), String> {
        let at_us = now.at_us;
        if seen.ban.remaining > 0 {
            return Err("strikes are left of a ban".to_owned());
        }
        match self.ban {
            Some(ban) if at_us < ban.ends_us => {
                findings.banned += 1;
                let known_us = ban.ends_us;
                return match ends_us {
                    _ if ends_us == known_us => Ok(()),
                    _ => Err(format!(
                        "the end of a ban has moved from {known_us} to {ends_us}"
                    )),
                };
            }
            Some(_) => {}
            None => {
                findings.banned += 1;
                let most_us = at_us + self.terms.longest_us();
                let is_possible = (at_us + 1..=most_us).contains(&ends_us);
                // After a step back a ban that was over may begin anew, beside the strikes since.
                let strays_until_us = self.strays_until_us;
                self.begin(now, ends_us, None);
                self.strays_until_us = strays_until_us;
                return match is_possible {
                    true => Ok(()),
                    false => Err(format!("no ban from before ends after {most_us}")),
                };
            }
        }
        let begins_now =
            !seen.quota.passes && self.strikes_by(at_us, now) + 1 >= self.terms.strikes;
        let is_unseen = self.may_be_banned_unseen(now);
        let lengths = self.terms.lengths_us.iter().enumerate();
        let found: Vec<_> = lengths
            .filter(|(level, length_us)| {
                let begun_us = ends_us.saturating_sub(**length_us);
                let fits = begun_us == at_us && begins_now
                    || is_unseen && (self.last_us(now)..=at_us).contains(&begun_us);
                fits && self.level_at(begun_us).is_none_or(|it| it == *level)
            })
            .collect();
        let next = |level: usize| (level + 1).min(self.terms.lengths_us.len() - 1);
        let level = match found.as_slice() {
            [] => {
                let most = self.strikes_by(at_us, now) + u64::from(!seen.quota.passes);
                let level = self.level_at(at_us);
                return Err(format!(
                    "a ban until {ends_us}, with at most {most} strikes and doublings {level:?}"
                ));
            }
            [(level, _)] => Some(next(*level)),
            _ => None,
        };
        if begins_now && found.iter().any(|(_, us)| ends_us - **us == at_us) {
            findings.begun += 1;
        } else {
            findings.in_doubt += 1;
        }
        self.begin(now, ends_us, level);
        Ok(())
    }

    /// Remembers a ban, which has forgotten the strikes.
    fn begin(&mut self, now: Moment, ends_us: u64, level: Option<usize>) {
        self.strikes.clear();
        self.strays_until_us = 0;
        self.since = Moment {
            at_us: ends_us,
            ..now
        };
        self.ban = Some(PastBan { ends_us, level });
    }

    /// The time of the decision before, if the clock was not set since.
    fn last_us(&self, now: Moment) -> u64 {
        if self.last.era == now.era {
            self.last.at_us
        } else {
            0
        }
    }

    /// The doublings of a ban that begins then, if they are known.
    fn level_at(&self, begun_us: u64) -> Option<usize> {
        let PastBan { ends_us, level } = self.ban?;
        let spells = begun_us.saturating_sub(ends_us) / self.terms.forgiven_us;
        Some(level?.saturating_sub(usize::try_from(spells).unwrap_or(usize::MAX)))
    }

    /// The strikes after a time that may count at `at_us` though no answer told of them.
    fn doubtful(&self, after_us: u64, at_us: u64, now: Moment) -> u64 {
        let strays = if at_us < self.strays_until_us {
            self.terms.strikes
        } else {
            0
        };
        strays + self.course.unknown(self.since, after_us, now)
    }

    /// The most strikes that can have counted at a time, this request's not included.
    fn strikes_by(&self, at_us: u64, now: Moment) -> u64 {
        let after_us = at_us.saturating_sub(self.terms.within_us);
        let seen = self.strikes.iter().filter(|strike| **strike > after_us);
        seen.count() as u64 + self.doubtful(after_us, at_us, now)
    }

    /// Says whether a request without an answer may have begun a ban since the decision before, which is over now.
    fn may_have_been_banned_unseen(&self, now: Moment) -> bool {
        let is_open = self.ban.is_some_and(|ban| ban.ends_us <= now.at_us);
        let is_apart = now.era != self.last.era
            || now.at_us.saturating_sub(self.last.at_us) >= self.terms.shortest_us();
        is_open && is_apart && self.may_be_banned_unseen(now)
    }

    /// Says whether a request without an answer may have begun a ban since the decision before.
    fn may_be_banned_unseen(&self, now: Moment) -> bool {
        self.course.unknown(self.last, 0, now) > 0
            && self.strikes_by(self.last_us(now), now) >= self.terms.strikes
    }
}
