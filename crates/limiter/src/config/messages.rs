//! Which messages of a stream a policy charges, as plain data.

use serde::{Deserialize, Serialize};

use super::is_default;
use crate::Messages;

/// [`Messages`] as plain data: `{ of = "received" }`, `{ of = "both", by_bytes = true, end_stream = true }`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MessagesConfig {
    /// Whose messages.
    pub of: DirectionConfig,
    /// Whether they are charged by their bytes: see [`Messages::by_bytes`].
    #[serde(default, skip_serializing_if = "is_default")]
    pub by_bytes: bool,
    /// Whether the first that is too many ends the stream: see [`Messages::end_stream`].
    #[serde(default, skip_serializing_if = "is_default")]
    pub end_stream: bool,
}

/// Whose messages are charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum DirectionConfig {
    /// Those that the caller sends.
    Received,
    /// Those that the service sends.
    Sent,
    /// Those of both, out of one budget.
    Both,
}

impl From<MessagesConfig> for Messages {
    fn from(config: MessagesConfig) -> Self {
        let mut messages = match config.of {
            DirectionConfig::Received => Self::received(),
            DirectionConfig::Sent => Self::sent(),
            DirectionConfig::Both => Self::both(),
        };
        if config.by_bytes {
            messages = messages.by_bytes();
        }
        if config.end_stream {
            messages = messages.end_stream();
        }
        messages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_what_would_be_said_in_code() {
        let said =
            |json: &str| Messages::from(serde_json::from_str::<MessagesConfig>(json).unwrap());
        assert_eq!(said(r#"{ "of": "received" }"#), Messages::received());
        assert_eq!(
            said(r#"{ "of": "sent", "by_bytes": true }"#),
            Messages::sent().by_bytes()
        );
        let both = r#"{ "of": "both", "by_bytes": true, "end_stream": true }"#;
        assert_eq!(said(both), Messages::both().by_bytes().end_stream());
    }
}
