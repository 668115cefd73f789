//! The result of a verb: its words, and its exit code.

/// The result of a verb.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) text: String,
    pub(crate) code: u8,
}

impl From<String> for Report {
    fn from(text: String) -> Self {
        Self { text, code: 0 }
    }
}
