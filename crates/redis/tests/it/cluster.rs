//! The backend on a cluster.

use std::time::Duration;

use crate::common::cluster::{apart, callers, connect, full, on_each_node};
use crate::common::{Budget, HOUR, PATIENT, Patience, every_algorithm, hammer};
use tokio::time::timeout;
use tollgate::{Limiter, Once, Policy};
use tollgate_core::{
    Backend, Ban, Call, Charge, Decision, Key, Mode, Quota, Scope, Timestamp, Verdict,
};
use tollgate_redis::RedisBackend;
use tollgate_testkit::{Cluster, Fault, Proxy};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_who_share_budgets_all_over_a_cluster_admit_exactly_what_they_hold() {
    let cluster = Cluster::start();
    for (n, quota) in every_algorithm(20, HOUR * 24 * 300).into_iter().enumerate() {
        let mut backends = Vec::new();
        for _ in 0..3 {
            backends.push(connect(&cluster).await);
        }
        let budgets = || callers(&format!("shared-{n}"), quota, 20);
        assert_eq!(hammer(backends, budgets, 20 * 15).await, 20 * 20, "{quota}");
    }
    let keys: Vec<_> = (cluster.nodes().iter())
        .map(|node| node.command(&["DBSIZE"]))
        .collect();
    assert!(!keys.contains(&":0\r\n".to_owned()), "{keys:?}");
}

#[tokio::test]
async fn what_was_taken_in_one_slot_is_given_back_when_another_denies() {
    let cluster = Cluster::start();
    let backend = connect(&cluster).await;
    for (n, quota) in every_algorithm(5, HOUR).into_iter().enumerate() {
        let [first, second] = apart(&cluster, &format!("back-{n}"), quota);
        second.take(&backend, 5).await.unwrap();

        let decision = backend
            .decide(Call::of(&[first.charge(2), second.charge(1)]))
            .await
            .unwrap();
        let reversed = backend
            .decide(Call::of(&[second.charge(1), first.charge(2)]))
            .await
            .unwrap();
        let shadow = Charge {
            mode: Mode::Shadow,
            ..first.charge(1)
        };
        let with_shadow = backend
            .decide(Call::of(&[shadow, second.charge(1)]))
            .await
            .unwrap();

        // Its state is reported as if the request had not come, which is true.
        for (decision, place) in [(decision, 0), (reversed, 1)] {
            assert!(!decision.is_admitted());
            let verdicts = decision.verdicts();
            assert!(verdicts[place].is_allowed() && verdicts[1 - place].is_denied());
            assert_eq!(
                (verdicts[place].remaining(), verdicts[place].taken()),
                (5, 0),
                "{quota}"
            );
        }
        assert!(!with_shadow.is_admitted());
        assert_eq!(
            first.remaining(&backend).await,
            4,
            "{quota}: a shadow is taken on its own"
        );
        let both = backend
            .decide(Call::of(&[first.charge(2), second.charge(0)]))
            .await
            .unwrap();
        assert!(both.is_admitted());
        assert_eq!(first.remaining(&backend).await, 2);
    }
    assert_eq!(backend.stats().lost_give_backs, 0);
}

#[tokio::test]
async fn pitfall_nodes_whose_clocks_are_hours_apart_give_back_and_promise_by_their_own() {
    let cluster = Cluster::start_ahead([0, 3 * 3_600, -3 * 3_600]);
    let backend = connect(&cluster).await;
    for (n, quota) in every_algorithm(10, HOUR).into_iter().enumerate() {
        let [one, two, three] = on_each_node(&cluster, &format!("clocks-{n}"), quota);
        for order in [[&one, &two, &three], [&three, &one, &two]] {
            let charges = order.map(|budget| budget.charge(4));
            let decision = backend.decide(Call::of(&charges)).await.unwrap();
            let receipts: Vec<_> = decision.receipts(&charges).collect();
            assert_eq!(receipts.len(), 3, "{decision:?}");
            for receipt in receipts {
                backend.refund(receipt, 4);
            }
            for budget in order {
                full(&backend, budget).await;
            }
        }

        // A denial gives its time by the clock that will keep the promise.
        for spent in [&one, &two, &three] {
            spent.take(&backend, 10).await.unwrap();
            let charges = [one.charge(1), two.charge(1), three.charge(1)];
            let denied = backend.decide(Call::of(&charges)).await.unwrap();
            let wait = denied.retry_after().unwrap();
            assert!(!wait.is_zero() && wait <= HOUR * 2, "{quota}: {wait:?}");
            let _reset = backend.admin().reset(spent.scope, &spent.key).await;
        }
    }
    assert_eq!(backend.stats().lost_give_backs, 0);
}

#[tokio::test]
async fn who_is_dropped_between_two_slots_has_taken_nothing() {
    let cluster = Cluster::start();
    let backend = connect(&cluster).await;
    let [first, second] = apart(&cluster, "dropped", Quota::per_hour(1_000));
    for patience in (0..200).map(|n| Duration::from_micros(n * 20)) {
        let call = backend.decide(Call::of(&[first.charge(1), second.charge(1)]));
        // Some are dropped before, some in between, and some are answered.
        if let Ok(decision) = timeout(patience, call).await {
            let charges = [first.charge(1), second.charge(1)];
            for receipt in decision.unwrap().receipts(&charges) {
                backend.refund(receipt, 1);
            }
        }
    }
    full(&backend, &first).await;
    full(&backend, &second).await;
}

#[tokio::test]
async fn a_lone_seed_has_all_the_time_that_there_is_to_connect() {
    // given a seed that needs two answers to tell of the slots, and gives each after a sixth of the time
    let time = Duration::from_secs(12);
    let cluster = Cluster::start();
    let proxy = Proxy::before(cluster.nodes()[0].port());
    proxy.fail_with(Fault::Delay(time / 6));

    // when a backend knows no other
    let builder = RedisBackend::cluster([proxy.url()]).deadline(PATIENT);
    let backend = builder.connect_deadline(time).connect().await.unwrap();

    // then it decides
    let budget = Budget::of("lone", Quota::per_hour(10));
    assert!(budget.take(&backend, 1).await.unwrap().is_admitted());
}

/// A caller under a quota of one a day and a ban after two strikes.
struct Guarded {
    budget: Budget,
    ban: Budget,
}

impl Guarded {
    /// Two callers in two slots.
    fn apart(cluster: &Cluster, policy: &str, ban: Ban) -> [Self; 2] {
        apart(cluster, policy, Quota::per_day(1)).map(|budget| Self {
            ban: Budget {
                scope: Scope::of(policy, 0, &ban.into()),
                quota: ban.into(),
                key: budget.key.clone(),
            },
            budget,
        })
    }

    fn charges(&self) -> [Charge<'_>; 2] {
        [self.budget.charge(1), self.ban.charge(0)]
    }

    async fn ban(&self, backend: &RedisBackend) {
        let imposed = self.ban.quota.ban().unwrap().try_imposed(HOUR).unwrap();
        let imposed = Quota::from(imposed);
        let order = Charge {
            quota: &imposed,
            mode: Mode::Shadow,
            ..self.ban.charge(1)
        };
        backend.decide(Call::of(&[order])).await.unwrap();
    }

    /// The strikes that are left before a ban, and the end of one.
    async fn standing(&self, backend: &RedisBackend) -> (u64, Option<Timestamp>) {
        let probe = Charge {
            mode: Mode::Probe,
            ..self.ban.charge(0)
        };
        let decision = backend.decide(Call::of(&[probe])).await.unwrap();
        let verdict = decision.verdicts()[0];
        let end = |left| decision.at().saturating_add(left);
        (verdict.remaining(), verdict.retry_after().map(end))
    }
}

/// Asks for both callers at once, in this order.
async fn ask_both(backend: &RedisBackend, order: [&Guarded; 2]) -> Decision {
    let charges = order.map(Guarded::charges).concat();
    backend.decide(Call::of(&charges)).await.unwrap()
}

fn twice_a_day() -> Ban {
    Ban::after(2, HOUR * 24).lasting(HOUR)
}

#[tokio::test]
async fn denials_in_several_slots_are_a_strike_in_each() {
    let cluster = Cluster::start();
    let backend = connect(&cluster).await;
    let [one, two] = Guarded::apart(&cluster, "struck", twice_a_day());
    assert!(ask_both(&backend, [&one, &two]).await.is_admitted());

    // The first request is a strike for both, and the second bans both.
    let struck = ask_both(&backend, [&one, &two]).await;
    assert!(!struck.is_admitted());
    for caller in [&one, &two] {
        assert_eq!(caller.standing(&backend).await, (1, None));
    }
    let banned = ask_both(&backend, [&two, &one]).await;
    assert!(!banned.is_admitted());
    for caller in [&one, &two] {
        assert!(caller.standing(&backend).await.1.is_some());
    }
    assert_eq!(backend.stats().lost_give_backs, 0);
}

#[tokio::test]
async fn a_ban_in_force_in_one_slot_lets_nothing_be_a_strike_or_a_charge_in_another() {
    let cluster = Cluster::start();
    // One connection to each node: a second would write when it comes.
    let builder = RedisBackend::cluster(cluster.urls()).connections(1);
    let backend = builder.patient().connect().await.unwrap();
    let [one, two] = Guarded::apart(&cluster, "elsewhere", twice_a_day());
    let sets = || {
        let nodes = cluster.nodes().iter();
        let stats = nodes.map(|node| node.command(&["INFO", "commandstats"]));
        let lines: Vec<_> = stats
            .flat_map(|stats| stats.lines().map(str::to_owned).collect::<Vec<_>>())
            .filter(|line| line.starts_with("cmdstat_set:"))
            .map(|line| line.split(',').next().unwrap_or_default().to_owned())
            .collect();
        lines
    };
    two.ban(&backend).await;

    // A budget with room: nothing is written, whatever the order.
    let before = sets();
    for order in [[&one, &two], [&two, &one]] {
        let decision = ask_both(&backend, order).await;
        assert!(!decision.is_admitted());
        assert_eq!(
            decision.verdicts().iter().map(Verdict::taken).sum::<u64>(),
            0
        );
    }
    // So it is for a caller without a ban.
    let plain = one.budget.charge(1);
    let [quota, ban] = two.charges();
    for charges in [[plain, quota, ban], [quota, ban, plain]] {
        let decision = backend.decide(Call::of(&charges)).await.unwrap();
        assert!(!decision.is_admitted());
    }
    assert_eq!(sets(), before);
    assert_eq!(one.budget.remaining(&backend).await, 1);

    // A spent one: no strike.
    one.budget.take(&backend, 1).await.unwrap();
    for order in [[&one, &two], [&two, &one]] {
        assert!(!ask_both(&backend, order).await.is_admitted());
    }
    assert_eq!(one.standing(&backend).await, (2, None));
}

#[tokio::test]
async fn a_request_begins_every_extending_ban_anew_in_whatever_slot() {
    let cluster = Cluster::start();
    let backend = connect(&cluster).await;
    let ban = twice_a_day().extending();
    let [one, two] = Guarded::apart(&cluster, "anew", ban);
    for caller in [&one, &two] {
        caller.ban(&backend).await;
    }
    let mut ends = Vec::new();
    for caller in [&one, &two] {
        ends.push(caller.standing(&backend).await.1);
    }
    ask_both(&backend, [&one, &two]).await;
    for (caller, end) in [&one, &two].into_iter().zip(ends) {
        assert!(caller.standing(&backend).await.1 > end);
    }
}

#[tokio::test]
async fn a_request_that_several_slots_deny_is_told_the_longest_wait() {
    let cluster = Cluster::start();
    let backend = connect(&cluster).await;
    let [one, two] = apart(&cluster, "longest", Quota::per_hour(1));
    let longer = Quota::per_day(1);
    let two = Budget {
        quota: longer,
        scope: Scope::of("longest", 1, &longer),
        ..two
    };
    for budget in [&one, &two] {
        budget.take(&backend, 1).await.unwrap();
    }
    for charges in [
        [one.charge(1), two.charge(1)],
        [two.charge(1), one.charge(1)],
    ] {
        let decision = backend.decide(Call::of(&charges)).await.unwrap();
        assert!(decision.retry_after() > Some(HOUR * 23), "{decision:?}");
    }
}

/// An id stands in the slot of its caller, whose key its name holds. A key of 128 bytes or more is a digest, which is short.
#[tokio::test]
async fn in_a_cluster_an_id_without_room_beside_its_callers_key_is_charged_each_time() {
    let cluster = Cluster::start();
    let policy = Policy::new("orders", "10/day").once(Once::default());
    let limiter = Limiter::builder().policy(policy);
    let limiter = limiter.backend(connect(&cluster).await).build().unwrap();
    let (short, long) = ("order-7", "order-".repeat(100));

    for (length, id, left) in [
        (5, short, [9, 9]),
        (113, short, [9, 9]),
        (114, short, [9, 8]),
        (91, &long, [9, 9]),
        (92, &long, [9, 8]),
        (127, &long, [9, 8]),
        (128, &long, [9, 9]),
        (400, &long, [9, 9]),
    ] {
        let caller = format!("{:x>length$}", id.len());
        for left in left {
            let asked = limiter.check("orders", &*caller).id(id).await.unwrap();
            assert!(asked.undecided().is_none(), "{:?}", asked.undecided());
            assert_eq!(asked.remaining(), left, "{length} beside {}", id.len());
        }
    }
}

/// A caller's orders with one id, and the budget of another policy in another slot, which all callers share.
struct Orders {
    own: Budget,
    shared: Budget,
    once: Quota,
    id: Key,
}

impl Orders {
    fn apart(cluster: &Cluster) -> Self {
        let [own, elsewhere] = apart(cluster, "orders", Quota::per_day(10));
        let everybody = Quota::per_day(5);
        Self {
            shared: Budget {
                scope: Scope::of("all-orders", 0, &everybody),
                quota: everybody,
                key: elsewhere.key,
            },
            once: Once::default().into(),
            id: Key::tuple([&own.key, &Key::from("order-7")]),
            own,
        }
    }

    fn id_in(&self, mode: Mode) -> Charge<'_> {
        Charge {
            scope: Scope::of("orders", 0, &self.once),
            quota: &self.once,
            key: &self.id,
            cost: 1,
            mode,
        }
    }

    /// The request again: whether it passes, and what is left of both budgets and of the replays after it.
    async fn ask(&self, backend: &RedisBackend, own_is_first: bool) -> (bool, [u64; 3]) {
        let (own, shared) = (self.own.charge(1), self.shared.charge(1));
        let charges = match own_is_first {
            true => [own, shared, self.id_in(Mode::Enforce)],
            false => [shared, own, self.id_in(Mode::Enforce)],
        };
        let decision = backend.decide(Call::of(&charges)).await.unwrap();
        let questions = [
            self.own.charge(0),
            self.shared.charge(0),
            self.id_in(Mode::Probe),
        ];
        let mut left = [0; 3];
        for (left, question) in left.iter_mut().zip(questions) {
            let told = backend.decide(Call::of(&[question])).await.unwrap();
            *left = told.verdicts()[0].remaining();
        }
        (decision.is_admitted(), left)
    }
}

#[tokio::test]
async fn a_replay_that_an_earlier_slot_counted_stays_counted_when_a_later_slot_denies() {
    // given an order that was admitted, and whose other budget, in another slot, is spent since
    let cluster = Cluster::start();
    let backend = connect(&cluster).await;
    let orders = Orders::apart(&cluster);
    assert_eq!(orders.ask(&backend, true).await, (true, [9, 4, 2]));
    orders.shared.take(&backend, 4).await.unwrap();

    // when the slot that denies is asked first, then no replay is counted
    assert_eq!(orders.ask(&backend, false).await, (false, [9, 0, 2]));

    // when it is asked last, then each replay stays counted, and takes nothing
    assert_eq!(orders.ask(&backend, true).await, (false, [9, 0, 1]));
    assert_eq!(orders.ask(&backend, true).await, (false, [9, 0, 0]));

    // when its replays are used up and it is denied, then its charge is given back, and no replay passes on that
    assert_eq!(orders.ask(&backend, true).await, (false, [9, 0, 0]));

    // then the order is charged like a new one as soon as both have room
    let reset = backend
        .admin()
        .reset(orders.shared.scope, &orders.shared.key);
    reset.await.unwrap();
    assert_eq!(orders.ask(&backend, true).await, (true, [8, 4, 2]));
    assert_eq!(backend.stats().lost_give_backs, 0);
}
