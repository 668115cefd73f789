//! Limits that stand in the contract of a gRPC service.
//!
//! ```proto
//! import "tollgate/v1/limit.proto";
//!
//! service Orders {
//!   rpc Place(Order) returns (Receipt) {
//!     option (tollgate.v1.limit) = { quota: "10/s" burst: 20 };
//!   }
//! }
//! ```
//!
//! A [`Contract`] is read from the file descriptor set when the server starts, and what is wrong in it fails then. The set must
//! hold its imports, and the options: `protoc --include_imports --descriptor_set_out` writes such a set, and so does
//! `file_descriptor_set_path` of `tonic-prost-build`, and `Compiler::encode_file_descriptor_set` of `protox`. One that went
//! through `prost_types::FileDescriptorSet` has lost its options.
//!
//! The compiler of `.proto` files finds `tollgate/v1/limit.proto` in [`INCLUDE`]: in a build script, with this crate among the
//! build dependencies. Or copy the file; it is what its package and number say it is wherever it lies.

use std::error::Error;
use std::fmt;

use prost_reflect::{
    DescriptorError, DescriptorPool, DynamicMessage, ExtensionDescriptor, MethodDescriptor, Value,
};

use crate::{ConfigError, Limiter, ParseQuotaError, Policy, Quota, QuotaError};

/// The folder in which compilers of `.proto` files find `tollgate/v1/limit.proto`, on the machine that builds.
pub const INCLUDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/proto");

/// What services there are, and which limits their contract states.
///
/// ```no_run
/// use tollgate::proto::Contract;
/// use tollgate::{Limiter, RateLimitLayer};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let descriptors = Vec::new();
/// let contract = Contract::read(&descriptors)?;
/// let limiter = Limiter::builder().policies(contract.policies()?).build()?;
/// contract.check(&limiter)?;
/// let layer = RateLimitLayer::new(limiter);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Contract {
    pool: DescriptorPool,
}

impl Contract {
    /// The contract that an encoded file descriptor set is.
    ///
    /// # Errors
    ///
    /// If it is none, or lacks its imports.
    pub fn read(descriptors: &[u8]) -> Result<Self, ProtoError> {
        let pool = DescriptorPool::decode(descriptors).map_err(ProtoError::Descriptors)?;
        Ok(Self { pool })
    }

    /// The policies that the options are: one for each method with a limit, and for each service with one. They spend the
    /// budget of the client's address; whoever wants another key gives it to them, `policy.key(..)`.
    ///
    /// # Errors
    ///
    /// If an option is wrong. The error names the method or the service.
    pub fn policies(&self) -> Result<Vec<Policy>, ProtoError> {
        let extension = |name| self.pool.get_extension_by_name(name);
        let of_services = extension("tollgate.v1.service_limit");
        let of_methods = extension("tollgate.v1.limit");
        let mut policies = Vec::new();
        for service in self.pool.services() {
            let service_name = service.full_name();
            let all = format!("{service_name}/*");
            policies.extend(policy(
                &of_services,
                &service.options(),
                service_name,
                &all,
            )?);
            for method in service.methods() {
                let name = called(&method);
                policies.extend(policy(&of_methods, &method.options(), &name, &name)?);
            }
        }
        Ok(policies)
    }

    /// Finds policies that cover no method, because they name one that there is none of.
    ///
    /// Those count that name methods with [`Policy::grpc`], in each call of it.
    ///
    /// # Errors
    ///
    /// If there is such a policy.
    pub fn check(&self, limiter: &Limiter) -> Result<(), ProtoError> {
        let services = self.pool.services();
        let paths: Vec<_> = services
            .flat_map(|service| {
                service
                    .methods()
                    .map(|one| called(&one))
                    .collect::<Vec<_>>()
            })
            .map(|method| format!("/{method}"))
            .collect();
        for policy in limiter.policies() {
            for pattern in policy.grpc_patterns() {
                if !paths.iter().any(|path| pattern.covers(path)) {
                    return Err(ProtoError::NoSuchMethod {
                        policy: policy.name().into(),
                        route: pattern.as_str().into(),
                    });
                }
            }
        }
        Ok(())
    }
}

/// The method as a call names it: `shop.v1.Orders/Place`.
fn called(method: &MethodDescriptor) -> String {
    format!("{}/{}", method.parent_service().full_name(), method.name())
}

/// The policy that the option is, if there is one.
fn policy(
    extension: &Option<ExtensionDescriptor>,
    options: &DynamicMessage,
    place: &str,
    methods: &str,
) -> Result<Option<Policy>, ProtoError> {
    let Some(extension) = extension else {
        return Ok(None);
    };
    if !options.has_extension(extension) {
        return Ok(None);
    }
    let limit = options.get_extension(extension);
    let policy = limit.as_message().ok_or(Wrong::Shape).and_then(|limit| {
        let limit = Limit::of(limit)?;
        let name = limit.name.unwrap_or_else(|| place.to_ascii_lowercase());
        let policy = Policy::try_new(&name, limit.quota)?.try_grpc(methods)?;
        Ok(policy.cost(limit.cost))
    });
    policy.map(Some).map_err(|wrong| ProtoError::Option {
        place: place.into(),
        wrong,
    })
}

/// What the option says.
struct Limit {
    quota: Quota,
    cost: u64,
    name: Option<String>,
}

impl Limit {
    fn of(option: &DynamicMessage) -> Result<Self, Wrong> {
        // Written for a newer version of this crate, which would understand it.
        if option.unknown_fields().next().is_some() {
            return Err(Wrong::Unknown);
        }
        let text = |name: &str| match option.get_field_by_name(name).as_deref() {
            Some(Value::String(text)) => Ok(text.clone()),
            _ => Err(Wrong::Shape),
        };
        let number = |name: &str| match option.get_field_by_name(name).as_deref() {
            Some(Value::U64(number)) => Ok(*number),
            _ => Err(Wrong::Shape),
        };
        let quota: Quota = text("quota")?.parse()?;
        let quota = match number("burst")? {
            0 => quota,
            burst => quota.try_burst(burst)?,
        };
        let cost = if option.has_field_by_name("cost") {
            number("cost")?
        } else {
            1
        };
        let name = Some(text("name")?).filter(|name| !name.is_empty());
        Ok(Self { quota, cost, name })
    }
}

/// Why limits cannot be read from a contract, or do not fit it.
#[derive(Debug)]
#[non_exhaustive]
pub enum ProtoError {
    /// This is no file descriptor set, or it lacks its imports.
    Descriptors(DescriptorError),
    /// The option of a method or service is wrong.
    Option {
        /// The method or service.
        place: String,
        /// What is wrong with it.
        wrong: Wrong,
    },
    /// A policy covers none of the methods that there are.
    NoSuchMethod {
        /// The policy's name.
        policy: String,
        /// The path that no method has.
        route: String,
    },
}

/// What is wrong with an option.
#[derive(Debug)]
#[non_exhaustive]
pub enum Wrong {
    /// The quota cannot be read.
    Quota(ParseQuotaError),
    /// There is no quota of that burst.
    Burst(QuotaError),
    /// There is no such policy.
    Policy(ConfigError),
    /// It has a field that this version does not know.
    Unknown,
    /// The extension is not the one of `tollgate/v1/limit.proto`.
    Shape,
}

impl From<ParseQuotaError> for Wrong {
    fn from(error: ParseQuotaError) -> Self {
        Self::Quota(error)
    }
}

impl From<QuotaError> for Wrong {
    fn from(error: QuotaError) -> Self {
        Self::Burst(error)
    }
}

impl From<ConfigError> for Wrong {
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

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quota(error) => error.fmt(f),
            Self::Burst(error) => error.fmt(f),
            Self::Policy(error) => error.fmt(f),
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
