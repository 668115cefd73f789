//! Reconnecting.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::Dispatch;
use crate::connection::jittered;
use crate::sync::{Instant, timeout_at};

/// The first and the longest pause between attempts. The first is short, since most servers come back at once; the longest is
/// the time for which a recovered server may wait for its callers.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Makes a connection in the background, for as long as it takes and the backend exists.
pub(crate) fn spawn(dispatch: &Arc<Dispatch>, wire: usize) {
    dispatch.spawn(reconnect(Arc::downgrade(dispatch), wire));
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
