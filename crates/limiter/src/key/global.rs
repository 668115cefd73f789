//! One budget for everybody.

use super::{KeyExtractor, KeyMissing, KeyShape};
use crate::{Key, RequestView};

/// One budget for all requests together, to protect what stands behind rather than to be fair.
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
