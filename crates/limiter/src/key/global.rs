//! One budget for all requests.

use super::{KeyExtractor, KeyMissing, KeyShape};
use crate::{Key, RequestView};

/// One budget for all requests together, to protect what stands behind rather than to be fair.
///
/// ```
/// use tollgate::key::Global;
/// use tollgate::{Policy, Quota};
///
/// // All callers together: what the database behind can take.
/// let everything = Policy::new("everything", Quota::per_second(5_000)).key(Global);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Global;

impl KeyExtractor for Global {
    fn extract(&self, _request: &RequestView<'_>) -> Result<Key, KeyMissing> {
        Ok(Key::global())
    }

    fn shape(&self) -> KeyShape {
        KeyShape::Global
    }
}
