//! The knowledge of one caller's budget, from one decision to the next.

use super::BanFindings;
use super::course::{CallerCourse, SeenKnock};
use super::terms::Terms;
use crate::checker::timeline::Moment;

#[derive(Clone)]
pub(super) struct BudgetRecord<'a> {
    terms: &'a Terms,
    course: &'a CallerCourse,
    /// The decision before.
    last: Moment,
    /// The times at which the budget is full again, if they are known: as it was told, and counting only what was seen. A charge
    /// that no client heard of is given back some day.
    full_us: Option<(u64, u64)>,
}

impl<'a> BudgetRecord<'a> {
    /// A caller that never asked.
    pub(super) fn of(terms: &'a Terms, course: &'a CallerCourse) -> Self {
        Self {
            terms,
            course,
            last: Moment::FIRST,
            full_us: Some((0, 0)),
        }
    }

    /// Any budget may be there now.
    pub(super) fn forget(&mut self) {
        self.full_us = None;
    }

    /// Judges the next decision, and learns from it.
    pub(super) fn see(
        &mut self,
        now: Moment,
        seen: &SeenKnock,
        findings: &mut BanFindings,
    ) -> Result<(), String> {
        self.judge_charge(now, seen)?;
        self.last = now;
        self.judge_class(now, seen, findings)
    }

    /// The budget moves by what was admitted and by nothing else.
    fn judge_charge(&mut self, now: Moment, seen: &SeenKnock) -> Result<(), String> {
        let unit_us = self.terms.unit_us;
        let full_us = seen.full_us();
        let taken_us = if seen.admitted { unit_us } else { 0 };
        let then = |before_us: u64| before_us.max(now.at_us) + taken_us;
        let mut least_us = then(0);
        if let Some((told_us, seen_us)) = self.full_us {
            least_us = then(seen_us);
            let most_us = then(told_us) + self.course.unheard(self.last, 0, now) * unit_us;
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
        &self,
        now: Moment,
        seen: &SeenKnock,
        findings: &mut BanFindings,
    ) -> Result<(), String> {
        let &Terms {
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
}
