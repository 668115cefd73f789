//! The state that requests to the admin share.

use std::hash::{BuildHasher, RandomState};
use std::time::Instant;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use tollgate::Key;

use super::refusals::Refusals;
use super::token::AdminToken;
use super::watch::DecisionWatch;

/// The state that requests to the admin share.
pub(super) struct Shared {
    token: AdminToken,
    pub(super) watch: DecisionWatch,
    pub(super) refusals: Refusals,
    pub(super) started_at: Instant,
    /// Tells one start of the server from another, whose counts begin anew. It makes the marks of callers in the log as well.
    seed: RandomState,
}

impl Shared {
    pub(super) fn new(token: AdminToken) -> Self {
        Self {
            token,
            watch: DecisionWatch::default(),
            refusals: Refusals::default(),
            started_at: Instant::now(),
            seed: RandomState::new(),
        }
    }

    /// A mark that stands for a caller in the log. It is not an identity, and cannot be turned back into one: equal marks of one
    /// run of the server are one caller.
    pub(super) fn mark(&self, key: &Key) -> String {
        format!("{:016x}", self.seed.hash_one(key.as_bytes()))
    }

    /// The name of this run.
    pub(super) fn run(&self) -> String {
        format!("{:016x}", self.seed.hash_one(()))
    }

    pub(super) fn is_authorized(&self, fields: &HeaderMap) -> bool {
        let mut stated = fields.get_all(AUTHORIZATION).iter();
        let (Some(stated), None) = (stated.next(), stated.next()) else {
            return false;
        };
        let stated = stated.as_bytes();
        let (scheme, token) = stated.split_at(stated.len().min("Bearer ".len()));
        scheme.eq_ignore_ascii_case(b"Bearer ") && self.token.is(token)
    }
}
