//! Errors in a contract.

use std::error::Error;
use std::fmt;

use prost_reflect::DescriptorError;
use tollgate_core::{ParseQuotaError, QuotaError};
use tollgate_limiter::ConfigError;

/// The reason why limits cannot be read from a contract, or do not fit it.
///
/// ```
/// use tollgate::proto::{Contract, ProtoError};
///
/// let error = Contract::read(b"no descriptors").unwrap_err();
/// assert!(matches!(error, ProtoError::Descriptors(_)));
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum ProtoError {
    /// The bytes are not a file descriptor set, or it lacks its imports.
    Descriptors(DescriptorError),
    /// The option of a method or service is wrong.
    Option {
        /// The method or service.
        place: String,
        /// The fault.
        wrong: OptionFault,
    },
    /// A policy covers no existing method.
    NoSuchMethod {
        /// The policy's name.
        policy: String,
        /// The path that no method has.
        route: String,
    },
}

/// The fault of an option.
///
/// ```
/// use tollgate::proto::{OptionFault, ProtoError};
///
/// /// The text that an operator has to look for in the `.proto`.
/// fn found(error: &ProtoError) -> Option<&str> {
///     match error {
///         ProtoError::Option { wrong: OptionFault::BurstOfSeveral { quota }, .. } => Some(quota),
///         _ => None,
///     }
/// }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum OptionFault {
    /// The quota cannot have that burst.
    Burst(QuotaError),
    /// A burst stands beside a text that is not one quota.
    BurstOfSeveral {
        /// The text.
        quota: String,
    },
    /// The ban cannot be read.
    Ban {
        /// The text.
        ban: String,
        /// The reason.
        error: ParseQuotaError,
    },
    /// The ids of calls stand in metadata with an invalid name.
    OnceBy {
        /// The name.
        metadata: String,
    },
    /// A policy of that name and those quotas cannot be built.
    Policy(ConfigError),
    /// The option does not state the direction of the messages.
    Direction,
    /// The option has a field that this version does not know.
    Unknown,
    /// The extension is not the one of `tollgate/v1/limit.proto`.
    Shape,
}

impl From<QuotaError> for OptionFault {
    fn from(error: QuotaError) -> Self {
        Self::Burst(error)
    }
}

impl From<ConfigError> for OptionFault {
    fn from(error: ConfigError) -> Self {
        Self::Policy(error)
    }
}

impl fmt::Display for ProtoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Descriptors(_) => f.write_str("the file descriptor set cannot be read"),
            Self::Option { place, wrong } => write!(f, "{place}: the limit is wrong: {wrong}"),
            Self::NoSuchMethod { policy, route } => {
                write!(f, "policy {policy:?}: there is no method {route:?}")
            }
        }
    }
}

impl fmt::Display for OptionFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Burst(error) => error.fmt(f),
            Self::BurstOfSeveral { quota } => write!(
                f,
                "`burst` belongs to a single quota, but `quota` is {quota:?}; state the burst of each quota there, as in \"10/s burst \
                 50; 1000/day\""
            ),
            Self::Ban { ban, error } => write!(f, "ban {ban:?}: {error}"),
            Self::OnceBy { metadata } => {
                write!(f, "once_by: {metadata:?} is not the name of metadata")
            }
            Self::Policy(error) => error.fmt(f),
            Self::Direction => f.write_str(
                "it does not state the direction of the messages: `of` is RECEIVED, SENT or BOTH",
            ),
            Self::Unknown => f.write_str("it has a field that this version does not know"),
            Self::Shape => f.write_str("it is not of the message in tollgate/v1/limit.proto"),
        }
    }
}

impl Error for ProtoError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Descriptors(error) => Some(error),
            Self::Option { .. } | Self::NoSuchMethod { .. } => None,
        }
    }
}
