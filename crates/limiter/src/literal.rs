//! The constructors that take literals, and panic where the literal is invalid.

use std::fmt::Display;

/// The value that a literal of the program makes. An invalid one fails where it is built, which is when the program starts, and
/// names the line of the caller.
///
/// # Panics
///
/// With the error, if there is one. `Result::unwrap_or_else` would name its closure as the place.
#[track_caller]
pub fn literal<T, E: Display>(made: Result<T, E>) -> T {
    match made {
        Ok(value) => value,
        #[expect(
            clippy::panic,
            reason = "literals fail while they are built, by design"
        )]
        Err(error) => panic!("{error}"),
    }
}
