//! The door at which requests, streams and checks of the unimportant classes are refused under pressure.

use super::event::Transport;
use super::shedder::Shedder;
use super::{Limiter, Rejection};
use crate::RequestView;
use crate::policy::Rank;

/// Something that wants to be let in.
#[derive(Clone, Copy)]
pub(super) enum Entrant<'a, 'r> {
    /// A request or a stream, whose head names its class.
    Request(&'a RequestView<'r>),
    /// Work that states its class. A probe is answered like work, and counts as nothing.
    Work { class: Rank, is_probe: bool },
}

impl Limiter {
    /// True if the limiter [refuses](crate::LimiterBuilder::shed) some class of requests at present, or would if that were not on
    /// trial.
    ///
    /// ```
    /// use tollgate::{Limiter, Quota};
    ///
    /// // For metrics, and for work that can be put off.
    /// let limiter = Limiter::from(Quota::per_second(10));
    /// assert!(!limiter.is_shedding());
    /// ```
    #[inline]
    #[must_use]
    pub fn is_shedding(&self) -> bool {
        let shedder = self.0.shedder.as_ref();
        shedder.is_some_and(|shedder| !shedder.is_open())
    }

    /// True if the class of a request is found in a part that a gRPC interceptor does not see.
    #[doc(hidden)]
    #[must_use]
    pub fn class_needs_whole_request(&self) -> bool {
        let shedder = self.0.shedder.as_ref();
        shedder.is_some_and(Shedder::needs_whole_request)
    }

    /// Refuses an entrant whose class is refused at present. All come through this door, before anything else is asked.
    pub(super) fn shed(&self, entrant: Entrant<'_, '_>) -> Option<Rejection> {
        let shedder = self.0.shedder.as_ref()?;
        let (class, is_probe) = match entrant {
            Entrant::Request(request) => (shedder.class_of(request), false),
            Entrant::Work { class, is_probe } => (class, is_probe),
        };
        if shedder.lets_in(class) {
            return None;
        }
        let is_shadow = shedder.is_shadow();
        let is_enforced = !is_probe && !is_shadow;
        let observers = &self.0.observers;
        let transport = match entrant {
            Entrant::Request(request) => observers.transport_of(request),
            Entrant::Work { .. } => Transport::Application,
        };
        observers.shed(shedder.name(class), is_enforced, transport);
        (!is_shadow).then_some(Rejection::Shed(shedder.retry_after()))
    }

    /// The class of this name, for checks.
    pub(super) fn class_named(&self, name: &str) -> Option<Rank> {
        self.0.shedder.as_ref()?.class_named(name)
    }

    /// The class of a check that names none.
    pub(super) fn least_class(&self) -> Rank {
        self.0.shedder.as_ref().map_or(0, Shedder::least)
    }
}
