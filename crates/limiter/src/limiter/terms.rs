//! The settings of a limiter besides its policies.

use http::HeaderName;
use tokio::time::Instant;
use tollgate_core::Capabilities;

use crate::request::{self, CallerDeadline};
use crate::{ClientAddress, ConfigError, Policy, RequestView};

/// Most services have fewer requests under way.
const MAX_WAITING: usize = 10_000;
/// A caller that takes all that it may leaves nine tenths to others.
const MAX_WAITING_PER_KEY: usize = 1_000;

/// The settings of a limiter besides its policies. They never change.
#[derive(Debug)]
pub(super) struct Terms {
    pub(super) client: ClientAddress,
    pub(super) ignores_path_case: bool,
    pub(super) exempts_preflights: bool,
    pub(super) exempts_health_checks: bool,
    pub(super) may_be_empty: bool,
    /// The capabilities of the backend beyond quotas.
    pub(super) offered: Capabilities,
    /// True if an observer hears of each event.
    pub(super) has_observer: bool,
    /// The most requests that wait at one time.
    pub(super) max_waiting: usize,
    /// The most of these with one key under one policy.
    pub(super) max_waiting_per_key: usize,
    /// The header in which a caller says how long it waits for an answer, in milliseconds.
    pub(super) deadline_header: Option<HeaderName>,
    /// The reason why a policy cannot be one of this limiter's.
    pub(super) refuses: Option<fn(&Policy) -> Option<ConfigError>>,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            client: ClientAddress::default(),
            ignores_path_case: false,
            exempts_preflights: false,
            exempts_health_checks: false,
            may_be_empty: false,
            offered: Capabilities::none(),
            has_observer: false,
            max_waiting: MAX_WAITING,
            max_waiting_per_key: MAX_WAITING_PER_KEY,
            deadline_header: None,
            refuses: None,
        }
    }
}

impl Terms {
    /// The time at which the caller goes away, as far as it says so.
    pub(super) fn deadline(&self, request: &RequestView<'_>) -> Option<Instant> {
        let headers = request.headers();
        let stated = self.deadline_header.as_ref();
        let stated = stated.and_then(|name| request::millis(headers, name));
        let patience = [stated, request::grpc_timeout(headers)];
        let patience = patience.into_iter().flatten().min();
        let stated = patience.and_then(|patience| Instant::now().checked_add(patience));
        let earlier = request.extensions().get::<CallerDeadline>();
        let earlier = earlier.map(|deadline| deadline.0);
        [stated, earlier].into_iter().flatten().min()
    }

    /// Refuses a policy that needs more than the backend can, or than the transport can.
    pub(super) fn check_fit(&self, policy: &Policy) -> Result<(), ConfigError> {
        if let Some(capability) = self.offered.missing(policy.needs()).next() {
            return Err(ConfigError::Capability {
                policy: policy.name().into(),
                capability,
            });
        }
        if let Some(reason) = policy.misfit_of_lease() {
            return Err(ConfigError::Lease {
                policy: policy.name().into(),
                reason,
            });
        }
        if policy.once.is_some() {
            let reason = if policy.waits() {
                "its quotas let requests wait for their turn, and a retry would not"
            } else if policy.messages().is_some() {
                "it is for messages, which have no id"
            } else {
                return self.check_transport(policy);
            };
            return Err(ConfigError::Once {
                policy: policy.name().into(),
                reason,
            });
        }
        self.check_transport(policy)
    }

    fn check_transport(&self, policy: &Policy) -> Result<(), ConfigError> {
        self.refuses
            .and_then(|refuses| refuses(policy))
            .map_or(Ok(()), Err)
    }
}
