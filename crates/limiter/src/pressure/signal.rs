//! A level, and the listeners that are told when it changes.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::Level;

/// A level, and the listeners that are told of each change. So a request reads what follows from the level, and computes nothing.
#[derive(Default)]
pub(crate) struct Signal {
    level: AtomicU32,
    /// The lock is held while they are told, so that all hear of the levels in one order.
    followers: Mutex<Vec<Weak<dyn Follower>>>,
}

/// A part of a limiter that depends on a level.
pub(crate) trait Follower: Send + Sync {
    /// The level is this one now. It is told in the order in which levels were set.
    fn hear(&self, level: Level);
}

impl Signal {
    pub(super) fn level(&self) -> Level {
        Level::from_millionths(self.level.load(Ordering::Relaxed))
    }

    pub(super) fn set(&self, level: Level) {
        self.set_by(|| level);
    }

    fn set_by(&self, level: impl FnOnce() -> Level) {
        let followers = self.lock();
        let level = level();
        self.level.store(level.millionths(), Ordering::Relaxed);
        for follower in followers.iter().filter_map(Weak::upgrade) {
            follower.hear(level);
        }
    }

    pub(super) fn tell(&self, follower: &Arc<impl Follower + 'static>) {
        let follower: Weak<dyn Follower> =
            Arc::downgrade(&(Arc::clone(follower) as Arc<dyn Follower>));
        let mut followers = self.lock();
        followers.retain(|one| one.strong_count() > 0);
        if let Some(follower) = follower.upgrade() {
            follower.hear(self.level());
        }
        followers.push(follower);
    }

    #[cfg(test)]
    pub(super) fn followers(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<dyn Follower>>> {
        self.followers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// The highest of several signals. It keeps what measures them.
pub(super) struct HighestSignal<K> {
    parts: Vec<(Arc<Signal>, K)>,
    signal: Arc<Signal>,
}

impl<K: Send + Sync + 'static> HighestSignal<K> {
    pub(super) fn of(parts: impl IntoIterator<Item = (Arc<Signal>, K)>) -> Arc<Self> {
        let highest = Arc::new(Self {
            parts: parts.into_iter().collect(),
            signal: Arc::default(),
        });
        for (part, _) in &highest.parts {
            part.tell(&highest);
        }
        highest
    }

    pub(super) fn signal(&self) -> &Arc<Signal> {
        &self.signal
    }
}

impl<K: Send + Sync> Follower for HighestSignal<K> {
    /// Two parts may tell of their levels at once. Each has its own stored before, and the second to come here reads both.
    fn hear(&self, _: Level) {
        let levels = || self.parts.iter().map(|(part, _)| part.level());
        self.signal.set_by(|| levels().max().unwrap_or_default());
    }
}
