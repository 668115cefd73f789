//! Messages and their bytes, before they pass.

/// The part of a stream that is to pass next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Amount {
    pub(super) messages: u64,
    pub(super) bytes: u64,
}
