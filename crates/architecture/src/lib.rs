//! The architecture of Tollgate as its sources say it: which module imports which, and which of them go in a circle.
//!
//! A [`House`] is one crate. Its rooms are modules: the files and folders below `src`, and those inside a folder. A module is one
//! room with its private children; a child that others can name is a room beside its parent. Imports are followed through
//! re-exports to the module that defines the name, and each module that a path passes counts as imported. Code under
//! `#[cfg(test)]` is not read.
//!
//! [`House::violations`] names each circle with the lines that close it, and each import of a name that the crate's root defines,
//! which runs upward. [`order`] reads which crate depends on which.
//!
//! Names that macros make, and texts inside of attributes, are not seen.

mod circle;
pub mod order;
mod source;
mod syntax;

pub use circle::Pair;
pub use source::{House, Sources};
