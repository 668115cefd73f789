//! What the controls say about the limiters: how much of it anybody would have to spend, and what the bounds leave to one.

use super::super::figures::figure;
use super::super::floors::{HTTP_BY_BARE, HTTP_BY_PEER};
use super::super::report::{Report, Served};
use crate::serve::Who;

pub(super) fn said(report: &Report) -> String {
    let of = |who: Who| report.http.iter().find(|served| served.who == who.about());
    let mut text = String::new();
    if let (Some(bare), Some(anybody), Some(ours)) = (
        of(Who::Bare),
        of(Who::SameHeadersAndEntry),
        of(Who::TollgateMemory),
    ) {
        text.push_str(&in_memory(bare, anybody, ours));
    }
    if let (Some(bare), Some(anybody), Some(trip), Some(ours), Some(peer)) = (
        of(Who::Bare),
        of(Who::SameHeadersAndEntry),
        of(Who::RoundTrip),
        of(Who::TollgateRedis),
        of(Who::TowerRateLimitRedis),
    ) {
        let answer_us = anybody.processor_us - bare.processor_us;
        let cores = report.setting.cores;
        text.push_str(&on_redis([trip, ours, peer], answer_us, cores));
    }
    text
}

fn in_memory(bare: &Served, anybody: &Served, ours: &Served) -> String {
    let above_us = |served: &Served| served.processor_us - bare.processor_us;
    format!(
        "\nIn memory the server takes {} µs more for each request than without a limiter. Whoever writes the same headers and puts \
         an entry into the extensions takes {} of these and decides nothing; with what that leaves of the processor, the pace \
         would be {} of bare's. The bound is {}.\n",
        figure(above_us(ours)),
        figure(above_us(anybody)),
        figure(bare.processor_us / anybody.processor_us),
        figure(HTTP_BY_BARE),
    )
}

fn on_redis([trip, ours, peer]: [&Served; 3], answer_us: f64, cores: usize) -> String {
    let least_us = 1e6 / (HTTP_BY_PEER * peer.per_second);
    let mut text = format!(
        "\nOn Redis the bound of {} times tower-rate-limit-redis's pace leaves the server {} µs for each request. Whoever has it \
         wait for a `PING` and writes the same headers takes {} of these and decides nothing; Tollgate takes {}.",
        figure(HTTP_BY_PEER),
        figure(least_us),
        figure(trip.processor_us + answer_us),
        figure(ours.processor_us),
    );
    // With a third, redis-server has one of its own.
    if cores <= 2 {
        text.push_str(&format!(
            " wrk and redis-server share as much of theirs, of which wrk takes {}; redis-server takes {} for one of Tollgate's \
             decisions and {} for its share of a `PING`.",
            figure(ours.wrk_us),
            figure(ours.redis_us),
            figure(trip.redis_us),
        ));
    }
    text.push_str(&format!(
        " With nothing but the `PING`, which is without the headers, as tower-rate-limit-redis is, the pace is {} times that one's.\n",
        figure(trip.rate_by_bare / peer.rate_by_bare),
    ));
    text
}
