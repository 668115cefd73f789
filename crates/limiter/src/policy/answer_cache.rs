//! Tiers and quotas that a closure is asked for: the cache, the questions under way, and the rule when no answer comes.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::error::Error;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::{Limit, Policy};
use crate::{ConfigError, Key, Quota};

/// The time that a request waits for an answer.
pub(super) const DEADLINE: Duration = Duration::from_millis(250);
/// The number of deadlines that an answer may take. No request waits so long, but the next one finds the answer.
const PATIENCE: u32 = 10;
/// The time for which an identity is not asked for after a failure.
const BACK_OFF: Duration = Duration::from_secs(1);
/// The number of questions in a row without an answer that are an outage, if there was no answer for a [`BACK_OFF`] either.
const OUTAGE: u32 = 5;
/// The number of identities that are asked for in each [`BACK_OFF`] of an outage: so many that had an answer before, and so many
/// others. Whoever names identities whose lookup hangs cannot take the place of the first.
const PROBES: u32 = 4;
/// The time between two lines of the log of one kind.
const QUIET: Duration = Duration::from_secs(60);
/// The most identities that are remembered: about 1 MB with their tiers, and about 22 MB with one quota each.
const MOST: usize = 10_000;
/// The most entries that a full cache passes by to find one that was not used since it was passed by before.
const MOST_PASSED: usize = 64;
/// The number of identities that are asked for at a time.
const MOST_AT_A_TIME: usize = 1_024;

pub(super) type Lookup<R> = dyn Fn(Key) -> AnswerFuture<R> + Send + Sync;
pub(super) type AnswerFuture<R> = Pin<Box<dyn Future<Output = Result<R, BoxError>> + Send>>;
pub(super) type BoxError = Box<dyn Error + Send + Sync>;

/// The place of a tier among its policy's; nothing for the policy's own quotas.
pub(crate) type Tier = Option<usize>;

/// The quotas that hold for an identity.
#[derive(Clone, Debug)]
pub(crate) enum Entitlement {
    /// Those of a tier, or the policy's own.
    Tier(Tier),
    /// No quotas: the identity has no limit.
    Unlimited,
    /// Those that a database states for it, with the rest of the policy.
    Stated(Arc<Policy>),
}

impl Entitlement {
    /// The policy's own quotas.
    pub(crate) const OWN: Self = Self::Tier(None);
}

/// The quotas of an identity are not known, and a policy says that its requests are refused then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnknownEntitlement;

/// The quotas of an identity, which are known now or will be.
pub(crate) enum FoundEntitlement {
    Now(Result<Entitlement, UnknownEntitlement>),
    Later(Pin<Box<dyn Future<Output = Result<Entitlement, UnknownEntitlement>> + Send>>),
}

impl FoundEntitlement {
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Entitlement, UnknownEntitlement>> {
        match self {
            Self::Now(entitlement) => Poll::Ready(entitlement.clone()),
            Self::Later(entitlement) => entitlement.as_mut().poll(cx),
        }
    }
}

/// The closure, the cache of its answers (of type `R`), and the rules.
pub(super) struct AnswerCache<R> {
    pub(super) policy: String,
    pub(super) asks: Arc<Lookup<R>>,
    pub(super) remember_for: Duration,
    pub(super) deadline: Duration,
    /// The rule for an identity that is unknown and cannot be asked for.
    pub(super) unknown: Result<Entitlement, UnknownEntitlement>,
    /// The quotas of an identity for which nothing is stated; empty for tiers, whose states no answer names.
    pub(super) own: Arc<[Limit]>,
    pub(super) words: Words,
    pub(super) memory: Mutex<Memory>,
}

/// The lines of the log.
#[derive(Clone, Copy)]
pub(super) struct Words {
    pub(super) fails: &'static str,
    pub(super) is_back: &'static str,
    /// An answer that means nothing.
    pub(super) is_flawed: &'static str,
    /// An answer whose quota has another state than the one before.
    pub(super) is_fresh: &'static str,
}

#[derive(Default)]
pub(super) struct Memory {
    identities: HashMap<Key, Identity>,
    /// In the order in which a full cache passes them by.
    order: VecDeque<Key>,
    /// The number of identities that are being asked for.
    at_a_time: usize,
    /// The number of identities that were ever asked for: each has a number.
    asked: u64,
    silences_in_a_row: u32,
    answered_at: Option<Instant>,
    probes: Probes,
    /// True if the log has heard of failures, and not yet of their end.
    is_failing: bool,
    outages: RareLine,
    /// Answers that mean nothing.
    flaws: RareLine,
    /// Quotas whose budgets begin full.
    fresh: RareLine,
}

/// The identities that were asked for in the present [`BACK_OFF`] of an outage.
#[derive(Default)]
struct Probes {
    since: Option<Instant>,
    /// Those without an answer before, and the others.
    counts: [u32; 2],
}

/// A kind of line that the log hears once in each [`QUIET`].
#[derive(Default)]
struct RareLine {
    told_at: Option<Instant>,
}

/// The cached knowledge about one identity.
struct Identity {
    known: Option<(Entitlement, Instant)>,
    /// The answer that was forgotten, for the log: the next one may begin with a fresh budget.
    former: Option<Entitlement>,
    /// The number of the question that is under way, and where its answer will be.
    under_way: Option<(u64, watch::Receiver<Progress>)>,
    not_before: Option<Instant>,
    /// True if a request had an answer from it since it was passed by.
    is_used: bool,
}

enum Progress {
    None,
    Known(Entitlement),
    /// There was no answer, or none in time.
    Nothing,
}

impl<R: Send + 'static> AnswerCache<R> {
    /// The quotas that are known, or will be. A stale answer is served while a new one is asked for. `place` says what an
    /// answer means to `subject`.
    pub(super) fn find<S: Send + Sync + 'static>(
        self: &Arc<Self>,
        key: &Key,
        subject: &Arc<S>,
        place: fn(&Arc<S>, R) -> Result<Entitlement, ConfigError>,
    ) -> FoundEntitlement {
        let now = Instant::now();
        let mut memory = self.memory();
        let mut identity = memory.identities.get_mut(key);
        if let Some(identity) = &mut identity {
            identity.is_used = true;
        }
        let known = identity
            .as_ref()
            .and_then(|identity| identity.known.clone());
        if let Some((entitlement, at)) = &known
            && now.saturating_duration_since(*at) < self.remember_for
        {
            return FoundEntitlement::Now(Ok(entitlement.clone()));
        }
        let under_way = identity.and_then(|identity| identity.under_way.as_ref());
        let news = match under_way.map(|(_, news)| news.clone()) {
            Some(news) => Some(news),
            None => self.ask(memory, key, now, subject, place),
        };
        match (known, news) {
            // An answer that is remembered for no time is never served again.
            (Some((entitlement, _)), _) if !self.remember_for.is_zero() => {
                FoundEntitlement::Now(Ok(entitlement))
            }
            (_, None) => FoundEntitlement::Now(self.unknown.clone()),
            (_, Some(mut news)) => {
                let unknown = self.unknown.clone();
                FoundEntitlement::Later(Box::pin(async move {
                    match news
                        .wait_for(|news| !matches!(news, Progress::None))
                        .await
                        .as_deref()
                    {
                        Ok(Progress::Known(entitlement)) => Ok(entitlement.clone()),
                        _ => unknown,
                    }
                }))
            }
        }
    }

    /// Asks, unless it has been in vain a moment ago. The lock is let go before anything else is called.
    fn ask<S: Send + Sync + 'static>(
        self: &Arc<Self>,
        mut memory: MutexGuard<'_, Memory>,
        key: &Key,
        now: Instant,
        subject: &Arc<S>,
        place: fn(&Arc<S>, R) -> Result<Entitlement, ConfigError>,
    ) -> Option<watch::Receiver<Progress>> {
        if memory.is_at_rest(key, now) {
            return None;
        }
        let Ok(runtime) = Handle::try_current() else {
            let tells = memory.failed(now, false);
            drop(memory);
            self.warn(tells, "there is no tokio runtime to ask in");
            return None;
        };
        let (tells, news) = watch::channel(Progress::None);
        let (number, identity) = memory.ask(key, &news);
        drop(memory);
        let question = Question {
            asked: Arc::clone(self),
            key: identity,
            number,
            tells,
            is_late: false,
            is_over: false,
        };
        let (asks, key, subject) = (Arc::clone(&self.asks), key.clone(), Arc::clone(subject));
        runtime.spawn(async move {
            let answer = async move { asks(key).await };
            question
                .put(answer, move |answer| place(&subject, answer))
                .await;
        });
        Some(news)
    }
}

impl<R> AnswerCache<R> {
    /// Forgets an identity. An answer that is under way is not remembered either: it may be from before.
    pub(super) fn forget(&self, key: &Key) {
        let mut memory = self.memory();
        if let Some(identity) = memory.identities.get_mut(key) {
            let known = identity.known.take();
            let former = known.map(|(entitlement, _)| entitlement);
            identity.former = former.or(identity.former.take());
            (identity.not_before, identity.under_way) = (None, None);
        }
    }

    /// The first quota of an identity whose state is not that of the quota before it, and this one.
    fn fresh(&self, before: &Entitlement, after: &Entitlement) -> Option<(Quota, Quota)> {
        let (before, after) = (self.limits(before), self.limits(after));
        let mut both = before.iter().zip(after);
        both.find_map(|(before, after)| {
            let is_other =
                before.scope != after.scope && !before.quota.is_ban() && !after.quota.is_ban();
            is_other.then_some((before.quota, after.quota))
        })
    }

    fn limits<'a>(&'a self, entitlement: &'a Entitlement) -> &'a [Limit] {
        match entitlement {
            Entitlement::Stated(policy) => &policy.limits,
            Entitlement::Tier(None) => &self.own,
            Entitlement::Tier(Some(_)) | Entitlement::Unlimited => &[],
        }
    }

    /// The log hears of the first failure of a spell, in the error's own words and without the identity.
    fn warn(&self, tells: bool, error: &str) {
        if tells {
            tracing::warn!(policy = self.policy, error, "{}", self.words.fails);
        }
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Memory {
    /// Makes room for an identity, and says how it is stored.
    fn remember(&mut self, key: &Key) -> Key {
        if self.identities.len() >= MOST && !self.identities.contains_key(key) {
            self.evict();
        }
        let key = key.clone().compact();
        if let Entry::Vacant(place) = self.identities.entry(key.clone()) {
            place.insert(Identity {
                known: None,
                former: None,
                under_way: None,
                not_before: None,
                is_used: false,
            });
            self.order.push_back(key.clone());
        }
        key
    }

    /// Evicts the first identity that was not used since it was passed by before. So callers that come again stay, however many others
    /// come once.
    fn evict(&mut self) {
        for passed in 0.. {
            let Some(key) = self.order.pop_front() else {
                return;
            };
            match self.identities.get_mut(&key) {
                Some(identity) if identity.is_used && passed < MOST_PASSED => {
                    identity.is_used = false;
                    self.order.push_back(key);
                }
                _ => {
                    self.identities.remove(&key);
                    return;
                }
            }
        }
    }

    /// True if this identity is not to be asked for now. Otherwise it is, and in an outage it is a probe.
    fn is_at_rest(&mut self, key: &Key, now: Instant) -> bool {
        let identity = self.identities.get(key);
        let is_resting = identity
            .and_then(|identity| identity.not_before)
            .is_some_and(|end| now < end);
        if is_resting || self.at_a_time >= MOST_AT_A_TIME {
            return true;
        }
        let was_known = identity.is_some_and(|identity| identity.known.is_some());
        self.is_outage(now) && !self.probes.take(was_known, now)
    }

    fn is_outage(&self, now: Instant) -> bool {
        let is_silent = self.answered_at.is_none_or(|at| now >= at + BACK_OFF);
        self.silences_in_a_row >= OUTAGE && is_silent
    }

    /// The number of a new question, and how its identity is stored.
    fn ask(&mut self, key: &Key, news: &watch::Receiver<Progress>) -> (u64, Key) {
        self.asked += 1;
        self.at_a_time += 1;
        let key = self.remember(key);
        if let Some(identity) = self.identities.get_mut(&key) {
            identity.under_way = Some((self.asked, news.clone()));
        }
        (self.asked, key)
    }

    /// Notes a failure. An error in answer is about its identity alone, unless it is one of the connection, and shows that answers come:
    /// whoever sends identities that cannot be asked for stops no other question. True if the log is to hear of it.
    fn failed(&mut self, now: Instant, is_answer: bool) -> bool {
        let tells = !self.is_failing && self.outages.is_due(now);
        self.is_failing = true;
        if is_answer {
            self.answered_at = Some(now);
        } else {
            self.silences_in_a_row = self.silences_in_a_row.saturating_add(1);
        }
        tells
    }

    /// True if a spell of failures is over.
    fn answered(&mut self, now: Instant, in_time: bool) -> bool {
        self.silences_in_a_row = 0;
        self.answered_at = Some(now);
        let recovers = in_time && self.is_failing;
        self.is_failing &= !in_time;
        recovers
    }
}

impl Probes {
    fn take(&mut self, was_known: bool, now: Instant) -> bool {
        if self.since.is_none_or(|since| now >= since + BACK_OFF) {
            (self.since, self.counts) = (Some(now), [0, 0]);
        }
        let count = &mut self.counts[usize::from(was_known)];
        *count += 1;
        *count <= PROBES
    }
}

impl RareLine {
    /// True if the log is to hear it now.
    fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.told_at.is_none_or(|at| now >= at + QUIET);
        if is_due {
            self.told_at = Some(now);
        }
        is_due
    }
}

/// Says whether an error is about the connection to the database, and not about an identity: its cause is one of the operating system.
fn is_of_connection(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.is::<io::Error>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// A question under way. It is dropped without an answer if the closure panics or the runtime ends.
struct Question<R> {
    asked: Arc<AnswerCache<R>>,
    key: Key,
    number: u64,
    tells: watch::Sender<Progress>,
    is_late: bool,
    is_over: bool,
}

impl<R> Question<R> {
    async fn put(
        mut self,
        answer: impl Future<Output = Result<R, BoxError>>,
        place: impl FnOnce(R) -> Result<Entitlement, ConfigError>,
    ) {
        let deadline = self.asked.deadline;
        let mut answer = std::pin::pin!(answer);
        let mut answered = timeout(deadline, &mut answer).await;
        if answered.is_err() {
            self.is_late = true;
            self.failed("no answer within the deadline", false);
            answered = timeout(deadline.saturating_mul(PATIENCE - 1), answer).await;
        }
        let placed = answered.map(|answer| answer.map(place));
        self.is_over = true;
        match placed {
            Ok(Ok(Ok(entitlement))) => self.answered(entitlement),
            Ok(Ok(Err(flaw))) => self.flawed(&flaw),
            Ok(Err(error)) => self.failed(&error.to_string(), !is_of_connection(&*error)),
            Err(_) => self.failed("no answer at all", false),
        }
    }

    fn answered(&self, entitlement: Entitlement) {
        let now = Instant::now();
        let mut memory = self.asked.memory();
        let recovers = memory.answered(now, !self.is_late);
        let mut former = None;
        if let Some(identity) = self.identity(&mut memory) {
            let known = identity.known.replace((entitlement.clone(), now));
            former = known.map(|(entitlement, _)| entitlement);
            former = former.or(identity.former.take());
            (identity.not_before, identity.under_way) = (None, None);
        }
        let fresh = former.and_then(|former| self.asked.fresh(&former, &entitlement));
        let fresh = fresh.filter(|_| memory.fresh.is_due(now));
        drop(memory);
        self.tells.send_replace(Progress::Known(entitlement));
        self.tell_of_recovery(recovers);
        if let Some((before, after)) = fresh {
            tracing::warn!(
                policy = self.asked.policy,
                %before,
                %after,
                "{}",
                self.asked.words.is_fresh
            );
        }
    }

    fn failed(&self, error: &str, is_answer: bool) {
        let now = Instant::now();
        let mut memory = self.asked.memory();
        let tells = memory.failed(now, is_answer);
        if self.is_over
            && let Some(identity) = self.identity(&mut memory)
        {
            identity.rest(now);
        }
        drop(memory);
        self.tells.send_replace(Progress::Nothing);
        self.asked.warn(tells, error);
    }

    /// An answer came, so that others are asked for as before. It means nothing, so that nothing is known of this identity.
    fn flawed(&self, flaw: &ConfigError) {
        let now = Instant::now();
        let mut memory = self.asked.memory();
        let recovers = memory.answered(now, !self.is_late);
        let tells = memory.flaws.is_due(now);
        if let Some(identity) = self.identity(&mut memory) {
            identity.rest(now);
        }
        drop(memory);
        self.tells.send_replace(Progress::Nothing);
        self.tell_of_recovery(recovers);
        if tells {
            let error = flaw.to_string();
            tracing::warn!(
                policy = self.asked.policy,
                error,
                "{}",
                self.asked.words.is_flawed
            );
        }
    }

    fn tell_of_recovery(&self, recovers: bool) {
        if recovers {
            tracing::info!(policy = self.asked.policy, "{}", self.asked.words.is_back);
        }
    }

    /// The entry of the identity, unless it was forgotten since.
    fn identity<'a>(&self, memory: &'a mut Memory) -> Option<&'a mut Identity> {
        let identity = memory.identities.get_mut(&self.key)?;
        let (number, _) = identity.under_way.as_ref()?;
        (*number == self.number).then_some(identity)
    }
}

impl Identity {
    /// It is not asked for during the next time.
    fn rest(&mut self, now: Instant) {
        (self.not_before, self.under_way) = (Some(now + BACK_OFF), None);
    }
}

impl<R> Drop for Question<R> {
    fn drop(&mut self) {
        if !self.is_over {
            self.is_over = true;
            self.failed("the lookup ended without an answer", true);
        }
        self.asked.memory().at_a_time -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const NANOSECOND: Duration = Duration::from_nanos(1);

    #[test]
    fn a_rare_line_is_told_once_in_each_minute() {
        let (mut line, start) = (RareLine::default(), Instant::now());
        for (after, is_due) in [
            (Duration::ZERO, true),
            (Duration::ZERO, false),
            (QUIET - NANOSECOND, false),
            (QUIET, true),
            (2 * QUIET - NANOSECOND, false),
            (2 * QUIET, true),
        ] {
            assert_eq!(line.is_due(start + after), is_due, "{after:?}");
        }
    }

    #[test]
    fn the_log_hears_of_a_spell_when_it_begins_and_when_an_answer_comes_in_time() {
        let (mut memory, start) = (Memory::default(), Instant::now());
        // A late answer neither begins a spell nor ends one.
        assert!(!memory.answered(start, false));
        assert!(!memory.answered(start, true));

        assert!(memory.failed(start, false));
        assert!(!memory.failed(start + 2 * QUIET, false), "the same spell");
        assert!(!memory.answered(start, false));
        assert!(memory.answered(start, true));
        assert!(!memory.answered(start, true));

        assert!(memory.failed(start + 2 * QUIET, false));
        assert!(memory.answered(start, true));
        assert!(
            !memory.failed(start + 3 * QUIET - NANOSECOND, false),
            "the minute of another spell"
        );
    }

    #[test]
    fn in_an_outage_a_few_identities_are_asked_for_in_each_second() {
        let (mut memory, start) = (Memory::default(), Instant::now());
        let known = Key::from("known");
        memory.remember(&known);
        memory.identities.get_mut(&known).unwrap().known = Some((Entitlement::OWN, start));
        let asks = |memory: &mut Memory, after| {
            ["other", "known"].map(|key| {
                let key = Key::from(key);
                let asks = |_: &u32| !memory.is_at_rest(&key, start + after);
                (0..100).take_while(asks).count()
            })
        };
        memory.answered(start, true);
        for _ in 0..OUTAGE {
            memory.failed(start, false);
        }
        // There was an answer a moment ago.
        assert_eq!(asks(&mut memory, SECOND - NANOSECOND), [100, 100]);
        for second in 1..4 {
            assert_eq!(asks(&mut memory, second * SECOND), [4, 4]);
            assert_eq!(asks(&mut memory, second * SECOND), [0, 0]);
        }
        memory.answered(start + 4 * SECOND, true);
        assert_eq!(asks(&mut memory, 4 * SECOND), [100, 100]);
    }
}
