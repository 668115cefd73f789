//! Reconnecting, and keeping connections that nobody uses.

use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::Dispatch;
use crate::connection::{Ended, KEEP_ALIVE, jittered};
use crate::sync::{Instant, sleep, timeout_at};

/// The first and the longest pause between attempts. The first is short, since most servers come back at once; the longest is
/// the time for which a recovered server may wait for its callers.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Keeps a connection until it ends or is given up.
pub(super) async fn keep(dispatch: Weak<Dispatch>, wire: usize, number: u64, ended: Ended) {
    let mut ended = pin!(ended.come());
    loop {
        let idles_until = Instant::now() + KEEP_ALIVE;
        let has_ended = timeout_at(idles_until, ended.as_mut()).await.is_ok();
        let Some(dispatch) = dispatch.upgrade() else {
            return;
        };
        if has_ended {
            return dispatch.ended(wire, number);
        }
        if !dispatch.keep_alive(wire, number) {
            return;
        }
    }
}

/// Makes a connection in the background, for as long as it takes and the backend exists.
pub(crate) fn spawn(dispatch: &Arc<Dispatch>, wire: usize) {
    dispatch.spawn(reconnect(Arc::downgrade(dispatch), wire));
}

/// Makes one likewise after this many that had a short life: with a pause from the second on, which grows up to a time that leaves most of
/// a deadline to the callers that wait for it.
pub(super) fn spawn_after(dispatch: &Arc<Dispatch>, wire: usize, short_lives: u32) {
    const LONGEST: u32 = 4;

    let Some(longer @ 1..) = short_lives.checked_sub(1) else {
        return spawn(dispatch, wire);
    };
    let pause = FIRST_PAUSE * longer.min(LONGEST);
    let reconnecting = reconnect(Arc::downgrade(dispatch), wire);
    dispatch.spawn(async move {
        sleep(jittered(pause)).await;
        reconnecting.await;
    });
}

async fn reconnect(dispatch: Weak<Dispatch>, wire: usize) {
    let mut pause = FIRST_PAUSE;
    loop {
        let Some(link) = dispatch.upgrade().map(|dispatch| dispatch.link.clone()) else {
            return;
        };
        let opened = link.open().await;
        let Some(dispatch) = dispatch.upgrade() else {
            return;
        };
        match opened {
            Ok(opened) => return dispatch.connected(wire, opened),
            Err(error) => dispatch.not_connected(&error),
        }
        if let Some(peers) = dispatch.peers() {
            peers.connection_failed();
        }
        let hurry = Arc::clone(&dispatch.hurry);
        drop(dispatch);
        let is_late = timeout_at(Instant::now() + jittered(pause), hurry.notified());
        let _hurried = is_late.await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
