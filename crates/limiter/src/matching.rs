//! Finds the policies that cover a path.
//!
//! Patterns and the router are axum's. The router has all patterns of a limiter, each with all policies that cover its paths, so
//! that a request is matched once for any number of policies.
//!
//! # Variants of one path
//!
//! A policy with a pattern covers every path that axum routes to it. It also covers forms of the path that a service behind might
//! take for the same path, so that none of them is a way around a limit:
//!
//! * `%61` is `a`, and `%c3%a9` is `%C3%A9`. An encoded slash is part of its segment, as it is for axum.
//! * Doubled slashes count as one, and one at the end as none.
//! * `/a` and `/A` are one only where that was asked for.
//! * `.` and `..` are segments like any other, as they are for axum.
//!
//! An exemption holds for the form that axum routes, and for none of these: another form leads to another handler.

mod matcher;
mod path;
mod pattern;
mod portable;
mod relation;

pub(crate) use self::matcher::{Matcher, Patterns};
pub(crate) use self::path::PathForms;
pub use self::pattern::Pattern;
pub(crate) use self::pattern::captured;
pub use self::portable::{PortableParam, PortableSegment};
