//! Leases: blocks of a shared budget that a process spends by itself.

mod far;
mod refused;
#[cfg(feature = "redis")]
mod served;
mod together;

use std::future::{Future, IntoFuture};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::sleep;
use tollgate::{CheckOutcome, Lease, Limiter, OnFailure, Policy, Quota};

use self::far::{Far, LAG};

/// Twice as much as any test asks for.
const ROOMY: Quota = Quota::per_second(2_000);
const LEASE: Lease = Lease::up_to(500);

fn api() -> Policy {
    Policy::new("api", ROOMY).lease(LEASE)
}

async fn ask(limiter: &Limiter) -> CheckOutcome {
    limiter.check("api", "alice").await.unwrap()
}

/// Asks for a unit in each millisecond.
async fn ask_for(limiter: &Limiter, millis: u64) -> u64 {
    let mut admitted = 0;
    for _ in 0..millis {
        sleep(Duration::from_millis(1)).await;
        let checked = limiter.check("api", "alice").await;
        admitted += u64::from(checked.is_ok_and(|checked| checked.is_allowed()));
    }
    admitted
}

#[tokio::test(start_paused = true)]
async fn a_hot_key_awaits_the_server_at_the_start_only() {
    let far = Far::new();
    let limiter = far.process([api()]);
    assert_eq!(ask_for(&limiter, 200).await, 200);
    assert!(far.decisions() < 50);
    let _start = (far.blocks(), far.credits());

    assert_eq!(ask_for(&limiter, 1_000).await, 1_000);
    assert_eq!(
        far.decisions(),
        0,
        "no request awaits the server while its block has budget"
    );
    let calls = far.blocks() + far.credits();
    assert!((8..=50).contains(&calls), "{calls} calls in a second");
}

/// One request in a lease's time needs no block.
#[tokio::test(start_paused = true)]
async fn a_cold_key_is_decided_by_the_server() {
    let far = Far::new();
    let limiter = far.process([api()]);
    for _ in 0..20 {
        assert!(ask(&limiter).await.is_allowed());
        sleep(Duration::from_millis(200)).await;
    }
    assert_eq!((far.decisions(), far.blocks()), (20, 0));
}

#[tokio::test(start_paused = true)]
async fn what_is_left_of_a_block_is_given_back_at_its_end() {
    let far = Far::new();
    let day = Policy::new("api", Quota::per_day(2_000));
    let limiter = far.process([day.clone().lease(LEASE)]);
    let beside = far.beside(day);
    let asked = ask_for(&limiter, 300).await;
    sleep(10 * LAG).await;
    let probe = beside.check("api", "alice").probe().await.unwrap();
    assert!(probe.remaining() < 2_000 - asked, "a block is leased");
    sleep(Duration::from_millis(200)).await;
    let probe = beside.check("api", "alice").probe().await.unwrap();
    assert_eq!(probe.remaining(), 2_000 - asked);
}

#[tokio::test(start_paused = true)]
async fn a_limiter_that_ends_gives_its_blocks_back() {
    let far = Far::new();
    let day = Policy::new("api", Quota::per_day(2_000));
    let limiter = far.process([day.clone().lease(LEASE)]);
    let asked = ask_for(&limiter, 300).await;
    drop(limiter);
    // A block that was asked for comes back when it has come.
    sleep(10 * LAG).await;
    let probe = far.beside(day).check("api", "alice").probe().await.unwrap();
    assert_eq!(probe.remaining(), 2_000 - asked);
}

#[tokio::test(start_paused = true)]
async fn processes_that_share_a_budget_admit_no_more_than_it_holds() {
    let far = Far::new();
    let day = Policy::new("api", Quota::per_day(500)).lease(LEASE);
    let processes: Vec<_> = (0..4).map(|_| far.process([day.clone()])).collect();
    let mut admitted = 0;
    for _ in 0..1_000 {
        sleep(Duration::from_millis(1)).await;
        for process in &processes {
            admitted += u64::from(ask(process).await.is_allowed());
        }
    }
    assert_eq!(admitted, 500, "all of it, and no more");
}

#[tokio::test(start_paused = true)]
async fn a_reset_forgets_the_blocks_as_well() {
    let far = Far::new();
    let limiter = far.process([Policy::new("api", Quota::per_day(2_000)).lease(LEASE)]);
    ask_for(&limiter, 300).await;
    limiter.reset("api", "alice").await.unwrap();
    let _before = far.decisions();
    let first = ask(&limiter).await;
    assert_eq!((far.decisions(), first.remaining()), (1, 1_999));
    // Nothing of an earlier block comes back on top of a full budget.
    sleep(Duration::from_millis(500)).await;
    let probe = limiter.check("api", "alice").probe().await.unwrap();
    assert_eq!(probe.remaining(), 1_999);
}

/// The rest that a decision tells is a lower bound of what remains.
#[tokio::test(start_paused = true)]
async fn a_leased_decision_tells_no_more_than_there_is() {
    let far = Far::new();
    let day = Policy::new("api", Quota::per_day(2_000)).lease(LEASE);
    let processes = [(); 2].map(|()| far.process([day.clone()]));
    let mut there_are = 2_000;
    for asked in 0..300 {
        sleep(Duration::from_millis(1)).await;
        for process in &processes {
            let checked = ask(process).await;
            there_are -= 1;
            let told = checked.remaining();
            assert!(told <= there_are, "{told} of {there_are}, at {asked}");
            let receipts = checked.into_receipts();
            assert_eq!((receipts.len(), receipts[0].cost()), (1, 1));
        }
    }
    assert!(far.decisions() < 300, "most are leased");
}

/// A refund of a leased charge is one like any other.
#[tokio::test(start_paused = true)]
async fn a_leased_charge_is_credited() {
    let far = Far::new();
    let day = Policy::new("api", Quota::per_day(2_000));
    let limiter = far.process([day.clone().lease(LEASE)]);
    let mut receipts = Vec::new();
    for _ in 0..300 {
        sleep(Duration::from_millis(1)).await;
        receipts.extend(ask(&limiter).await.into_receipts());
    }
    assert_eq!(receipts.len(), 300);
    for receipt in receipts {
        limiter.refund(receipt, 1);
    }
    drop(limiter);
    sleep(10 * LAG).await;
    let probe = far.beside(day).check("api", "alice").probe().await.unwrap();
    assert_eq!(probe.remaining(), 2_000);
}

#[tokio::test(start_paused = true)]
async fn blocks_are_spent_while_the_server_is_away_and_no_longer() {
    let far = Far::new();
    let limiter = far.process([api().on_failure(OnFailure::Deny)]);
    ask_for(&limiter, 300).await;
    let _before = (far.decisions(), far.blocks());
    far.fail(true);
    let during = ask_for(&limiter, 1_000).await;
    assert!(
        (20..=120).contains(&during),
        "{during} of a thousand milliseconds"
    );
    assert!(limiter.is_failing());
    // Each request takes two milliseconds now. The process asks the server by them, and for a block in a lease's time.
    assert!(far.blocks() <= 21);
    far.fail(false);
    assert!(ask_for(&limiter, 300).await > 290);
    assert!(!limiter.is_failing());
}

#[tokio::test(start_paused = true)]
async fn policies_that_are_replaced_are_leased_by_the_new_terms() {
    let far = Far::new();
    let limiter = far.process([Policy::new("api", ROOMY)]);
    ask_for(&limiter, 200).await;
    assert_eq!((far.decisions(), far.blocks()), (200, 0));

    limiter.replace([api()]).unwrap();
    ask_for(&limiter, 200).await;
    assert!(far.decisions() < 50 && far.blocks() > 0);

    // Another quota is not spent from blocks of the old one.
    limiter
        .replace([Policy::new("api", Quota::per_second(5)).lease(LEASE)])
        .unwrap();
    assert!(ask_for(&limiter, 100).await <= 6);
    limiter.replace([Policy::new("api", ROOMY)]).unwrap();
    let _before = (far.decisions(), far.blocks());
    ask_for(&limiter, 100).await;
    assert_eq!((far.decisions(), far.blocks()), (100, 0));
}

/// The budgets of a hot key are not spent by terms that are gone.
#[tokio::test(start_paused = true)]
async fn terms_that_are_replaced_hold_from_the_end_of_the_present_blocks_on() {
    let far = Far::new();
    let limiter = far.process([api()]);
    ask_for(&limiter, 300).await;
    limiter
        .replace([Policy::new("api", ROOMY).lease(Lease::up_to(4))])
        .unwrap();
    ask_for(&limiter, 300).await;
    let _before = far.blocks();
    // Four units last for four milliseconds, less the part of a block that is asked for early.
    ask_for(&limiter, 400).await;
    let blocks = far.blocks();
    assert!((50..=400).contains(&blocks), "{blocks}");
}

/// A backend in this process has nothing to lease.
#[tokio::test(start_paused = true)]
async fn a_backend_in_memory_decides_as_ever() {
    let limiter = Limiter::from(Policy::new("api", Quota::per_day(2_000)).lease(LEASE));
    for asked in 1..=500 {
        assert_eq!(ask(&limiter).await.remaining(), 2_000 - asked);
    }
}

/// No task can ask for a block there.
#[test]
fn without_a_runtime_the_server_decides() {
    let far = Far::at_once();
    let limiter = far.process([api()]);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..20 {
        let check = pin!(limiter.check("api", "alice").into_future());
        let Poll::Ready(checked) = check.poll(&mut context) else {
            panic!("the server answers at once");
        };
        assert!(checked.unwrap().is_allowed());
    }
    assert_eq!((far.decisions(), far.blocks()), (20, 0));
}
