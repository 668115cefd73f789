//! Stores of quotas that warm up.

use std::time::Duration;

use tollgate_core::Quota;

use super::Server;
use crate::wire::numbers::{Reader, Words, put};

/// A state of a budget that warms up, as it stands in Redis.
fn of_warm_up(cold_at: u64, ticks: u32, inner: &[u8]) -> Words {
    let mut value = Words::new();
    value.push(178);
    put(&mut value, cold_at);
    value.extend_from_slice(&ticks.to_le_bytes());
    value.extend_from_slice(inner);
    value
}

#[test]
fn a_store_is_forgotten_only_after_the_last_tick_that_it_lacks() {
    let mut server = Server::start();
    let quota = Quota::per_hour(10);
    assert!(server.admits(&quota, 1));
    let inner = server.state();
    for (ticks, is_kept) in [(0, false), (1, true)] {
        // given a store that is full at this microsecond, or a 2^20th of one later
        server.put_state(&of_warm_up(server.now, ticks, &inner));

        // when a quota without a warm-up takes a unit
        assert!(server.admits(&quota, 1));

        // then
        assert_eq!(server.state()[0] == 178, is_kept, "{ticks} ticks");
    }
}

#[test]
fn a_charge_comes_back_to_a_store_of_one_tick_and_not_to_an_empty_one() {
    let mut server = Server::start();
    let (warm_us, owed_us) = (3_000_000, 300_000);
    let quota = Quota::per_second(7).warm_up(Duration::from_micros(warm_us));
    // As many ticks as there are in three sevenths of a microsecond, which are owed beside the whole ones.
    let ticks = 3 * (1 << 20) / 7;
    for (in_store, comes_back) in [(0, false), (1, true)] {
        // given
        server.forget();
        assert!(server.admits(&quota, 1));
        let mut inner = server.state().split_off(13);
        let full_at = server.now + owed_us;
        inner[1..9].copy_from_slice(&(full_at as f64).to_le_bytes());
        inner[9..13].copy_from_slice(&3_u32.to_le_bytes());
        inner[13..15].copy_from_slice(&7_u16.to_le_bytes());
        server.put_state(&of_warm_up(full_at + warm_us, ticks - in_store, &inner));

        // when
        let now = server.now;
        server.refund(&quota, 1, now, full_at + 1);

        // then
        let cold_at = Reader(&server.state()[1..]).whole().unwrap();
        let unit_us = 142_858;
        let is_less = cold_at + unit_us < full_at + warm_us;
        assert_eq!(is_less, comes_back, "{in_store}: {cold_at}");
    }
}
