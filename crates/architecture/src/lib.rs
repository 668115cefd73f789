//! The architecture of Tollgate as its sources show it: the imports between modules, and the circles among them.
//!
//! A [`House`] is one crate. Its rooms are modules: the files and folders below `src`, and those inside a folder. A parent is a
//! room beside its children, whether others can name them or not. Imports are followed through re-exports to the module that
//! defines the name, and each module that a path passes counts as imported, except for those around the importer. A parent does
//! not need what it only hands on from its children. Code under `#[cfg(test)]` is not read.
//!
//! [`House::violations`] names each circle with the lines that close it. It also names each import that runs upward, that of a
//! name that the crate's root defines, and each glob import of a module of the crate, whose names could not be followed.
//!
//! Names that macros make, and texts inside attributes, are not seen.

mod circle;
mod source;
mod syntax;

pub use source::{House, Sources};
