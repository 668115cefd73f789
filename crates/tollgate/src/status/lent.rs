//! What the handles on a request share, and what becomes of it when the last of them is gone.

use std::cell::Cell;
use std::fmt;
use std::ops::Deref;
use std::ptr;
use std::sync::{Arc, OnceLock, PoisonError, Weak};

use crate::layer::Config;
use crate::ledger::Ledger;
use crate::sync::{Mutex, MutexGuard};

/// One of the handles on what they share. When the last of them is dropped, wherever that is, what they shared is kept to be
/// used again.
#[derive(Clone)]
pub(super) struct Lent(
    /// There, unless it is [`NONE`](Lent::NONE).
    Option<Arc<Shared>>,
);

/// What the handles on one request share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    ledger: Mutex<Ledger>,
    /// Of the layer that made it; nothing, if none did.
    config: Option<Arc<Config>>,
    /// The handle that the request carries, if a layer further out has put it there. It shows what stands in this one.
    outer: OnceLock<Weak<Self>>,
}

/// What nobody has shared.
static NOTHING: Shared = Shared {
    ledger: Mutex::new(Ledger::EMPTY),
    config: None,
    outer: OnceLock::new(),
};

impl Shared {
    pub(super) fn new(config: &Arc<Config>, ledger: Ledger) -> Self {
        Self {
            ledger: Mutex::new(ledger),
            config: Some(Arc::clone(config)),
            outer: OnceLock::new(),
        }
    }

    /// The ledger to be written anew, for a layer that was told this.
    #[inline(always)]
    pub(super) fn begin(&mut self, config: &Arc<Config>) -> &mut Ledger {
        // Nearly always the same: threads would fight over its count.
        match &self.config {
            Some(last) if Arc::ptr_eq(last, config) => {}
            _ => self.config = Some(Arc::clone(config)),
        }
        self.ledger
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// What took part, and what the layer was told.
    #[inline(always)]
    pub(super) fn parts(&mut self) -> (&Ledger, Option<&Config>) {
        let ledger = self.ledger.get_mut();
        let ledger = ledger.unwrap_or_else(PoisonError::into_inner);
        (ledger, self.config.as_deref())
    }

    pub(super) fn config(&self) -> Option<&Arc<Config>> {
        self.config.as_ref()
    }

    pub(super) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on `outer` shows what stands here.
    pub(super) fn show_in(&self, outer: &Lent) {
        if let Some(outer) = &outer.0 {
            self.outer.get_or_init(|| Arc::downgrade(outer));
        }
    }

    /// The handle that shows what stands here.
    pub(super) fn outer(&self) -> Option<Lent> {
        self.outer.get()?.upgrade().map(Some).map(Lent)
    }
}

impl Lent {
    pub(super) const NONE: Self = Self(None);

    #[inline]
    pub(super) fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// One that was used before, if this thread has one.
    #[inline(always)]
    pub(super) fn spare() -> Self {
        Self(SPARE.try_with(Spare::take).ok().flatten())
    }

    /// What is shared, if it is shared with nobody.
    #[inline(always)]
    pub(super) fn alone(&mut self) -> Option<&mut Shared> {
        Arc::get_mut(self.0.as_mut()?)
    }

    /// Whether both are handles on the same.
    pub(super) fn is(&self, other: &Self) -> bool {
        ptr::eq(&raw const **self, &raw const **other)
    }
}

impl From<Shared> for Lent {
    fn from(shared: Shared) -> Self {
        Self(Some(Arc::new(shared)))
    }
}

impl Default for Lent {
    fn default() -> Self {
        Shared::default().into()
    }
}

impl Deref for Lent {
    type Target = Shared;

    #[inline]
    fn deref(&self) -> &Shared {
        self.0.as_deref().unwrap_or(&NOTHING)
    }
}

impl Drop for Lent {
    #[inline]
    fn drop(&mut self) {
        // A layer further in may look for it even then. Whether one does is asked before it is used again.
        let last = self.0.take_if(|shared| Arc::strong_count(shared) == 1);
        if let Some(last) = last {
            keep(last);
        }
    }
}

impl fmt::Debug for Lent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

thread_local! {
    /// What nobody shares any more, to be used again: an allocation less for each request.
    static SPARE: Spare = const { Spare::none() };
}

/// So much a thread keeps at most: what is in flight on a busy one, in some thirty kilobytes.
const MOST_SPARE: usize = 128;

/// A pile of a fixed height, so that nothing grows when a handle is dropped.
struct Spare {
    count: Cell<usize>,
    kept: [Cell<Option<Arc<Shared>>>; MOST_SPARE],
}

impl Spare {
    const fn none() -> Self {
        Self {
            count: Cell::new(0),
            kept: [const { Cell::new(None) }; MOST_SPARE],
        }
    }

    #[inline]
    fn keep(&self, shared: Arc<Shared>) {
        let count = self.count.get();
        if let Some(place) = self.kept.get(count) {
            place.set(Some(shared));
            self.count.set(count + 1);
        }
    }

    #[inline(always)]
    fn take(&self) -> Option<Arc<Shared>> {
        let last = self.count.get().checked_sub(1)?;
        self.count.set(last);
        self.kept.get(last)?.take()
    }
}

// Not a part of every place where a handle is dropped.
#[inline(never)]
fn keep(shared: Arc<Shared>) {
    // It was shared by the handles of a layer within another one, and would be again.
    if shared.outer.get().is_some() {
        return;
    }
    // A thread that ends keeps nothing.
    let _ = SPARE.try_with(|spare| spare.keep(shared));
}
