//! What a gateway needs to ask Redis itself, in the decide form: its script, its charges and the beginnings of its names. The form
//! is described in `lua/README.md`.
//!
//! For the commands that make the configuration of a gateway. Not for programs: they have [`RedisBackend`](crate::RedisBackend).

#[cfg(test)]
mod vectors;

use tollgate_core::{Charge, Scope, Timestamp};

use crate::name::Names;
use crate::{script, wire};

/// The text of the script.
#[must_use]
pub const fn script() -> &'static str {
    script::DECIDE_FORM
}

/// The bytes of a charge. A calendar's bounds are those around this time. If the charge is a ban, it guards the charges before it
/// whose bits are set: the first bit is for the charge directly before it. The identity has no part in the bytes.
///
/// `None` if the form does not decide about such charges: held units, quotas under which requests wait, ids, and bans that strike
/// by themselves.
///
/// ```
/// use tollgate_core::{Charge, Key, Mode, Quota, Scope, Timestamp};
/// use tollgate_redis::gateway;
///
/// let quota = Quota::per_second(10);
/// let charge = Charge {
///     scope: Scope::of("login", 0, &quota),
///     quota: &quota,
///     key: &Key::global(),
///     cost: 1,
///     mode: Mode::Enforce,
/// };
/// assert_eq!(gateway::charge(&charge, 0, Timestamp::default()).map(|bytes| bytes.len()), Some(59));
/// ```
#[must_use]
pub fn charge(charge: &Charge<'_>, guards: u32, time: Timestamp) -> Option<Vec<u8>> {
    wire::decide_form_words(charge, guards, time).map(|words| words.to_vec())
}

/// The name of a state up to the identity, with this prefix of all names. In a cluster the tag follows the prefix.
///
/// ```
/// use tollgate_core::{Quota, Scope};
/// use tollgate_redis::gateway;
///
/// let scope = Scope::of("login", 0, &Quota::per_second(10));
/// assert_eq!(gateway::name_head("tollgate", scope), "tollgate:login:0/g:");
/// ```
#[must_use]
pub fn name_head(prefix: &str, scope: Scope) -> String {
    let head = Names::new(prefix.to_owned()).head(scope);
    // Names are ASCII.
    String::from_utf8(head).unwrap_or_default()
}
