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
//! The messages of streams have an option of their own, beside that of the calls, which may stand there for each direction:
//!
//! ```proto
//! rpc Talk(stream Line) returns (stream Line) {
//!   option (tollgate.v1.limit) = { quota: "30/min" };
//!   option (tollgate.v1.message_limit) = { quota: "20/s" of: RECEIVED };
//!   option (tollgate.v1.message_limit) = { quota: "9000000/hour" of: SENT by_bytes: true end_stream: true name: "volume" };
//! }
//! ```
//!
//! A `MessageLimitLayer` enforces them (feature `tonic`).
//!
//! A [`Contract`] is read from the file descriptor set when the server starts, and errors in it show then. The set must hold its
//! imports and the options: `protoc --include_imports --descriptor_set_out` writes such a set, and so does
//! `file_descriptor_set_path` of `tonic-prost-build`, and `Compiler::encode_file_descriptor_set` of `protox`. One that went
//! through `prost_types::FileDescriptorSet` has lost its options.
//!
//! The compiler of `.proto` files finds `tollgate/v1/limit.proto` in [`INCLUDE`]: in a build script, with this crate among the
//! build dependencies. Or copy the file: its package and number identify it in any place.

mod error;
mod option;

use prost_reflect::DescriptorPool;
use tollgate_limiter::{Limiter, Policy};

pub use self::error::{OptionFault, ProtoError};
use self::option::{Options, called};

/// The folder in which compilers of `.proto` files find `tollgate/v1/limit.proto`, on the machine that builds.
pub const INCLUDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/proto");

/// The contract of services: their methods and the limits that it states.
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
    /// Reads an encoded file descriptor set.
    ///
    /// # Errors
    ///
    /// If the bytes are not such a set, or lack its imports.
    pub fn read(descriptors: &[u8]) -> Result<Self, ProtoError> {
        let pool = DescriptorPool::decode(descriptors).map_err(ProtoError::Descriptors)?;
        Ok(Self { pool })
    }

    /// Makes the policies: one for each option at a method or a service. Their key is the client's address; `policy.key(..)` sets
    /// another.
    ///
    /// # Errors
    ///
    /// If an option is wrong. The error names the method or the service.
    pub fn policies(&self) -> Result<Vec<Policy>, ProtoError> {
        let options = Options::of(&self.pool);
        let mut policies = Vec::new();
        for service in self.pool.services() {
            policies.extend(options.of_service(service.full_name(), &service.options())?);
            for method in service.methods() {
                policies.extend(options.of_method(&method)?);
            }
        }
        Ok(policies)
    }

    /// Finds policies that cover no method, because they name one that does not exist.
    ///
    /// Only names from [`Policy::grpc`] count.
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
