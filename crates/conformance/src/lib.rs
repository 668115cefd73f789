//! The behaviour of every backend: one test body for each promise, run on each backend.
//!
//! Tollgate's own backends run these tests, and a backend of your own can prove itself by them. Implement [`Subject`] for it, a
//! backend whose time a test can move; [`conformance!`] then makes a test of every behaviour. The crate that does so has
//! `tokio` among its dev-dependencies, with the features `macros` and `rt`.
//!
//! ```
//! # use std::{sync::Arc, time::Duration};
//! use tollgate_conformance::{Elapsed, Subject};
//! use tollgate_core::{Backend, ManualClock};
//!
//! struct Mine {
//!     backend: Arc<dyn Backend>,
//!     clock: ManualClock,
//! }
//!
//! impl Subject for Mine {
//!     fn backend(&self) -> Arc<dyn Backend> {
//!         self.backend.clone()
//!     }
//!
//!     fn advance(&self, by: Duration) -> Elapsed<'_> {
//!         self.clock.advance(by);
//!         Box::pin(std::future::ready(()))
//!     }
//! }
//!
//! # /*
//! // In a file in `tests`:
//! tollgate_conformance::conformance!(async { Mine::start().await });
//! # */
//! ```
//!
//! Each test has a subject of its own, and names its policies after itself: tests may share one server. `tests/foreign.rs` of
//! this crate shows a whole backend, of a map under a lock, that passes and has every capability; `tests/broken` has backends with
//! one defect each, and names the test that fails for it.
//!
//! # Tested
//!
//! | module | what it holds a backend to |
//! | --- | --- |
//! | [`amounts`] | a budget admits what it holds, and the numbers of a verdict are true |
//! | [`promises`] | a denied charge passes after its retry-after, to the microsecond, and costs nothing before |
//! | [`calls`] | a call is all or nothing; shadows and probes keep no charge from passing |
//! | [`undo`] | credits, debits and resets do what they say and no more |
//! | [`held`] | what is held is held until it is released |
//! | [`waiting`] | turns come in order, and a request that leaves gives its turn back |
//! | [`bans`] | strikes are exact, and a ban neither ends early nor feeds itself |
//! | [`grants`] | a grant is the largest amount that passes, and is taken like any other |
//! | [`once`] | a request with an id is charged once, and a constant id does not get around a limit |
//! | [`shares`] | no other class spends the share that is kept for a class |
//! | [`identities`] | no two identities, policies or quotas share a budget |
//! | [`model`] | random calls are decided as a model of exact fractions does |
//!
//! Three promises are not tested here: a call whose answer is dropped leaves nothing behind, a backend keeps its deadline, and
//! concurrent callers get no more than the budget. Each backend has its own means to provoke these cases.
#![expect(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "everything here runs in tests, where a panic is how one fails"
)]

pub mod amounts;
pub mod bans;
pub mod calls;
pub mod grants;
pub mod held;
pub mod identities;
pub mod model;
pub mod once;
pub mod promises;
pub mod shares;
mod subject;
pub mod undo;
pub mod waiting;

pub use subject::{Budget, Elapsed, FAR_AHEAD_US, Subject, align, decide, every_algorithm};

/// A test of every behaviour for one backend. Takes an expression that gives a future of a fresh [`Subject`].
///
/// `conformance!(one_test name: subject)` makes one test of all behaviours: for subjects that share servers which take seconds to start.
#[macro_export]
macro_rules! conformance {
    (one_test $(#[$attribute:meta])* $test:ident: $subject:expr) => {
        $crate::conformance! { @whole [@one $(#[$attribute])* $test $subject;] }
    };
    (one_test $(#[$attribute:meta])* $test:ident in_parts: $subject:expr) => {
        $crate::conformance! { @in_parts [@one $(#[$attribute])* $test $subject;] }
    };
    // For a backend whose budgets live in several places, so that a call may have to give back charges.
    (in_parts: $subject:expr) => {
        $crate::conformance! { @in_parts [@each $subject;] }
    };
    ($subject:expr) => {
        $crate::conformance! { @whole [@each $subject;] }
    };
    (@whole [$($tests:tt)+]) => {
        $crate::conformance! { @in_parts [$($tests)+ model: any_sequence_of_calls_is_decided_as_the_model_does;] }
    };
    (@in_parts [$($tests:tt)+]) => {
        $crate::conformance! { $($tests)+
            amounts: a_key_never_seen_has_a_full_budget
                a_budget_admits_what_it_holds_and_not_one_more
                what_remains_counts_down
                a_cost_of_nothing_is_a_peek
                a_cost_above_the_capacity_never_passes
                a_large_quota_of_a_long_period_is_exact
                a_caller_who_was_quiet_has_a_full_budget_again
                a_rate_that_is_no_whole_number_of_microseconds_does_not_drift
                verdicts_carry_the_time_of_the_backend;
            promises: retry_after_is_kept_to_the_microsecond
                reset_after_is_when_the_budget_is_full
                pitfall_a_denied_request_still_counted
                pitfall_a_weighted_denial_drove_the_balance_negative
                pitfall_a_retry_after_of_0
                pitfall_a_rate_below_one_a_second
                the_whole_call_passes_after_its_longest_wait;
            calls: a_call_without_charges_is_admitted
                a_call_of_too_many_charges_is_an_error_and_not_a_denial
                the_largest_call_is_all_or_nothing
                pitfall_the_first_of_several_limits_was_charged_although_the_second_denied
                the_same_key_twice_is_one_charge_of_the_summed_cost
                verdicts_stand_in_the_order_of_their_charges
                a_shadow_charge_is_taken_on_its_own
                a_shadow_charge_that_does_not_fit_denies_nobody
                a_probe_takes_nothing_and_denies_nobody
                one_key_in_every_mode
                answers_can_be_awaited_later;
            undo: a_credit_gives_back_what_was_taken
                refills_in_intervals_come_all_at_once_up_to_the_burst
                a_credit_gives_back_no_more_than_was_taken
                a_credit_in_part_gives_back_that_part
                pitfall_a_refund_after_the_window_rolled
                pitfall_a_refund_after_the_tokens_drained
                a_debit_goes_past_the_capacity
                a_debt_is_bounded
                a_debit_of_a_key_that_was_forgotten_counts
                a_credit_of_a_key_that_was_forgotten_does_nothing
                a_reset_forgets_one_key_of_one_scope;
            held: a_limit_at_once_admits_what_it_holds_and_not_one_more
                what_is_held_stays_held_as_time_passes
                a_release_gives_back_what_was_taken_and_no_more
                a_denied_request_holds_nothing
                what_is_held_and_a_quota_are_taken_together_or_not_at_all
                a_shadow_holds_and_a_probe_does_not
                a_debit_of_what_is_held_does_nothing
                after_a_reset_nothing_is_held
                another_limit_at_once_counts_what_is_held;
            waiting: turns_follow_one_another_in_the_order_of_the_decisions
                a_shorter_patience_reserves_nothing
                a_charge_that_leaves_gives_its_turn_to_the_next
                a_credit_moves_nobody_up_while_anybody_waits
                a_shadow_says_how_long_it_would_wait_and_a_probe_reserves_nothing
                a_call_waits_for_the_last_of_its_turns_or_reserves_none
                a_long_line_stays_as_it_is_under_another_quota;
            bans: the_last_strike_bans_until_it_was_said
                a_ban_in_force_charges_nothing_and_does_not_feed_itself
                a_strike_is_forgotten_after_its_time
                a_debit_of_a_ban_is_a_strike
                a_ban_is_imposed_at_once_and_ended_by_a_reset
                a_ban_on_trial_keeps_nobody_out
                the_list_of_bans_has_those_in_force_and_no_others;
            grants: a_grant_is_what_is_left_and_no_more
                a_grant_below_the_least_takes_nothing
                a_grant_is_what_every_budget_has
                a_grant_for_a_large_budget_is_what_a_small_one_beside_it_has
                a_grant_over_several_callers_is_what_each_has
                a_probe_of_a_grant_takes_nothing
                a_grant_is_given_back_as_it_was_taken
                places_are_granted_as_units_are
                a_grant_of_different_amounts_is_an_error;
            once: every_third_request_with_one_id_is_charged
                an_id_is_forgotten_after_its_life
                an_admission_is_remembered_and_a_denial_is_not
                an_id_spares_the_budgets_of_its_own_policy_alone
                an_id_is_remembered_for_its_own_policy_and_caller
                a_charge_that_is_given_back_is_replayed_by_none
                a_charge_that_was_replayed_is_not_given_back
                a_part_of_a_charge_comes_back_as_the_whole_does
                an_id_on_trial_counts_once;
            shares: a_class_leaves_what_is_kept_and_the_important_may_use_it
                whatever_is_credited_no_class_spends_what_is_kept_from_it;
            identities: odd_keys_have_budgets_of_their_own
                pitfall_key_parts_joined_without_escaping
                policies_whose_names_look_alike_do_not_mix
                every_quota_of_a_policy_has_its_own_budget
                another_limit_is_no_fresh_budget
                another_algorithm_is_another_budget;
        }
    };
    (@each $subject:expr; $($module:ident: $($name:ident)+;)+) => {
        $(
            mod $module {
                use super::*;
                $(
                    #[tokio::test]
                    async fn $name() {
                        let subject = $subject.await;
                        $crate::$module::$name(&subject).await;
                    }
                )+
            }
        )+
    };
    (@one $(#[$attribute:meta])* $test:ident $subject:expr; $($module:ident: $($name:ident)+;)+) => {
        #[tokio::test]
        $(#[$attribute])*
        async fn $test() {
            type Behaviour = std::pin::Pin<Box<dyn Future<Output = ()>>>;
            let behaviours: &[(&str, fn() -> Behaviour)] = &[$($(
                (concat!(stringify!($module), "::", stringify!($name)), || {
                    Box::pin(async {
                        let subject = $subject.await;
                        $crate::$module::$name(&subject).await;
                    })
                }),
            )+)+];
            let mut failed: Vec<&str> = Vec::new();
            for (name, behaviour) in behaviours {
                let tasks = tokio::task::LocalSet::new();
                let task = tokio::task::spawn_local;
                if tasks.run_until(async { task(behaviour()).await }).await.is_err() {
                    failed.push(name);
                }
            }
            assert!(failed.is_empty(), "these behaviours fail: {failed:?}");
        }
    };
}
