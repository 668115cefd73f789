//! Which policies a path belongs to.
//!
//! Patterns are axum's, and the router that finds them is the one that axum uses. All patterns of a limiter stand in it, each
//! with all the policies that cover what it covers, so that a request is matched once however many policies there are.
//!
//! # Variants of one path
//!
//! Whatever axum routes to a pattern, a policy with that pattern covers. Beyond that, forms of a path that somebody behind
//! might take for the same one are covered as well, so that none of them is a way around a limit:
//!
//! * `%61` is `a`, and `%c3%a9` is `%C3%A9`. An encoded slash is part of its segment, as it is for axum.
//! * Doubled slashes count as one, and one at the end as none.
//! * `/a` and `/A` are one only where that was asked for.
//! * `.` and `..` are segments like any other, as they are for axum.
//!
//! What is exempt is so in none of these forms, but as axum routes it: a form that somebody might take for an exempt path leads
//! to another handler.

mod matcher;
mod path;
mod pattern;
mod relation;

pub(crate) use self::matcher::{Matcher, Patterns};
pub(crate) use self::path::PathForms;
pub use self::pattern::Pattern;
pub(crate) use self::pattern::captured;
