//! A backend outside of Tollgate conforms.

use crate::common::{Clocked, Naive};

tollgate_conformance::conformance!(async { Clocked::over(Naive::new) });
