//! The compiler's words about uses of Tollgate, right and wrong.
//!
//! Where it is rustc that speaks, its words change with its version: CONTRIBUTING.md says how to take them over.

use trybuild::TestCases;

/// One test for all: trybuild compiles Tollgate anew, and in another way where all cases are wrong.
#[rustversion::attr(not(stable(1.95)), ignore = "the words are those of Rust 1.95")]
#[test]
fn right_uses_compile_and_wrong_ones_say_at_the_token_what_is_wrong() {
    let cases = TestCases::new();
    cases.pass("tests/annotation/pass/*.rs");
    cases.compile_fail("tests/annotation/fail/*.rs");
    cases.compile_fail("tests/interceptor/*.rs");
}

/// Right uses compile whichever words the compiler has.
#[rustversion::not(stable(1.95))]
#[test]
fn right_uses_compile() {
    TestCases::new().pass("tests/annotation/pass/*.rs");
}
