//! Bans. A backend that does not say that it [can](Capability::Bans) passes these tests unasked.

use std::net::Ipv4Addr;
use std::time::Duration;

use tollgate_core::{
    Ban, BannedCaller, Capability, Charge, Decision, FailureKind, Key, Mode, Quota, Receipt, Scope,
    Timestamp, Verdict,
};

use crate::{Subject, decide};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// Two a minute, and a ban of a quarter of an hour after three strikes within ten minutes.
struct Gate {
    policy: String,
    quota: Quota,
    ban: Quota,
    key: Key,
}

impl Gate {
    fn of(policy: &str) -> Self {
        let ban = Ban::after(3, 10 * MINUTE).lasting(15 * MINUTE);
        Self {
            policy: format!("bans-{policy}"),
            quota: Quota::per_minute(2),
            ban: ban.doubling_to(60 * MINUTE).into(),
            key: Key::from("mallory"),
        }
    }

    fn charge<'a>(&'a self, quota: &'a Quota, mode: Mode) -> Charge<'a> {
        Charge {
            scope: Scope::of(&self.policy, 0, quota),
            quota,
            key: &self.key,
            cost: u64::from(!quota.is_ban()),
            mode,
        }
    }

    async fn ask(&self, subject: &dyn Subject, mode: Mode) -> Decision {
        let charges = [&self.quota, &self.ban].map(|quota| self.charge(quota, mode));
        decide(subject, &charges).await
    }

    async fn admits(&self, subject: &dyn Subject) -> bool {
        self.ask(subject, Mode::Enforce).await.is_admitted()
    }

    /// Spends the budget and collects all strikes.
    async fn collect_strikes(&self, subject: &dyn Subject) -> Decision {
        for is_admitted in [true, true, false, false] {
            assert_eq!(self.admits(subject).await, is_admitted);
        }
        self.ask(subject, Mode::Enforce).await
    }

    /// Bans an identity by hand.
    async fn impose(&self, subject: &dyn Subject, key: &Key, lasting: Duration) {
        let terms = self.ban.ban().unwrap();
        let imposed = Quota::from(terms.try_imposed(lasting).unwrap());
        let charge = Charge {
            cost: 1,
            key,
            ..self.charge(&imposed, Mode::Shadow)
        };
        decide(subject, &[charge]).await;
    }

    async fn banned(&self, subject: &dyn Subject) -> Option<Duration> {
        let decision = decide(subject, &[self.charge(&self.ban, Mode::Probe)]).await;
        decision.verdicts()[0].retry_after()
    }
}

fn can_ban(subject: &dyn Subject) -> bool {
    subject
        .backend()
        .admin()
        .capabilities()
        .has(Capability::Bans)
}

/// The last strike bans, and retry-after is the end of the ban to the microsecond.
pub async fn the_last_strike_bans_until_it_was_said(subject: &dyn Subject) {
    if !can_ban(subject) {
        return;
    }
    let gate = Gate::of("last-strike");
    // No end may be rounded to a millisecond.
    subject.advance(Duration::from_micros(1_234_567)).await;
    let struck = gate.collect_strikes(subject).await;
    assert_eq!(struck.retry_after(), Some(15 * MINUTE));
    subject
        .advance(15 * MINUTE - Duration::from_micros(1))
        .await;
    let last = gate.ask(subject, Mode::Enforce).await;
    assert_eq!(last.retry_after(), Some(Duration::from_micros(1)));
    subject.advance(Duration::from_micros(1)).await;
    // Twice as long.
    let struck = gate.collect_strikes(subject).await;
    assert_eq!(struck.retry_after(), Some(30 * MINUTE));
}

/// A banned identity pays nothing, strikes nothing, and pays nothing of other budgets in the same call.
pub async fn a_ban_in_force_charges_nothing_and_does_not_feed_itself(subject: &dyn Subject) {
    if !can_ban(subject) {
        return;
    }
    let (gate, other) = (Gate::of("force"), Gate::of("force-other"));
    gate.collect_strikes(subject).await;
    subject.advance(10 * MINUTE).await;
    for _ in 0..5 {
        let charges = [
            gate.charge(&gate.quota, Mode::Enforce),
            gate.charge(&gate.ban, Mode::Enforce),
            other.charge(&other.quota, Mode::Enforce),
        ];
        let decision = decide(subject, &charges).await;
        assert!(!decision.is_admitted());
        let taken: u64 = decision.verdicts().iter().map(Verdict::taken).sum();
        assert_eq!((taken, decision.retry_after()), (0, Some(5 * MINUTE)));
    }
    assert_eq!(
        other.ask(subject, Mode::Enforce).await.verdicts()[0].remaining(),
        1
    );
    subject.advance(5 * MINUTE).await;
    assert!(gate.admits(subject).await && gate.admits(subject).await);
}

/// A strike counts for its time, and no longer.
pub async fn a_strike_is_forgotten_after_its_time(subject: &dyn Subject) {
    if !can_ban(subject) {
        return;
    }
    let gate = Gate::of("forgotten");
    for is_admitted in [true, true, false, false] {
        assert_eq!(gate.admits(subject).await, is_admitted);
    }
    subject.advance(10 * MINUTE).await;
    let peek = gate.ask(subject, Mode::Probe).await;
    assert_eq!(peek.verdicts()[1].remaining(), 3);
    for is_admitted in [true, true, false, false] {
        assert_eq!(gate.admits(subject).await, is_admitted);
    }
    assert_eq!(gate.banned(subject).await, None);
}

/// A debit of a ban adds strikes, whether its key is known or not.
pub async fn a_debit_of_a_ban_is_a_strike(subject: &dyn Subject) {
    if !can_ban(subject) {
        return;
    }
    let gate = Gate::of("debit");
    let strike = Charge {
        cost: 1,
        ..gate.charge(&gate.ban, Mode::Enforce)
    };
    let taken = Verdict::allowed(&strike, 1, 0);
    let receipt = Receipt::of(&strike, &taken, Timestamp::default()).unwrap();
    for left in [Some(2), Some(1), None] {
        subject.backend().debit(&receipt, 1);
        subject.settle().await;
        let asked = gate.ask(subject, Mode::Probe).await;
        let left_of_ban = asked.verdicts()[1]
            .is_allowed()
            .then(|| asked.verdicts()[1].remaining());
        assert_eq!(left_of_ban, left);
    }
    assert_eq!(gate.banned(subject).await, Some(15 * MINUTE));
    // No strike is added while the ban is in force.
    subject.backend().debit(&receipt, 1);
    subject.settle().await;
    subject.advance(15 * MINUTE).await;
    assert_eq!(
        gate.ask(subject, Mode::Probe).await.verdicts()[1].remaining(),
        3
    );
}

/// An operator bans at once, shortens no ban and forgives no strike; a reset ends a ban.
pub async fn a_ban_is_imposed_at_once_and_ended_by_a_reset(subject: &dyn Subject) {
    if !can_ban(subject) {
        return;
    }
    let gate = Gate::of("imposed");
    for (length, ends) in [(10, 10), (5, 10), (20, 20)] {
        gate.impose(subject, &gate.key, length * SECOND).await;
        assert_eq!(gate.banned(subject).await, Some(ends * SECOND));
    }
    assert!(!gate.admits(subject).await);
    let scope = Scope::of(&gate.policy, 0, &gate.ban);
    subject
        .backend()
        .admin()
        .reset(scope, &gate.key)
        .await
        .unwrap();
    assert_eq!(gate.banned(subject).await, None);
    assert!(gate.admits(subject).await);

    let struck = Gate::of("imposed-on-strikes");
    for is_admitted in [true, true, false, false] {
        assert_eq!(struck.admits(subject).await, is_admitted);
    }
    struck.impose(subject, &struck.key, SECOND).await;
    subject.advance(SECOND).await;
    let last = struck.ask(subject, Mode::Enforce).await;
    assert_eq!(last.retry_after(), Some(15 * MINUTE));
}

/// On trial a ban keeps no caller out, and while it would, its policy's charges on trial are questions.
pub async fn a_ban_on_trial_keeps_nobody_out(subject: &dyn Subject) {
    if !can_ban(subject) {
        return;
    }
    let gate = Gate::of("trial");
    for _ in 0..5 {
        assert!(gate.ask(subject, Mode::Shadow).await.is_admitted());
    }
    assert_eq!(gate.banned(subject).await, Some(15 * MINUTE));
    subject.advance(10 * MINUTE).await;
    let asked = gate.ask(subject, Mode::Shadow).await;
    let [quota, ban] = [0, 1].map(|index| asked.verdicts()[index]);
    assert!(asked.is_admitted() && quota.is_allowed() && ban.is_denied());
    assert_eq!((quota.taken(), quota.remaining()), (0, 2));
}

/// The list of bans has every ban in force of its scope, to the microsecond, and nothing else. A backend that cannot list bans
/// says so.
pub async fn the_list_of_bans_has_those_in_force_and_no_others(subject: &dyn Subject) {
    if !can_ban(subject) {
        return;
    }
    let (gate, other) = (Gate::of("listed"), Gate::of("listed-other"));
    let scope = Scope::of(&gate.policy, 0, &gate.ban);
    match subject.backend().admin().bans(scope).await {
        Err(error) => return assert_eq!(error.kind(), FailureKind::InvalidCall),
        Ok(list) => assert!(list.is_complete() && list.callers().is_empty(), "{list:?}"),
    }
    gate.collect_strikes(subject).await;
    let address = Key::from(Ipv4Addr::new(192, 0, 2, 7));
    let pair = Key::tuple([&address, &Key::from("a, b (c) %\u{e9}*?[")]);
    let long = Key::from("x".repeat(1_000)).compact();
    for (key, minutes) in [
        (&pair, 20),
        (&long, 30),
        (&address, 5),
        (&Key::from(7_u64), 40),
    ] {
        gate.impose(subject, key, minutes * MINUTE).await;
    }
    other.impose(subject, &other.key, 50 * MINUTE).await;
    // A strike is not a ban, and a ban that was taken back is over.
    let strike = Charge {
        cost: 1,
        key: &Key::from("alice"),
        ..gate.charge(&gate.ban, Mode::Enforce)
    };
    decide(subject, &[strike]).await;
    let forgiven = Key::from(7_u64);
    subject
        .backend()
        .admin()
        .reset(scope, &forgiven)
        .await
        .unwrap();
    // The ban of the address ends now.
    subject.advance(5 * MINUTE).await;

    let list = subject.backend().admin().bans(scope).await.unwrap();

    assert!(list.is_complete());
    let mut listed: Vec<_> = list.into_iter().collect();
    listed.sort_by_key(BannedCaller::left);
    let expected = [(10, gate.key.clone()), (15, pair), (25, long)];
    let expected = expected.map(|(minutes, key)| BannedCaller::new(key, minutes * MINUTE));
    assert_eq!(listed, expected);
}
