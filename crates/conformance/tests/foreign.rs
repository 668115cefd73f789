//! A backend outside of Tollgate conforms.

#[allow(unreachable_pub, reason = "every file of tests has it for itself")]
mod common;

use common::{Clocked, Naive};

tollgate_conformance::conformance!(async { Clocked::over(Naive::new) });
