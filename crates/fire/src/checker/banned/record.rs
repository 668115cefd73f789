//! The knowledge of one caller's strikes and ban, from one decision to the next.

use std::collections::BTreeSet;

use super::BanFindings;
use super::course::{Act, CallerCourse, Seen, SeenBan, SeenKnock};
use super::terms::Terms;
use crate::checker::timeline::Moment;

/// The last ban that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PastBan {
    ends_us: u64,
    /// The doublings of the next one, if nothing is forgiven until then; `None` if they are unknown.
    level: Option<usize>,
}

/// One of the courses that things may have taken. They differ in what operators did at unknown times.
#[derive(Clone)]
pub(super) struct Record<'a> {
    terms: &'a Terms,
    course: &'a CallerCourse,
    /// The decision before.
    last: Moment,
    /// The times of the strikes that were seen, since the last ban or the last loss.
    strikes: Vec<u64>,
    /// No strike from before counts, and from the second moment on each does.
    since: Moment,
    settled: Moment,
    /// Until then any number of others may count.
    strays_until_us: u64,
    /// The last ban; `None` if any may be in force.
    ban: Option<PastBan>,
    /// The actions of operators that were done, and may seem to be still to come.
    done: BTreeSet<usize>,
    /// Those that may have been done, or may still come.
    freed: BTreeSet<usize>,
    /// True if the last action ended a ban before its time.
    is_pardoned: bool,
}

impl<'a> Record<'a> {
    /// A caller that never asked.
    pub(super) fn of(terms: &'a Terms, course: &'a CallerCourse) -> Self {
        Self {
            terms,
            course,
            last: Moment::FIRST,
            strikes: Vec::new(),
            since: Moment::FIRST,
            settled: Moment::FIRST,
            strays_until_us: 0,
            ban: Some(PastBan {
                ends_us: 0,
                level: Some(0),
            }),
            done: BTreeSet::new(),
            freed: BTreeSet::new(),
            is_pardoned: false,
        }
    }

    /// Says whether all that is possible after the other one is possible after this one: nothing tells the two apart, but that this
    /// one may still come to something that perhaps never was done.
    pub(super) fn covers(&self, other: &Self) -> bool {
        let of = |it: &Self| (it.last, it.since, it.settled, it.strays_until_us, it.ban);
        let mut differ = self.done.symmetric_difference(&other.done);
        of(self) == of(other)
            && self.strikes == other.strikes
            && self.freed == other.freed
            && differ
                .all(|number| other.done.contains(number) && !self.course.act(*number).is_certain)
    }

    /// Judges the next decision, and learns from it.
    pub(super) fn see(
        &mut self,
        now: Moment,
        seen: &Seen,
        findings: &mut BanFindings,
    ) -> Result<(), String> {
        if self.may_have_been_banned_unseen(now) {
            findings.in_doubt += 1;
            self.doubt(now);
        }
        match seen {
            Seen::Ban(ban) => self.judge_ban_by_hand(now, *ban, findings)?,
            Seen::Knock(knock) => match knock.banned_until_us() {
                Some(ends_us) => self.judge_banned(now, knock, ends_us, findings)?,
                None => self.judge_free(now, knock, findings)?,
            },
        }
        self.last = now;
        self.is_pardoned = false;
        Ok(())
    }

    /// Any strikes and any ban may be there now, whatever operators did.
    pub(super) fn forget_with_acts(&mut self, now: Moment) {
        self.forget(now);
        let acts = self.course.acts(self.last, now);
        self.freed = acts.map(|(number, _)| number).collect();
        self.done.clear();
    }

    /// Any strikes and any ban may be there now.
    pub(super) fn forget(&mut self, now: Moment) {
        self.strikes.clear();
        (self.since, self.settled) = (now, now);
        self.strays_until_us = now.at_us + self.terms.within_us;
        self.ban = None;
    }

    /// Strikes that were seen may have led to a ban that is over, and count or not.
    fn doubt(&mut self, now: Moment) {
        self.strikes.clear();
        self.settled = now;
        self.strays_until_us = now.at_us + self.terms.within_us;
        if let Some(ban) = &mut self.ban {
            ban.level = None;
        }
    }

    /// The courses after each of the actions of operators that may have been done since the decision before. Of the pardons that
    /// perhaps were never done it is the one that has least time left: the others may still come.
    pub(super) fn after_each(&self, now: Moment, seen: &Seen) -> Vec<Self> {
        let acts = self.course.acts(self.last, now);
        let open = acts.filter(|(number, _)| !self.done.contains(number));
        let (certain, perhaps): (Vec<_>, Vec<_>) = open.partition(|(_, act)| act.is_certain);
        let (bans, pardons): (Vec<_>, Vec<_>) = perhaps
            .into_iter()
            .partition(|(_, act)| act.lasting_us.is_some());
        let pardon = pardons.into_iter().min_by_key(|(_, act)| act.ends());
        let after = certain.into_iter().chain(bans).chain(pardon);
        after
            .filter_map(|(number, act)| self.after(number, act, now, seen))
            .collect()
    }

    /// Says whether each action of an operator was done that surely was by now. Those in the past are not remembered any longer.
    pub(super) fn is_up_to_date(&mut self, now: Moment) -> bool {
        let course = self.course;
        let mut acts = course.acts(self.last, now);
        let is = acts.all(|(number, act)| {
            let is_free = self.done.contains(&number) || self.freed.contains(&number);
            is_free || !act.is_done_before(now)
        });
        drop(acts);
        for acts in [&mut self.done, &mut self.freed] {
            acts.retain(|number| course.act(*number).ends() >= now);
        }
        is
    }

    /// The course after an action of an operator before this decision; `None` if it is the same as without.
    fn after(&self, number: usize, act: &Act, now: Moment, seen: &Seen) -> Option<Self> {
        let (from, to) = act.between(self.last, now)?;
        let mut after = self.clone();
        let Some(lasting_us) = act.lasting_us else {
            after.done.insert(number);
            return Some(Self {
                ban: Some(PastBan {
                    ends_us: 0,
                    level: Some(0),
                }),
                strikes: Vec::new(),
                strays_until_us: 0,
                since: from,
                settled: to,
                is_pardoned: self.ban.is_some_and(|ban| now.at_us < ban.ends_us),
                ..after
            });
        };
        let before = self.ban?;
        // The ban that this decision tells, if it began in that time.
        if let Some(ends_us) = seen.banned_until_us()
            && let begun_us = ends_us.saturating_sub(lasting_us)
            && (time_of(from, now)..=to.at_us).contains(&begun_us)
            && ends_us > before.ends_us
        {
            let is_unseen = self.may_be_banned_unseen(now);
            let level = self.level_at(begun_us).filter(|_| !is_unseen);
            after.done.insert(number);
            after.impose(now, ends_us, level, is_unseen);
            return Some(after);
        }
        // One that is over. There may have been several, and responses in them were no strikes.
        let is_over = time_of(from, now) + lasting_us <= now.at_us;
        (is_over && before.ends_us <= now.at_us).then(|| {
            after.doubt(now);
            after
        })
    }

    /// A ban by hand: it begins now, and shortens none that is in force.
    fn judge_ban_by_hand(
        &mut self,
        now: Moment,
        seen: SeenBan,
        findings: &mut BanFindings,
    ) -> Result<(), String> {
        let (at_us, ends_us) = (now.at_us, seen.ends_us);
        let own_us = at_us + seen.lasting_us;
        let may_be_longer =
            |most_us: u64| (own_us..=own_us.max(at_us + most_us)).contains(&ends_us);
        let known = self.ban.filter(|ban| at_us < ban.ends_us);
        findings.by_hand += 1;
        let is_unseen = self.may_be_banned_unseen(now);
        let is_possible = match (self.ban, known) {
            (None, _) => may_be_longer(self.terms.longest_us()),
            (_, Some(ban)) => ends_us == own_us.max(ban.ends_us),
            _ if is_unseen => may_be_longer(self.terms.longest_by_strikes_us()),
            _ => ends_us == own_us,
        };
        if !is_possible {
            let before_us = self.ban.map(|ban| ban.ends_us);
            return Err(format!(
                "a ban by hand until {own_us}, after one until {before_us:?}, ends at {ends_us}"
            ));
        }
        if let Some(ban) = known {
            findings.kept_longer += u64::from(ban.ends_us > own_us);
            findings.lengthened += u64::from(ban.ends_us < own_us);
        }
        let is_own = known.is_none_or(|ban| ban.ends_us < own_us);
        // Another ban by hand in that time, if there was one, ended later than the last one that was told.
        let mut acts = self.course.acts(self.last, now);
        let is_another = acts.any(|(_, act)| act.lasting_us.is_some());
        let level = match known {
            Some(ban) if !is_own => ban.level,
            _ => self.level_at(at_us).filter(|_| !is_unseen && !is_another),
        };
        self.impose(now, ends_us, level, is_unseen);
        Ok(())
    }

    /// A request that is told no ban: none is in force, and it leaves as many strikes as there are.
    fn judge_free(
        &mut self,
        now: Moment,
        seen: &SeenKnock,
        findings: &mut BanFindings,
    ) -> Result<(), String> {
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
        let seen_strikes = self.strikes.len() as u64;
        let after_us = at_us.saturating_sub(self.terms.within_us);
        let sure = self.course.sure_strikes(self.settled, after_us, now);
        let certain = seen_strikes + sure;
        let most = seen_strikes + self.doubtful(after_us, at_us, now);
        findings.by_response += u64::from(sure > 0);
        findings.pardoned += u64::from(self.is_pardoned);
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
        seen: &SeenKnock,
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
        } else if self.course.unheard(self.last, 0, now) == 0 {
            findings.begun_by_response += 1;
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
        self.settled = self.since;
        self.ban = Some(PastBan { ends_us, level });
    }

    /// Remembers a ban by hand, which keeps the strikes, unless others unseen have led to a ban before. Responses while it lasts are no
    /// strikes.
    fn impose(&mut self, now: Moment, ends_us: u64, level: Option<usize>, is_unseen: bool) {
        if is_unseen {
            self.doubt(now);
        }
        self.settled = Moment {
            at_us: ends_us,
            ..now
        };
        self.ban = Some(PastBan { ends_us, level });
    }

    /// The time of the decision before, if the clock was not set since.
    fn last_us(&self, now: Moment) -> u64 {
        time_of(self.last, now)
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
        strays + self.course.untold_strikes(self.since, after_us, now)
    }

    /// The most strikes that can have counted at a time, this request's not included.
    fn strikes_by(&self, at_us: u64, now: Moment) -> u64 {
        let after_us = at_us.saturating_sub(self.terms.within_us);
        let seen = self.strikes.iter().filter(|strike| **strike > after_us);
        seen.count() as u64 + self.doubtful(after_us, at_us, now)
    }

    /// Says whether a strike that no decision told of may have begun a ban since the decision before, which is over now.
    fn may_have_been_banned_unseen(&self, now: Moment) -> bool {
        let is_open = self.ban.is_some_and(|ban| ban.ends_us <= now.at_us);
        let is_apart = now.era != self.last.era
            || now.at_us.saturating_sub(self.last.at_us) >= self.terms.shortest_us();
        is_open && is_apart && self.may_be_banned_unseen(now)
    }

    /// Says whether a strike that no decision told of may have begun a ban since the decision before.
    fn may_be_banned_unseen(&self, now: Moment) -> bool {
        self.course.untold_strikes(self.last, 0, now) > 0
            && self.strikes_by(self.last_us(now), now) >= self.terms.strikes
    }
}

/// The time of a moment, if the clock was not set since.
fn time_of(then: Moment, now: Moment) -> u64 {
    if then.era == now.era { then.at_us } else { 0 }
}
