//! The messages of a stream that a policy charges, as plain data.

use serde::{Deserialize, Serialize};

use super::is_default;
use crate::Messages;

/// [`Messages`] as plain data: `{ of = "received" }`, `{ of = "both", by_bytes = true, end_stream = true }`.
///
/// ```
/// use tollgate::config::{DirectionConfig, MessagesConfig, PolicyConfig};
///
/// let policy: PolicyConfig = toml::from_str(r#"
///     name = "uploads"
///     quotas = "1000000/min"
///     per_message = { of = "received", by_bytes = true, end_stream = true }
/// "#)?;
/// let messages: Option<MessagesConfig> = policy.per_message;
/// assert_eq!(messages.map(|messages| messages.of), Some(DirectionConfig::Received));
/// # Ok::<(), toml::de::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MessagesConfig {
    /// The direction of the messages.
    pub of: DirectionConfig,
    /// True if messages cost their bytes: see [`Messages::by_bytes`].
    #[serde(default, skip_serializing_if = "is_default")]
    pub by_bytes: bool,
    /// True if the first message over the quota ends the stream: see [`Messages::end_stream`].
    #[serde(default, skip_serializing_if = "is_default")]
    pub end_stream: bool,
}

/// The direction of the messages that are charged.
///
/// ```
/// use tollgate::config::{DirectionConfig, MessagesConfig};
///
/// let messages: MessagesConfig = toml::from_str("of = 'both'")?;
/// assert_eq!(messages.of, DirectionConfig::Both);
/// # Ok::<(), toml::de::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum DirectionConfig {
    /// Messages that the caller sends.
    Received,
    /// Messages that the service sends.
    Sent,
    /// Messages of both directions, out of one budget.
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
